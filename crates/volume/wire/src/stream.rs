//! Frames of the ordered stream, shim to node.
//!
//! *Logged* frames are stored by the node and advance [`crate::Seq`] by header plus payload. The position in
//! their checksum is their Seq. *Unlogged* frames (kind >= 0x40) advance nothing and are never sent again;
//! the position in their checksum is the Seq of the next logged frame.
//!
//! Redo carries no LSN: the stream is contiguous, and both sides know where it stands ([`crate::hello::Welcome`]).
//! Paths are relative to the data directory, normalised, without a leading `./`.

use crate::error::WireError;
use crate::reader::{Reader, put_path};
use crate::trace::{self, ServerSample};
use redoubt_types::{Lsn, SpaceId};

/// Used bytes of the log file header (MariaDB), and length of each of the first blocks of a log file (MySQL).
pub const LOG_HEADER_LEN_BYTES: usize = 512;
/// Used bytes of a checkpoint block.
pub const CHECKPOINT_LEN_BYTES: usize = 64;

const KIND_REDO: u8 = 1;
const KIND_LOG_FILE: u8 = 2;
const KIND_CHECKPOINT: u8 = 3;
const KIND_IMAGE: u8 = 4;
const KIND_CREATE: u8 = 5;
const KIND_WRITE: u8 = 6;
const KIND_SET_LEN: u8 = 7;
const KIND_RENAME: u8 = 8;
const KIND_UNLINK: u8 = 9;
const KIND_MKDIR: u8 = 10;
const KIND_RMDIR: u8 = 11;
const KIND_BIND_SPACE: u8 = 12;
const KIND_SYSTEM_FILES: u8 = 13;
const KIND_SCRUB: u8 = 14;
const KIND_LOG_FRONT: u8 = 15;
const KIND_RECOVERED_IMAGE: u8 = 16;
const KIND_VERIFY: u8 = 0x40;
const KIND_COUNTERS: u8 = 0x41;
const KIND_TRACE: u8 = 0x42;
const KIND_VERIFY_OR_HEAL: u8 = 0x43;

/// Frames of this kind are [`StreamFrame::Image`].
pub const fn is_image(kind: u8) -> bool {
    matches!(kind, KIND_IMAGE | KIND_RECOVERED_IMAGE)
}

/// Most pages of one [`StreamFrame::Scrub`].
pub const MAX_SCRUB_PAGES: u32 = 4096;

/// First kind that is not logged.
pub const FIRST_UNLOGGED_KIND: u8 = 0x40;

/// Role of a file of the data directory in Redoubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// InnoDB pages: the node has them, the server has a sparse stub of the same length.
    Tablespace,
    /// Any other file: a real local file whose changes are replicated.
    Plain,
    /// One of the redo log files of MySQL. The node has its first blocks, and composes the rest from the stream. The
    /// server has a stub, as for a tablespace.
    Redo,
}

/// A frame of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamFrame<'a> {
    /// Whole mini-transactions, from the next LSN on.
    Redo(&'a [u8]),
    /// The redo log file now has this size, header and checkpoints (start, or a finished resize).
    LogFile {
        /// Size of ib_logfile0 in bytes.
        file_size_bytes: u64,
        /// First 512 bytes of the file.
        header: &'a [u8; LOG_HEADER_LEN_BYTES],
        /// The two checkpoint blocks' used bytes.
        checkpoints: [&'a [u8; CHECKPOINT_LEN_BYTES]; 2],
        /// LSN of the next redo byte, only for the first LogFile of a volume; else equal to the stream's.
        next_lsn: Lsn,
    },
    /// A checkpoint block was written.
    Checkpoint {
        /// 0: at file offset 4096, 1: at 8192.
        slot: u8,
        /// The block's used bytes.
        block: &'a [u8; CHECKPOINT_LEN_BYTES],
    },
    /// One of the first blocks of a file of MySQL's redo log was written: its header or a checkpoint.
    LogFront {
        /// The file.
        path: &'a [u8],
        /// Offset of the block in the file.
        offset_bytes: u32,
        /// LSN of the next redo byte, only before the first redo of a volume; else equal to the stream's.
        next_lsn: Lsn,
        /// The block as written.
        block: &'a [u8; LOG_HEADER_LEN_BYTES],
    },
    /// A page write that redo does not explain.
    Image {
        /// Tablespace file.
        path: &'a [u8],
        /// Page number inside that file.
        page_no: u32,
        /// The page as written by the server.
        page: &'a [u8],
        /// The page was written by the recovery of a MySQL: it has all changes up to its LSN, and not those of later
        /// redo. Otherwise it has all changes up to the stream's position.
        is_recovered: bool,
    },
    /// A file was created (or emptied by O_TRUNC, if it exists).
    Create {
        /// The file.
        path: &'a [u8],
        /// Its kind.
        kind: FileKind,
        /// Permission bits.
        mode: u32,
    },
    /// Bytes written to a plain file.
    Write {
        /// The file.
        path: &'a [u8],
        /// Offset in the file.
        offset_bytes: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// The file has this length now (tablespaces and plain files).
    SetLen {
        /// The file.
        path: &'a [u8],
        /// New length.
        len_bytes: u64,
    },
    /// A file or directory was renamed; an existing target is replaced.
    Rename {
        /// Old path.
        from: &'a [u8],
        /// New path.
        to: &'a [u8],
    },
    /// A file was unlinked.
    Unlink {
        /// The file.
        path: &'a [u8],
    },
    /// A directory was created.
    Mkdir {
        /// The directory.
        path: &'a [u8],
        /// Permission bits.
        mode: u32,
    },
    /// A directory was removed.
    Rmdir {
        /// The directory.
        path: &'a [u8],
    },
    /// The server wrote pages of `space` to this file (undo tablespaces carry no FILE_ records).
    BindSpace {
        /// The file.
        path: &'a [u8],
        /// The tablespace whose pages it holds.
        space: SpaceId,
    },
    /// The files of the system tablespace, in order, with the fixed length of each but the last (0 there).
    SystemFiles(Vec<SystemFile>),
    /// The previous content of these pages must be erased: the server freed them and has overwritten them with zeros.
    Scrub {
        /// Tablespace file.
        path: &'a [u8],
        /// Number of the first page inside that file.
        page_no: u32,
        /// Number of pages, 1 to [`MAX_SCRUB_PAGES`].
        pages: u32,
        /// Each page was free at this point of the redo. A page that was changed after it is in use again and stays.
        lsn: Lsn,
    },
    /// Not logged: a page write was dropped; the node compares its page at this point of the stream.
    Verify(Verify<'a>),
    /// The same, but a page that differs takes the content of the server's instead of stopping the volume. Needs
    /// [`ON_DIFFERENCE`](crate::greeting::ON_DIFFERENCE).
    VerifyOrHeal(Verify<'a>),
    /// Not logged: the shim's counters, as pairs (counter id, value); see [`Counter`].
    Counters(Vec<(u8, u64)>),
    /// Not logged: the server's part of sampled commits and page reads.
    Trace(Vec<ServerSample>),
}

/// A file of the system tablespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemFile {
    /// Relative path.
    pub path: Vec<u8>,
    /// Fixed length in bytes; 0 for the last, growing file.
    pub len_bytes: u64,
}

/// The dropped page write to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify<'a> {
    /// Tablespace file.
    pub path: &'a [u8],
    /// Page number inside that file.
    pub page_no: u32,
    /// FIL_PAGE_LSN of the dropped page.
    pub lsn: Lsn,
    /// `redoubt_page::digest` of the dropped page.
    pub digest: u32,
}

impl<'a> Verify<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(Self {
            path: reader.path("path")?,
            page_no: reader.u32("page number")?,
            lsn: Lsn(reader.u64("lsn")?),
            digest: reader.u32("digest")?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_path(out, self.path);
        out.extend_from_slice(&self.page_no.to_le_bytes());
        out.extend_from_slice(&self.lsn.0.to_le_bytes());
        out.extend_from_slice(&self.digest.to_le_bytes());
    }
}

/// Ids of the shim's counters. All count bytes unless named otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Counter {
    /// Redo bytes the server produced (each counted once).
    RedoBytes = 1,
    /// Bytes the server wrote to the redo log file (with rewritten blocks).
    LogWrittenBytes = 2,
    /// Bytes sent to the node on all connections.
    SentBytes = 3,
    /// Bytes received from the node on all connections.
    ReceivedBytes = 4,
    /// Page writes dropped because redo explains them.
    PageBytesDropped = 5,
    /// Number of those pages.
    PagesDropped = 6,
    /// Doublewrite area writes dropped.
    DoublewriteBytesDropped = 7,
    /// Page writes shipped as images.
    ImageBytes = 8,
    /// Plain file bytes shipped.
    PlainBytes = 9,
    /// Page bytes read from the node.
    PageBytesRead = 10,
    /// Page reads sent to the node.
    PageReads = 11,
    /// Durability waits (fdatasync calls answered).
    DurabilityWaits = 12,
    /// Microseconds spent in durability waits.
    DurabilityWaitMicros = 13,
    /// Verify frames sent.
    VerifySent = 14,
    /// Dropped all-zero page writes, pages.
    ScrubPagesDropped = 15,
    /// Reconnections to the node.
    Reconnects = 16,
    /// Times a thread in a durability wait was woken.
    DurabilityWakeups = 17,
    /// Wakeups at which the thread's position was not durable yet.
    DurabilityWakeupsNotReached = 18,
    /// Page reads answered from the server's own page cache.
    CacheHits = 19,
    /// Page reads that missed the server's page cache and went to the node.
    CacheMisses = 20,
    /// Pages evicted from the cache.
    CacheEvictions = 21,
    /// Size of the cache in bytes.
    CacheCapacityBytes = 22,
    /// Pages requested before the server read them.
    ReadAheadPages = 23,
    /// Requested pages that the server then read.
    ReadAheadUsed = 24,
    /// Freed pages that the shim sent to the node for scrubbing.
    PagesScrubbed = 25,
    /// Writes to the log connection that were sent compressed.
    LogWritesCompressed = 26,
    /// Bytes saved by that.
    LogBytesSaved = 27,
}

impl StreamFrame<'_> {
    /// Kind byte of this frame.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Redo(_) => KIND_REDO,
            Self::LogFile { .. } => KIND_LOG_FILE,
            Self::Checkpoint { .. } => KIND_CHECKPOINT,
            Self::LogFront { .. } => KIND_LOG_FRONT,
            Self::Image { is_recovered: false, .. } => KIND_IMAGE,
            Self::Image { is_recovered: true, .. } => KIND_RECOVERED_IMAGE,
            Self::Create { .. } => KIND_CREATE,
            Self::Write { .. } => KIND_WRITE,
            Self::SetLen { .. } => KIND_SET_LEN,
            Self::Rename { .. } => KIND_RENAME,
            Self::Unlink { .. } => KIND_UNLINK,
            Self::Mkdir { .. } => KIND_MKDIR,
            Self::Rmdir { .. } => KIND_RMDIR,
            Self::BindSpace { .. } => KIND_BIND_SPACE,
            Self::SystemFiles(_) => KIND_SYSTEM_FILES,
            Self::Scrub { .. } => KIND_SCRUB,
            Self::Verify(_) => KIND_VERIFY,
            Self::VerifyOrHeal(_) => KIND_VERIFY_OR_HEAL,
            Self::Counters(_) => KIND_COUNTERS,
            Self::Trace(_) => KIND_TRACE,
        }
    }

    /// Whether the node stores the frame and advances its Seq.
    pub fn is_logged(&self) -> bool {
        self.kind() < FIRST_UNLOGGED_KIND
    }

    /// Whether the frame changes pages, the redo log or files of InnoDB. A server of another family, or of an older
    /// series, cannot start from the result.
    pub fn changes_innodb(&self) -> bool {
        match self {
            Self::Redo(_)
            | Self::LogFile { .. }
            | Self::Checkpoint { .. }
            | Self::LogFront { .. }
            | Self::Image { .. }
            | Self::BindSpace { .. }
            | Self::Scrub { .. } => true,
            Self::Create { kind, .. } => *kind != FileKind::Plain,
            // A file of InnoDB is created before it gets another length or name.
            Self::SetLen { .. } | Self::Rename { .. } | Self::Unlink { .. } => false,
            Self::Write { .. } | Self::Mkdir { .. } | Self::Rmdir { .. } => false,
            // Sent with each connection.
            Self::SystemFiles(_) | Self::Counters(_) | Self::Trace(_) => false,
            Self::Verify(_) | Self::VerifyOrHeal(_) => false,
        }
    }

    /// Appends the payload to `out`.
    pub fn encode_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Redo(bytes) => out.extend_from_slice(bytes),
            Self::LogFile { .. } | Self::Checkpoint { .. } | Self::LogFront { .. } => self.encode_log(out),
            Self::Image { path, page_no, page, is_recovered: _ } => {
                put_path(out, path);
                out.extend_from_slice(&page_no.to_le_bytes());
                out.extend_from_slice(page);
            }
            Self::Create { path, kind, mode } => {
                put_path(out, path);
                out.push(match kind {
                    FileKind::Tablespace => 1,
                    FileKind::Plain => 2,
                    FileKind::Redo => 3,
                });
                out.extend_from_slice(&mode.to_le_bytes());
            }
            Self::Write { path, offset_bytes, data } => {
                put_path(out, path);
                out.extend_from_slice(&offset_bytes.to_le_bytes());
                out.extend_from_slice(data);
            }
            Self::SetLen { path, len_bytes } => {
                put_path(out, path);
                out.extend_from_slice(&len_bytes.to_le_bytes());
            }
            Self::Rename { from, to } => {
                put_path(out, from);
                put_path(out, to);
            }
            Self::Unlink { path } | Self::Rmdir { path } => put_path(out, path),
            Self::Mkdir { path, mode } => {
                put_path(out, path);
                out.extend_from_slice(&mode.to_le_bytes());
            }
            Self::BindSpace { path, space } => {
                put_path(out, path);
                out.extend_from_slice(&space.0.to_le_bytes());
            }
            Self::SystemFiles(files) => {
                for file in files {
                    put_path(out, &file.path);
                    out.extend_from_slice(&file.len_bytes.to_le_bytes());
                }
            }
            Self::Scrub { path, page_no, pages, lsn } => {
                put_path(out, path);
                out.extend_from_slice(&page_no.to_le_bytes());
                out.extend_from_slice(&pages.to_le_bytes());
                out.extend_from_slice(&lsn.0.to_le_bytes());
            }
            Self::Verify(verify) | Self::VerifyOrHeal(verify) => verify.encode(out),
            Self::Trace(samples) => samples.iter().for_each(|sample| sample.encode(out)),
            Self::Counters(pairs) => {
                for (id, value) in pairs {
                    out.push(*id);
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
    }

    /// Encodes notes about the files of the log.
    fn encode_log(&self, out: &mut Vec<u8>) {
        match self {
            Self::LogFile { file_size_bytes, header, checkpoints, next_lsn } => {
                out.extend_from_slice(&file_size_bytes.to_le_bytes());
                out.extend_from_slice(&next_lsn.0.to_le_bytes());
                out.extend_from_slice(*header);
                out.extend_from_slice(checkpoints[0]);
                out.extend_from_slice(checkpoints[1]);
            }
            Self::Checkpoint { slot, block } => {
                out.push(*slot);
                out.extend_from_slice(*block);
            }
            Self::LogFront { path, offset_bytes, next_lsn, block } => {
                put_path(out, path);
                out.extend_from_slice(&offset_bytes.to_le_bytes());
                out.extend_from_slice(&next_lsn.0.to_le_bytes());
                out.extend_from_slice(*block);
            }
            _ => {}
        }
    }
}

/// Decodes a payload (already decompressed) of `kind`.
///
/// # Errors
/// Any [`WireError`]: the sender is broken or hostile, and no part of the frame may be used.
pub fn decode(kind: u8, payload: &[u8]) -> Result<StreamFrame<'_>, WireError> {
    let mut reader = Reader::new(kind_name(kind), payload);
    let frame = match kind {
        KIND_REDO => return Ok(StreamFrame::Redo(payload)),
        KIND_LOG_FILE | KIND_CHECKPOINT | KIND_LOG_FRONT => log_frame(kind, &mut reader)?,
        KIND_IMAGE | KIND_RECOVERED_IMAGE => {
            let path = reader.path("path")?;
            let page_no = reader.u32("page number")?;
            let is_recovered = kind == KIND_RECOVERED_IMAGE;
            return Ok(StreamFrame::Image { path, page_no, page: reader.rest(), is_recovered });
        }
        KIND_CREATE => StreamFrame::Create {
            path: reader.path("path")?,
            kind: match reader.u8("file kind")? {
                1 => FileKind::Tablespace,
                2 => FileKind::Plain,
                3 => FileKind::Redo,
                other => return Err(invalid(kind, "file kind", format!("{other} is not known"))),
            },
            mode: reader.u32("mode")?,
        },
        KIND_WRITE => {
            let path = reader.path("path")?;
            let offset_bytes = reader.u64("offset")?;
            return Ok(StreamFrame::Write { path, offset_bytes, data: reader.rest() });
        }
        KIND_SET_LEN => StreamFrame::SetLen { path: reader.path("path")?, len_bytes: reader.u64("length")? },
        KIND_RENAME => StreamFrame::Rename { from: reader.path("from")?, to: reader.path("to")? },
        KIND_UNLINK => StreamFrame::Unlink { path: reader.path("path")? },
        KIND_MKDIR => StreamFrame::Mkdir { path: reader.path("path")?, mode: reader.u32("mode")? },
        KIND_RMDIR => StreamFrame::Rmdir { path: reader.path("path")? },
        KIND_BIND_SPACE => {
            StreamFrame::BindSpace { path: reader.path("path")?, space: SpaceId(reader.u32("space")?) }
        }
        KIND_SYSTEM_FILES => return system_files(payload),
        KIND_SCRUB => StreamFrame::Scrub {
            path: reader.path("path")?,
            page_no: reader.u32("page number")?,
            pages: match reader.u32("pages")? {
                pages @ 1..=MAX_SCRUB_PAGES => pages,
                other => {
                    return Err(invalid(kind, "pages", format!("{other} is not 1 to {MAX_SCRUB_PAGES}")));
                }
            },
            lsn: Lsn(reader.u64("lsn")?),
        },
        KIND_VERIFY => StreamFrame::Verify(Verify::decode(&mut reader)?),
        KIND_VERIFY_OR_HEAL => StreamFrame::VerifyOrHeal(Verify::decode(&mut reader)?),
        KIND_COUNTERS => return counters(payload),
        KIND_TRACE => return Ok(StreamFrame::Trace(trace::decode(payload)?)),
        _ => return Err(WireError::UnknownKind { kind, role: "log" }),
    };
    reader.finish()?;
    Ok(frame)
}

/// Decodes notes about the files of the log.
fn log_frame<'a>(kind: u8, reader: &mut Reader<'a>) -> Result<StreamFrame<'a>, WireError> {
    Ok(match kind {
        KIND_LOG_FILE => {
            let file_size_bytes = reader.u64("file size")?;
            let next_lsn = Lsn(reader.u64("next lsn")?);
            let header = fixed(reader, "header")?;
            let checkpoints = [fixed(reader, "checkpoint 1")?, fixed(reader, "checkpoint 2")?];
            StreamFrame::LogFile { file_size_bytes, header, checkpoints, next_lsn }
        }
        KIND_CHECKPOINT => {
            let slot = reader.u8("slot")?;
            if slot > 1 {
                return Err(invalid(kind, "slot", format!("{slot} is not 0 or 1")));
            }
            StreamFrame::Checkpoint { slot, block: fixed(reader, "block")? }
        }
        KIND_LOG_FRONT => StreamFrame::LogFront {
            path: reader.path("path")?,
            offset_bytes: reader.u32("offset")?,
            next_lsn: Lsn(reader.u64("next lsn")?),
            block: fixed(reader, "block")?,
        },
        _ => return Err(WireError::UnknownKind { kind, role: "log" }),
    })
}

fn system_files(payload: &[u8]) -> Result<StreamFrame<'_>, WireError> {
    let mut files = Vec::new();
    let mut rest = payload;
    while !rest.is_empty() {
        let mut reader = Reader::new("system files", rest);
        let path = reader.path("path")?.to_vec();
        let len_bytes = reader.u64("length")?;
        files.push(SystemFile { path, len_bytes });
        rest = reader.rest();
    }
    Ok(StreamFrame::SystemFiles(files))
}

fn counters(payload: &[u8]) -> Result<StreamFrame<'_>, WireError> {
    let mut pairs = Vec::new();
    let mut rest = payload;
    while !rest.is_empty() {
        let mut reader = Reader::new("counters", rest);
        pairs.push((reader.u8("id")?, reader.u64("value")?));
        rest = reader.rest();
    }
    Ok(StreamFrame::Counters(pairs))
}

fn fixed<'a, const N: usize>(reader: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8; N], WireError> {
    let bytes = reader.bytes(N, field)?;
    bytes.first_chunk().ok_or(WireError::Truncated { what: "fixed field", len_bytes: bytes.len(), field })
}

fn invalid(kind: u8, field: &'static str, why: String) -> WireError {
    WireError::Invalid { what: kind_name(kind), field, why }
}

fn kind_name(kind: u8) -> &'static str {
    match kind {
        KIND_REDO => "redo",
        KIND_LOG_FILE => "log file",
        KIND_CHECKPOINT => "checkpoint",
        KIND_IMAGE => "image",
        KIND_CREATE => "create",
        KIND_WRITE => "write",
        KIND_SET_LEN => "set length",
        KIND_RENAME => "rename",
        KIND_UNLINK => "unlink",
        KIND_MKDIR => "mkdir",
        KIND_RMDIR => "rmdir",
        KIND_BIND_SPACE => "bind space",
        KIND_SYSTEM_FILES => "system files",
        KIND_SCRUB => "scrub",
        KIND_LOG_FRONT => "log front",
        KIND_RECOVERED_IMAGE => "recovered image",
        KIND_VERIFY => "verify",
        KIND_VERIFY_OR_HEAL => "verify or heal",
        KIND_COUNTERS => "counters",
        KIND_TRACE => "trace",
        _ => "unknown frame",
    }
}

#[cfg(test)]
mod tests;
