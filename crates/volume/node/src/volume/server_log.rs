//! The server's redo log, put together for its start.
//!
//! A server that starts reads headers, checkpoints and the redo from its checkpoint on. All of that is in the log
//! device, as frames. At the first read after an attach the redo is laid out in a spool file, and reads are composed
//! from it.
//!
//! * MariaDB's log is one file. In the spool the redo has the sequence bits that the file's geometry requires (they
//!   differ after a resize).
//! * MySQL's is a set of files with names, lengths and headers of their own. The spool begins with the frame that holds
//!   the server's checkpoint, because the checkpoint may lie inside of a mini-transaction.

use super::Volume;
use super::rescue::is_damage;
use crate::error::NodeError;
use crate::log_buffer::Chunk;
use crate::mark::Point;
use crate::namespace::{LogFileEntry, LogSetEntry, Namespace};
use redoubt_redo::Lsn;
use redoubt_redo::mariadb::log_file::{CleanEnd, LogFileError, LogGeometry, LogHeader};
use redoubt_redo::mariadb::log_image::{LogImage, rewrite_sequence_bits};
use redoubt_redo::mysql::log_file::FileRange;
use redoubt_redo::mysql::log_image::{ComposedFile, FirstGroups};
use redoubt_redo::mysql::walk::walk_mtrs;
use redoubt_storage::StorageFile;
use redoubt_wire::stream::{StreamFrame, decode};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The server's redo log, put together for its start.
pub struct ServerLog {
    redo: Spool,
    composer: Composer,
}

enum Composer {
    File(Box<LogImage>),
    Set(FirstGroups),
}

/// The redo from `oldest` to `end`, in a file without a name.
struct Spool {
    file: Arc<dyn StorageFile>,
    oldest: Lsn,
    end: Lsn,
}

impl Spool {
    fn fetch(&self, lsn: Lsn, part: &mut [u8]) -> std::io::Result<()> {
        match self.file.read_at(lsn.0 - self.oldest.0, part)? {
            len if len == part.len() => Ok(()),
            _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl ServerLog {
    /// The server reads it also after it has written to it: MySQL does while it makes the log of a new volume.
    const fn grows(&self) -> bool {
        matches!(self.composer, Composer::Set(_))
    }

    /// Bytes of the log file at `path`; `names` are those of the moment for which the log was composed, or later ones.
    ///
    /// # Errors
    /// [`NodeError::Io`] if the spool file cannot be read; [`NodeError::Refused`] if there is no such file.
    pub fn read(
        &self,
        names: &Namespace,
        path: &str,
        offset_bytes: u64,
        out: &mut [u8],
        directory: &Path,
    ) -> Result<(), NodeError> {
        let fetch = |lsn, part: &mut [u8]| self.redo.fetch(lsn, part);
        let read = match &self.composer {
            Composer::File(image) => image.compose(offset_bytes, out, fetch),
            Composer::Set(first_groups) => {
                let missing = || NodeError::Refused(format!("the volume has no redo log file {path}"));
                let log_set = names.log_set().ok_or_else(missing)?;
                let file = log_set.files.get(path).ok_or_else(missing)?;
                let (Some(header), Some(parsed)) = (file.header.first_chunk(), file.parsed_header()) else {
                    // A spare file.
                    out.fill(0);
                    return Ok(());
                };
                let range = FileRange { start_lsn: parsed.start_lsn, size_bytes: file.len_bytes };
                let checkpoint = log_set.checkpoint().unwrap_or(Lsn(0));
                let (oldest, end) = (self.redo.oldest, self.redo.end);
                let file = ComposedFile { header, range, checkpoint, oldest, end };
                file.compose(offset_bytes, out, first_groups, fetch)
            }
        };
        read.map_err(|error| NodeError::io("read", directory.join("server-log"), error))
    }
}

impl Volume {
    /// Bytes of the file of the log at `path`, as the server expects them at its start.
    pub(super) fn read_server_log(
        &self,
        path: &str,
        offset_bytes: u64,
        out: &mut [u8],
    ) -> Result<(), NodeError> {
        let mut server_log = self.server_log.lock();
        if server_log.as_ref().is_none_or(ServerLog::grows) {
            let end = self.drain()?;
            if server_log.as_ref().is_none_or(|server_log| server_log.redo.end != end.lsn) {
                let names = self.indexing.names.read().clone();
                *server_log = self.compose_server_log(&names, end)?;
            }
        }
        match &*server_log {
            Some(server_log) => {
                server_log.read(&self.indexing.names.read(), path, offset_bytes, out, self.directory())
            }
            None => Err(NodeError::Refused(format!("volume {} has no redo log yet", self.context.name))),
        }
    }

    /// The redo log as of `end`, where `names` are the names; `None` if there is none yet.
    pub(super) fn compose_server_log(
        &self,
        names: &Namespace,
        end: Point,
    ) -> Result<Option<ServerLog>, NodeError> {
        match (names.log_file(), names.log_set()) {
            (Some(log_file), _) => self.compose_log_file(log_file, end).map(Some),
            (None, Some(log_set)) if log_set.is_usable() => self.compose_log_set(log_set, end).map(Some),
            _ => Ok(None),
        }
    }

    /// The redo log of an export as of `end`. If the log is damaged where the server's redo begins, the pages have that
    /// redo all the same: the log of MariaDB ends with a checkpoint of `end` then, without redo, and that of MySQL has
    /// nothing. The second result is the defect.
    pub(super) fn compose_log_of_export(
        &self,
        names: &Namespace,
        end: Point,
    ) -> Result<(Option<ServerLog>, Option<String>), NodeError> {
        let damage = match self.compose_server_log(names, end) {
            Err(error) if is_damage(&error) => error,
            composed => return Ok((composed?, None)),
        };
        let ended = names.log_file().map(|log_file| self.end_log_file(log_file, end)).transpose()?;
        let reason = format!(
            "the server's redo cannot be read from the node's log ({damage}). {}",
            super::clean_end::missing_without_redo(names.family())
        );
        tracing::warn!(
            event = "export_without_redo",
            volume = self.context.name,
            reason,
            "export has no redo"
        );
        Ok((ended, Some(reason)))
    }

    /// A log file with nothing to recover that ends at `end`.
    fn end_log_file(&self, log_file: &LogFileEntry, end: Point) -> Result<ServerLog, NodeError> {
        let (geometry, _) = geometry_of(log_file, end)?;
        let CleanEnd { redo, checkpoint } = CleanEnd::at(end.lsn, &geometry);
        let (file, path) = self.spool_file()?;
        file.write_at(0, &redo).map_err(|error| NodeError::io("write", path, error))?;
        let image = LogImage {
            geometry,
            header: header_of(log_file, end)?,
            checkpoints: [checkpoint, [0; 64]],
            oldest_lsn: end.lsn,
            end_lsn: end.lsn.advance(CleanEnd::LEN_BYTES),
        };
        let redo = Spool { file, oldest: image.oldest_lsn, end: image.end_lsn };
        Ok(ServerLog { redo, composer: Composer::File(Box::new(image)) })
    }

    fn compose_log_file(&self, log_file: &LogFileEntry, end: Point) -> Result<ServerLog, NodeError> {
        let (geometry, header) = geometry_of(log_file, end)?;
        let checkpoint = log_file.checkpoint().unwrap_or(header.first_lsn).max(header.first_lsn);
        let redo = self
            .spool_redo(checkpoint, Some(checkpoint), end, |chunk| redo_from(chunk, checkpoint, &geometry))?;
        let image = LogImage {
            geometry,
            header: header_of(log_file, end)?,
            checkpoints: log_file.checkpoints.each_ref().map(|block| sized(block).unwrap_or([0; 64])),
            oldest_lsn: redo.oldest,
            end_lsn: redo.end,
        };
        Ok(ServerLog { redo, composer: Composer::File(Box::new(image)) })
    }

    fn compose_log_set(&self, log_set: &LogSetEntry, end: Point) -> Result<ServerLog, NodeError> {
        let checkpoint = log_set.checkpoint().unwrap_or(end.lsn).min(end.lsn);
        let mut first_groups = FirstGroups::default();
        first_groups.insert(end.lsn);
        let redo = self.spool_redo(checkpoint, None, end, |chunk| {
            let StreamFrame::Redo(bytes) = decode(chunk.kind, chunk.payload())? else {
                return Ok(Vec::new());
            };
            walk_mtrs(bytes, chunk.start.lsn, &mut first_groups)
                .map_err(|error| NodeError::Redo { lsn: error.mtr_lsn, reason: error.error.to_string() })?;
            Ok(bytes.to_vec())
        })?;
        Ok(ServerLog { redo, composer: Composer::Set(first_groups) })
    }

    /// An unlinked file, with the path that it had.
    fn spool_file(&self) -> Result<(Arc<dyn StorageFile>, PathBuf), NodeError> {
        // A name of its own: an export and a starting server may do this at the same time.
        let name = format!("server-log-{}", self.session.next_connection());
        let path = self.context.own.path().join(&name);
        let file = self.context.own.open_or_create(&name).and_then(|file| {
            file.set_len(0)?;
            self.context.own.dir().remove(&name)?;
            Ok(file)
        });
        match file {
            Ok(file) => Ok((file, path)),
            Err(error) => Err(NodeError::io("write", path, error)),
        }
    }

    /// Writes redo to an unlinked file: that of each frame from the one on that holds `checkpoint`, as `redo_of` gives
    /// it. It begins at `oldest` then; `None`: where the first of these frames does, with a mini-transaction.
    fn spool_redo(
        &self,
        checkpoint: Lsn,
        mut oldest: Option<Lsn>,
        end: Point,
        mut redo_of: impl FnMut(&Chunk) -> Result<Vec<u8>, NodeError>,
    ) -> Result<Spool, NodeError> {
        let (file, path) = self.spool_file()?;
        let io = |error| NodeError::io("write", &path, error);
        let gone = || {
            let reason = format!("redo from the server's checkpoint {checkpoint} on is no longer in the log");
            NodeError::Redo { lsn: checkpoint, reason }
        };
        let Some(start) = self.receiving.retention.position(checkpoint) else {
            if checkpoint < end.lsn {
                return Err(gone());
            }
            let oldest = oldest.unwrap_or(end.lsn);
            return Ok(Spool { file, oldest, end: oldest });
        };
        let mut len_bytes = 0;
        self.receiving.read_frames(start, end.seq, |chunk| {
            let bytes = redo_of(&chunk)?;
            if !bytes.is_empty() {
                oldest.get_or_insert(chunk.start.lsn);
            }
            file.write_at(len_bytes, &bytes).map_err(io)?;
            len_bytes += bytes.len() as u64;
            Ok(())
        })?;
        // There may be none: an import of a log that ends at its checkpoint.
        let oldest = oldest.unwrap_or(end.lsn);
        if oldest > checkpoint {
            return Err(gone());
        }
        if oldest.advance(len_bytes) != end.lsn {
            let reason = format!(
                "redo from {oldest} has {len_bytes} bytes in the log, but the stream ends at {}",
                end.lsn
            );
            return Err(NodeError::Redo { lsn: oldest, reason });
        }
        Ok(Spool { file, oldest, end: end.lsn })
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

fn geometry_of(log_file: &LogFileEntry, end: Point) -> Result<(LogGeometry, LogHeader), NodeError> {
    let fixed = |error: LogFileError| NodeError::Redo { lsn: end.lsn, reason: error.to_string() };
    let header = LogHeader::parse(&log_file.header).map_err(fixed)?;
    let geometry = LogGeometry::new(header.first_lsn, log_file.file_size_bytes).map_err(fixed)?;
    Ok((geometry, header))
}

fn header_of<const N: usize>(log_file: &LogFileEntry, end: Point) -> Result<[u8; N], NodeError> {
    let cut = || NodeError::Redo { lsn: end.lsn, reason: "stored log header is cut".to_owned() };
    sized(&log_file.header).ok_or_else(cut)
}

fn sized<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}
