//! State of the world at each step, and the invariants that are checked there.
//!
//! The locks here are those of `std`: they are held only between two points of the simulation, so no thread ever waits
//! for one.

use crate::disk::Part;
use crate::history::{History, What};
use redoubt_locks::IgnorePoison;
use redoubt_node::volume::{Positions, Volume};
use redoubt_page::SpaceFlags;
use redoubt_redo::Lsn;
use redoubt_sync::simulation;
use redoubt_wire::Seq;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// Counts for a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub kills: u64,
    pub power_cuts: u64,
    /// Page journals that were removed after a kill.
    pub journals_lost: u64,
    pub shutdowns: u64,
    pub attaches: u64,
    pub holds: u64,
    /// Logs that an attach ended with a checkpoint.
    pub ended_logs: u64,
    pub reconnects: u64,
    pub frames: u64,
    pub reads: u64,
    pub examined: u64,
    /// Frames that servers sent after a newer one had attached.
    pub strays: u64,
    /// Pages that servers requested after a newer one had attached.
    pub stray_reads: u64,
    /// Attaches that others raced with.
    pub races: u64,
    pub tables_applied: u64,
    pub faults: BTreeMap<String, u64>,
}

impl Counts {
    pub fn by_name(&self) -> Vec<(String, u64)> {
        let counts = [
            ("kills", self.kills),
            ("power cuts", self.power_cuts),
            ("journals lost", self.journals_lost),
            ("shutdowns", self.shutdowns),
            ("attaches", self.attaches),
            ("races", self.races),
            ("strays", self.strays),
            ("stray reads", self.stray_reads),
            ("held states", self.holds),
            ("ended logs", self.ended_logs),
            ("reconnects", self.reconnects),
            ("frames", self.frames),
            ("reads", self.reads),
            ("logs examined", self.examined),
            ("tables applied", self.tables_applied),
        ];
        let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count));
        counts.chain(self.faults.iter().map(|(name, count)| (format!("fault: {name}"), *count))).collect()
    }

    pub fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.journals_lost += other.journals_lost;
        self.shutdowns += other.shutdowns;
        self.attaches += other.attaches;
        self.holds += other.holds;
        self.ended_logs += other.ended_logs;
        self.reconnects += other.reconnects;
        self.frames += other.frames;
        self.reads += other.reads;
        self.examined += other.examined;
        self.strays += other.strays;
        self.stray_reads += other.stray_reads;
        self.races += other.races;
        self.tables_applied += other.tables_applied;
        for (fault, count) in &other.faults {
            *self.faults.entry(fault.clone()).or_default() += count;
        }
    }
}

#[derive(Default)]
struct Inner {
    volume: Option<Arc<Volume>>,
    last: Option<Positions>,
    /// Highest position that was reported to a server as durable.
    acknowledged: u64,
    /// Highest LSN that was ever durable, kept by the check at every step.
    durable_lsn: Lsn,
    /// D and A must not move any more in this incarnation of the node.
    frozen_durable: Option<Seq>,
    frozen_applied: Option<Seq>,
    generation: u64,
    /// A later one has been given out, but no server has received it yet.
    is_overtaken: bool,
    /// All that were given out.
    given_out: BTreeSet<u64>,
    counts: Counts,
}

/// Observed state of the world, with the model's history.
pub struct Facts {
    inner: Mutex<Inner>,
    history: Mutex<History>,
    /// The log is a file: a failed sync of it freezes D at once.
    log_is_file: bool,
}

impl Facts {
    pub fn new(flags: SpaceFlags, log_is_file: bool) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), history: Mutex::new(History::new(flags)), log_is_file })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().ignore_poison()
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().ignore_poison()
    }

    pub fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.inner().counts);
    }

    pub fn counts(&self) -> Counts {
        self.inner().counts.clone()
    }

    pub fn count_fault(&self, what: &str) {
        *self.inner().counts.faults.entry(what.to_owned()).or_default() += 1;
    }

    /// A life of the node begins or ends.
    pub fn set_volume(&self, volume: Option<Arc<Volume>>) {
        let old = {
            let mut inner = self.inner();
            inner.last = None;
            if volume.is_none() {
                inner.frozen_durable = None;
                inner.frozen_applied = None;
            }
            std::mem::replace(&mut inner.volume, volume)
        };
        drop(old);
    }

    pub fn volume(&self) -> Option<Arc<Volume>> {
        self.inner().volume.clone()
    }

    pub fn acknowledged(&self) -> u64 {
        self.inner().acknowledged
    }

    pub fn durable_lsn(&self) -> Lsn {
        self.inner().durable_lsn
    }

    /// A server received a durable notice for `seq`.
    pub fn acknowledge(&self, seq: u64) {
        let mut inner = self.inner();
        inner.acknowledged = inner.acknowledged.max(seq);
    }

    /// A server received its generation. False: a later one was received before.
    pub fn attached(&self, generation: u64) -> bool {
        let mut inner = self.inner();
        assert!(inner.given_out.insert(generation), "generation {generation} is given out a second time");
        inner.counts.attaches += 1;
        let is_newest = generation > inner.generation;
        inner.is_overtaken &= !is_newest;
        inner.generation = inner.generation.max(generation);
        is_newest
    }

    pub fn generation(&self) -> u64 {
        self.inner().generation
    }

    /// Whether the server of a generation may still add to the model.
    pub fn is_current(&self, generation: u64) -> bool {
        let inner = self.inner();
        inner.generation == generation && !inner.is_overtaken
    }

    /// After a failed sync nothing more may be reported as durable.
    pub fn sync_failed(&self, part: Part) {
        let Some(volume) = self.volume() else { return };
        let at = volume.positions();
        let mut inner = self.inner();
        match part {
            Part::Log if self.log_is_file => {
                inner.frozen_durable.get_or_insert(at.durable);
            }
            Part::Pages | Part::Plain => {
                inner.frozen_applied.get_or_insert(at.applied);
            }
            // Preparing spare segments, and attaching, may fail without harm.
            Part::Log | Part::Own => {}
        }
    }

    /// Bytes go to a plain file: a durable frame must contain the write.
    pub fn plain_written(&self, offset_bytes: u64, bytes: &[u8]) {
        let Some(volume) = self.volume() else { return };
        let durable = volume.positions().durable.0;
        let history = self.history();
        let is_known = history.frames.iter().take_while(|frame| frame.end <= durable).any(|frame| {
            matches!(&frame.what, What::Write(_, offset, data) if *offset as u64 == offset_bytes && data.as_slice() == bytes)
        });
        drop(history);
        if !is_known {
            simulation::fail(&format!("{} bytes above D ({durable}) go to a plain file", bytes.len()));
        }
    }

    /// A page goes to the page store.
    pub fn page_stored(&self, object: u32, page_no: u32, lsn: Lsn) {
        let Some(volume) = self.volume() else { return };
        let durable = volume.durable();
        if lsn > durable.lsn {
            simulation::fail(&format!(
                "page {page_no} of object {object} is stored at LSN {lsn}, D is at {}",
                durable.lsn
            ));
        }
    }

    /// At every step.
    pub fn check(&self) -> Result<(), String> {
        let mut inner = self.inner();
        let Some(volume) = &inner.volume else { return Ok(()) };
        let now = volume.positions();
        if inner.last == Some(now) {
            return Ok(());
        }
        let last = inner.last;
        let say = |what: &str| Err(format!("{what}: {now:?}, before {last:?}"));
        if now.applied > now.parsed {
            return say("A is above P");
        }
        if now.applied > now.durable {
            return say("A is above D");
        }
        if let Some(received) = now.received {
            if now.parsed > received.seq {
                return say("P is above W");
            }
            if now.durable > received.seq {
                return say("D is above W");
            }
            if self.history().follow(received)? {
                inner.counts.ended_logs += 1;
                // The server that wrote the volume has been fenced, and will be notified.
                inner.is_overtaken = true;
            }
        }
        if let Some(last) = inner.last
            && (now.parsed < last.parsed
                || now.durable < last.durable
                || now.applied < last.applied
                || now.received.zip(last.received).is_some_and(|(now, last)| now.seq < last.seq))
        {
            return say("a mark went back");
        }
        if inner.frozen_durable.is_some_and(|frozen| now.durable > frozen) {
            return say("D moved after a failed sync of the log");
        }
        if inner.frozen_applied.is_some_and(|frozen| now.applied > frozen) {
            return say("A moved after a failed sync");
        }
        inner.durable_lsn = inner.durable_lsn.max(now.durable_lsn.unwrap_or_default());
        let received = now.received.or(inner.last.and_then(|last| last.received));
        inner.last = Some(Positions { received, ..now });
        Ok(())
    }
}
