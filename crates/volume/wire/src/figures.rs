//! Figures other than counters, as a node reports them in [`crate::control::VolumeStatus`].
//!
//! A distribution of times has log-linear buckets: each power of two of microseconds is cut into
//! [`BUCKETS_PER_POWER`] equal parts, so that a quantile is off by an eighth at most, whatever its size.

use serde::{Deserialize, Serialize};

/// Equal parts of each power of two.
pub const BUCKETS_PER_POWER: usize = 4;
/// Number of buckets of a distribution; the last one takes everything from 134 s on.
pub const BUCKETS: usize = 26 * BUCKETS_PER_POWER + 1;

/// The bucket that a value belongs to, below [`BUCKETS`].
pub const fn bucket_of(micros: u64) -> usize {
    if micros < BUCKETS_PER_POWER as u64 {
        return micros as usize;
    }
    let power = 63 - micros.leading_zeros() as usize;
    let part = (micros >> (power - 2)) as usize % BUCKETS_PER_POWER;
    let bucket = (power - 1) * BUCKETS_PER_POWER + part;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// End of the bucket in microseconds, exclusive; `None`: there is no bound.
pub const fn bucket_end_micros(bucket: usize) -> Option<u64> {
    if bucket + 1 >= BUCKETS {
        return None;
    }
    if bucket < BUCKETS_PER_POWER {
        return Some(bucket as u64 + 1);
    }
    let part = (bucket % BUCKETS_PER_POWER) as u64;
    Some((BUCKETS_PER_POWER as u64 + part + 1) << (bucket / BUCKETS_PER_POWER - 1))
}

/// Distribution of a duration since the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// Number of durations.
    pub count: u64,
    /// Sum of all durations.
    pub sum_micros: u64,
    /// Non-empty buckets, in order: number of the bucket (see [`bucket_end_micros`]) and how many fell into it.
    pub buckets: Vec<(usize, u64)>,
}

impl Times {
    /// The time, in microseconds, below which `share` (0 to 1) of all durations stay: the end of a bucket. `None`:
    /// there are no durations.
    pub fn quantile_micros(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for &(bucket, count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                let last_bound = bucket_end_micros(BUCKETS - 2).unwrap_or(u64::MAX);
                return Some(bucket_end_micros(bucket).unwrap_or(last_bound));
            }
        }
        None
    }

    /// The durations added since `earlier`. A restarted node counts from 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        if earlier.count > self.count {
            return self.clone();
        }
        let before =
            |bucket| earlier.buckets.iter().find(|(other, _)| *other == bucket).map_or(0, |(_, n)| *n);
        let buckets: Vec<_> = self
            .buckets
            .iter()
            .map(|&(bucket, count)| (bucket, count.saturating_sub(before(bucket))))
            .filter(|(_, count)| *count > 0)
            .collect();
        Self {
            count: buckets.iter().map(|(_, count)| count).sum(),
            sum_micros: self.sum_micros.saturating_sub(earlier.sum_micros),
            buckets,
        }
    }

    /// Number of durations of at most `micros`, which must be the end of a bucket.
    pub fn count_up_to(&self, micros: u64) -> u64 {
        let within = |bucket| bucket_end_micros(bucket).is_some_and(|end| end <= micros);
        self.buckets.iter().filter(|(bucket, _)| within(*bucket)).map(|(_, count)| count).sum()
    }
}

/// One thread that applies redo to pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApplyWorker {
    /// Pages it has built.
    pub pages: u64,
    /// Applied runs of records (changes of one page by one mini-transaction).
    pub runs: u64,
    /// Bytes of redo in these runs.
    pub redo_bytes: u64,
    /// Working time in microseconds.
    pub busy_micros: u64,
}

/// Pages whose chains in the log index have about the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainClass {
    /// Longest chain of the class, a power of two less one: 1, 3, 7 and so on. The shortest is one more than the
    /// longest of the previous class. `None`: no bound.
    pub longest: Option<u64>,
    /// Pages, counted once per table of the index.
    pub pages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_below_the_end_of_its_bucket_and_not_below_the_one_before() {
        let values = (0..5000u64).chain((0..40).flat_map(|power| {
            let base = 1u64 << power;
            [base - 1, base, base + base / 3]
        }));
        for micros in values {
            let bucket = bucket_of(micros);
            match bucket_end_micros(bucket) {
                Some(end) => assert!(micros < end, "{micros} in bucket {bucket} that ends at {end}"),
                None => assert!(micros >= bucket_end_micros(BUCKETS - 2).unwrap(), "{micros}"),
            }
            if bucket > 0 {
                assert!(micros >= bucket_end_micros(bucket - 1).unwrap(), "{micros} in bucket {bucket}");
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_end_micros(BUCKETS - 2), Some(1 << 27));
    }

    fn times(values: &[u64]) -> Times {
        let mut counts = [0u64; BUCKETS];
        for value in values {
            counts[bucket_of(*value)] += 1;
        }
        Times {
            count: values.len() as u64,
            sum_micros: values.iter().sum(),
            buckets: counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect(),
        }
    }

    #[test]
    fn quantiles_differences_and_counts() {
        assert_eq!(Times::default().quantile_micros(0.5), None);
        let early = times(&[10, 20, 1000]);
        let late = times(&[10, 20, 1000, 7, 7, 7]);
        assert_eq!(early.quantile_micros(0.5), Some(24));
        assert_eq!(early.quantile_micros(1.0), Some(1024));
        assert_eq!(late.since(&early), times(&[7, 7, 7]));
        assert_eq!(early.since(&late), early, "a node that was started again");
        assert_eq!(late.count_up_to(32), 5);
        assert_eq!(late.count_up_to(8), 3);
        assert_eq!(times(&[u64::MAX / 8]).quantile_micros(0.5), Some(1 << 27));
    }
}
