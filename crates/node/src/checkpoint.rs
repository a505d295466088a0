//! The node's own checkpoint of a volume: how far it is applied, and the names as of that point.
//!
//! One file, `checkpoint`, replaced atomically: first line CRC-32C (8 hex) of the rest, then JSON. It is written
//! after the pages and plain files it speaks of are durable, and before anything older is given up.

use crate::error::NodeError;
use crate::home::Folder;
use crate::mark::Point;
use crate::namespace::Namespace;
use redoubt_logdev::format_version::unknown_version;
use redoubt_redo::Lsn;
use redoubt_wire::Seq;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const FORMAT: u32 = 1;
const FILE_NAME: &str = "checkpoint";

/// See the module.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// A: pages and plain files hold everything before it, and nothing of the names after it.
    pub applied: Point,
    /// First byte of the log that is still needed, with the LSN there (the server's own checkpoint may be
    /// older than A).
    pub log_start: Point,
    /// Names as of A.
    pub names: Arc<Namespace>,
}

#[derive(Serialize, Deserialize)]
struct Stored<N> {
    format: u32,
    applied_seq: u64,
    applied_lsn: u64,
    log_start_seq: u64,
    log_start_lsn: u64,
    names: N,
}

impl Checkpoint {
    /// Replaces the checkpoint in `directory`.
    ///
    /// # Errors
    /// [`NodeError::Io`]; retryable if the disk is full (the old checkpoint is untouched).
    pub fn write(&self, directory: &Folder) -> Result<(), NodeError> {
        let stored = Stored {
            format: FORMAT,
            applied_seq: self.applied.seq.0,
            applied_lsn: self.applied.lsn.0,
            log_start_seq: self.log_start.seq.0,
            log_start_lsn: self.log_start.lsn.0,
            names: &*self.names,
        };
        let body = serde_json::to_vec(&stored)
            .map_err(|error| NodeError::io("encode", directory.path().join(FILE_NAME), error.into()))?;
        write_checked(directory, FILE_NAME, &body)
    }

    /// Reads the checkpoint in `directory`.
    ///
    /// # Errors
    /// [`NodeError::Io`] or [`NodeError::Damaged`].
    pub fn read(directory: &Folder) -> Result<Self, NodeError> {
        let body = read_checked(directory, FILE_NAME)?;
        check_format(directory, FILE_NAME, &body, FORMAT)?;
        let stored: Stored<Namespace> = parse(directory, FILE_NAME, &body)?;
        Ok(Self {
            applied: Point { seq: Seq(stored.applied_seq), lsn: Lsn(stored.applied_lsn) },
            log_start: Point { seq: Seq(stored.log_start_seq), lsn: Lsn(stored.log_start_lsn) },
            names: Arc::new(stored.names),
        })
    }
}

/// Refuses a file of another format than `known` before anything else in it is looked at: a later one may have other
/// fields.
///
/// # Errors
/// [`NodeError::Damaged`] with the version found, the one known, and what to do.
pub fn check_format(directory: &Folder, name: &str, body: &[u8], known: u32) -> Result<(), NodeError> {
    #[derive(Deserialize)]
    struct Head {
        format: u64,
    }
    let Head { format } = parse(directory, name, body)?;
    if format == u64::from(known) {
        return Ok(());
    }
    Err(NodeError::Damaged { path: directory.path().join(name), reason: unknown_version(format, known) })
}

/// Parses JSON of one of the node's own files.
///
/// # Errors
/// [`NodeError::Damaged`].
pub fn parse<'a, T: Deserialize<'a>>(directory: &Folder, name: &str, body: &'a [u8]) -> Result<T, NodeError> {
    serde_json::from_slice(body)
        .map_err(|error| NodeError::Damaged { path: directory.path().join(name), reason: error.to_string() })
}

/// Atomically replaces `directory/name` by a checksum line and `body`, durably.
///
/// # Errors
/// [`NodeError::Io`].
pub fn write_checked(directory: &Folder, name: &str, body: &[u8]) -> Result<(), NodeError> {
    let temporary = format!("{name}.new");
    let mut bytes = format!("{:08x}\n", crc32c::crc32c(body)).into_bytes();
    bytes.extend_from_slice(body);
    let write = || -> std::io::Result<()> {
        let file = directory.open_or_create(&temporary)?;
        file.set_len(0)?;
        file.write_at(0, &bytes)?;
        file.sync_data()?;
        directory.dir().rename(&temporary, name)
    };
    write().map_err(|error| NodeError::io("write", directory.path().join(name), error))?;
    directory.sync()
}

/// Reads what [`write_checked`] wrote.
///
/// # Errors
/// [`NodeError::Io`], or [`NodeError::Damaged`] if the checksum does not match.
pub fn read_checked(directory: &Folder, name: &str) -> Result<Vec<u8>, NodeError> {
    let path = directory.path().join(name);
    let Some(bytes) = directory.read(name)? else {
        return Err(NodeError::io("read", path, std::io::ErrorKind::NotFound.into()));
    };
    let stored = bytes.get(..8).and_then(|hex| std::str::from_utf8(hex).ok());
    let stored = stored.and_then(|hex| u32::from_str_radix(hex, 16).ok());
    match (stored, bytes.get(9..)) {
        (Some(crc), Some(body)) if crc == crc32c::crc32c(body) => Ok(body.to_vec()),
        _ => Err(NodeError::Damaged {
            path,
            reason: "checksum does not match; restore the volume from an export or another copy".to_owned(),
        }),
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
