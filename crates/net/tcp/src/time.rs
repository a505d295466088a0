//! Time as passed in by the caller.

/// Microseconds since an origin that the caller chooses; never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub u64);

impl Micros {
    /// A time that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The duration of `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// The duration of `secs` seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The time later by `micros`; [`Micros::NEVER`] stays.
    #[must_use]
    pub const fn after(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Time since `earlier`; 0 if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
