//! The server's redo log file, put together for its start.
//!
//! A server that starts reads header, checkpoints and the redo from its checkpoint on. All of that is in the
//! log device, as frames. At the first read after an attach the redo is laid out in a spool file with the sequence
//! bits the file's geometry asks for (they differ after a resize), and reads are composed from it.

use super::Volume;
use super::applying::server_checkpoint;
use crate::error::NodeError;
use crate::log_buffer::Chunk;
use crate::mark::Point;
use crate::namespace::LogFileEntry;
use redoubt_redo::Lsn;
use redoubt_redo::mariadb::log_file::{LogGeometry, LogHeader};
use redoubt_redo::mariadb::log_image::{LogImage, rewrite_sequence_bits};
use redoubt_storage::StorageFile;
use redoubt_wire::stream::{StreamFrame, decode};
use std::path::Path;
use std::sync::Arc;

/// See the module.
pub struct ServerLog {
    image: LogImage,
    spool: Arc<dyn StorageFile>,
}

impl ServerLog {
    /// Bytes of ib_logfile0.
    ///
    /// # Errors
    /// [`NodeError::Io`] if the spool file cannot be read.
    pub fn read(&self, offset_bytes: u64, out: &mut [u8], directory: &Path) -> Result<(), NodeError> {
        self.image
            .compose(offset_bytes, out, |lsn, part| {
                match self.spool.read_at(lsn.0 - self.image.oldest_lsn.0, part)? {
                    len if len == part.len() => Ok(()),
                    _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
                }
            })
            .map_err(|error| NodeError::io("read", directory.join("server-log"), error))
    }
}

impl Volume {
    pub(super) fn read_server_log(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), NodeError> {
        let mut server_log = self.server_log.lock();
        if server_log.is_none() {
            let end = self.drain()?;
            let log_file = self.indexing.names.read().log_file().cloned();
            *server_log = self.compose_server_log(log_file.as_ref(), end)?;
        }
        match &*server_log {
            Some(server_log) => server_log.read(offset_bytes, out, self.directory()),
            None => Err(NodeError::Refused(format!("volume {} has no redo log yet", self.context.name))),
        }
    }

    /// The redo log file as of `end`; `None` if there is none yet.
    pub(super) fn compose_server_log(
        &self,
        log_file: Option<&LogFileEntry>,
        end: Point,
    ) -> Result<Option<ServerLog>, NodeError> {
        let Some(log_file) = log_file else { return Ok(None) };
        let fixed = |reason: String| NodeError::Redo { lsn: end.lsn, reason };
        let header = LogHeader::parse(&log_file.header).map_err(|error| fixed(error.to_string()))?;
        let geometry = LogGeometry::new(header.first_lsn, log_file.file_size_bytes)
            .map_err(|error| fixed(error.to_string()))?;
        let checkpoint = server_checkpoint(Some(log_file)).unwrap_or(header.first_lsn).max(header.first_lsn);
        let (spool, len_bytes) = self.spool_redo(checkpoint, end, &geometry)?;
        let image = LogImage {
            geometry,
            header: sized(&log_file.header).ok_or_else(|| fixed("stored log header is cut".to_owned()))?,
            checkpoints: log_file.checkpoints.each_ref().map(|block| sized(block).unwrap_or([0; 64])),
            oldest_lsn: checkpoint,
            end_lsn: checkpoint.advance(len_bytes),
        };
        Ok(Some(ServerLog { image, spool }))
    }

    /// Writes the redo bytes `[from, end)` to an unlinked file. Returns it and its length.
    fn spool_redo(
        &self,
        from: Lsn,
        end: Point,
        geometry: &LogGeometry,
    ) -> Result<(Arc<dyn StorageFile>, u64), NodeError> {
        // A name of its own: an export and a starting server may do this at the same time.
        let name = format!("server-log-{}", self.session.next_connection());
        let io = |error| NodeError::io("write", self.context.own.path().join(&name), error);
        let spool = self.context.own.open_or_create(&name).and_then(|spool| {
            spool.set_len(0)?;
            self.context.own.dir().remove(&name)?;
            Ok(spool)
        });
        let spool = spool.map_err(io)?;
        let mut len_bytes = 0;
        let Some(start) = self.receiving.retention.position(from) else {
            if from < end.lsn {
                let reason = format!("redo from the server's checkpoint {from} on is no longer in the log");
                return Err(NodeError::Redo { lsn: from, reason });
            }
            return Ok((spool, 0));
        };
        self.receiving.read_frames(start, end.seq, |chunk| {
            let bytes = redo_from(&chunk, from, geometry)?;
            spool.write_at(len_bytes, &bytes).map_err(io)?;
            len_bytes += bytes.len() as u64;
            Ok(())
        })?;
        if from.advance(len_bytes) != end.lsn {
            let reason = format!(
                "redo from {from} has {len_bytes} bytes in the log, but the stream ends at {}",
                end.lsn
            );
            return Err(NodeError::Redo { lsn: from, reason });
        }
        Ok((spool, len_bytes))
    }
}

/// The redo of a frame from `from` on, with the sequence bits of `geometry`.
pub(super) fn redo_from(chunk: &Chunk, from: Lsn, geometry: &LogGeometry) -> Result<Vec<u8>, NodeError> {
    let StreamFrame::Redo(bytes) = decode(chunk.kind, chunk.payload())? else { return Ok(Vec::new()) };
    if chunk.end.lsn <= from {
        return Ok(Vec::new());
    }
    let mut bytes = bytes.to_vec();
    rewrite_sequence_bits(&mut bytes, chunk.start.lsn, geometry)
        .map_err(|error| NodeError::Redo { lsn: error.mtr_lsn, reason: error.error.to_string() })?;
    let skip = from.0.saturating_sub(chunk.start.lsn.0) as usize;
    Ok(bytes.split_off(skip.min(bytes.len())))
}

fn sized<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}
