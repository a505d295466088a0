use super::*;

#[test]
fn percentiles_are_values_that_occurred() {
    let hundred: Vec<u32> = (1..=100).collect();
    assert_eq!(percentile(&hundred, 50.0), 50);
    assert_eq!(percentile(&hundred, 95.0), 95);
    assert_eq!(percentile(&hundred, 99.0), 99);
    assert_eq!(percentile(&hundred, 100.0), 100);
    assert_eq!(percentile(&hundred, 0.0), 1);
    // Of three values the 95th percentile is the largest: two of three are not enough.
    assert_eq!(percentile(&[1_u32, 2, 3], 95.0), 3);
    assert_eq!(percentile(&[7_u32], 50.0), 7);
    assert_eq!(percentile::<u32>(&[], 50.0), 0);
}

#[test]
fn percentiles_match_their_definition_on_random_values() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let mut values: Vec<u32> = (0..random.usize(1..60)).map(|_| random.u32(0..50)).collect();
        values.sort_unstable();
        for percent in [1.0, 50.0, 95.0, 99.0] {
            let found = percentile(&values, percent);
            let share = |limit: &dyn Fn(u32) -> bool| {
                values.iter().filter(|value| limit(**value)).count() as f64 * 100.0 / values.len() as f64
            };
            assert!(values.contains(&found));
            assert!(share(&|value| value <= found) >= percent);
            assert!(share(&|value| value < found) < percent);
        }
    }
}

#[test]
fn medians_and_ranges() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert_eq!(median(&[]), 0.0);
    assert_eq!(range(&[3.0, 1.0, 2.0]), (1.0, 3.0));
    assert_eq!(range(&[]), (0.0, 0.0));
}

#[test]
fn every_transaction_is_in_one_slice() {
    let sample = |ended_micros, latency_micros| Sample { ended_micros, latency_micros, kind: 0 };
    let samples = [sample(0, 1000), sample(999_999, 3000), sample(1_000_000, 5000), sample(2_999_999, 7000)];
    let slices = slices(&samples, 3.0, 3);
    assert_eq!(slices.iter().map(|slice| slice.tps).collect::<Vec<_>>(), [2.0, 1.0, 1.0]);
    assert_eq!(slices.iter().map(|slice| slice.at_s).collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
    assert_eq!(slices[0].latency, Latency { p50_ms: 1.0, p95_ms: 3.0, p99_ms: 3.0 });
    // Too short for as many.
    assert_eq!(super::slices(&samples, 0.7, 100).len(), 1);
}
