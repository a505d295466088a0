//! The fault injector (`libredoubt_faults.so`, crate `redoubt-faults`) seen from a test: which process it is put under,
//! which rules are in force now, what it has injected.
//!
//! Invariants: rules count from the moment [`Injector::set`] returns, in processes that run already and in those to
//! come; counts only grow and outlive the processes. The layout of the control file and the language of the rules are
//! those of the crate, which this one must not link: its hooks would replace the calls of the test itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use redoubt_workload::error::{Error, Result};

const MAGIC: [u8; 8] = *b"RDTFLT01";
const LEN_BYTES: usize = 16384;
const GENERATION_AT: u64 = 8;
const SEED_AT: u64 = 16;
const REFUSED_AT: u64 = 24;
const TEXT_AT: u64 = 4096;
const TEXT_BYTES: usize = 4096;
const COUNTS_AT: u64 = 8192;
const SEEN_AT: u64 = 12288;
const CALLS: [&str; 12] = [
    "read", "write", "sync", "allocate", "truncate", "open", "rename", "unlink", "receive", "send",
    "connect", "accept",
];
const FAULTS: [&str; 7] = ["short", "eintr", "eio", "enospc", "reset", "delay", "swallow"];

/// Faults by name, such as `write eio`.
pub type Counts = BTreeMap<String, u64>;

/// One control file, for the processes that get [`Injector::environment`].
#[derive(Debug)]
pub struct Injector {
    path: PathBuf,
    file: File,
    library: PathBuf,
    program: String,
    generation: AtomicU64,
}

impl Injector {
    /// A control file in `directory` for processes of `program` (at most 15 characters, as the kernel names them),
    /// without rules.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`] when the library was not built, [`Error::Io`].
    pub fn new(directory: &Path, program: &str) -> Result<Self> {
        let library = find_library()?;
        let path = directory.join(format!("faults-{program}"));
        let mut bytes = vec![0; LEN_BYTES];
        bytes.splice(..MAGIC.len(), MAGIC);
        std::fs::write(&path, bytes).map_err(Error::io_at("write", &path))?;
        let file = File::options().read(true).write(true).open(&path).map_err(Error::io_at("open", &path))?;
        Ok(Self { path, file, library, program: program.to_owned(), generation: AtomicU64::new(0) })
    }

    /// Environment variables that a process needs.
    pub fn environment(&self) -> Vec<(String, OsString)> {
        let log = self.path.with_extension("log");
        vec![
            ("LD_PRELOAD".to_owned(), self.library.clone().into_os_string()),
            ("REDOUBT_FAULTS".to_owned(), self.path.clone().into_os_string()),
            ("REDOUBT_FAULTS_PROGRAM".to_owned(), OsString::from(&self.program)),
            ("REDOUBT_FAULTS_LOG".to_owned(), log.into_os_string()),
        ]
    }

    /// The file with one line per fault.
    pub fn log_path(&self) -> PathBuf {
        self.path.with_extension("log")
    }

    /// Puts `rules` (lines, see the crate) in force.
    ///
    /// # Errors
    /// [`Error::State`] when they are too long, [`Error::Io`].
    pub fn set(&self, seed: u64, rules: &str) -> Result<()> {
        if rules.len() >= TEXT_BYTES {
            return Err(Error::State(format!("rules of {} bytes are too long", rules.len())));
        }
        self.clear()?;
        let mut text = rules.as_bytes().to_vec();
        text.resize(TEXT_BYTES, 0);
        self.write(SEED_AT, &seed.to_le_bytes())?;
        self.write(TEXT_AT, &text)?;
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        self.write(GENERATION_AT, &generation.to_le_bytes())
    }

    /// Ends all faults.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear(&self) -> Result<()> {
        self.write(GENERATION_AT, &0u64.to_le_bytes())
    }

    /// Counts of the faults injected so far.
    ///
    /// # Errors
    /// [`Error::State`] when a process could not read its rules, [`Error::Io`].
    pub fn counts(&self) -> Result<Counts> {
        if self.number(REFUSED_AT)? != 0 {
            return Err(Error::State(format!("{} did not understand its rules", self.program)));
        }
        let mut counts = Counts::new();
        for (call_number, call) in (0u64..).zip(CALLS) {
            for (fault_number, fault) in (0u64..).zip(FAULTS) {
                let at = COUNTS_AT + 8 * (call_number * FAULTS.len() as u64 + fault_number);
                let count = self.number(at)?;
                if count > 0 {
                    counts.insert(format!("{call} {fault}"), count);
                }
            }
        }
        Ok(counts)
    }

    /// Calls that rules were asked about.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn calls_seen(&self) -> Result<u64> {
        (0..CALLS.len() as u64).map(|call| self.number(SEEN_AT + 8 * call)).sum()
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(Error::io_at("write", &self.path))
    }

    fn number(&self, at: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).map_err(Error::io_at("read", &self.path))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Adds `more` to `counts`.
pub fn add_counts(counts: &mut Counts, prefix: &str, more: &Counts) {
    for (name, count) in more {
        *counts.entry(format!("{prefix}{name}")).or_default() += count;
    }
}

/// Finds the library: `REDOUBT_FAULTS_LIBRARY`, or next to the running test or tool in the target directory.
fn find_library() -> Result<PathBuf> {
    const NAME: &str = "libredoubt_faults.so";
    if let Some(path) = redoubt_test_support::setting_os("REDOUBT_FAULTS_LIBRARY").map(PathBuf::from) {
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Error::missing(path.display().to_string(), "build it: cargo build --release --workspace"))
        };
    }
    let current = std::env::current_exe().map_err(Error::io("find the running program"))?;
    let mut found = current
        .ancestors()
        .skip(1)
        .take(2)
        .flat_map(|directory| [directory.join(NAME), directory.join("deps").join(NAME)]);
    found
        .find(|path| path.is_file())
        .ok_or_else(|| Error::missing(NAME, "build it: cargo build --release --workspace"))
}
