//! Round-trip time and retransmission timeout (RFC 6298).

use crate::config::Config;

/// The clock's granularity, G.
const GRANULARITY_US: u32 = 1000;
const INITIAL_TIMEOUT_US: u64 = 1_000_000;
/// Limit of samples: a longer one is no measure of the path.
const MAX_SAMPLE_US: u32 = 1 << 28;

/// Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// SRTT; 0 before the first sample.
    pub(crate) smoothed: u32,
    variation: u32,
    /// The least of all samples.
    pub(crate) min: u32,
    /// Doublings of the timeout since the last answer.
    pub(crate) backoff: u8,
}

impl RoundTrip {
    pub(crate) const fn new() -> Self {
        Self { smoothed: 0, variation: 0, min: u32::MAX, backoff: 0 }
    }

    /// Adds a sample, of a segment that was sent once or that timestamps identify (Karn).
    pub(crate) fn sample(&mut self, micros: u64) {
        let sample = micros.clamp(1, u64::from(MAX_SAMPLE_US)) as u32;
        self.min = self.min.min(sample);
        if self.smoothed == 0 {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            self.variation -= self.variation / 4;
            self.variation += self.smoothed.abs_diff(sample) / 4;
            self.smoothed -= self.smoothed / 8;
            self.smoothed = (self.smoothed + sample / 8).max(1);
        }
    }

    /// RTO without backing off.
    pub(crate) fn timeout(&self, config: &Config) -> u64 {
        if self.smoothed == 0 {
            return INITIAL_TIMEOUT_US;
        }
        let timeout =
            u64::from(self.smoothed) + u64::from(self.variation).saturating_mul(4).max(GRANULARITY_US.into());
        timeout.clamp(config.min_retransmission_timeout.0, config.max_retransmission_timeout.0)
    }

    /// RTO.
    pub(crate) fn backed_off(&self, config: &Config) -> u64 {
        let timeout = self.timeout(config) << self.backoff.min(16);
        timeout.min(config.max_retransmission_timeout.0)
    }
}
