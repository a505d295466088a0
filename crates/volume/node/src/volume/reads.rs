//! The reader's side of a volume: page requests of the server.
//!
//! A read names a position: the stream's end when the server last let go of the page. It waits until the parser and D
//! have reached that position, not for the whole log. Then the page is built from its stored image and its index
//! entries up to D. A server lets go of a page when its redo is durable, so the read waits for D only where other redo
//! has arrived since. A server that does not sync (`debug_no_sync`) would get an older page without this wait.

use super::Volume;
use crate::construct::{PageTarget, construct_in_laps};
use crate::counters::add;
use crate::error::{Kind, NodeError};
use crate::index::PageKey;
use crate::mark::{Mark, Point, WaitEnd};
use crate::namespace::LOG_FILE_PATH;
use crate::namespace::text_path;
use crate::trace::{BuildTimes, Laps, Read};
use redoubt_page::Format;
use redoubt_pagestore::ObjectId;
use redoubt_redo::{PageId, SpaceId};
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_sync::time;
use redoubt_wire::Seq;
use redoubt_wire::page::{FileId, PageReply, PageRequest};
use std::time::Duration;

/// Time that a read waits for the parser, and for D, before it fails.
const NEED_TIMEOUT: Duration = Duration::from_secs(30);

/// Location of a file's bytes.
#[derive(Clone, Copy)]
pub(super) struct FileLocation {
    pub object: ObjectId,
    pub space: SpaceId,
    pub format: Format,
    pub first_byte: u64,
}

impl Volume {
    /// Answers a page request; `out` is a buffer for the bytes of the reply.
    pub fn answer<'o>(&self, request: &PageRequest<'_>, out: &'o mut Vec<u8>) -> PageReply<'o> {
        out.clear();
        let reply = match *request {
            PageRequest::Open { need, path } => self.open_file(need, path),
            PageRequest::Read { need, file, offset_bytes, len_bytes } => {
                let since = time::now();
                out.resize(len_bytes as usize, 0);
                let read = self.read(need, file, offset_bytes, out);
                self.context.figures.page_read.record_since(since);
                return match read {
                    Ok(()) => PageReply::Bytes(out),
                    Err(error) => {
                        self.stop_if_unreadable(&error);
                        failed(&error)
                    }
                };
            }
            PageRequest::ReadLog { offset_bytes, len_bytes } => {
                out.resize(len_bytes as usize, 0);
                return self.answer_log_read(LOG_FILE_PATH, offset_bytes, out);
            }
            PageRequest::ReadLogFile { path, offset_bytes, len_bytes } => {
                out.resize(len_bytes as usize, 0);
                return match text_path(path) {
                    Ok(path) => self.answer_log_read(&path, offset_bytes, out),
                    Err(error) => failed(&error),
                };
            }
            PageRequest::MismatchImage { path, page_no, lsn, page } => {
                self.verification.mismatch_image(path, page_no, lsn, page).map(|()| PageReply::Done)
            }
            PageRequest::LogState => {
                // Frames of a previous process of the same attachment may still be under way.
                let end = match self.drain() {
                    Ok(end) => end,
                    Err(error) => return failed(&error),
                };
                let names = self.indexing.names.read();
                let log_file = names.log_file();
                if let Some(log_file) = log_file {
                    out.extend_from_slice(&log_file.header);
                }
                return PageReply::LogState {
                    file_size_bytes: log_file.map_or(0, |log_file| log_file.file_size_bytes),
                    next_lsn: end.lsn,
                    header: out,
                };
            }
        };
        reply.unwrap_or_else(|error| failed(&error))
    }

    fn answer_log_read<'o>(&self, path: &str, offset_bytes: u64, out: &'o mut [u8]) -> PageReply<'o> {
        match self.read_server_log(path, offset_bytes, out) {
            // Servers read their log in pieces of many MiB, most of which was never written.
            Ok(()) => PageReply::Bytes(without_zero_tail(out)),
            Err(error) => failed(&error),
        }
    }

    /// Stops the volume when its disk cannot be read, before the server receives the error. A server continues without
    /// a page that it cannot read: a rollback leaves the page out, and its later redo would make half a transaction
    /// durable. A damaged page on a readable disk concerns its table only, as on a stock server.
    fn stop_if_unreadable(&self, error: &NodeError) {
        use redoubt_pagestore::PageStoreError as Store;
        let unreadable = match error {
            NodeError::Io { .. } | NodeError::LogDevice(_) => error.kind() == Kind::Fatal,
            NodeError::PageStore(error) => {
                matches!(error, Store::Read { .. } | Store::Io { .. } | Store::Poisoned { .. })
            }
            _ => false,
        };
        if unreadable {
            self.stop(&format!("{error}; check the disk, then restart the node"));
        }
    }

    pub(super) fn wait_parsed(&self, need: Seq) -> Result<(), NodeError> {
        let is_reached = is_planted(Bug::ReadTooOld);
        if is_reached { Ok(()) } else { self.wait_for(self.indexing.parsed(), need, "parsed") }
    }

    fn wait_durable(&self, need: Seq) -> Result<(), NodeError> {
        let is_reached = is_planted(Bug::ReadOlderThanReleased);
        if is_reached { Ok(()) } else { self.wait_for(self.receiving.durable(), need, "durable") }
    }

    fn wait_for(&self, mark: &Mark, need: Seq, what: &str) -> Result<(), NodeError> {
        if mark.seq() >= need {
            return Ok(());
        }
        let since = time::now();
        let end = mark.wait_for(need, Some(since + NEED_TIMEOUT));
        add(&self.context.counters.read_wait_micros, time::elapsed(since).as_micros() as u64);
        match end {
            WaitEnd::Reached => Ok(()),
            WaitEnd::Closed => Err(self.context.stopped_error()),
            WaitEnd::TimedOut => Err(NodeError::NotNow(format!(
                "the stream is {what} up to {} only, {need} is needed",
                mark.seq()
            ))),
        }
    }

    fn open_file(&self, need: Seq, path: &[u8]) -> Result<PageReply<'static>, NodeError> {
        self.wait_parsed(need)?;
        let names = self.indexing.names.read();
        let Some((file, entry)) = names.file_at(&text_path(path)?).filter(|(_, entry)| entry.tablespace)
        else {
            return Ok(PageReply::NotFound);
        };
        let object = entry.object.and_then(|object| names.object(ObjectId(object)));
        let flags = object.and_then(|object| object.flags);
        let page_len =
            Format { family: names.family(), flags: flags.unwrap_or(0) }.physical_page_size_bytes() as u64;
        Ok(PageReply::Opened {
            file,
            len_bytes: entry.len_bytes,
            space: object.and_then(|object| object.space).map(SpaceId),
            space_flags: flags,
            first_page_no: (entry.first_byte / page_len) as u32,
        })
    }

    /// Location of a file's bytes; `None`: nothing was ever written to it.
    pub(super) fn locate(&self, file: FileId) -> Result<Option<FileLocation>, NodeError> {
        let names = self.indexing.names.read();
        let entry = names
            .file(file)
            .ok_or_else(|| NodeError::Refused(format!("file {} no longer exists", file.0)))?;
        let Some(object_id) = entry.object else { return Ok(None) };
        let Some(object) = names.object(ObjectId(object_id)) else { return Ok(None) };
        if let Some(whole) = self.quarantine.list.find_object(ObjectId(object_id)) {
            let page = PageId::new(whole.space, 0);
            return Err(NodeError::Page { page, reason: whole.error(), file: whole.file });
        }
        let Some(flags) = object.flags else { return Ok(None) };
        Ok(Some(FileLocation {
            object: ObjectId(object_id),
            space: SpaceId(object.space.unwrap_or(u32::MAX)),
            format: Format { family: names.family(), flags },
            first_byte: entry.first_byte,
        }))
    }

    fn read(&self, need: Seq, file: FileId, offset_bytes: u64, out: &mut [u8]) -> Result<(), NodeError> {
        let since = self.context.tracer.wants_read(file, offset_bytes, need).then(time::now);
        self.wait_parsed(need)?;
        self.wait_durable(need)?;
        add(&self.context.counters.page_reads, 1);
        add(&self.context.counters.page_bytes_sent, out.len() as u64);
        let mut laps = since.map(|_| BuildTimes::start());
        let Some(location) = self.locate(file)? else { return Ok(()) };
        let parsed = since.map(time::elapsed);
        let read = self.read_at(&location, offset_bytes, out, self.build_limit(), &mut laps);
        read.map_err(|error| match error {
            NodeError::Page { page, .. }
                if self.is_server_not_asked(PageKey::new(location.object, page.page_no.0)) =>
            {
                NodeError::NotNow(error.to_string())
            }
            other => other,
        })?;
        if let (Some(since), Some(parse), Some(build)) = (since, parsed, laps) {
            self.context.tracer.read(Read {
                file,
                offset_bytes,
                need,
                total: time::elapsed(since),
                parse,
                build,
            });
        }
        Ok(())
    }

    /// Fills `out` with the file's bytes, each page as of `limit`.
    pub(super) fn read_at(
        &self,
        location: &FileLocation,
        offset_bytes: u64,
        out: &mut [u8],
        limit: Point,
        laps: &mut impl Laps,
    ) -> Result<(), NodeError> {
        let page_len = location.format.physical_page_size_bytes() as u64;
        let mut at = 0usize;
        while at < out.len() {
            let position = location.first_byte.saturating_add(offset_bytes).saturating_add(at as u64);
            let page_no = u32::try_from(position / page_len)
                .map_err(|_| NodeError::Refused(format!("no tablespace has a byte {position}")))?;
            let within = (position % page_len) as usize;
            let page = self.page(location, page_no, limit, laps)?;
            let part = page.get(within..).unwrap_or(&[]);
            let len = part.len().min(out.len() - at);
            out[at..at + len].copy_from_slice(&part[..len]);
            at += len;
        }
        Ok(())
    }

    fn page(
        &self,
        location: &FileLocation,
        page_no: u32,
        limit: Point,
        laps: &mut impl Laps,
    ) -> Result<Vec<u8>, NodeError> {
        add(&self.context.counters.pages_constructed, 1);
        let key = PageKey::new(location.object, page_no);
        let page_id = PageId::new(location.space.0, page_no);
        if self.verification.is_to_be_set_aside(key) {
            let message =
                format!("page {page_id} differs from the server's, and is being set aside; try again");
            return Err(NodeError::NotNow(message));
        }
        let target = PageTarget { key, page_id, format: location.format };
        let built = construct_in_laps(self.stored_pages(), &self.indexing.index, target, Some(limit), laps);
        let page = built.map_err(|error| match error {
            NodeError::Page { .. } if self.may_be_healed_soon(key) => NodeError::NotNow(error.to_string()),
            other => other,
        })?;
        self.quarantine.found.remove(key);
        Ok(page)
    }
}

fn without_zero_tail(bytes: &[u8]) -> &[u8] {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..used).unwrap_or(bytes)
}

fn failed(error: &NodeError) -> PageReply<'static> {
    PageReply::Failed { retry: error.kind() == Kind::Retry, message: error.to_string() }
}
