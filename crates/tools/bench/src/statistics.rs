//! Percentiles, medians and ranges. Exact: from sorted values, not from buckets.

use redoubt_workload::load::Sample;
use serde::{Deserialize, Serialize};

/// The smallest value that at least `percent` of all values do not exceed; 0 if there are none.
pub fn percentile<T: Copy + Default>(sorted: &[T], percent: f64) -> T {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// The middle value, or the mean of the two middle ones; 0 if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(below), Some(above)) if sorted.len().is_multiple_of(2) => f64::midpoint(*below, *above),
        (_, Some(middle)) => *middle,
        _ => 0.0,
    }
}

/// The smallest and the largest value; zeros if there are none.
pub fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().reduce(f64::min);
    let high = values.iter().copied().reduce(f64::max);
    (low.unwrap_or(0.0), high.unwrap_or(0.0))
}

/// Latency percentiles in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the transactions were not slower.
    pub p50_ms: f64,
    /// 95 of 100 were not slower.
    pub p95_ms: f64,
    /// 99 of 100 were not slower.
    pub p99_ms: f64,
}

impl Latency {
    /// Of these transactions.
    pub fn of(samples: &[Sample]) -> Self {
        let mut sorted: Vec<u32> = samples.iter().map(|sample| sample.latency_micros).collect();
        sorted.sort_unstable();
        let at = |percent| f64::from(percentile(&sorted, percent)) / 1000.0;
        Self { p50_ms: at(50.0), p95_ms: at(95.0), p99_ms: at(99.0) }
    }
}

/// Throughput and latency in one slice of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Its begin, in seconds since the window's.
    pub at_s: f64,
    /// Transactions that ended in it, per second.
    pub tps: f64,
    /// Their latencies.
    #[serde(flatten)]
    pub latency: Latency,
}

/// Cuts a run into at most `count` slices of equal length, none shorter than half a second.
pub fn slices(samples: &[Sample], elapsed_s: f64, count: usize) -> Vec<Slice> {
    let count = count.min((elapsed_s / 0.5) as usize).max(1);
    let length_s = elapsed_s / count as f64;
    let edge = |index: usize| (index as f64 * length_s * 1e6) as u64;
    (0..count)
        .map(|index| {
            let begin = samples.partition_point(|sample| sample.ended_micros < edge(index));
            // The last one ends with the window, whatever the rounding says.
            let end = if index + 1 == count {
                samples.len()
            } else {
                samples.partition_point(|sample| sample.ended_micros < edge(index + 1))
            };
            let inside = samples.get(begin..end).unwrap_or_default();
            let tps = if length_s > 0.0 { inside.len() as f64 / length_s } else { 0.0 };
            Slice { at_s: index as f64 * length_s, tps, latency: Latency::of(inside) }
        })
        .collect()
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
