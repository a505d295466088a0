//! Care for volumes that are not open. A volume that could not be opened is tried again. A parked one is opened for its pass
//! of the scrub, one volume at a time. Meanwhile its time is added to the stored state of its scrub.
//!
//! All of this is done by the thread of [`super::parking`], one volume at each look. It does no input or output of its own: a
//! parked volume's disk may hang. Volumes are opened, and states written, in other threads, and the node does not wait for these.

use super::Node;
use super::parking::ParkedVolume;
use crate::home::Folder;
use crate::volume::add_closed_time;
use redoubt_sync::{thread, time};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// After the first failure to open a volume; twice as long after each further one.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// How often the time is added to the stored state. So much is not counted when the node is killed.
const SAVE_INTERVAL: Duration = Duration::from_secs(3600);
/// After this time the next volume is opened for its pass, although this one's is not complete: its disk may hang.
pub(super) const TURN_MAX: Duration = Duration::from_secs(6 * 3600);
const _: () = assert!(RETRY_FIRST.as_secs() <= RETRY_MAX.as_secs());

/// Time until a volume that could not be opened so many times is tried again.
pub(super) fn retry_delay(failures: u32) -> Duration {
    RETRY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(RETRY_MAX)
}

impl Node {
    /// Does what is due for parked volumes.
    pub(super) fn look_after_parked(&self) {
        self.retry_unopened();
        self.begin_scrub_turn();
        self.save_closed_time();
    }

    /// The parked volume for which this time is the earliest, if it has come.
    fn first_due(&self, at: impl Fn(&ParkedVolume) -> Option<Instant>) -> Option<String> {
        let now = time::now();
        let parked = self.parking.parked.lock();
        let due = parked.iter().filter_map(|(name, of)| Some((at(of)?, name)));
        due.min().filter(|(at, _)| *at <= now).map(|(_, name)| name.clone())
    }

    fn retry_unopened(&self) {
        if let Some(name) = self.first_due(|of| of.retry_at) {
            // Otherwise a command uses its name, and the next look tries it.
            let _ = self.unpark(&name, Duration::ZERO, false);
        }
    }

    fn begin_scrub_turn(&self) {
        let mut turn = self.parking.scrub_turn.lock();
        if let Some((name, since)) = &*turn {
            // In this order, because a volume is in the list before it is no longer being opened.
            let goes_on = self.opening.contains(name)
                || self.volumes.lock().get(name).is_some_and(|of| of.is_scrubbed());
            if goes_on && time::elapsed(*since) < TURN_MAX {
                return;
            }
        }
        *turn = None;
        let due = self.first_due(|of| of.closed.scrub_due_at.filter(|_| of.retry_at.is_none()));
        if let Some(name) = due
            && self.unpark(&name, Duration::ZERO, true).is_ok()
        {
            *turn = Some((name, time::now()));
        }
    }

    /// In a thread of its own, one at a time.
    fn save_closed_time(&self) {
        let saved_at = |of: &ParkedVolume| {
            let is_scrubbed = of.closed.was_sound && of.closed.scrub_due_at.is_some();
            is_scrubbed.then(|| of.saved_at + SAVE_INTERVAL)
        };
        let Some(name) = self.first_due(saved_at) else { return };
        if self.parking.is_saving.swap(true, Ordering::AcqRel) {
            return;
        }
        let node = self.parking.node();
        let saving = move || {
            let Some(node) = node.upgrade() else { return };
            node.save_closed_time_of(&name);
            node.parking.is_saving.store(false, Ordering::Release);
        };
        if thread::Builder::new().name("parked-time".to_owned()).spawn(saving).is_err() {
            self.parking.is_saving.store(false, Ordering::Release);
        }
    }

    fn save_closed_time_of(&self, name: &str) {
        // While it is reserved, it is not opened.
        let Ok(_reserved) = self.reserve(name, Duration::ZERO) else { return };
        let closed_at = self.parking.parked.lock().get(name).map(|of| of.closed.closed_at);
        let Some(closed) = closed_at.map(|at| Duration::from_secs(time::elapsed(at).as_secs())) else {
            return;
        };
        let saved = Folder::open(&self.volume_directory(name)).and_then(|own| add_closed_time(&own, closed));
        if let Some(of) = self.parking.parked.lock().get_mut(name) {
            of.saved_at = time::now();
            if saved.is_ok() {
                of.count(closed);
            }
        }
        if let Err(error) = saved {
            tracing::warn!(event = "parked_time_not_saved", volume = name, %error, "time of a parked volume cannot be added to the state of its scrub");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_do_not_open_are_tried_less_and_less_often() {
        let delays: Vec<_> = (1..9).map(|failures| retry_delay(failures).as_secs()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(retry_delay(u32::MAX), RETRY_MAX);
    }
}
