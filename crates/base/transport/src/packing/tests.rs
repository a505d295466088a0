use super::*;
use crate::connection::Written;
use crate::identity::Identity;
use std::io::Result;

#[derive(Debug)]
struct Fake(Option<Delay>);

impl Connection for Fake {
    fn read(&self, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }
    fn write_all(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn write_now(&self, _: &[u8]) -> Result<Written> {
        Ok(Written::All)
    }
    fn shutdown(&self) {}
    fn set_read_timeout(&self, _: Option<Duration>) -> Result<()> {
        Ok(())
    }
    fn set_write_timeout(&self, _: Option<Duration>) -> Result<()> {
        Ok(())
    }
    fn set_deadline(&self, _: Option<Duration>) -> Result<()> {
        Ok(())
    }
    fn peer(&self) -> &str {
        "fake"
    }
    fn identity(&self) -> &Identity {
        &Identity::Unproven
    }
    fn crosses_network(&self) -> bool {
        self.0.is_some()
    }
    fn delay(&self) -> Option<Delay> {
        self.0
    }
}

#[test]
fn the_share_is_spread_over_turns() {
    for share in 0..=SHARE_MAX {
        for first in [0, 5, SHARE_MAX * 3] {
            let taken = (first..first + SHARE_MAX).filter(|turn| takes_turn(share, *turn)).count();
            assert_eq!(taken as u32, share);
        }
    }
    let half: Vec<_> = (0..4).map(|turn| takes_turn(SHARE_MAX / 2, turn)).collect();
    assert_eq!(half, [false, true, false, true]);
}

#[test]
fn without_a_network_nothing_is_packed_or_measured() {
    let packing = Packing::default();
    for _ in 0..1000 {
        let choice = packing.choose(&Fake(None), 16 << 10);
        assert!(!choice.pack && choice.news.is_none());
    }
    let watch = packing.watch.lock().unwrap();
    assert!(watch.waited.is_empty() && watch.least.is_none());
}

/// The share belongs to a direction with all its connections: one may cross a network while the next does not.
#[test]
fn what_a_connection_with_a_network_led_to_is_nothing_to_one_without() {
    let packing = Packing::default();
    packing.share.store(SHARE_MAX, Ordering::Relaxed);
    let (now, least) = (Duration::from_millis(3), Duration::from_micros(100));
    let far = Fake(Some(Delay { now, least }));
    let packed = |connection: &Fake| (0..64).filter(|_| packing.choose(connection, 16 << 10).pack).count();
    assert_eq!(packed(&far), 64);
    assert_eq!(packed(&Fake(None)), 0);
    assert_eq!(packed(&far), 64);
}

#[test]
fn a_delay_that_only_some_have_is_no_queue_and_one_that_all_have_is() {
    let micros = Duration::from_micros;
    let mut watch = Watch::default();
    assert!(watch.figures(0.0).is_none());
    for at in 0..LOOKS_MAX as u64 * 2 {
        let held_back = if at.is_multiple_of(2) { 5000 } else { 0 };
        watch.note(Delay { now: micros(150 + held_back), least: micros(100) }, 16_384);
    }
    assert_eq!(watch.waited.len(), LOOKS_MAX);
    watch.cores.look();
    redoubt_test_support::wait::until("figures of the cores", || watch.figures(0.0).is_some());
    assert_eq!(watch.figures(0.0).unwrap().queued, micros(50));
    watch.waited.iter_mut().for_each(|waited| *waited += micros(2000));
    let figures = watch.figures(0.0).unwrap();
    assert_eq!(figures.queued, micros(2050));
    assert!((figures.len_bytes - 16_384.0).abs() < 10.0, "{figures:?}");
}

#[test]
fn a_change_is_said_once_and_not_again_soon() {
    let mut watch = Watch::default();
    assert_eq!(watch.news(8), None);
    assert!(watch.news(SHARE_MAX).unwrap().starts_with("compressed from now on"));
    assert_eq!(watch.news(SHARE_MAX), None);
    assert_eq!(watch.news(0), None);
    watch.said = Instant::now().checked_sub(NEWS_INTERVAL);
    assert!(watch.news(0).unwrap().starts_with("not compressed"));
}

#[test]
fn what_packing_did_counts_by_length_and_is_forgotten() {
    let packing = Packing::default();
    let known = || packing.watch.lock().unwrap().packed;
    assert_eq!(known(), Packed::USUAL);
    let ratio = |of: Packed| of.packed_bytes / of.raw_bytes;
    for _ in 0..100 {
        let result = packing.measured(16 << 10, || vec![0u8; 4 << 10], Vec::len);
        assert_eq!(result.len(), 4 << 10);
    }
    assert!((ratio(known()) - 0.25).abs() < 0.01, "{:?}", known());
    // A short message that took long changes the cost per byte little.
    packing.packed(10, 10, Duration::from_micros(20));
    assert!(known().nanos / known().raw_bytes < 10.0, "{:?}", known());
    for _ in 0..500 {
        packing.watch.lock().unwrap().look(0, 0);
    }
    assert!((ratio(known()) - decision::RATIO).abs() < 0.01, "{:?}", known());
}
