//! Time as the caller tells it.

/// Microseconds since a moment that the caller chooses; never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub u64);

impl Micros {
    /// A time that does not come.
    pub const NEVER: Self = Self(u64::MAX);

    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// So many seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Later by that much; [`Micros::NEVER`] stays.
    #[must_use]
    pub const fn after(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// How long ago `earlier` was; 0 if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
