//! Import: the way in.
//!
//! It fills the page store and plain store of a new volume directly, then feeds the source's redo from its checkpoint
//! on through the ordinary stream, without what later redo makes void (see [`crate::index`]). The volume gets its real
//! name only when all of that is durable and applied: from then on every stored page is its state at some point of the
//! stream.

use super::indexing::close_table_at;
use super::{Identity, Volume};
use crate::checkpoint::CheckpointFiles;
use crate::error::NodeError;
use crate::home::{DirectoryHome, Folder, Home};
use crate::namespace::Namespace;
use crate::options::NodeOptions;
use redoubt_pagestore::{ObjectId, PageStore};
use redoubt_redo::mariadb::log_file::CLEAN_END_LEN_BYTES;
use redoubt_redo::{Family, LastResets, Lsn, SpaceId, walk_mtrs};
use redoubt_wire::Seq;
use redoubt_wire::page::FileId;
use redoubt_wire::stream::{FileKind, StreamFrame, SystemFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Redo is fed in frames of this size.
const REDO_FRAME_BYTES: usize = 4 << 20;

/// A volume that is being filled.
pub struct Import {
    name: String,
    directory: PathBuf,
    own: Folder,
    identity: Identity,
    options: NodeOptions,
    store: Box<dyn PageStore>,
    plain: crate::plain::PlainStore,
    names: Namespace,
    log: Option<ImportedLog>,
    /// Keeps the key, if it is encrypted. The last field: it goes when the files are closed.
    _home: DirectoryHome,
}

struct ImportedLog {
    file_size_bytes: u64,
    header: Vec<u8>,
    checkpoints: [Vec<u8>; 2],
    start_lsn: Lsn,
    redo: Vec<u8>,
}

impl ImportedLog {
    /// Where its redo ends, if the server was not shut down.
    fn unclean_end(&self) -> Option<Lsn> {
        let len_bytes = self.redo.len() as u64;
        (len_bytes > CLEAN_END_LEN_BYTES).then(|| self.start_lsn.advance(len_bytes))
    }
}

impl Import {
    /// Starts an import into a new directory.
    ///
    /// # Errors
    /// [`NodeError::Refused`], [`NodeError::Io`].
    pub fn begin(
        name: &str,
        home: DirectoryHome,
        options: &NodeOptions,
        system_files: &[(String, u64)],
    ) -> Result<Self, NodeError> {
        // First of all: what is made elsewhere for the volume can be found, and removed, only by its id.
        let identity = Identity::at(&home);
        let own = home.own()?;
        identity.write(&own)?;
        let (store, _) = home.pages(&identity.volume_id, options)?;
        let plain = crate::plain::PlainStore::new(home.plain()?);
        let mut names = Namespace::default();
        let files: Vec<_> = system_files
            .iter()
            .map(|(path, len_bytes)| SystemFile { path: path.as_bytes().to_vec(), len_bytes: *len_bytes })
            .collect();
        names.set_system_files(&files)?;
        Ok(Self {
            name: name.to_owned(),
            directory: own.path().to_owned(),
            own,
            identity,
            options: options.clone(),
            store,
            plain,
            names,
            log: None,
            _home: home,
        })
    }

    /// Where it is being built.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// A directory of the source.
    pub fn directory(&mut self, path: &str, mode: u32) {
        self.names.mkdir(path, mode);
    }

    /// A file of the source; `write` follows.
    ///
    /// # Errors
    /// [`NodeError::Io`], [`NodeError::PageStore`].
    pub fn file(
        &mut self,
        path: &str,
        mode: u32,
        len_bytes: u64,
        tablespace: bool,
    ) -> Result<FileId, NodeError> {
        let kind = if tablespace { FileKind::Tablespace } else { FileKind::Plain };
        let (file, _) = self.names.create(path, kind, mode);
        self.names.set_len(path, len_bytes);
        if tablespace {
            let first_byte = self.names.file(file).map_or(0, |entry| entry.first_byte);
            if let Some(object) = self.names.object_of_file(file) {
                self.store.create(object)?;
                self.store.set_len(object, first_byte.saturating_add(len_bytes))?;
            }
        } else {
            self.plain.execute(&crate::plain::Change::Create(file))?;
            self.plain.execute(&crate::plain::Change::SetLen(file, len_bytes))?;
        }
        Ok(file)
    }

    /// Bytes of a file. Page 0 of a tablespace must come in its first piece.
    ///
    /// # Errors
    /// [`NodeError::Page`] if page 0 does not say what the tablespace is.
    pub fn write(&mut self, file: FileId, offset_bytes: u64, bytes: &[u8]) -> Result<(), NodeError> {
        let Some(entry) = self.names.file(file).cloned() else {
            return Err(NodeError::Refused(format!("file {} is not being imported", file.0)));
        };
        let Some(object) = entry.object.map(ObjectId) else {
            return self.plain.write(file, offset_bytes, bytes);
        };
        if offset_bytes == 0 && entry.first_byte == 0 {
            self.learn_space(object, &entry.path, bytes)?;
        }
        Ok(self.store.write_raw(object, entry.first_byte.saturating_add(offset_bytes), bytes)?)
    }

    fn learn_space(&mut self, object: ObjectId, path: &str, page0: &[u8]) -> Result<(), NodeError> {
        if page0.iter().all(|byte| *byte == 0) {
            // Created, but its page 0 was never written: redo will name the space.
            return Ok(());
        }
        let invalid = |reason: String| NodeError::Refused(format!("{path}: page 0: {reason}"));
        let flags = redoubt_page::flags_of_page0(page0).map_err(|error| invalid(error.to_string()))?;
        let page_id = redoubt_page::layout::page_id(page0).ok_or_else(|| invalid("too short".to_owned()))?;
        self.names.set_flags(object, flags.0);
        if page_id.space != SpaceId(0) {
            self.names.bind_space(path, page_id.space);
        }
        Ok(())
    }

    /// Shape of the redo log; its bytes follow with [`Import::redo`].
    pub fn log(&mut self, file_size_bytes: u64, header: Vec<u8>, checkpoints: [Vec<u8>; 2], start_lsn: Lsn) {
        self.log = Some(ImportedLog { file_size_bytes, header, checkpoints, start_lsn, redo: Vec::new() });
    }

    /// Redo bytes from the checkpoint on, in order.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if they do not follow the ones before.
    pub fn redo(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), NodeError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        if offset_bytes != log.redo.len() as u64 {
            return Err(NodeError::Refused(format!(
                "redo at offset {offset_bytes} of the imported log does not follow the {} bytes before it",
                log.redo.len()
            )));
        }
        log.redo.extend_from_slice(bytes);
        Ok(())
    }

    /// Makes everything durable and moves the volume to `target`. Returns the opened volume.
    ///
    /// # Errors
    /// [`NodeError::Refused`] without a redo log; anything that opening a volume reports.
    pub fn finish(mut self, target: &Path) -> Result<Arc<Volume>, NodeError> {
        let Some(log) = self.log.take() else {
            return Err(NodeError::Refused("the source has no redo log".to_owned()));
        };
        for object in self.store.objects()? {
            self.store.sync_object(object)?;
        }
        self.plain.sync()?;
        CheckpointFiles::create(&self.own, &self.names)?;
        self.identity.imported_to_lsn = log.unclean_end().map_or(0, |end| end.0);
        self.identity.write(&self.own)?;
        drop(self.store);
        let volume = Volume::open(&self.name, &self.directory, &self.options)?;
        let fed = volume.feed_log(&log).and_then(|()| volume.drain()).and_then(|end| {
            volume.receiving.push_own(close_table_at(end));
            volume.wait_applied(end)
        });
        // On failure, too: its threads hold files of the directory that is about to go.
        volume.shut_down();
        fed?;
        drop(volume);
        std::fs::rename(&self.directory, target)
            .map_err(|error| NodeError::io("rename to", target, error))?;
        if let Some(parent) = target.parent() {
            crate::plain::sync_directory(parent)?;
        }
        Volume::open(&self.name, target, &self.options)
    }
}

impl Volume {
    /// Feeds an imported redo log through the stream, as a server would.
    fn feed_log(&self, log: &ImportedLog) -> Result<(), NodeError> {
        let invalid = || NodeError::Refused("header or checkpoint block of the redo log is cut".to_owned());
        let header = log.header.first_chunk().ok_or_else(invalid)?;
        let [first, second] = &log.checkpoints;
        let checkpoints =
            [first.first_chunk().ok_or_else(invalid)?, second.first_chunk().ok_or_else(invalid)?];
        let mut resets = LastResets::default();
        walk_mtrs(Family::MariaDb, &log.redo, log.start_lsn, &mut resets)
            .map_err(|error| NodeError::Redo { lsn: error.mtr_lsn, reason: error.error.to_string() })?;
        self.indexing.index.leave_out(resets);
        let connection = self.session.next_connection();
        self.receiving.set_current(connection);
        let frame = StreamFrame::LogFile {
            file_size_bytes: log.file_size_bytes,
            header,
            checkpoints,
            next_lsn: log.start_lsn,
        };
        self.feed(connection, &frame)?;
        let mut rest = log.redo.as_slice();
        while !rest.is_empty() {
            let len = whole_mtrs(rest, REDO_FRAME_BYTES);
            let (piece, after) = rest.split_at(len);
            self.feed(connection, &StreamFrame::Redo(piece))?;
            rest = after;
        }
        Ok(())
    }

    pub(super) fn feed(&self, connection: u64, frame: &StreamFrame<'_>) -> Result<(), NodeError> {
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        let mut wire = Vec::with_capacity(payload.len() + 8);
        let Seq(position) = self.receiving.buffer.received().seq;
        redoubt_wire::frame::append_frame(&mut wire, frame.kind(), position, &payload)?;
        self.receive(connection, wire)?;
        self.receiving.buffer.wake_device();
        Ok(())
    }
}

/// Length of the whole mini-transactions in the first `limit` bytes, or of the first one if it is longer.
fn whole_mtrs(bytes: &[u8], limit: usize) -> usize {
    use redoubt_redo::mariadb::{MtrStep, next_mtr};
    let mut at = 0;
    while at < bytes.len() {
        match next_mtr(bytes.get(at..).unwrap_or(&[])) {
            Ok(MtrStep::Mtr { total_len_bytes, .. }) if at == 0 || at + total_len_bytes <= limit => {
                at += total_len_bytes;
            }
            Ok(MtrStep::Mtr { .. }) => break,
            // Not whole: the parser says what is wrong with it.
            _ => return bytes.len().min(limit),
        }
    }
    at
}
