//! Bytes that the drive cannot read.
//!
//! One failed read proves nothing: the next one may succeed. So bytes are lost only if each of several reads past the
//! caches fails, and the drive reads other bytes each time. If it reads nothing, or something only at times, the drive
//! has failed, and nothing is known about its bytes.
//!
//! A drive may need many seconds for each read that fails. So there are fewer reads then ([`Patience`]), but never only
//! one, and a page that is lost is not read again for [`REMEMBERED_TIME`], unless it is written.
//!
//! Lock order: [`LostPages::examining`], an object's `io`, [`LostPages::pages`].

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redoubt_storage::{StorageFile, is_lost_content};
use redoubt_sync::{Mutex, time};

/// Reads of each place.
pub(super) const TRIES: usize = 4;
/// Places of a file that are examined.
const PROBES: u64 = 5;
/// Length of a place.
const PROBE_LEN: u64 = 4096;
/// Time for the reads about one failure.
const MOST_TIME: Duration = Duration::from_secs(5);
/// How long a lost page is not read again.
const REMEMBERED_TIME: Duration = Duration::from_secs(60);

/// Time for the reads about one failure.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    since: Instant,
    most: Duration,
}

impl Patience {
    /// It begins now.
    pub fn begin() -> Self {
        Self { since: time::now(), most: MOST_TIME }
    }

    /// There is none.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { since: time::now(), most: Duration::ZERO }
    }

    /// No read is repeated any more.
    pub fn is_over(self) -> bool {
        time::elapsed(self.since) >= self.most
    }

    /// No further place is read.
    pub fn is_long_over(self) -> bool {
        time::elapsed(self.since) >= 2 * self.most
    }
}

/// Reads from the drive, once at least, and several times if it fails.
pub(super) fn read_again(
    file: &dyn StorageFile,
    at: u64,
    buf: &mut [u8],
    patience: Patience,
) -> io::Result<usize> {
    let mut tries = 1;
    loop {
        // Without effect, the same bytes are read from memory.
        let _ = file.drop_cache_of(at, buf.len() as u64);
        match file.read_at(at, buf) {
            Err(error) if is_lost_content(&error) && tries < TRIES && !patience.is_over() => tries += 1,
            read => return read,
        }
    }
}

/// How the drive reads a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Drive {
    /// Some places each time, and the others never.
    Works,
    /// No place, or there is none.
    ReadsNothing,
    /// A place at times.
    IsUnsteady,
}

/// Reads a file outside of `lost`.
pub(super) fn examine(file: &dyn StorageFile, lost: Range<u64>, patience: Patience) -> Drive {
    let len = file.len_bytes().unwrap_or(0);
    let is_elsewhere = |at: &u64| *at < len && (*at + PROBE_LEN <= lost.start || *at >= lost.end);
    let mut drive = Drive::ReadsNothing;
    for at in (0..PROBES).map(|n| len / PROBES * n).map(|at| at - at % PROBE_LEN).filter(is_elsewhere) {
        let can_read = || {
            let _ = file.drop_cache_of(at, PROBE_LEN);
            file.read_at(at, &mut [0; PROBE_LEN as usize]).is_ok()
        };
        let (mut tries, mut reads) = (0, 0);
        while tries < TRIES && (tries == 0 || !patience.is_over()) {
            tries += 1;
            reads += usize::from(can_read());
        }
        match reads {
            0 => {}
            reads if reads == tries => drive = Drive::Works,
            _ => return Drive::IsUnsteady,
        }
        if (patience.is_over() && drive == Drive::Works) || patience.is_long_over() {
            break;
        }
    }
    drive
}

/// A page that the drive has lost.
struct LostPage {
    len: usize,
    since: Instant,
    code: Option<i32>,
    kind: io::ErrorKind,
}

/// Pages of an object that the drive has lost, by their offset in its file.
#[derive(Default)]
pub(super) struct LostPages {
    /// Held while the drive is examined, so that readers of one lost page do not examine it side by side.
    pub examining: Mutex<()>,
    /// Spares the lock for each read.
    has_any: AtomicBool,
    pages: Mutex<BTreeMap<u64, LostPage>>,
}

impl LostPages {
    /// The error of reading a page, if it was lost a short while ago.
    pub fn find(&self, at: u64, len: usize) -> Option<io::Error> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        let pages = self.pages.lock();
        let page =
            pages.get(&at).filter(|page| page.len == len && time::elapsed(page.since) < REMEMBERED_TIME)?;
        Some(page.code.map_or_else(|| page.kind.into(), io::Error::from_raw_os_error))
    }

    /// The drive has lost this page. The object is not written meanwhile.
    pub fn note(&self, at: u64, len: usize, error: &io::Error) {
        let page = LostPage { len, since: time::now(), code: error.raw_os_error(), kind: error.kind() };
        self.pages.lock().insert(at, page);
        self.has_any.store(true, Ordering::Release);
    }

    /// These bytes are being written: the drive may be able to read them from now on.
    pub fn written(&self, range: Range<u64>) {
        if !self.has_any.load(Ordering::Acquire) {
            return;
        }
        let mut pages = self.pages.lock();
        pages.retain(|at, page| *at >= range.end || at + page.len as u64 <= range.start);
        self.has_any.store(!pages.is_empty(), Ordering::Release);
    }
}
