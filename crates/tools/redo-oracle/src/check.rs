//! Compares recorded histories with stock recovery: whole, as killed, and cut.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redoubt_redo::mariadb::record::Body;
use redoubt_redo::mariadb::{RecordReader, SequenceRule, walk_mtrs};
use redoubt_redo::{Lsn, Mtr, SpaceFlagsChange};
use redoubt_workload::error::{Error, Result};
use serde::Serialize;

use super::clear::TornPages;
use super::compare::{self, Report};
use super::history::{Recorded, Workshop};
use super::recovery::{self, Crash, Outcome, Tail};
use super::redo::Redo;
use super::replay::{Defect, Replayed, replay};

/// More zeros than the end of a mini-transaction has bytes.
const ZEROS_SEEN: usize = 64;

/// Pages that one kill can tear: each is a write in progress, and the kernel has a few threads per core for them.
const TORN_BY_A_KILL: u64 = 16;

/// How redo is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Where the bytes end.
    pub lsn: Lsn,
    /// Seed of random bytes after the cut; `None`: zeros.
    pub garbage_seed: Option<u64>,
    /// The server recovers with its smallest buffer pool.
    pub small_pool: bool,
    /// The file that the last mini-transaction is about was created, renamed or removed before the crash.
    pub last_call_done: bool,
}

/// Results of the checks of histories.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Checked {
    /// Recoveries of cut redo, compared.
    pub cuts: u64,
    /// Of these: inside a mini-transaction.
    pub cuts_inside: u64,
    /// Recoveries of a history's whole redo from its base, and of the directory of the killed server.
    pub whole: u64,
    /// Of these: compared with our replay of the killed server's page files.
    pub from_killed: u64,
    /// Pages of killed servers whose redo did not fit before what is void was left out.
    pub misfits: u64,
    /// Recoveries that the server refused although its redo is sound.
    pub refused: u64,
    /// Recoveries that failed with the smallest buffer pool and were done again with a large one.
    pub again: u64,
    /// The end of the server's log at the last of them.
    pub refusal: String,
    /// Redo compared, in bytes: of each recovery what it applied.
    pub redo_bytes: u64,
    /// Pages compared that the server had encrypted.
    pub encrypted_pages: u64,
    /// The sum of all comparisons.
    pub report: Report,
    /// Time in recoveries, in milliseconds.
    pub recovery_ms: u64,
}

impl Checked {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.cuts_inside += other.cuts_inside;
        self.whole += other.whole;
        self.from_killed += other.from_killed;
        self.misfits += other.misfits;
        self.refused += other.refused;
        self.again += other.again;
        if !other.refusal.is_empty() {
            self.refusal.clone_from(&other.refusal);
        }
        self.redo_bytes += other.redo_bytes;
        self.encrypted_pages += other.encrypted_pages;
        self.report.add(&other.report);
        self.recovery_ms += other.recovery_ms;
    }

    /// Nothing differs, and the server refused next to nothing: a server that aborts in its recovery says nothing about
    /// our replay, but an oracle that is seldom answered proves nothing.
    pub fn is_sound(&self) -> bool {
        self.report.differing == 0
            && self.refused * 20 <= self.cuts + self.whole
            && self.report.torn <= TORN_BY_A_KILL * self.from_killed
    }

    /// Adds a comparison, with the server's messages if it found a difference.
    fn compared(&mut self, mut report: Report, log: &str) {
        if report.differing > 0 {
            log.clone_into(&mut report.log);
        }
        self.report.add(&report);
    }

    fn took(&mut self, took: Duration) {
        self.recovery_ms += u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    }
}

/// The whole history: from its base, and as the killed server left its directory, which is used up.
///
/// # Errors
/// Those of the recovery; [`Error::Violation`] when our replay refuses the redo.
pub fn check_whole(workshop: &Workshop, recorded: &Recorded, defect: Option<Defect>) -> Result<Checked> {
    let mut checked = Checked::default();
    let sound = replay(&recorded.base, &recorded.redo, recorded.redo.end_lsn, None)?;
    let with_defect = defective(recorded, recorded.redo.end_lsn, defect)?;
    let killed = recorded.killed_state()?;
    let from_killed = replay(&killed.base, &killed.redo, killed.redo.end_lsn, None)?;
    checked.misfits += from_killed.misfits;
    let ours = with_defect.as_ref().unwrap_or(&sound);
    let directory = recovery::next_directory(workshop.path());
    let bytes = &recorded.redo.bytes;
    let options = recorded.recovery(false)?;
    let crash = Crash::new(recorded.stored(), &recorded.redo, &sound, recorded.redo.end_lsn, true);
    let from_base = recovery::recover(&crash, &directory, &options)?;
    let log_bytes = recorded.base.geometry.file_size_bytes();
    let small = recorded.recovery(true)?;
    let mut as_killed = recovery::recover_in_place(&recorded.killed, log_bytes, &small)?;
    if matches!(as_killed, Outcome::Refused(_)) {
        // The recovery before was cut short, too: one more crash, which recovery must stand.
        checked.again += 1;
        as_killed = recovery::recover_in_place(&recorded.killed, log_bytes, &options)?;
    }
    if let Outcome::Recovered(theirs) = &as_killed {
        checked.from_killed += 1;
        let mut report = compare::compare(&killed.base, &killed.redo, &from_killed, &theirs.files)?;
        compare::compare_torn(&killed.torn, &theirs.torn, &mut report);
        checked.compared(report, &theirs.log);
    }
    for outcome in [from_base, as_killed] {
        match outcome {
            Outcome::Refused(log) => {
                checked.refused += 1;
                checked.refusal = log;
            }
            Outcome::Recovered(theirs) => {
                checked.whole += 1;
                checked.redo_bytes += bytes.len() as u64;
                checked.encrypted_pages += theirs.encrypted_pages;
                checked.took(theirs.took);
                let mut report = compare::compare(&recorded.base, &recorded.redo, ours, &theirs.files)?;
                compare::compare_ends(ours.end_lsn, theirs.end_lsn, &mut report);
                checked.compared(report, &theirs.log);
            }
        }
    }
    Ok(checked)
}

/// One cut.
///
/// # Errors
/// As for [`check_whole`].
pub fn check_cut(
    workshop: &Workshop,
    recorded: &Recorded,
    cut: Cut,
    defect: Option<Defect>,
) -> Result<Checked> {
    let mut checked = Checked::default();
    let redo = &recorded.redo;
    let sound = replay(&recorded.base, redo, cut.lsn, None)?;
    let with_defect = defective(recorded, cut.lsn, defect)?;
    let ours = with_defect.as_ref().unwrap_or(&sound);
    let crash = crash_at(recorded, cut, &sound);
    let directory = recovery::next_directory(workshop.path());
    let bytes = redo.bytes_until(cut.lsn);
    let options = recorded.recovery(cut.small_pool)?;
    let mut outcome = recovery::recover(&crash, &directory, &options)?;
    if cut.small_pool && matches!(outcome, Outcome::Refused(_)) {
        // The server aborts now and then when its pages do not fit.
        checked.again += 1;
        outcome = recovery::recover(&crash, &directory, &recorded.recovery(false)?)?;
    }
    match outcome {
        Outcome::Refused(log) => {
            checked.refused += 1;
            checked.refusal = format!("cut at {}: {log}", cut.lsn);
        }
        Outcome::Recovered(theirs) => {
            checked.cuts += 1;
            checked.cuts_inside += u64::from(redo.boundary_before(cut.lsn) != cut.lsn);
            checked.redo_bytes += bytes.len() as u64;
            checked.encrypted_pages += theirs.encrypted_pages;
            checked.took(theirs.took);
            let mut report = compare::compare(&recorded.base, redo, ours, &theirs.files)?;
            compare::compare_ends(ours.end_lsn, theirs.end_lsn, &mut report);
            compare::compare_torn(&TornPages::default(), &theirs.torn, &mut report);
            checked.compared(report, &theirs.log);
        }
    }
    Ok(checked)
}

/// The disk after a cut. `sound`: our replay up to it.
pub fn crash_at<'r>(recorded: &'r Recorded, cut: Cut, sound: &'r Replayed) -> Crash<'r> {
    let mut crash = Crash::new(recorded.stored(), &recorded.redo, sound, cut.lsn, cut.last_call_done);
    crash.tail = tail(&recorded.redo, cut);
    crash
}

/// The bytes after a cut, which end the log there. Random bytes may happen to complete the mini-transaction that is
/// cut, or to be whole ones. The server would be right to apply them, so other bytes are drawn then.
fn tail(redo: &Redo, cut: Cut) -> Tail {
    let first = cut.garbage_seed.map_or(Tail::Zeros, |seed| Tail::Bytes(garbage(&redo.bytes, seed)));
    let seed = cut.garbage_seed.unwrap_or_default();
    let others = (1..).map(|step| Tail::Bytes(garbage(&redo.bytes, seed.wrapping_add(step))));
    std::iter::once(first).chain(others).find(|tail| ends_at_cut(redo, cut.lsn, tail)).unwrap_or_default()
}

fn ends_at_cut(redo: &Redo, cut: Lsn, tail: &Tail) -> bool {
    let boundary = redo.boundary_before(cut);
    let begun = redo.bytes_until(cut).get((boundary.0 - redo.start_lsn.0) as usize..).unwrap_or_default();
    let bytes = match tail {
        Tail::Zeros => [begun, &[0; ZEROS_SEEN]].concat(),
        Tail::Bytes(tail) => [begun, tail].concat(),
    };
    // Bytes that are no mini-transaction are an error, and end a log.
    let mut whole = 0;
    let _ = walk_mtrs(&bytes, boundary, SequenceRule::Any, &mut |_: &Mtr<'_, '_>| whole += 1);
    whole == 0
}

/// Our replay with a mistake in it; `None` when none was asked for.
fn defective(recorded: &Recorded, until: Lsn, defect: Option<Defect>) -> Result<Option<Replayed>> {
    defect.map(|_| replay(&recorded.base, &recorded.redo, until, defect)).transpose()
}

/// Many cuts, on several threads, and how many were left when `deadline` came. A recovery waits more than it
/// computes, so several at a time keep a core busy. `progress` is called after each with the cut, what it came to,
/// and all so far.
///
/// # Errors
/// The first of [`check_cut`], with the cut in words.
pub fn check_cuts(
    workshop: &Workshop,
    recorded: &Recorded,
    cuts: &[Cut],
    limits: &Limits,
    progress: &(dyn Fn(Cut, &Checked, &Checked) + Sync),
) -> Result<(Checked, usize)> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Checked::default()));
    let panicked = |_| Error::State("a thread that checks cuts panicked".into());
    let worker = || -> Result<usize> {
        let mut done = 0;
        loop {
            if limits.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(done);
            }
            let Some(cut) = cuts.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(done) };
            let checked = check_cut(workshop, recorded, *cut, None).map_err(|error| {
                // No thread begins another one.
                next.store(cuts.len(), Ordering::Relaxed);
                match error {
                    Error::Violation(what) => Error::Violation(format!("{cut:?}: {what}")),
                    other => other,
                }
            })?;
            let mut all =
                all.lock().map_err(|_| Error::State("a thread that checks cuts panicked".into()))?;
            all.add(&checked);
            progress(*cut, &checked, &all);
            done += 1;
        }
    };
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..limits.threads.max(1)).map(|_| scope.spawn(worker)).collect();
        let mut done = 0;
        for thread in threads {
            done +=
                thread.join().map_err(|_| Error::State("a thread that checks cuts panicked".into()))??;
        }
        Ok::<_, Error>(done)
    })?;
    Ok((all.into_inner().map_err(panicked)?, cuts.len() - done))
}

/// How [`check_cuts`] may work.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Cuts at the same time.
    pub threads: usize,
    /// No cut is begun after this time.
    pub deadline: Option<Instant>,
}

/// Possible content of a block after the end of the log: redo of another time, or random bytes.
fn garbage(redo: &[u8], seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    if random.bool() && redo.len() > 8192 {
        let from = random.usize(..redo.len() - 4096);
        return redo.get(from..from + 4096).unwrap_or_default().to_vec();
    }
    (0..4096).map(|_| random.u8(..)).collect()
}

/// Random cuts of a history: at and inside mini-transactions.
pub fn random_cuts(recorded: &Recorded, count: usize, seed: u64) -> Vec<Cut> {
    let mut random = fastrand::Rng::with_seed(seed);
    let redo = &recorded.redo;
    let first = first_cut(recorded);
    (0..count)
        .map(|_| {
            let lsn = Lsn(random.u64(first.0..=redo.end_lsn.0));
            let lsn = if random.u8(..3) > 0 { redo.boundary_before(lsn).max(first) } else { lsn };
            let garbage_seed = (random.u8(..3) == 0).then(|| random.u64(..));
            Cut { lsn, garbage_seed, small_pool: random.bool(), last_call_done: random.bool() }
        })
        .collect()
}

/// A cut at the end of every mini-transaction, and one inside each.
pub fn every_cut(recorded: &Recorded, seed: u64) -> Vec<Cut> {
    let mut random = fastrand::Rng::with_seed(seed);
    let first = first_cut(recorded);
    let mut cuts = Vec::new();
    for mtr in recorded.redo.mtrs.iter().filter(|mtr| mtr.end_lsn >= first) {
        let small_pool = random.bool();
        cuts.push(Cut { lsn: mtr.end_lsn, garbage_seed: None, small_pool, last_call_done: true });
        if !mtr.notes.is_empty() {
            cuts.push(Cut { lsn: mtr.end_lsn, garbage_seed: None, small_pool, last_call_done: false });
        }
        if mtr.start_lsn >= first {
            let lsn = Lsn(random.u64(mtr.start_lsn.0 + 1..mtr.end_lsn.0));
            let garbage_seed = random.bool().then(|| random.u64(..));
            cuts.push(Cut { lsn, garbage_seed, small_pool: random.bool(), last_call_done: true });
        }
    }
    cuts
}

/// Recovery needs the FILE_CHECKPOINT that the checkpoint block refers to.
fn first_cut(recorded: &Recorded) -> Lsn {
    recorded.redo.mtrs.first().map_or(recorded.redo.start_lsn, |mtr| mtr.end_lsn)
}

/// Contents of a history's redo.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Contents {
    /// Bytes.
    pub bytes: u64,
    /// Mini-transactions.
    pub mtrs: u64,
    /// Records.
    pub records: u64,
    /// Undo tablespaces truncated.
    pub trims: u64,
    /// Tablespaces whose flags changed.
    pub flag_changes: u64,
    /// Records by kind.
    pub kinds: std::collections::BTreeMap<&'static str, u64>,
}

impl Contents {
    /// Counts a history's redo.
    ///
    /// # Errors
    /// [`Error::Parse`].
    pub fn count(&mut self, recorded: &Recorded) -> Result<()> {
        let redo = &recorded.redo;
        self.bytes += redo.bytes.len() as u64;
        self.mtrs += redo.mtrs.len() as u64;
        for run in &redo.runs {
            self.trims += u64::from(run.trims_from.is_some());
            self.flag_changes += u64::from(run.flags != SpaceFlagsChange::Unchanged);
            for record in RecordReader::new(redo.run_bytes(run)) {
                let record = record
                    .map_err(|error| Error::Parse { what: "a record".into(), detail: error.to_string() })?;
                self.records += 1;
                if !matches!(record.body, Body::Option { .. }) {
                    *self.kinds.entry(redoubt_page::RecordKind::of(&record.body).name()).or_default() += 1;
                }
            }
        }
        Ok(())
    }
}

/// Runs `work` for at most `budget`, item by item, and says how many were done.
pub fn within<T>(
    budget: Duration,
    items: impl IntoIterator<Item = T>,
    mut work: impl FnMut(T) -> Result<()>,
) -> Result<usize> {
    let start = Instant::now();
    let mut done = 0;
    for item in items {
        if start.elapsed() >= budget {
            break;
        }
        work(item)?;
        done += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
