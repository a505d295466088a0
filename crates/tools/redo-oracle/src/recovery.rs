//! A stock server's crash recovery of a base and a redo stream, without any later change.
//!
//! The server is stopped at the one point where all of redo is applied and written and nothing has been logged since. A
//! server that is started with another `innodb_log_file_size` than its log has must replace the log. Before that it
//! applies all redo and writes every dirty page; rollback, purge, undo truncation and change buffer merges come later.
//! A *directory* named `ib_logfile101` lies where the new log would be created, so the start ends there. The server
//! logs `Resizing redo log from ... to ...; LSN=N` on its way. N is the end of the redo that it found, and without that
//! line the recovery does not count. Then the server is killed.
//!
//! So nothing needs to be accounted for: files and log are as recovery left them, which is checked by the log file
//! being the same afterwards, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redoubt_harness::encryption::KeyPlugin;
use redoubt_harness::sparse_files::write_sparse;
use redoubt_page::{finalize, layout};
use redoubt_redo::{Lsn, PageId, PageNo, SpaceId};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::{Process, poll_until, tail_of};

use super::base::{Base, tablespace_files};
use super::clear;
use super::redo::{Note, Redo};
use super::replay::Replayed;

/// The longest a recovery may take. There are crashes that this server version never gets through.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// The server's message about a record that does not fit its page. It continues, and still logs the end of the redo.
pub(super) const REFUSED_RECORD: &str = "due to corruption on";

/// How a server recovers.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server program.
    pub server: PathBuf,
    /// Buffer pool in MiB. A small one makes recovery apply its redo in several batches.
    pub buffer_pool_mib: u32,
    /// Arguments that the server of the history had and recovery needs (`--innodb-page-size=...`).
    pub innodb_args: Vec<String>,
    /// The plugin with the keys of encrypted tablespaces.
    pub keys: Option<Arc<KeyPlugin>>,
}

/// Result of a recovery.
#[derive(Debug)]
pub struct Recovered {
    /// Where it found the end of the redo.
    pub end_lsn: Lsn,
    /// The tablespace files it left, in clear.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Pages of them that were encrypted.
    pub encrypted_pages: u64,
    /// Of these: torn in their file and taken from the doublewrite area, as the server reads them.
    pub torn: clear::TornPages,
    /// The server's messages.
    pub log: String,
    /// How long the server ran.
    pub took: Duration,
}

/// The server's messages before it ends by itself. After an assertion its log continues with a page of stack and
/// limits.
fn why_it_gave_up(log: &str) -> String {
    let says_why =
        |line: &&str| ["[ERROR]", "[FATAL]", "ssertion", "got signal"].iter().any(|word| line.contains(word));
    let reasons: Vec<_> = log.lines().filter(says_why).collect();
    if reasons.is_empty() { tail_of(log, 40) } else { reasons.join("\n") }
}

/// How a recovery ended.
#[derive(Debug)]
pub enum Outcome {
    /// All redo is in the pages.
    Recovered(Recovered),
    /// The server gave up; its messages.
    Refused(String),
}

/// Bytes after a redo stream that is cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tail {
    /// Zeros, as in a file that was never written there.
    #[default]
    Zeros,
    /// Any bytes, as an earlier use of the block leaves them.
    Bytes(Vec<u8>),
}

/// A crash: what lies on disk when the server is started again. Files were created, renamed and removed, as the server
/// does right after each FILE_ record is durable. No page was written since the base but page 0 of each new
/// tablespace, without which the server finds no tablespace after several renames. It is begun again by INIT_PAGE in
/// the redo, as every page of a new tablespace is, so recovery takes none of its bytes into the result.
#[derive(Debug)]
pub struct Crash<'c> {
    base: &'c Base,
    /// Files by path: a base's file, or a file that was created and never written.
    files: BTreeMap<String, Source<'c>>,
    redo: &'c [u8],
    ours: &'c Replayed,
    /// The bytes after the redo.
    pub tail: Tail,
}

/// Where a file comes from.
#[derive(Debug)]
enum Source<'c> {
    Base(&'c [u8]),
    New(SpaceId),
}

impl<'c> Crash<'c> {
    /// The crash of a server whose redo is durable up to `until`. `last_call_done`: the system call that belongs to the
    /// last mini-transaction was made.
    pub fn new(base: &'c Base, redo: &'c Redo, ours: &'c Replayed, until: Lsn, last_call_done: bool) -> Self {
        let mut files: BTreeMap<_, _> =
            base.files.iter().map(|(path, bytes)| (path.clone(), Source::Base(bytes.as_slice()))).collect();
        let mut mtrs = redo.mtrs_until(until);
        if let (false, Some((_, rest))) = (last_call_done, mtrs.split_last()) {
            mtrs = rest;
        }
        for (space, note) in mtrs.iter().flat_map(|mtr| redo.notes.get(mtr.notes.clone()).unwrap_or_default())
        {
            match note {
                Note::Create(path) => {
                    files.insert(path.clone(), Source::New(*space));
                }
                Note::Delete(path) => {
                    files.remove(path);
                }
                Note::Rename(from, to) => {
                    if let Some(file) = files.remove(from) {
                        files.insert(to.clone(), file);
                    }
                }
                Note::Modify(_) => {}
            }
        }
        Self { base, files, redo: redo.bytes_until(until), ours, tail: Tail::Zeros }
    }

    /// Writes it as a data directory.
    ///
    /// # Errors
    /// [`Error::State`] when the redo does not fit the log file once; [`Error::Io`].
    pub fn lay_out(&self, directory: &Path) -> Result<()> {
        let create = |path: &Path| fs::create_dir_all(path).map_err(Error::io_at("create", path));
        create(directory)?;
        for name in &self.base.directories {
            create(&directory.join(name))?;
        }
        for (name, bytes) in &self.files {
            let path = directory.join(name);
            path.parent().map_or(Ok(()), create)?;
            match bytes {
                Source::Base(bytes) => write_sparse(&path, bytes)?,
                Source::New(space) => write_sparse(&path, &self.new_file(*space))?,
            }
        }
        write_log(self.base, self.redo, &self.tail, &directory.join("ib_logfile0"))
    }

    /// Page 0 and room for the others.
    fn new_file(&self, space: SpaceId) -> Vec<u8> {
        const PAGES_OF_A_NEW_FILE: usize = 4;
        let flags = self.ours.spaces.get(&space).and_then(|space| space.flags);
        let page0 = self.ours.pages.get(&PageId { space, page_no: PageNo(0) });
        let (Some(flags), Some(page0)) = (flags, page0) else { return Vec::new() };
        let mut bytes = page0.image.clone();
        if finalize(&mut bytes, flags).is_err() {
            return Vec::new();
        }
        let pages = layout::space_size_pages(&bytes).map_or(PAGES_OF_A_NEW_FILE, |pages| pages as usize);
        // The least is counted in pages before compression.
        let least = PAGES_OF_A_NEW_FILE * flags.logical_page_size_bytes();
        let len = (pages * flags.physical_page_size_bytes()).max(least);
        bytes.resize(len, 0);
        bytes
    }
}

/// Lays out a crash in `directory`, which must not exist, and lets a stock server recover it.
///
/// # Errors
/// As for [`Crash::lay_out`] and [`recover_in_place`].
pub fn recover(crash: &Crash<'_>, directory: &Path, options: &Options) -> Result<Outcome> {
    crash.lay_out(directory)?;
    let outcome = recover_in_place(directory, crash.base.geometry.file_size_bytes(), options);
    fs::remove_dir_all(directory).map_err(Error::io_at("remove", directory))?;
    outcome
}

fn write_log(base: &Base, redo: &[u8], tail: &Tail, path: &Path) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let size_bytes = base.geometry.file_size_bytes();
    let offset = base.geometry.offset_of(base.start_lsn());
    let tail: &[u8] = match tail {
        Tail::Zeros => &[],
        Tail::Bytes(bytes) => bytes,
    };
    if offset + (redo.len() + tail.len()) as u64 >= size_bytes {
        return Err(Error::State(format!(
            "{} bytes of redo do not fit a log file of {size_bytes} bytes from LSN {} on",
            redo.len(),
            base.start_lsn()
        )));
    }
    let file = fs::File::create(path).map_err(Error::io_at("create", path))?;
    let write = |bytes: &[u8], at: u64| file.write_all_at(bytes, at).map_err(Error::io_at("write", path));
    file.set_len(size_bytes).map_err(Error::io_at("set the length of", path))?;
    write(&base.header, 0)?;
    write(&base.checkpoint.build(), 4096)?;
    write(redo, offset)?;
    write(tail, offset + redo.len() as u64)
}

/// Lets a stock server recover a data directory where it is, and reads what it left.
///
/// # Errors
/// [`Error::Io`]; [`Error::Violation`] when the server changed the log.
pub fn recover_in_place(directory: &Path, log_size_bytes: u64, options: &Options) -> Result<Outcome> {
    let barrier = directory.join("ib_logfile101");
    fs::create_dir_all(&barrier).map_err(Error::io_at("create", &barrier))?;
    let log = directory.join("ib_logfile0");
    let before = log_head(&log)?;
    let scratch = directory.with_extension("tmp");
    fs::create_dir_all(&scratch).map_err(Error::io_at("create", &scratch))?;
    let start = Instant::now();
    let text = run_server(directory, &scratch, log_size_bytes + (1 << 20), options)?;
    let took = start.elapsed();
    fs::remove_dir_all(&scratch).map_err(Error::io_at("remove", &scratch))?;
    let Some(end_lsn) = resize_lsn(&text).filter(|_| !text.contains(REFUSED_RECORD)) else {
        return Ok(Outcome::Refused(why_it_gave_up(&text)));
    };
    if log_head(&log)? != before {
        return Err(Error::Violation(format!("the server wrote to its log before it stopped:\n{text}")));
    }
    let mut files = tablespace_files(directory, &mut BTreeSet::new())?;
    let cleared = match options.keys {
        Some(_) => clear::decrypt(&mut files, None, end_lsn)?,
        None => clear::Cleared::default(),
    };
    let (encrypted_pages, torn) = (cleared.pages, cleared.torn);
    Ok(Outcome::Recovered(Recovered { end_lsn, files, encrypted_pages, torn, log: text, took }))
}

/// Header and checkpoints: a server that adds anything to its log also makes a checkpoint after it at its end.
fn log_head(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut head = Vec::new();
    let file = fs::File::open(path).map_err(Error::io_at("open", path))?;
    file.take(12_288).read_to_end(&mut head).map_err(Error::io_at("read", path))?;
    Ok(head)
}

fn run_server(directory: &Path, scratch: &Path, log_bytes: u64, options: &Options) -> Result<String> {
    let mut command = Command::new(&options.server);
    command
        .args(["--no-defaults", "--bootstrap", "--user=root", "--skip-grant-tables", "--skip-networking"])
        .args([
            "--innodb-use-native-aio=0",
            "--innodb-doublewrite=0",
            "--innodb-buffer-pool-load-at-startup=0",
        ])
        .args(["--loose-aria-log-file-size=8388608", "--loose-aria-pagecache-buffer-size=131072"])
        .args(["--key-buffer-size=8192", "--innodb-read-io-threads=2", "--innodb-write-io-threads=2"])
        .arg(format!("--datadir={}", directory.display()))
        .arg(format!("--tmpdir={}", scratch.display()))
        .arg(format!("--pid-file={}", scratch.join("pid").display()))
        .arg(format!("--innodb-log-file-size={log_bytes}"))
        .arg(format!("--innodb-buffer-pool-size={}M", options.buffer_pool_mib))
        .args(&options.innodb_args)
        .args(options.keys.iter().flat_map(|keys| keys.options()))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let log = scratch.join("error.log");
    command.stderr(fs::File::create(&log).map_err(Error::io_at("create", &log))?);
    let mut process = Process::spawn("mariadbd for a recovery", &mut command)?;
    let read = || fs::read(&log).map_err(Error::io_at("read", &log));
    // After this message there is nothing but the end of the process, in which it sometimes waits for itself for ever.
    let ended = poll_until("the end of a recovery", RECOVERY_TIMEOUT, || {
        let ended = process.try_wait()?.is_some();
        let stopped = String::from_utf8_lossy(&read()?).contains("Plugin initialization aborted");
        Ok((ended || stopped).then_some(()))
    });
    process.kill()?;
    let mut text = String::from_utf8_lossy(&read()?).into_owned();
    if let Err(error) = ended {
        text = text.replace("Resizing redo log", "(too late) resizing redo log");
        text.push_str(&error.to_string());
    }
    Ok(text)
}

/// The LSN in `Resizing redo log from 96.000MiB to 97.000MiB; LSN=12345`.
fn resize_lsn(text: &str) -> Option<Lsn> {
    let line = text.lines().find(|line| line.contains("Resizing redo log from"))?;
    line.rsplit_once("LSN=")?.1.trim().parse().ok().map(Lsn)
}

/// A directory name for the next recovery below `parent`, short and never used before in this process.
pub fn next_directory(parent: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    parent.join(format!("r{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}
