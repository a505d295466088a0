//! The scrub of volumes that are parked (`server::parking`): their time counts, and each is opened for its pass. That pass
//! keeps the volume open, so it runs at the highest rate.

use super::{Duration, FILE_NAME, FORMAT, LOOK_INTERVAL, Record, Scrub, Volume, read};
use crate::checkpoint::write_checked;
use crate::error::NodeError;
use crate::home::Folder;
use redoubt_sync::time;
use std::sync::atomic::Ordering;

impl Scrub {
    /// Waits for the next look, or until the volume is opened for its pass. False: the volume is closed.
    pub(super) fn wait_for_turn(&self, wanted: Duration) -> bool {
        let end = time::now() + wanted;
        let mut signal = self.signal.lock();
        while !signal.is_closed && !signal.is_urgent && time::now() < end {
            self.changed.wait_until(&mut signal, end);
        }
        !signal.is_closed
    }

    /// A pass by schedule is under way.
    pub(super) fn begin_turn(&self) {
        self.signal.lock().is_under_way = true;
    }

    /// The pass has ended, or was not due.
    pub(super) fn end_turn(&self) {
        let mut signal = self.signal.lock();
        (signal.is_urgent, signal.is_under_way) = (false, false);
    }

    /// The volume was opened for its pass.
    pub(super) fn is_urgent(&self) -> bool {
        self.signal.lock().is_urgent
    }
}

impl Volume {
    /// The volume was not open for this time, while the node ran.
    pub fn count_closed_time(&self, closed: Duration) {
        self.scrub.with_state(|state| state.record.add_time(closed));
    }

    /// The volume was opened for its pass: it begins now.
    pub fn hurry_scrub(&self) {
        self.scrub.signal.lock().is_urgent = true;
        self.scrub.changed.notify_all();
    }

    /// A pass by schedule is under way, or the one that the volume was opened for begins.
    pub fn is_scrubbed(&self) -> bool {
        let signal = self.scrub.signal.lock();
        !signal.is_closed && (signal.is_urgent || signal.is_under_way)
    }

    /// Ends the volume's threads. The node continues, so the time that the scrub has counted is written.
    pub fn shut_down_to_park(&self) {
        self.scrub.is_parking.store(true, Ordering::Release);
        self.shut_down();
    }

    /// Time until its next pass by schedule is due; `None`: there are none. After [`Volume::shut_down_to_park`].
    pub fn scrub_wait(&self) -> Option<Duration> {
        let period = self.context.options.scrub.period?;
        Some(self.scrub.with_state(|state| match (&state.record.place, state.record.begun_s) {
            // A defect that has ended this pass may end it again.
            (Some(_), _) => LOOK_INTERVAL.min(period),
            (None, Some(begun_s)) => period.saturating_sub(Duration::from_secs(begun_s)),
            (None, None) => Duration::ZERO,
        }))
    }
}

impl Record {
    /// Counts whole seconds.
    pub(super) fn add_time(&mut self, time: Duration) {
        self.age_s += time.as_secs();
        if let Some(begun_s) = &mut self.begun_s {
            *begun_s += time.as_secs();
        }
    }
}

/// Adds time to the stored state of a volume that is not open.
///
/// # Errors
/// Any error of the file.
pub fn add_closed_time(own: &Folder, closed: Duration) -> Result<(), NodeError> {
    let mut record = read(own)?;
    record.add_time(closed);
    write(own, &Record { format: FORMAT, ..record })
}

/// Writes the state.
pub(super) fn write(own: &Folder, record: &Record) -> Result<(), NodeError> {
    let body = serde_json::to_vec(record)
        .map_err(|error| NodeError::io("encode", own.path().join(FILE_NAME), error.into()))?;
    write_checked(own, FILE_NAME, &body)
}
