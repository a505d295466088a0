//! The redo log file: detection of its new bytes, and the content that the server reads at its start.
//!
//! The local file holds no log; it only has the right size. Writes go through an observer that yields each redo byte
//! once; those bytes, the header and the checkpoint blocks go into the stream.
//!
//! There are up to two log files. `ib_logfile0` is *the* log while the server has it open. `ib_logfile101` is
//! a log being prepared: beside an open `ib_logfile0` (online resize) only its header and checkpoint blocks
//! matter, because the records go to both; alone (a new volume, or a new size at start) it receives the
//! records itself. Renaming it to `ib_logfile0` makes it the log.
//!
//! Invariant: every redo byte the server wrote is in the stream, or the stream is dead. The lock is held from
//! observing a write until its frames are in the stream, so redo frames are in LSN order.

use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::connections::stream::FRAME_LIMIT_BYTES;
use crate::content::Content;
use crate::kinds::log_memory::LogMemory;
use crate::kinds::log_read;
use redoubt_locks::IgnorePoison;
use redoubt_redo::mariadb::log_file::{LogArea, LogFront};
use redoubt_redo::mariadb::observer::{LogObserver, Observed};
use redoubt_redo::mariadb::{LogGeometry, LogHeader};
use redoubt_redo::{Lsn, Mtr};
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{Counter, StreamFrame};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The server writes its log at least once a second while there is something to write.
const DOUBT_TIMEOUT: Duration = Duration::from_secs(30);

/// A log file that is or was open.
#[derive(Debug, Default)]
pub struct LogFile {
    open_count: AtomicUsize,
}

impl LogFile {
    /// Another open call refers to it.
    pub fn opened(&self) {
        self.open_count.fetch_add(1, Ordering::AcqRel);
    }

    /// The last descriptor of an open call was closed.
    pub fn closed(&self) {
        self.open_count.fetch_sub(1, Ordering::AcqRel);
    }

    fn is_open(&self) -> bool {
        self.open_count.load(Ordering::Acquire) > 0
    }
}

/// The second log file.
#[derive(Debug)]
struct Prepared {
    file: Arc<LogFile>,
    front: LogFront,
    /// It received its header while `ib_logfile0` was not open, and receives the records.
    is_written: bool,
    /// The node knows it already (a new volume has no other log).
    is_announced: bool,
}

#[derive(Default)]
struct RedoLogState {
    main: Option<Arc<LogFile>>,
    front: LogFront,
    prepared: Option<Prepared>,
    records: Records,
}

/// Observer of the records, and the server's log buffers.
#[derive(Default)]
struct Records {
    observer: Option<LogObserver>,
    memory: LogMemory,
}

/// The redo log of this process.
#[derive(Default)]
pub struct RedoLog {
    state: Mutex<RedoLogState>,
    /// Signalled after each write of records.
    written: Condvar,
}

fn broken(content: &Content, why: &str) -> Errno {
    content.stream.die(&format!("the redo log cannot be followed: {why}"));
    Errno::EIO
}

impl RedoLog {
    fn lock(&self) -> MutexGuard<'_, RedoLogState> {
        self.state.lock().ignore_poison()
    }

    /// `ib_logfile0` is opened. The node reports the position of the log.
    ///
    /// # Errors
    /// `EIO` when the node cannot report the position, or its log cannot be used.
    pub fn open_main(&self, content: &Content) -> Result<Arc<LogFile>, Errno> {
        let mut state = self.lock();
        if state.records.observer.is_none() {
            let (header, file_size_bytes, next_lsn) = content
                .pool
                .request(&PageRequest::LogState, |reply| match reply {
                    PageReply::LogState { file_size_bytes, header, next_lsn } => {
                        Some((header.to_vec(), file_size_bytes, next_lsn))
                    }
                    _ => None,
                })?
                .ok_or(Errno::EIO)?;
            if file_size_bytes == 0 {
                return Err(broken(content, "the local file exists, but the volume has no redo log"));
            }
            let parsed = LogHeader::parse(&header)
                .and_then(|parsed| LogGeometry::new(parsed.first_lsn, file_size_bytes))
                .map_err(|error| broken(content, &error.to_string()))?;
            if let Some(header) = header.first_chunk() {
                state.front.header = *header;
            }
            state.records.observer = Some(LogObserver::new(parsed, next_lsn));
        }
        Ok(Arc::clone(state.main.get_or_insert_default()))
    }

    /// `ib_logfile101` is opened; `is_new`: it was created.
    pub fn open_prepared(&self, is_new: bool) -> Arc<LogFile> {
        let mut state = self.lock();
        if let Some(prepared) = &state.prepared
            && !is_new
        {
            return Arc::clone(&prepared.file);
        }
        state.records.memory.forget_prepared();
        let file = Arc::<LogFile>::default();
        state.prepared = Some(Prepared {
            file: Arc::clone(&file),
            front: LogFront::default(),
            is_written: false,
            is_announced: false,
        });
        file
    }

    /// `ib_logfile101` was unlinked: a resize was given up.
    pub fn prepared_unlinked(&self) {
        let mut state = self.lock();
        state.prepared = None;
        state.records.memory.forget_prepared();
    }

    /// The server wrote to a log file.
    ///
    /// # Errors
    /// `EIO`; the stream is dead then.
    pub fn write(
        &self,
        content: &Content,
        file: &Arc<LogFile>,
        fd: RawFd,
        bytes: &[u8],
        offset_bytes: u64,
    ) -> Result<(), Errno> {
        content.counters.add(Counter::LogWrittenBytes, bytes.len() as u64);
        let mut guard = self.lock();
        let state = &mut *guard;
        let main_is_open = state.main.as_ref().is_some_and(|main| main.is_open());
        if let Some(prepared) = &mut state.prepared
            && Arc::ptr_eq(&prepared.file, file)
        {
            prepared.front.write(offset_bytes, bytes);
            return match LogArea::of(offset_bytes) {
                LogArea::Records if main_is_open => {
                    state.records.memory.note_prepared(bytes);
                    Ok(())
                }
                _ if main_is_open => Ok(()),
                LogArea::Header if offset_bytes == 0 => {
                    prepared.is_written = true;
                    begin_prepared(content, prepared, &mut state.records.observer, fd)
                }
                LogArea::Checkpoint(slot) if prepared.is_announced => {
                    send_checkpoint(content, &prepared.front, slot)
                }
                LogArea::Checkpoint(_) => Ok(()),
                // A server writes nothing else before the records; any other write makes the observer fail.
                LogArea::Header | LogArea::Records => {
                    self.written.notify_all();
                    follow(content, &mut state.records, bytes, offset_bytes)
                }
            };
        }
        if !state.main.as_ref().is_some_and(|main| Arc::ptr_eq(main, file)) {
            return Err(broken(content, "a write to a log file that was replaced"));
        }
        state.front.write(offset_bytes, bytes);
        match LogArea::of(offset_bytes) {
            LogArea::Checkpoint(slot) => send_checkpoint(content, &state.front, slot),
            LogArea::Header => {
                check_header(&state.front.header).map_err(|why| broken(content, &why))?;
                announce(content, &state.front, state.records.observer.as_ref(), real::status(fd)?.len_bytes)
            }
            LogArea::Records => {
                self.written.notify_all();
                follow(content, &mut state.records, bytes, offset_bytes)
            }
        }
    }

    /// `ib_logfile101` was renamed to `ib_logfile0`.
    ///
    /// # Errors
    /// `EIO`; the stream is dead then.
    pub fn prepared_renamed(&self, content: &Content) -> Result<(), Errno> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(prepared) = state.prepared.take() else {
            return Err(broken(content, "ib_logfile101 became ib_logfile0 without having been written"));
        };
        let file_size_bytes = real::status_of(&absolute(&content.datadir, b"ib_logfile0")?)?.len_bytes;
        if !prepared.is_written {
            let geometry = LogHeader::parse(&prepared.front.header)
                .and_then(|header| LogGeometry::new(header.first_lsn, file_size_bytes))
                .map_err(|error| broken(content, &error.to_string()))?;
            let Some(observer) = &mut state.records.observer else {
                return Err(broken(content, "the redo log was exchanged before it was read"));
            };
            observer.switch_geometry(geometry).map_err(|error| broken(content, &error.to_string()))?;
            // A log that was written to directly (at a start) is the same log, and has the same buffers.
            state.records.memory.exchanged();
        }
        state.front = prepared.front;
        state.main = Some(prepared.file);
        announce(content, &state.front, state.records.observer.as_ref(), file_size_bytes)
    }

    /// Waits until everything the server wrote to its log is durable.
    ///
    /// # Errors
    /// `EIO`; the stream is dead then.
    pub fn sync(&self, content: &Content) -> Result<(), Errno> {
        let state = self.lock();
        let doubtful = |state: &mut RedoLogState| state.records.memory.is_doubtful();
        let (state, timeout) =
            self.written.wait_timeout_while(state, DOUBT_TIMEOUT, doubtful).ignore_poison();
        drop(state);
        if timeout.timed_out() {
            return Err(broken(content, "it is not known where the server's redo ends"));
        }
        content.sync_all()
    }

    /// Bytes of the log as the server expects them at start.
    ///
    /// # Errors
    /// `EIO` when the node cannot answer.
    pub fn read(
        &self,
        content: &Content,
        fd: RawFd,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> Result<usize, Errno> {
        log_read::read(
            content,
            real::status(fd)?.len_bytes,
            buffer,
            offset_bytes,
            |offset_bytes, len_bytes| PageRequest::ReadLog { offset_bytes, len_bytes },
        )
    }
}

fn check_header(header: &[u8]) -> Result<LogHeader, String> {
    LogHeader::parse(header).map_err(|error| error.to_string())
}

/// The prepared log got its header while there is no other log: it is the log from here on.
fn begin_prepared(
    content: &Content,
    prepared: &mut Prepared,
    observer: &mut Option<LogObserver>,
    fd: RawFd,
) -> Result<(), Errno> {
    let header = check_header(&prepared.front.header).map_err(|why| broken(content, &why))?;
    let file_size_bytes = real::status(fd)?.len_bytes;
    let geometry = LogGeometry::new(header.first_lsn, file_size_bytes)
        .map_err(|error| broken(content, &error.to_string()))?;
    let expected_lsn = match observer {
        Some(observer) => observer.next_lsn(),
        None => content.stream.session_start().map_or(Lsn(0), |start| start.next_lsn),
    };
    if expected_lsn != Lsn(0) && expected_lsn != header.first_lsn {
        return Err(broken(
            content,
            &format!(
                "the new log file starts at LSN {}, the volume's redo ends at {expected_lsn}",
                header.first_lsn
            ),
        ));
    }
    match observer {
        Some(observer) => {
            observer.switch_geometry(geometry).map_err(|error| broken(content, &error.to_string()))
        }
        None => {
            *observer = Some(LogObserver::new(geometry, header.first_lsn));
            prepared.is_announced = true;
            announce(content, &prepared.front, observer.as_ref(), file_size_bytes)
        }
    }
}

/// Sends the size and first bytes of the log file.
fn announce(
    content: &Content,
    front: &LogFront,
    observer: Option<&LogObserver>,
    file_size_bytes: u64,
) -> Result<(), Errno> {
    let [first, second] = &front.checkpoints;
    let next_lsn = observer.map_or(Lsn(0), LogObserver::next_lsn);
    let frame = StreamFrame::LogFile {
        file_size_bytes,
        header: &front.header,
        checkpoints: [first, second],
        next_lsn,
    };
    content.stream.append(&frame).map(|_| ())
}

fn send_checkpoint(content: &Content, front: &LogFront, slot: u8) -> Result<(), Errno> {
    let Some(block) = front.checkpoints.get(usize::from(slot)) else { return Ok(()) };
    content.stream.append(&StreamFrame::Checkpoint { slot, block }).map(|_| ())
}

/// Sends what is new in a write of records.
fn follow(content: &Content, records: &mut Records, bytes: &[u8], offset_bytes: u64) -> Result<(), Errno> {
    let Some(observer) = &mut records.observer else {
        return Err(broken(content, "records were written before the header"));
    };
    let known_bytes = observer.known_in_write(offset_bytes, bytes.len());
    let write =
        records.memory.begin(bytes, offset_bytes, known_bytes).map_err(|why| broken(content, &why))?;
    let mut ends = Vec::new();
    let observed = observer
        .on_write(offset_bytes, &write.bytes, &mut |mtr: &Mtr<'_, '_>| {
            content.deleted.observe(mtr);
            content.dirty.observe(mtr);
            ends.push(mtr.end_in_bytes());
        })
        .map_err(|error| broken(content, &error.to_string()))?;
    let Observed::Redo(redo) = observed else {
        return Err(broken(content, "a write of records was not recognised"));
    };
    content.counters.add(Counter::RedoBytes, redo.bytes.len() as u64);
    for piece in pieces(redo.bytes, &ends, FRAME_LIMIT_BYTES) {
        content.stream.append(&StreamFrame::Redo(piece))?;
    }
    let final_bytes = observer.known_in_write(offset_bytes, bytes.len());
    records.memory.end(&write, offset_bytes, final_bytes).map_err(|why| broken(content, &why))
}

/// Splits `bytes` where a mini-transaction ends, into pieces of at most `limit` bytes where possible.
pub fn pieces<'a>(bytes: &'a [u8], ends: &[usize], limit: usize) -> Vec<&'a [u8]> {
    let mut out = Vec::new();
    let mut start = 0;
    let mut last_end = 0;
    for &end in ends {
        if end - start > limit && last_end > start {
            out.extend(bytes.get(start..last_end));
            start = last_end;
        }
        last_end = end;
    }
    out.extend(bytes.get(start..).filter(|rest| !rest.is_empty()));
    out
}

#[cfg(test)]
mod tests;
