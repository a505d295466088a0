//! The files of a running server at one moment, and the same with its log cut earlier.
//!
//! The server is stopped (SIGSTOP), its data directory is copied, and it continues: the copy is the same as after kill
//! -9. The log may also end earlier if no file was made, renamed or removed since, and no page in a file is of a later
//! time. The server wrote no page after its redo, so a crash before the last writes would have left the same files.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use redoubt_harness::sparse_files::copy_directory;
use redoubt_page::mysql::chain::page_lsn;
use redoubt_redo::mysql::{FirstGroups, LogFileName, LogImage, LogSet, LogSetRead, RecordReader, position};
use redoubt_redo::{Lsn, Mtr, PageId};
use redoubt_workload::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::files::Tablespaces;
use crate::base::parse;

/// Directory of the log files.
const LOG_DIRECTORY: &str = "#innodb_redo";
/// How long a process may take to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// Copies the data directory of a server as it is at one moment.
///
/// # Errors
/// [`Error::Deadline`] if it does not stop; [`Error::Io`].
pub fn copy_at_once(process_id: u32, datadir: &Path, to: &Path) -> Result<()> {
    let pid = i32::try_from(process_id).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::State(format!("{process_id} is no process id")))?;
    let signal =
        |signal| kill_process(pid, signal).map_err(|error| Error::io("signal a server")(error.into()));
    signal(Signal::STOP)?;
    let copied = wait_stopped(process_id).and_then(|()| copy_directory(datadir, to));
    signal(Signal::CONT)?;
    copied
}

/// A thread that was in a system call when the signal came still ends that.
fn wait_stopped(process_id: u32) -> Result<()> {
    let began = Instant::now();
    while !is_stopped(process_id)? {
        if began.elapsed() > PATIENCE {
            return Err(Error::Deadline {
                what: "a server to stop".into(),
                after: PATIENCE,
                detail: String::new(),
            });
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn is_stopped(process_id: u32) -> Result<bool> {
    let tasks = format!("/proc/{process_id}/task");
    for task in fs::read_dir(&tasks).map_err(Error::io_at("list", Path::new(&tasks)))? {
        let stat = task.map_err(Error::io_at("list", Path::new(&tasks)))?.path().join("stat");
        // A thread that has ended meanwhile is none.
        let Ok(text) = fs::read_to_string(&stat) else { continue };
        let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, Some('T' | 't' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The server was making one of its own undo tablespaces again: the file is gone, and not there again yet.
pub fn has_no_undo(datadir: &Path) -> bool {
    (1..=2).any(|number| {
        let file = datadir.join(format!("undo_{number:03}"));
        !file.exists() && datadir.join(format!("undo_{number}_trunc.log")).exists()
    })
}

/// The log of a data directory, in memory.
#[derive(Debug, Default)]
pub struct Log(BTreeMap<u64, Vec<u8>>);

impl LogSetRead for Log {
    type Error = std::io::Error;

    fn read_at(&self, number: u64, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let file = self.0.get(&number).ok_or(std::io::ErrorKind::NotFound)?;
        let from = usize::try_from(offset).map_err(std::io::Error::other)?;
        let bytes = file.get(from..from + buf.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

impl Log {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(datadir: &Path) -> Result<Self> {
        let directory = datadir.join(LOG_DIRECTORY);
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&directory).map_err(Error::io_at("list", &directory))? {
            let entry = entry.map_err(Error::io_at("list", &directory))?;
            if let Some(LogFileName::Log(number)) = LogFileName::parse(entry.file_name().as_encoded_bytes()) {
                let path = entry.path();
                files.insert(number, fs::read(&path).map_err(Error::io_at("read", &path))?);
            }
        }
        Ok(Self(files))
    }

    /// Its files as one log.
    ///
    /// # Errors
    /// [`Error::Parse`].
    pub fn open(&self) -> Result<LogSet<'_, Self>> {
        let sizes: Vec<_> = self.0.iter().map(|(number, bytes)| (*number, bytes.len() as u64)).collect();
        LogSet::open(self, &sizes).map_err(parse("the redo log"))
    }
}

/// Contents of the log after a crash.
#[derive(Debug, Default)]
pub struct Contents {
    /// End of the last whole mini-transaction.
    pub end_lsn: Lsn,
    /// Bytes after the checkpoint.
    pub redo_bytes: u64,
    /// Mini-transactions from the checkpoint on.
    pub mtrs: u64,
    /// Their records.
    pub records: u64,
    /// Pages that they change.
    pub pages: HashSet<PageId>,
}

/// Which redo recovery applies to the files of a directory.
///
/// # Errors
/// [`Error::Parse`] if the log is not understood.
pub fn contents(datadir: &Path) -> Result<Contents> {
    let log = Log::read(datadir)?;
    let set = log.open()?;
    let start = set.first_mtr().map_err(parse("the redo log"))?.unwrap_or_else(|| set.checkpoint());
    since(&set, start)
}

/// Contents of a directory's log from `start` on, where a mini-transaction starts. `None`: the log no longer reaches
/// back that far.
///
/// # Errors
/// As for [`contents`].
pub fn contents_since(datadir: &Path, start: Lsn) -> Result<Option<Contents>> {
    let log = Log::read(datadir)?;
    let set = log.open()?;
    let first = set.files().first().map_or(0, |file| file.range.start_lsn);
    if position::block_start(start) < first {
        return Ok(None);
    }
    since(&set, start).map(Some)
}

fn since(set: &LogSet<'_, Log>, start: Lsn) -> Result<Contents> {
    let mut contents = Contents::default();
    let end = set.walk(start, &mut |mtr: &Mtr<'_, '_>| {
        contents.mtrs += 1;
        contents.records += RecordReader::new(mtr.records).filter(std::result::Result::is_ok).count() as u64;
        contents.pages.extend(mtr.runs.iter().map(|run| run.page));
    });
    contents.end_lsn = end.map_err(parse("the redo log"))?.end_lsn;
    contents.redo_bytes = contents.end_lsn.0.saturating_sub(start.0);
    Ok(contents)
}

/// Where a log was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Its last byte is before this position.
    pub lsn: Lsn,
    /// It was cut inside a mini-transaction.
    pub is_inside: bool,
}

/// Cuts the log of a crash where an earlier crash could have: anywhere after what the files hold. `None`: there is no
/// such place but the end.
///
/// # Errors
/// [`Error::Parse`], [`Error::Io`].
pub fn cut_log(datadir: &Path, random: &mut fastrand::Rng) -> Result<Option<Cut>> {
    let log = Log::read(datadir)?;
    let set = log.open()?;
    let sizes = set.files().iter().map(|file| file.range.size_bytes);
    let is_even = sizes.clone().max() == sizes.min();
    let Some(start) = set.first_mtr().map_err(parse("the redo log"))? else { return Ok(None) };
    let (mut first_groups, mut boundaries, mut settled) =
        (FirstGroups::default(), vec![start], set.checkpoint());
    let walked = set.walk(start, &mut |mtr: &Mtr<'_, '_>| {
        first_groups.insert(mtr.start_lsn);
        first_groups.insert(mtr.end_lsn);
        boundaries.push(mtr.end_lsn);
        if !mtr.files.is_empty() || !mtr.index_loads.is_empty() {
            settled = settled.max(mtr.end_lsn);
        }
    });
    let end = walked.map_err(parse("the redo log"))?.end_lsn;
    let settled = settled.max(newest_page(datadir)?);
    if !is_even || settled >= end {
        return Ok(None);
    }
    let drawn = Lsn(random.u64(settled.0..=end.0));
    let before = boundaries.iter().rev().find(|boundary| **boundary <= drawn).copied().unwrap_or(start);
    let lsn = if random.u8(..3) > 0 && before >= settled { before } else { drawn };
    let block = Lsn(set.checkpoint().0 / BLOCK_PAYLOAD * BLOCK_PAYLOAD);
    let Some(image) = set.image(block, lsn) else { return Ok(None) };
    compose(datadir, &log, &set, &image, &first_groups)?;
    Ok(Some(Cut { lsn, is_inside: before != lsn }))
}

const BLOCK_PAYLOAD: u64 = redoubt_redo::mysql::block::PAYLOAD_BYTES as u64;

/// Puts composed files in the place of those of the log.
fn compose(
    datadir: &Path,
    log: &Log,
    set: &LogSet<'_, Log>,
    image: &LogImage,
    first_groups: &FirstGroups,
) -> Result<()> {
    for number in log.0.keys() {
        let path = datadir.join(LOG_DIRECTORY).join(LogFileName::Log(*number).to_string());
        if !image.numbers().contains(number) {
            fs::remove_file(&path).map_err(Error::io_at("remove", &path))?;
            continue;
        }
        let mut bytes = vec![0; image.file_size_bytes as usize];
        image
            .compose(*number, 0, &mut bytes, first_groups, |position, part| set.read_payload(position, part))
            .map_err(parse("the redo log"))?;
        let file = fs::File::create(&path).map_err(Error::io_at("create", &path))?;
        file.write_all_at(&bytes, 0).map_err(Error::io_at("write", &path))?;
    }
    Ok(())
}

/// The newest LSN of a page in a file.
fn newest_page(datadir: &Path) -> Result<Lsn> {
    let mut newest = Lsn(0);
    for space in Tablespaces::read(datadir)?.0.values() {
        let pages = space.bytes.chunks_exact(space.format.physical_page_size_bytes());
        newest = pages.filter_map(page_lsn).fold(newest, Ord::max);
    }
    Ok(newest)
}
