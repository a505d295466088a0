//! Page connections: one request, one reply. Checksum positions count frames per direction from 0.

use crate::error::WireError;
use crate::reader::{Reader, put_path, put_varint};
pub use redoubt_types::FileId;
use redoubt_types::{Lsn, Seq, SpaceId};

/// Longest read in bytes; the doublewrite area is read in pieces of 1 MiB.
pub const MAX_READ_LEN_BYTES: u32 = 8 << 20;

/// A request of the shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageRequest<'a> {
    /// Opens the file at this path, after all of the stream before `need`.
    Open {
        /// The node must have parsed the stream up to here.
        need: Seq,
        /// Relative path.
        path: &'a [u8],
    },
    /// Bytes of a tablespace file, each page with every change before `need` (and none that is not durable).
    Read {
        /// The node must have parsed the stream up to here.
        need: Seq,
        /// The file.
        file: FileId,
        /// Offset in the file.
        offset_bytes: u64,
        /// Number of bytes; at most [`MAX_READ_LEN_BYTES`].
        len_bytes: u32,
    },
    /// Bytes of ib_logfile0 as the server expects them at start.
    ReadLog {
        /// Offset in ib_logfile0.
        offset_bytes: u64,
        /// Number of bytes; at most [`MAX_READ_LEN_BYTES`].
        len_bytes: u32,
    },
    /// The image requested by [`crate::notice::Notice::NeedImage`]; empty if it is gone.
    MismatchImage {
        /// Relative path.
        path: &'a [u8],
        /// Page number inside that file.
        page_no: u32,
        /// FIL_PAGE_LSN of the dropped write.
        lsn: Lsn,
        /// The page content of the dropped write.
        page: &'a [u8],
    },
    /// Bytes of one of the files of MySQL's redo log, as the server expects them at start.
    ReadLogFile {
        /// Relative path.
        path: &'a [u8],
        /// Offset in that file.
        offset_bytes: u64,
        /// Number of bytes; at most [`MAX_READ_LEN_BYTES`].
        len_bytes: u32,
    },
    /// State of the redo log file and of the tablespaces' ids, requested once at start.
    LogState,
}

/// The node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageReply<'a> {
    /// To Open.
    Opened {
        /// The file's number.
        file: FileId,
        /// Its length in bytes.
        len_bytes: u64,
        /// Tablespace, if known yet.
        space: Option<SpaceId>,
        /// FSP_SPACE_FLAGS, if known yet (page 0 was logged or imported).
        space_flags: Option<u32>,
        /// First page number of this file inside its tablespace (system tablespace of several files).
        first_page_no: u32,
    },
    /// To Open: no such file.
    NotFound,
    /// To Read: exactly the requested bytes. To ReadLog and ReadLogFile: the same without the zeros at their end.
    Bytes(&'a [u8]),
    /// To MismatchImage.
    Done,
    /// To LogState.
    LogState {
        /// Size of ib_logfile0; 0 if the volume has none yet.
        file_size_bytes: u64,
        /// Header, 512 bytes, or empty.
        header: &'a [u8],
        /// LSN of the next redo byte.
        next_lsn: Lsn,
    },
    /// The request cannot be answered.
    Failed {
        /// The same request may succeed later.
        retry: bool,
        /// The reason, for people.
        message: String,
    },
}

impl PageRequest<'_> {
    /// Kind byte; the payload is appended to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Open { need, path } => {
                out.extend_from_slice(&need.0.to_le_bytes());
                put_path(out, path);
                1
            }
            Self::Read { need, file, offset_bytes, len_bytes } => {
                let unit = (*offset_bytes | u64::from(*len_bytes)).trailing_zeros() % u64::BITS;
                out.push(unit as u8);
                put_varint(out, offset_bytes >> unit);
                put_varint(out, u64::from(*len_bytes) >> unit);
                put_varint(out, u64::from(file.0));
                put_varint(out, need.0);
                2
            }
            Self::ReadLog { offset_bytes, len_bytes } => {
                out.extend_from_slice(&offset_bytes.to_le_bytes());
                out.extend_from_slice(&len_bytes.to_le_bytes());
                3
            }
            Self::MismatchImage { path, page_no, lsn, page } => {
                put_path(out, path);
                out.extend_from_slice(&page_no.to_le_bytes());
                out.extend_from_slice(&lsn.0.to_le_bytes());
                out.extend_from_slice(page);
                4
            }
            Self::LogState => 5,
            Self::ReadLogFile { path, offset_bytes, len_bytes } => {
                put_path(out, path);
                out.extend_from_slice(&offset_bytes.to_le_bytes());
                out.extend_from_slice(&len_bytes.to_le_bytes());
                6
            }
        }
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// Any [`WireError`]; the connection must be closed.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<PageRequest<'_>, WireError> {
        let mut reader = Reader::new("page request", payload);
        let request = match kind {
            1 => PageRequest::Open { need: Seq(reader.u64("need")?), path: reader.path("path")? },
            2 => read(&mut reader)?,
            3 => PageRequest::ReadLog {
                offset_bytes: reader.u64("offset")?,
                len_bytes: read_len(reader.u32("length")?.into())?,
            },
            4 => {
                let path = reader.path("path")?;
                let page_no = reader.u32("page number")?;
                let lsn = Lsn(reader.u64("lsn")?);
                return Ok(PageRequest::MismatchImage { path, page_no, lsn, page: reader.rest() });
            }
            5 => PageRequest::LogState,
            6 => PageRequest::ReadLogFile {
                path: reader.path("path")?,
                offset_bytes: reader.u64("offset")?,
                len_bytes: read_len(reader.u32("length")?.into())?,
            },
            _ => return Err(WireError::UnknownKind { kind, role: "page" }),
        };
        reader.finish()?;
        Ok(request)
    }
}

/// The most frequent request by far: offset and length are in units of a power of two, which pages make large.
fn read(reader: &mut Reader<'_>) -> Result<PageRequest<'static>, WireError> {
    let unit = u32::from(reader.u8("unit")?);
    let scaled = |value: u64, field| {
        let bytes = value.checked_shl(unit).filter(|bytes| bytes >> unit == value);
        bytes.ok_or_else(|| WireError::Invalid {
            what: "page request",
            field,
            why: format!("{value} units of 2^{unit} bytes are too many"),
        })
    };
    let offset_bytes = scaled(reader.varint("offset")?, "offset")?;
    let len_bytes = read_len(scaled(reader.varint("length")?, "length")?)?;
    let file = reader.varint("file")?;
    let file = FileId(u32::try_from(file).map_err(|_| WireError::Invalid {
        what: "page request",
        field: "file",
        why: format!("{file} is no number of a file"),
    })?);
    Ok(PageRequest::Read { need: Seq(reader.varint("need")?), file, offset_bytes, len_bytes })
}

fn read_len(len_bytes: u64) -> Result<u32, WireError> {
    match u32::try_from(len_bytes) {
        Ok(len_bytes) if len_bytes <= MAX_READ_LEN_BYTES => Ok(len_bytes),
        _ => Err(WireError::TooLong {
            what: "read request",
            len_bytes,
            limit_bytes: u64::from(MAX_READ_LEN_BYTES),
        }),
    }
}

impl PageReply<'_> {
    /// Kind byte; the payload is appended to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Opened { file, len_bytes, space, space_flags, first_page_no } => {
                out.extend_from_slice(&file.0.to_le_bytes());
                out.extend_from_slice(&len_bytes.to_le_bytes());
                out.push(u8::from(space.is_some()) | u8::from(space_flags.is_some()) << 1);
                out.extend_from_slice(&space.map_or(0, |space| space.0).to_le_bytes());
                out.extend_from_slice(&space_flags.unwrap_or(0).to_le_bytes());
                out.extend_from_slice(&first_page_no.to_le_bytes());
                1
            }
            Self::NotFound => 2,
            Self::Bytes(bytes) => {
                out.extend_from_slice(bytes);
                3
            }
            Self::Done => 4,
            Self::LogState { file_size_bytes, header, next_lsn } => {
                out.extend_from_slice(&file_size_bytes.to_le_bytes());
                out.extend_from_slice(&next_lsn.0.to_le_bytes());
                out.extend_from_slice(header);
                5
            }
            Self::Failed { retry, message } => {
                out.push(u8::from(*retry));
                out.extend_from_slice(message.as_bytes());
                6
            }
        }
    }

    /// Decodes a reply.
    ///
    /// # Errors
    /// Any [`WireError`]; the connection must be closed.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<PageReply<'_>, WireError> {
        let mut reader = Reader::new("page reply", payload);
        let reply = match kind {
            1 => {
                let file = FileId(reader.u32("file")?);
                let len_bytes = reader.u64("length")?;
                let flags = reader.u8("flags")?;
                let space = reader.u32("space")?;
                let space_flags = reader.u32("space flags")?;
                PageReply::Opened {
                    file,
                    len_bytes,
                    space: (flags & 1 != 0).then_some(SpaceId(space)),
                    space_flags: (flags & 2 != 0).then_some(space_flags),
                    first_page_no: reader.u32("first page number")?,
                }
            }
            2 => PageReply::NotFound,
            3 => return Ok(PageReply::Bytes(payload)),
            4 => PageReply::Done,
            5 => {
                let file_size_bytes = reader.u64("file size")?;
                let next_lsn = Lsn(reader.u64("next lsn")?);
                return Ok(PageReply::LogState { file_size_bytes, header: reader.rest(), next_lsn });
            }
            6 => {
                let retry = reader.u8("retry")? != 0;
                let message = String::from_utf8_lossy(reader.rest()).into_owned();
                return Ok(PageReply::Failed { retry, message });
            }
            _ => return Err(WireError::UnknownKind { kind, role: "page" }),
        };
        reader.finish()?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests;
