//! Sequence numbers, which wrap (RFC 9293, 3.4).

/// A sequence number. Two of them can be compared while they are less than 2^31 apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// The number `bytes` later.
    #[must_use]
    pub const fn plus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The number `bytes` earlier.
    #[must_use]
    pub const fn minus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }

    /// Bytes from `earlier` to here.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether the number lies before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether the number lies after `other`.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// The later one.
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier one.
    #[must_use]
    pub const fn earlier(self, other: Self) -> Self {
        if self.is_before(other) { self } else { other }
    }
}
