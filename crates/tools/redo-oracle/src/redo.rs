//! The redo of a history: bytes, and an index of what each mini-transaction touches.

use std::ops::Range;
use std::path::Path;

use redoubt_redo::mariadb::{LogScan, SequenceRule, walk_mtrs};
use redoubt_redo::{FileRecord, Lsn, Mtr, PageId, PageNo, SpaceFlagsChange, SpaceId, WalkStop};
use redoubt_workload::error::{Error, Result};

use super::base::{LogFile, parse};

/// A mini-transaction.
#[derive(Debug, Clone)]
pub struct MtrIndex {
    /// LSN of its first byte.
    pub start_lsn: Lsn,
    /// LSN after its last byte.
    pub end_lsn: Lsn,
    /// Its runs.
    pub runs: Range<usize>,
    /// Its notes about files.
    pub notes: Range<usize>,
}

/// Consecutive records of a page.
#[derive(Debug, Clone)]
pub struct RunIndex {
    /// The page.
    pub page: PageId,
    /// Where in the bytes of the redo.
    pub bytes: Range<usize>,
    /// TRIM_PAGES: all pages from this one on start again.
    pub trims_from: Option<PageNo>,
    /// Change of the tablespace's flags.
    pub flags: SpaceFlagsChange,
}

/// Content of a FILE_ record, with paths relative to the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The file is created.
    Create(String),
    /// The file is removed.
    Delete(String),
    /// The file is renamed, from and to.
    Rename(String, String),
    /// The tablespace has this name.
    Modify(String),
}

/// The redo of a history: bytes, and an index of what each mini-transaction touches.
#[derive(Debug, Clone, Default)]
pub struct Redo {
    /// Whole mini-transactions.
    pub bytes: Vec<u8>,
    /// LSN of the first byte.
    pub start_lsn: Lsn,
    /// LSN after the last byte.
    pub end_lsn: Lsn,
    /// The mini-transactions, in order.
    pub mtrs: Vec<MtrIndex>,
    /// Runs of all of them.
    pub runs: Vec<RunIndex>,
    /// Notes of all of them.
    pub notes: Vec<(SpaceId, Note)>,
}

impl Redo {
    /// Reads the stream from `start_lsn` on from one log file, or from several that follow each other.
    ///
    /// # Errors
    /// [`Error::Parse`] when a file is not a log, lacks the LSN it has to begin with, or the log went around.
    pub fn from_files(paths: &[&Path], start_lsn: Lsn) -> Result<Self> {
        let mut bytes = Vec::new();
        let mut at = start_lsn;
        for path in paths {
            let what = path.display().to_string();
            let log = LogFile::open(path)?;
            let scan = LogScan::open(&log).map_err(parse(&what))?;
            // An LSN that was overwritten has another sequence bit there, so that the walk ends at once.
            let mut take = |mtr: &Mtr<'_, '_>| bytes.extend_from_slice(mtr.bytes);
            at = scan.walk(at, &mut take).map_err(parse(&what))?.end_lsn;
            if at < scan.checkpoint().end_lsn {
                let detail = format!(
                    "the redo from {start_lsn} ends at {at}, before the file's own checkpoint {}",
                    scan.checkpoint().end_lsn
                );
                return Err(Error::Parse { what, detail });
            }
        }
        Self::from_bytes(bytes, start_lsn)
    }

    /// Indexes a stream of whole mini-transactions.
    ///
    /// # Errors
    /// [`Error::Parse`] when it is not one.
    pub fn from_bytes(bytes: Vec<u8>, start_lsn: Lsn) -> Result<Self> {
        let mut this = Self { start_lsn, end_lsn: start_lsn, ..Self::default() };
        let walked = walk_mtrs(&bytes, start_lsn, SequenceRule::Any, &mut |mtr: &Mtr<'_, '_>| this.add(mtr))
            .map_err(parse("the redo"))?;
        if walked.stop != WalkStop::AllConsumed {
            let detail = format!("it ends inside a mini-transaction at {}", walked.end_lsn);
            return Err(Error::Parse { what: "the redo".into(), detail });
        }
        this.end_lsn = walked.end_lsn;
        this.bytes = bytes;
        Ok(this)
    }

    fn add(&mut self, mtr: &Mtr<'_, '_>) {
        let (first_run, first_note) = (self.runs.len(), self.notes.len());
        self.runs.extend(mtr.runs.iter().map(|run| RunIndex {
            page: run.page,
            bytes: run.offset_in_bytes..run.offset_in_bytes + run.len_bytes,
            trims_from: run.trims_from(),
            flags: run.space_flags,
        }));
        self.notes.extend(mtr.files.iter().filter_map(|file| Some((file.space, note(&file.record)?))));
        self.mtrs.push(MtrIndex {
            start_lsn: mtr.start_lsn,
            end_lsn: mtr.end_lsn,
            runs: first_run..self.runs.len(),
            notes: first_note..self.notes.len(),
        });
    }

    /// The bytes of a run.
    pub fn run_bytes(&self, run: &RunIndex) -> &[u8] {
        self.bytes.get(run.bytes.clone()).unwrap_or_default()
    }

    /// The bytes from the start up to `lsn`.
    pub fn bytes_until(&self, lsn: Lsn) -> &[u8] {
        let len = lsn.0.saturating_sub(self.start_lsn.0) as usize;
        self.bytes.get(..len.min(self.bytes.len())).unwrap_or_default()
    }

    /// The mini-transactions that are whole at `lsn`.
    pub fn mtrs_until(&self, lsn: Lsn) -> &[MtrIndex] {
        let count = self.mtrs.partition_point(|mtr| mtr.end_lsn <= lsn);
        self.mtrs.get(..count).unwrap_or_default()
    }

    /// The last end of a mini-transaction at or before `lsn`.
    pub fn boundary_before(&self, lsn: Lsn) -> Lsn {
        self.mtrs_until(lsn).last().map_or(self.start_lsn, |mtr| mtr.end_lsn)
    }
}

fn note(record: &FileRecord<'_>) -> Option<Note> {
    Some(match record {
        FileRecord::Create { path } => Note::Create(relative(path)),
        FileRecord::Delete { path } => Note::Delete(relative(path)),
        FileRecord::Rename { old_path, new_path } => Note::Rename(relative(old_path), relative(new_path)),
        FileRecord::Modify { path } => Note::Modify(relative(path)),
        FileRecord::Extend { .. } | FileRecord::Checkpoint { .. } => return None,
    })
}

fn relative(path: &[u8]) -> String {
    String::from_utf8_lossy(path.strip_prefix(b"./").unwrap_or(path)).into_owned()
}
