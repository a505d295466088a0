use super::*;

/// Each transaction takes about a millisecond.
struct Steady {
    kind: u8,
    left: Option<u32>,
}

impl Worker for Steady {
    fn run(&mut self) -> Result<u8> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or_else(|| Error::State("out of transactions".to_owned()))?;
        }
        std::thread::sleep(Duration::from_millis(1));
        Ok(self.kind)
    }
}

fn workers(left: Option<u32>) -> Vec<Box<dyn Worker>> {
    (0..3).map(|kind| Box::new(Steady { kind, left }) as Box<dyn Worker>).collect()
}

#[test]
fn the_window_holds_what_ended_in_it() {
    let mut calls = 0;
    let probe = || {
        calls += 1;
        Ok(calls)
    };
    let window = run(workers(None), 50, Until::Transactions(200), probe, |_| {}).unwrap();
    assert_eq!(window.probes, [1, 2]);
    // At least what was asked; more by what ends between two looks. Each of the three clients takes 1 ms or more.
    let most = 3 * (window.elapsed.as_millis() as usize + 1);
    assert!((200..=most).contains(&window.samples.len()), "{} of {most}", window.samples.len());
    assert!(window.warm_up > Duration::ZERO);
    assert!(window.samples.iter().all(|sample| Duration::from_micros(sample.ended_micros) < window.elapsed));
    assert!(window.samples.iter().all(|sample| sample.latency_micros >= 1000));
    assert!(window.samples.is_sorted_by_key(|sample| sample.ended_micros));
    for kind in 0..3 {
        assert!(window.samples.iter().any(|sample| sample.kind == kind));
    }
}

#[test]
fn a_failing_client_ends_the_load_with_its_error() {
    let error =
        run(workers(Some(5)), 0, Until::Elapsed(Duration::from_secs(60)), || Ok(()), |_| {}).unwrap_err();
    assert!(error.to_string().contains("out of transactions"), "{error}");
}

#[test]
fn samples_outside_the_window_are_cut_off() {
    let sample = |ended_micros| Sample { ended_micros, latency_micros: 1, kind: 0 };
    let all = vec![sample(30), sample(10), sample(19), sample(20), sample(9)];
    let inside = cut(all, Duration::from_micros(10), Duration::from_micros(20));
    assert_eq!(inside, [sample(0), sample(9)]);
}
