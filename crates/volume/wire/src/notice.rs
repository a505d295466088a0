//! Frames of the notices connection, node to shim. Their checksum position counts them from 0.
//!
//! They have a connection of their own because of TCP's behaviour when a process is killed. Its kernel continues to
//! send the written bytes, unless something arrives for the closed socket (or was there unread). Then it resets the
//! connection and drops the rest. So nothing may come back on the log connection. Otherwise a server that is killed
//! right after it has answered for bytes that it only wrote would lose them.

use crate::error::WireError;
use crate::greeting::{DAMAGED_PAGES, Features, UNKNOWN_FILES};
use crate::reader::Reader;
use redoubt_types::{Lsn, Seq};

/// A notice of the node to the shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Every logged frame before this Seq is durable.
    Durable(Seq),
    /// Another server attached the volume with this generation: stop for good.
    Fenced {
        /// The newer generation.
        generation: u64,
    },
    /// The volume stopped (mismatch, failed device): stop for good.
    Stopped {
        /// The reason, for people.
        reason: String,
    },
    /// Nothing becomes durable for now (for example the node's disk is full); the node continues by itself.
    Waiting {
        /// The reason, for people. Empty: the wait is over.
        reason: String,
    },
    /// A verified page differs: send its image on a page connection if you still hold it.
    NeedImage {
        /// Tablespace file.
        path: Vec<u8>,
        /// Page number inside that file.
        page_no: u32,
        /// LSN of the dropped write.
        lsn: Lsn,
    },
    /// Measure one in so many commits and page reads ([`crate::trace`]); 0: stop measuring.
    Trace {
        /// The number of commits or page reads for each measured one.
        one_in: u32,
    },
    /// The node's page is damaged: send the page whole with its next write. Needs
    /// [`DAMAGED_PAGES`](crate::greeting::DAMAGED_PAGES).
    WantImage {
        /// Tablespace file.
        path: Vec<u8>,
        /// Page number inside that file.
        page_no: u32,
    },
    /// A write of this plain file was dropped: the volume does not have the file. Needs
    /// [`UNKNOWN_FILES`](crate::greeting::UNKNOWN_FILES).
    UnknownFile {
        /// Path of the file.
        path: Vec<u8>,
    },
}

impl Notice {
    /// The feature that the peer must have.
    pub fn needs(&self) -> Features {
        match self {
            Self::WantImage { .. } => DAMAGED_PAGES,
            Self::UnknownFile { .. } => UNKNOWN_FILES,
            _ => Features::NONE,
        }
    }

    /// Kind and payload.
    pub fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Durable(seq) => (1, seq.0.to_le_bytes().to_vec()),
            Self::Fenced { generation } => (2, generation.to_le_bytes().to_vec()),
            Self::Stopped { reason } => (3, reason.as_bytes().to_vec()),
            Self::Waiting { reason } => (4, reason.as_bytes().to_vec()),
            Self::Trace { one_in } => (6, one_in.to_le_bytes().to_vec()),
            Self::WantImage { path, page_no } => {
                let mut out = Vec::new();
                crate::reader::put_path(&mut out, path);
                out.extend_from_slice(&page_no.to_le_bytes());
                (7, out)
            }
            Self::UnknownFile { path } => {
                let mut out = Vec::new();
                crate::reader::put_path(&mut out, path);
                (8, out)
            }
            Self::NeedImage { path, page_no, lsn } => {
                let mut out = Vec::new();
                crate::reader::put_path(&mut out, path);
                out.extend_from_slice(&page_no.to_le_bytes());
                out.extend_from_slice(&lsn.0.to_le_bytes());
                (5, out)
            }
        }
    }

    /// Decodes a payload.
    ///
    /// # Errors
    /// Any [`WireError`]; the connection must be closed.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("notice", payload);
        let notice = match kind {
            1 => Self::Durable(Seq(reader.u64("seq")?)),
            2 => Self::Fenced { generation: reader.u64("generation")? },
            3 => return Ok(Self::Stopped { reason: String::from_utf8_lossy(payload).into_owned() }),
            4 => return Ok(Self::Waiting { reason: String::from_utf8_lossy(payload).into_owned() }),
            5 => Self::NeedImage {
                path: reader.path("path")?.to_vec(),
                page_no: reader.u32("page number")?,
                lsn: Lsn(reader.u64("lsn")?),
            },
            6 => Self::Trace { one_in: reader.u32("one in")? },
            7 => Self::WantImage { path: reader.path("path")?.to_vec(), page_no: reader.u32("page number")? },
            8 => Self::UnknownFile { path: reader.path("path")?.to_vec() },
            _ => return Err(WireError::UnknownKind { kind, role: "notices" }),
        };
        reader.finish()?;
        Ok(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_image_is_decoded_as_it_was_encoded() {
        let wanted = Notice::WantImage { path: b"d/t.ibd".to_vec(), page_no: u32::MAX };
        let (kind, payload) = wanted.encode();
        assert_eq!(Notice::decode(kind, &payload).unwrap(), wanted);
        assert!(Notice::decode(kind, &payload[1..]).is_err());
    }

    #[test]
    fn unknown_file_is_decoded_as_it_was_encoded() {
        let unknown = Notice::UnknownFile { path: b"d/t.MYD".to_vec() };
        let (kind, payload) = unknown.encode();
        assert_eq!(Notice::decode(kind, &payload).unwrap(), unknown);
        assert!(Notice::decode(kind, &payload[1..]).is_err());
    }

    #[test]
    fn a_trace_is_begun_and_ended_by_number() {
        for one_in in [0, 16, u32::MAX] {
            let (kind, payload) = Notice::Trace { one_in }.encode();
            assert_eq!(Notice::decode(kind, &payload).unwrap(), Notice::Trace { one_in });
            assert!(Notice::decode(kind, &payload[1..]).is_err());
        }
    }
}
