//! `ib_logfile0` as it is now: a copy of the redo that is followed while the file is open.
//!
//! The source sends the redo from the server's checkpoint on, and then each addition. For this connection it retains
//! the redo after that, whatever the server's checkpoint does, as long as the log file would have room for it. A slower
//! reader misses redo, as on a server. Received redo lies in an unnamed file, at its distance from the first byte.
//! Space of redo that no longer fits into the log file is released. [`LogImage`] composes the file's bytes from it.
//!
//! The source is queried whenever a read goes beyond the received redo: then header, checkpoints and end are current.
//! Without reads, a thread queries it periodically, so that the node retains little.

use crate::source::{LogFollower, ViewError, ViewSource};
use crate::tree::{Called, Complaints, Errno, Meta, OpenFile};
use redoubt_locks::IgnorePoison;
use redoubt_redo::Lsn;
use redoubt_redo::mariadb::log_file::{LogGeometry, LogHeader};
use redoubt_redo::mariadb::log_image::LogImage;
use redoubt_wire::control::EntryKind;
use redoubt_wire::view::ViewLog;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest time between requests to the node.
const POLL: Duration = Duration::from_secs(2);
/// Size of the pieces in which space is returned.
const HOLE_BYTES: u64 = 16 << 20;

/// The followed redo log.
pub struct LogMirror {
    source: Arc<dyn ViewSource>,
    complaints: Arc<Complaints>,
    state: Mutex<MirrorState>,
}

struct MirrorState {
    /// `None`: the follower failed; the next request starts over.
    follower: Option<Box<dyn LogFollower>>,
    redo: File,
    /// LSN at the start of `redo`.
    first_lsn: Lsn,
    /// Bytes at the start of `redo` whose space was released.
    given_back_bytes: u64,
    image: LogImage,
    asked: Instant,
}

impl LogMirror {
    /// Fetches the available redo.
    ///
    /// # Errors
    /// The errors of the source; [`ViewError::Scratch`] if the copy cannot be written.
    pub fn begin(source: Arc<dyn ViewSource>, complaints: Arc<Complaints>) -> Result<Arc<Self>, ViewError> {
        let mut follower = source.follow()?;
        let redo = source.scratch_file().map_err(|source| ViewError::Scratch { action: "make", source })?;
        let log = get(&mut *follower, None, |start| start, &redo)?;
        let state = MirrorState {
            follower: Some(follower),
            redo,
            first_lsn: Lsn(log.start_lsn),
            given_back_bytes: 0,
            image: image_of(&log, Lsn(log.start_lsn))?,
            asked: Instant::now(),
        };
        let mirror = Arc::new(Self { source, complaints, state: Mutex::new(state) });
        let weak = Arc::downgrade(&mirror);
        let poll = move || {
            loop {
                std::thread::sleep(POLL);
                let Some(mirror) = weak.upgrade() else { return };
                let mut state = mirror.state.lock().ignore_poison();
                if state.asked.elapsed() >= POLL {
                    mirror
                        .refresh(&mut state)
                        .unwrap_or_else(|error| mirror.complaints.say(error.to_string()));
                }
            }
        };
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(poll)
            .map_err(|source| ViewError::Scratch { action: "start the thread that keeps up", source })?;
        Ok(mirror)
    }

    /// Fetches the added redo.
    fn refresh(&self, state: &mut MirrorState) -> Result<(), ViewError> {
        state.asked = Instant::now();
        let (mut follower, from) = match state.follower.take() {
            Some(follower) => (follower, Some(state.image.end_lsn.0)),
            None => (self.source.follow()?, None),
        };
        let (first, end) = (state.first_lsn, state.image.end_lsn);
        // Another log file, or the missed part is gone: the copy starts over.
        let begins = |start: Lsn| if start < first || start > end { start } else { first };
        let log = get(&mut *follower, from, begins, &state.redo)?;
        let begin = begins(Lsn(log.start_lsn));
        if begin > end {
            self.complaints.say(format!(
                "the redo between LSN {end} and {begin} was written over before it was read: the log file \
                 (innodb_log_file_size) is too small for so slow a reader, and a backup cannot be completed"
            ));
        }
        if begin != state.first_lsn {
            (state.first_lsn, state.given_back_bytes) = (begin, 0);
        }
        let oldest = if Some(log.start_lsn) == from { state.image.oldest_lsn } else { Lsn(log.start_lsn) };
        state.image = image_of(&log, oldest)?;
        state.follower = Some(follower);
        give_back(state);
        Ok(())
    }
}

/// Requests redo and writes it to its position. `begins` converts its start into the LSN at the start of `redo`.
fn get(
    follower: &mut dyn LogFollower,
    from_lsn: Option<u64>,
    begins: impl Fn(Lsn) -> Lsn,
    redo: &File,
) -> Result<ViewLog, ViewError> {
    follower.next(from_lsn, &mut |log, offset, piece| {
        let start = Lsn(log.start_lsn);
        let shift = start.0.saturating_sub(begins(start).0);
        redo.write_all_at(piece, shift + offset)
            .map_err(|source| ViewError::Scratch { action: "write", source })
    })
}

fn image_of(log: &ViewLog, oldest_lsn: Lsn) -> Result<LogImage, ViewError> {
    let header = LogHeader::parse(&log.header);
    let geometry = header.and_then(|header| LogGeometry::new(header.first_lsn, log.file_size_bytes));
    let geometry = geometry.map_err(|error| ViewError::Failed(format!("the volume's redo log: {error}")))?;
    let [first, second] = &log.checkpoints;
    Ok(LogImage {
        geometry,
        header: sized(&log.header),
        checkpoints: [sized(first), sized(second)],
        oldest_lsn,
        end_lsn: Lsn(log.end_lsn),
    })
}

fn sized<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(bytes) {
        *to = *from;
    }
    out
}

/// The log file has room for one lap; older bytes only take space on the disk.
fn give_back(state: &mut MirrorState) {
    let lap = state.image.end_lsn.0.saturating_sub(state.image.geometry.capacity_bytes());
    let unneeded = lap.saturating_sub(state.first_lsn.0) / HOLE_BYTES * HOLE_BYTES;
    let (Ok(from), Ok(len)) = (
        libc::off64_t::try_from(state.given_back_bytes),
        libc::off64_t::try_from(unneeded.saturating_sub(state.given_back_bytes)),
    ) else {
        return;
    };
    if len > 0 {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: no pointers; the descriptor is open. A file system without support keeps the bytes.
        unsafe { libc::fallocate64(state.redo.as_raw_fd(), mode, from, len) };
        state.given_back_bytes = unneeded;
    }
}

impl MirrorState {
    /// Whether all of a range is received redo that a server would not overwrite next.
    fn knows(&self, offset_bytes: u64, len_bytes: u32) -> bool {
        let end = offset_bytes.saturating_add(u64::from(len_bytes));
        if !self.image.geometry.holds(offset_bytes, u64::from(len_bytes)) {
            return false;
        }
        let lsn_at = |offset| self.image.geometry.lsn_at(offset, self.image.end_lsn);
        let (Some(first), Some(last)) = (lsn_at(offset_bytes), lsn_at(end.saturating_sub(1))) else {
            return false;
        };
        last.0.checked_sub(first.0) == Some(u64::from(len_bytes).saturating_sub(1))
            && first >= self.image.oldest_lsn
    }
}

impl OpenFile for LogMirror {
    fn meta(&self) -> Called<Meta> {
        let state = self.state.lock().ignore_poison();
        Ok(crate::live::meta_of(EntryKind::RedoLog, 0o660, state.image.geometry.file_size_bytes()))
    }

    fn read(&self, offset_bytes: u64, len_bytes: u32) -> Called<Vec<u8>> {
        let mut state = self.state.lock().ignore_poison();
        if !state.knows(offset_bytes, len_bytes) {
            let asked = self.refresh(&mut state).or_else(|_| self.refresh(&mut state));
            asked.map_err(|error| {
                self.complaints.say(format!("the redo log: {error}"));
                error.errno()
            })?;
        }
        let size = state.image.geometry.file_size_bytes();
        let len = size.saturating_sub(offset_bytes).min(u64::from(len_bytes));
        let mut out = vec![0; usize::try_from(len).unwrap_or(0)];
        let composed = state.image.compose(offset_bytes, &mut out, |lsn, part| {
            state.redo.read_exact_at(part, lsn.0.saturating_sub(state.first_lsn.0))
        });
        composed.map_err(|error| {
            self.complaints.say(format!("the copy of the redo log: {error}"));
            Errno(libc::EIO)
        })?;
        Ok(out)
    }
}
