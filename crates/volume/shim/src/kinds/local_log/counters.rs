//! Counters in a file of the data directory, mapped and shared with `redoubt status --local-log`.
//!
//! Layout and meaning: [`redoubt_shm_control::local_log`]. The file stays locked for as long as this process lives.
//! If it cannot be made, the counters are in memory of this process alone: no commit depends on them.

use crate::base::message::{self, show};
use crate::base::real::{self, Errno};
use redoubt_shm_control::local_log::{
    Counter, FILE_LEN_BYTES, FILE_NAME, HEADER_WORDS, MAGIC, PERSISTENCE_WORD, PROCESS_WORD, Persistence,
    START_WORD,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const WORDS: usize = FILE_LEN_BYTES / 8;

/// Counters in a file of the data directory, mapped and shared with `redoubt status --local-log`.
pub struct Counters {
    words: &'static [AtomicU64],
}

impl Counters {
    /// Makes or takes over the file in `datadir`, with all counters at zero.
    pub fn create(datadir: &[u8]) -> Self {
        let words = map(datadir).unwrap_or_else(|(path, errno)| {
            message::warning(&format!(
                "{} cannot be used ({errno}): `redoubt status --local-log` will not show this server",
                show(&path)
            ));
            Vec::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect())
        });
        let counters = Self { words };
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
        counters.set(PROCESS_WORD, u64::from(std::process::id()));
        counters.set(START_WORD, now);
        // Last: a reader that finds it finds the rest.
        counters.set(0, MAGIC);
        counters
    }

    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Ordering::Release);
        }
    }

    /// Says what durability rests on.
    pub fn set_persistence(&self, persistence: Persistence) {
        self.set(PERSISTENCE_WORD, persistence as u64);
    }

    /// Adds to a counter.
    pub fn add(&self, counter: Counter, amount: u64) {
        if let Some(word) = self.words.get(HEADER_WORDS + counter as usize) {
            word.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Adds a duration to a counter of nanoseconds.
    pub fn add_time(&self, counter: Counter, time: Duration) {
        self.add(counter, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.words.get(HEADER_WORDS + counter as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// Opens, locks and maps the file. It stays open and mapped: the lock says that this server runs.
fn map(datadir: &[u8]) -> Result<&'static [AtomicU64], (Vec<u8>, Errno)> {
    let mut path = datadir.to_vec();
    path.push(b'/');
    path.extend_from_slice(FILE_NAME.as_bytes());
    let result = (|| {
        let name = real::c_path(&path)?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let fd = real::open_file(&name, flags, 0o640)?;
        real::lock_exclusively(fd)
            .and_then(|()| real::set_len(fd, FILE_LEN_BYTES as u64))
            .and_then(|()| real::map_words(fd, WORDS))
            .inspect_err(|_| {
                let _ = real::close_file(fd);
            })
    })();
    result.map_err(|errno| (path, errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_shm_control::local_log::Snapshot;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn another_process_reads_what_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let counters = Counters::create(directory.path().as_os_str().as_bytes());
        counters.set_persistence(Persistence::Pretended);
        counters.add(Counter::Fences, 3);
        counters.add_time(Counter::SyncsPassedNanos, Duration::from_micros(5));
        let snapshot = Snapshot::parse(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(snapshot.process_id, u64::from(std::process::id()));
        assert_eq!(snapshot.persistence, Persistence::Pretended);
        assert_eq!(snapshot.get(Counter::Fences), 3);
        assert_eq!(snapshot.get(Counter::SyncsPassedNanos), 5000);
        // A second server must not count into it.
        let second = Counters::create(directory.path().as_os_str().as_bytes());
        second.add(Counter::Fences, 40);
        let snapshot = Snapshot::parse(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((snapshot.get(Counter::Fences), second.get(Counter::Fences)), (3, 40));
    }

    #[test]
    fn without_a_file_counting_goes_on() {
        let counters = Counters::create(b"/no/such/directory");
        counters.add(Counter::MappedWrites, 2);
        assert_eq!(counters.get(Counter::MappedWrites), 2);
    }
}
