//! The scrub of a volume: reading everything that is stored, to find damage while it can still be repaired.
//!
//! A pass reads the log from the server's checkpoint to A, then all pages, then all plain files ([`pass`]). By schedule,
//! a thread makes one pass in a period at a limited rate. `redoubt volume check` makes one at once, in slices, in the
//! thread of its connection ([`Check`]); the thread waits meanwhile.
//!
//! Damage that a pass finds takes the same way as that which reads and applying find: a page is rebuilt and written again,
//! or listed, and its image is requested from the server ([`super::rescue`], [`super::quarantine`]). A page of which the
//! drive has an older version is rebuilt or set aside ([`super::outdated`]). A damaged plain file is lost
//! ([`crate::plain::Loss`]).
//!
//! The file `scrub` holds how far the pass is, and the findings that nothing else keeps: damaged pages of which no record
//! was left out yet, and damage of the log. Nothing depends on it: a damaged one is as good as none. Times count while the
//! node runs, also while the volume is parked ([`turn`]), since nothing may depend on the calendar.
//!
//! Nothing that the scrub meets stops the volume. A place that cannot be read several times is left out of the pass and counted.
//!
//! Lock order: saving, state. Only `saving`, of which no other thread than a scrub's needs anything, is held during input or
//! output.

mod pass;
mod turn;

use super::Volume;
use super::context::Context;
use super::quarantine::QuarantineFile;
use crate::checkpoint::{check_format, parse, read_checked};
use crate::counters::add;
use crate::error::NodeError;
use crate::home::Folder;
use crate::index::PageKey;
use crate::namespace::Namespace;
use crate::plain::Walked;
use crate::quarantine::SetAside;
use crate::scrub::{RATE_MIN_BYTES_PER_SECOND, due, scheduled_rate};
use pass::{Pass, ResumeAt};
use redoubt_pagestore::ObjectId;
use redoubt_sync::thread::catch_panic;
use redoubt_sync::{Condvar, Mutex, time};
use redoubt_wire::control::{CheckProgress, ScrubStatus};
use redoubt_wire::page::FileId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
pub use turn::add_closed_time;
use turn::write;

const FILE_NAME: &str = "scrub";
const FORMAT: u32 = 1;
/// How often the state is written during a pass.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// How often it is written between passes. So much of the time is not counted when the node ends.
const IDLE_SAVE_INTERVAL: Duration = Duration::from_secs(3600);
/// How often the thread looks whether a pass is due, and for plain files that are at rest.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// After an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The same for a check that a person waits for.
const CHECK_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Tries at one place before the pass leaves it out.
const TRIES: usize = 3;
/// How long one request continues a check.
const SLICE: Duration = Duration::from_secs(1);
/// New plain files that are longer get their checksums from a pass.
const SHORT_FILE_BYTES: u64 = 1 << 20;
/// Bytes of new plain files that are read at a time.
const SHORT_FILES_BYTES: u64 = 64 << 20;
const _: () = assert!(SHORT_FILE_BYTES <= SHORT_FILES_BYTES, "each short file has its turn");

/// Stored state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    format: u32,
    /// Seconds since the end of the last complete pass, or since the volume is scrubbed.
    age_s: u64,
    /// There was a complete pass.
    has_completed: bool,
    /// Seconds since the beginning of the newest pass by schedule; `None`: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun_s: Option<u64>,
    /// Where the pass that is under way continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<ResumeAt>,
    /// Bytes that it has read.
    #[serde(default)]
    checked_bytes: u64,
    /// Places that it, or the last complete one, did not check.
    #[serde(default)]
    unchecked: u64,
    /// The first of them.
    #[serde(default)]
    first_unchecked: String,
    /// Damage of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_damage: Option<LogDamage>,
    /// Damaged pages of which no record was left out yet.
    #[serde(default)]
    found: Vec<SetAside>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LogDamage {
    /// The first position that cannot be read.
    seq: u64,
    reason: String,
}

struct ScrubState {
    record: Record,
    /// Until then the record counts the time.
    counted_to: Instant,
    saved_at: Instant,
    /// Of the pass under way.
    progress: Option<CheckProgress>,
}

#[derive(Default)]
struct Signal {
    is_closed: bool,
    /// The volume was opened for its pass.
    is_urgent: bool,
    /// A pass by schedule is under way.
    is_under_way: bool,
}

/// The scrub of a volume.
pub struct Scrub {
    context: Arc<Context>,
    state: Mutex<ScrubState>,
    /// Held by the thread that writes the file.
    saving: Mutex<()>,
    signal: Mutex<Signal>,
    changed: Condvar,
    /// The volume is closed while the node runs.
    is_parking: AtomicBool,
    /// A check is under way.
    has_check: Arc<AtomicBool>,
}

/// A pass that a person has asked for. Ends with its connection.
pub struct Check {
    pass: Pass,
    has_check: Arc<AtomicBool>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.has_check.store(false, Ordering::Release);
    }
}

impl Scrub {
    /// Reads its state. A file that is no use is as good as none.
    ///
    /// # Errors
    /// A lack of descriptors: the file may be whole.
    pub fn open(context: &Arc<Context>) -> Result<Self, NodeError> {
        let record = match read(&context.own) {
            Err(error) if error.is_out_of_descriptors() => return Err(error),
            Err(error) => {
                tracing::warn!(event = "scrub_state_unusable", volume = context.name, %error, "state of the scrub is not usable; it begins again");
                Record::default()
            }
            Ok(record) => record,
        };
        let now = time::now();
        let state = ScrubState { record, counted_to: now, saved_at: now, progress: None };
        Ok(Self {
            context: Arc::clone(context),
            state: Mutex::new(state),
            saving: Mutex::new(()),
            signal: Mutex::default(),
            changed: Condvar::new(),
            is_parking: AtomicBool::new(false),
            has_check: Arc::default(),
        })
    }

    /// Lists the damaged pages that an earlier process has found, unless they are set aside or gone.
    pub fn list_found(&self, quarantine: &QuarantineFile, names: &Namespace) {
        for entry in &self.state.lock().record.found {
            let (object, page_no) = (ObjectId(entry.object), entry.page_no.unwrap_or(0));
            let key = PageKey::new(object, page_no);
            if names.object(object).is_some() && quarantine.list.find(key).is_none() {
                quarantine.found.add(key, entry.clone());
            }
        }
    }

    /// Waits. False: the volume is closed.
    fn wait(&self, wanted: Duration) -> bool {
        let end = time::now() + wanted;
        let mut signal = self.signal.lock();
        while !signal.is_closed {
            if time::now() >= end {
                return true;
            }
            self.changed.wait_until(&mut signal, end);
        }
        false
    }

    /// Ends all waits of this part.
    pub fn close(&self) {
        self.signal.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Changes the state, after it has counted the time.
    fn with_state<T>(&self, change: impl FnOnce(&mut ScrubState) -> T) -> T {
        let mut state = self.state.lock();
        let counted = Duration::from_secs(time::elapsed(state.counted_to).as_secs());
        state.counted_to += counted;
        state.record.add_time(counted);
        change(&mut state)
    }

    fn note(&self, pass: &Pass) {
        self.with_state(|state| {
            let progress = pass.progress();
            state.record.checked_bytes = progress.checked_bytes;
            state.record.unchecked = progress.unchecked;
            state.record.first_unchecked.clone_from(&progress.first_unchecked);
            state.progress = Some(progress.clone());
        });
    }

    /// The pass is complete.
    fn complete(&self) {
        self.with_state(|state| {
            state.record.age_s = 0;
            state.record.has_completed = true;
            state.record.begun_s.get_or_insert(0);
            state.record.place = None;
            state.progress = None;
        });
    }

    /// The part of the log from `seq` on cannot be read.
    fn note_log_damage(&self, seq: u64, reason: &str) {
        let is_new = self.with_state(|state| {
            let is_new = state.record.log_damage.is_none();
            state.record.log_damage = Some(LogDamage { seq, reason: reason.to_owned() });
            is_new
        });
        if is_new {
            tracing::error!(
                event = "log_damage_found",
                volume = self.context.name,
                reason,
                "a part of the log that may be needed is damaged"
            );
        }
    }

    /// The log is whole from there to there.
    fn note_whole_log(&self, from: u64, to: u64) {
        self.with_state(|state| {
            if state.record.log_damage.as_ref().is_some_and(|damage| (from..to).contains(&damage.seq)) {
                state.record.log_damage = None;
            }
        });
    }
}

fn read(own: &Folder) -> Result<Record, NodeError> {
    if own.find(FILE_NAME)?.is_none() {
        return Ok(Record::default());
    }
    let body = read_checked(own, FILE_NAME)?;
    check_format(own, FILE_NAME, &body, FORMAT..=FORMAT)?;
    parse(own, FILE_NAME, &body)
}

impl Volume {
    /// Body of the thread: a pass in each period. Nothing that it meets stops the volume.
    ///
    /// # Errors
    /// None.
    pub(super) fn run_scrub(&self) -> Result<(), NodeError> {
        let options = &self.context.options.scrub;
        if !self.wait_recovered() {
            return Ok(());
        }
        let Some(period) = options.period else {
            while self.scrub.wait(IDLE_SAVE_INTERVAL) {
                self.save_changed_findings();
            }
            self.save_changed_findings();
            return Ok(());
        };
        self.plain.track_changes();
        let mut delay = options.first_delay;
        while self.scrub.wait_for_turn(delay) {
            if !self.has_check() {
                let worked = catch_panic(|| self.scrub_if_due(period));
                if let Err(panic) = worked {
                    tracing::error!(
                        event = "scrub_failed",
                        volume = self.context.name,
                        panic,
                        "the scrub met a defect of the node; report it"
                    );
                    self.scrub.with_state(|state| state.progress = None);
                }
            }
            self.scrub.end_turn();
            if self.scrub.with_state(|state| time::elapsed(state.saved_at) >= IDLE_SAVE_INTERVAL) {
                self.save_scrub();
            }
            delay = LOOK_INTERVAL.min(period);
        }
        // Otherwise the end of a node with many volumes would take long.
        let is_parking = self.scrub.is_parking.load(Ordering::Acquire);
        if is_parking || self.scrub.with_state(|state| state.record.place.is_some()) {
            self.save_scrub();
        } else {
            self.save_changed_findings();
        }
        Ok(())
    }

    /// A page that was repaired since must not be listed after a restart.
    fn save_changed_findings(&self) {
        let found = self.quarantine.found.entries();
        if self.scrub.with_state(|state| state.record.found != found) {
            self.save_scrub();
        }
    }

    /// `redoubt volume check` reads it.
    pub(super) fn has_check(&self) -> bool {
        self.scrub.has_check.load(Ordering::Acquire)
    }

    fn scrub_if_due(&self, period: Duration) {
        let place = self.scrub.with_state(|state| {
            let record = &mut state.record;
            let is_due = record.begun_s.is_none_or(|begun_s| begun_s >= period.as_secs());
            match &record.place {
                Some(place) => {
                    let unchecked = (record.unchecked, record.first_unchecked.clone());
                    Some((place.clone(), record.checked_bytes, unchecked))
                }
                None if is_due => {
                    record.begun_s = Some(0);
                    Some((ResumeAt::default(), 0, Default::default()))
                }
                None => None,
            }
        });
        if let Some((place, checked_bytes, (unchecked, first))) = place {
            let mut pass = self.begin_pass(place, checked_bytes);
            pass.set_unchecked(unchecked, first);
            tracing::info!(
                event = "scrub_begins",
                volume = self.context.name,
                total_bytes = pass.progress().total_bytes,
                "scrub begins"
            );
            self.run_pass(&mut pass, period);
        }
        self.add_short_checksums();
    }

    fn run_pass(&self, pass: &mut Pass, period: Duration) {
        let most = self.context.options.scrub.rate_bytes_per_second;
        self.scrub.begin_turn();
        let scheduled = scheduled_rate(pass.progress().total_bytes, period, most);
        let rate = if self.scrub.is_urgent() { most } else { scheduled };
        let mut tries = 0;
        while !pass.is_done() {
            let delay = if self.has_check() {
                LOOK_INTERVAL
            } else {
                match self.paced_step(pass, rate) {
                    Ok(delay) => {
                        tries = 0;
                        delay
                    }
                    Err(error) => self.step_failed(pass, &error, &mut tries, RETRY_INTERVAL),
                }
            };
            let place = pass.place().clone();
            let is_due = self.scrub.with_state(|state| {
                state.record.place = Some(place);
                time::elapsed(state.saved_at) >= SAVE_INTERVAL
            });
            if is_due {
                self.save_scrub();
            }
            if !self.scrub.wait(delay) && !pass.is_done() {
                return;
            }
        }
        self.complete_pass(pass);
    }

    fn complete_pass(&self, pass: &Pass) {
        let CheckProgress { checked_bytes, repaired, unchecked, .. } = *pass.progress();
        self.scrub.complete();
        self.save_scrub();
        tracing::info!(
            event = "scrub_complete",
            volume = self.context.name,
            checked_bytes,
            repaired,
            unchecked,
            damaged = self.quarantined(),
            "scrub is complete"
        );
    }

    /// One step; returns how long to wait after it.
    fn paced_step(&self, pass: &mut Pass, rate_bytes_per_second: u64) -> Result<Duration, NodeError> {
        let load = || {
            let counters = &self.context.counters;
            (counters.page_reads.load(Ordering::Relaxed), counters.log_syncs.load(Ordering::Relaxed))
        };
        let (before, since) = (load(), time::now());
        let stepped = self.step(pass);
        self.scrub.note(pass);
        let bytes = stepped?;
        add(&self.context.counters.scrubbed_bytes, bytes);
        let own = due(bytes, time::elapsed(since), rate_bytes_per_second, load() != before);
        let scrub = &self.context.options.scrub;
        Ok(own.max(scrub.budget.pay(bytes, scrub.rate_bytes_per_second)))
    }

    /// A step failed. After several tries the pass leaves that place out.
    fn step_failed(
        &self,
        pass: &mut Pass,
        error: &NodeError,
        tries: &mut usize,
        retry: Duration,
    ) -> Duration {
        *tries += 1;
        if *tries < TRIES {
            return retry;
        }
        *tries = 0;
        tracing::warn!(event = "scrub_left_out", volume = self.context.name, %error, "the scrub cannot read a place and leaves it out");
        self.list_unsettled(pass, error);
        pass.skip(error);
        Duration::ZERO
    }

    /// Begins a pass that [`Volume::continue_check`] continues.
    ///
    /// # Errors
    /// [`NodeError::NotNow`] if another one is under way; [`NodeError::Stopped`].
    pub fn begin_check(&self) -> Result<Check, NodeError> {
        self.context.check_running()?;
        if !self.has_parsed_recovered() {
            let name = &self.context.name;
            return Err(NodeError::NotNow(format!(
                "volume {name} still reads its log; try again when that is done"
            )));
        }
        let has_check = Arc::clone(&self.scrub.has_check);
        if has_check.swap(true, Ordering::AcqRel) {
            return Err(NodeError::NotNow(format!(
                "volume {} is being checked by another command; try again when that is done",
                self.context.name
            )));
        }
        let mut check = Check { pass: Pass::default(), has_check };
        check.pass = self.begin_pass(ResumeAt::default(), 0);
        Ok(check)
    }

    /// Continues a check for a short while.
    ///
    /// # Errors
    /// [`NodeError::Stopped`].
    pub fn continue_check(&self, check: &mut Check) -> Result<CheckProgress, NodeError> {
        let rate = self.context.options.scrub.rate_bytes_per_second;
        let (since, mut tries, pass) = (time::now(), 0, &mut check.pass);
        // A failing place is tried within one slice.
        while !pass.is_done() && (tries > 0 || time::elapsed(since) < SLICE) {
            let delay = match self.paced_step(pass, rate) {
                Ok(delay) => {
                    tries = 0;
                    delay
                }
                Err(error @ NodeError::Stopped(_)) => return Err(error),
                Err(error) => self.step_failed(pass, &error, &mut tries, CHECK_RETRY_INTERVAL),
            };
            if !self.scrub.wait(delay) {
                return Err(self.context.stopped_error());
            }
        }
        if pass.is_done() && !pass.is_reported() {
            self.complete_pass(pass);
            pass.set_reported();
        }
        let (damage, damaged) = self.quarantine_status();
        let (is_complete, log_damage) = (pass.is_done(), self.log_damage());
        Ok(CheckProgress { is_complete, damaged, damage, log_damage, ..pass.progress().clone() })
    }

    /// Damage of the log that may still be needed.
    fn log_damage(&self) -> Option<String> {
        let (_, log_start) = self.applying.points();
        self.scrub.with_state(|state| {
            let damage = state.record.log_damage.as_ref()?;
            if damage.seq < log_start.seq.0 {
                state.record.log_damage = None;
                return None;
            }
            Some(damage.reason.clone())
        })
    }

    /// State for `redoubt status`.
    pub(super) fn scrub_status(&self) -> ScrubStatus {
        let log_damage = self.log_damage();
        self.scrub.with_state(|state| {
            let (record, progress) = (&state.record, state.progress.as_ref());
            ScrubStatus {
                period_s: self.context.options.scrub.period.map(|period| period.as_secs()),
                age_s: record.age_s,
                has_completed: record.has_completed,
                stage: progress.map(|progress| progress.stage.clone()).unwrap_or_default(),
                checked_bytes: record.checked_bytes,
                total_bytes: progress.map_or(record.checked_bytes, |progress| progress.total_bytes),
                log_damage,
                unchecked: record.unchecked,
                first_unchecked: record.first_unchecked.clone(),
            }
        })
    }

    /// Writes the state. A failure is only logged.
    fn save_scrub(&self) {
        let _saving = self.scrub.saving.lock();
        let found = self.quarantine.found.entries();
        let record = self.scrub.with_state(|state| {
            state.saved_at = time::now();
            state.record.found = found;
            Record { format: FORMAT, ..state.record.clone() }
        });
        if let Err(error) = write(&self.context.own, &record) {
            tracing::warn!(event = "scrub_state_not_saved", volume = self.context.name, %error, "state of the scrub cannot be written");
        }
    }

    /// Computes the checksums of short plain files that have come to rest.
    fn add_short_checksums(&self) {
        self.plain.forget_changes();
        if !self.has_exact_files() {
            return;
        }
        let files: Vec<FileId> = {
            let names = self.indexing.names.read();
            let plain = names.files().filter(|(_, entry)| !entry.tablespace);
            plain.map(|(file, _)| file).filter(|file| self.plain.is_new_at_rest(*file)).collect()
        };
        let mut left_bytes = SHORT_FILES_BYTES;
        for file in files {
            // A file that cannot be read now gets its checksum from a pass.
            let Ok(Some(mut walk)) = self.plain.begin_walk(file) else { continue };
            if walk.len_bytes() > SHORT_FILE_BYTES.min(left_bytes) {
                continue;
            }
            left_bytes -= walk.len_bytes();
            let since = time::now();
            while let Ok(Walked::More) = self.plain.walk(&mut walk) {}
            let delay = due(walk.len_bytes(), time::elapsed(since), RATE_MIN_BYTES_PER_SECOND, false);
            if !self.scrub.wait(delay) {
                break;
            }
        }
        self.plain.save_checksums();
    }
}

#[cfg(test)]
#[path = "scrub_tests.rs"]
mod tests;
