//! Import: the data directory of a server becomes a volume.
//!
//! An import fills the page store and plain store of a new volume directly. Then it feeds the source's redo from its
//! checkpoint on through the ordinary stream, without the redo that later redo makes void (see [`crate::index`]). The
//! volume gets its real name only when all of that is durable and applied: from then on every stored page is its state
//! at some point of the stream.

use super::indexing::close_table_at;
use super::stored_files::StoredFiles;
use super::{Identity, Volume, imported_server};
use crate::checkpoint::CheckpointFiles;
use crate::error::NodeError;
use crate::home::{DirectoryHome, Folder, Home};
use crate::namespace::Namespace;
use crate::options::NodeOptions;
use redoubt_page::Format;
use redoubt_page::format::page_lsn;
use redoubt_pagestore::{ObjectId, PageStore};
use redoubt_redo::mariadb::log_file::CleanEnd;
use redoubt_redo::{Family, LastResets, Lsn, Mtr, MtrVisitor, PageId, SpaceId, walk_mtrs};
use redoubt_wire::control::ImportedLogFile;
use redoubt_wire::page::FileId;
use redoubt_wire::stream::{FileKind, StreamFrame, SystemFile};
use redoubt_wire::{Seq, ServerVersion};
use std::collections::BTreeSet;
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
    family: Family,
    options: NodeOptions,
    store: Box<dyn PageStore>,
    plain: crate::plain::PlainStore,
    names: Namespace,
    log: Option<ImportedLog>,
    /// The newest server that is known to have written the source.
    newest_server: Option<ServerVersion>,
    /// Keeps the key, if it is encrypted. The last field: it is dropped after the files are closed.
    _home: DirectoryHome,
}

/// The files of a redo log, without the redo in them.
pub enum LogShape {
    /// MariaDB's.
    File {
        /// Its size.
        file_size_bytes: u64,
        /// Its first 512 bytes.
        header: Vec<u8>,
        /// Used bytes of its checkpoint blocks.
        checkpoints: [Vec<u8>; 2],
    },
    /// MySQL's files, from the one with the checkpoint on.
    Set(Vec<ImportedLogFile>),
}

struct ImportedLog {
    shape: LogShape,
    start_lsn: Lsn,
    redo: Vec<u8>,
}

fn cut_block() -> NodeError {
    NodeError::Refused("header or checkpoint block of the redo log is cut".to_owned())
}

impl ImportedLog {
    /// End of its redo, if the server was not shut down.
    fn unclean_end(&self) -> Option<Lsn> {
        let len_bytes = self.redo.len() as u64;
        let is_clean = match self.shape {
            LogShape::File { .. } => CleanEnd::has_room_for(len_bytes),
            LogShape::Set(_) => len_bytes == 0,
        };
        (!is_clean).then(|| self.start_lsn.advance(len_bytes))
    }

    fn walk(&self, family: Family) -> Result<WalkedLog, NodeError> {
        let mut walked = WalkedLog::default();
        walk_mtrs(family, &self.redo, self.start_lsn, &mut walked)
            .map_err(|error| NodeError::Redo { lsn: error.mtr_lsn, reason: error.error.to_string() })?;
        Ok(walked)
    }

    /// Notes the files of MySQL's log before any redo comes: they show whose redo it is, and so which pages it changes.
    fn note(&self, names: &mut Namespace) -> Result<(), NodeError> {
        let LogShape::Set(files) = &self.shape else { return Ok(()) };
        for file in files {
            names.create_log_file(&file.path, file.mode);
            for (offset_bytes, block) in &file.blocks {
                let block = block.first_chunk().ok_or_else(cut_block)?;
                names.write_log_front(&file.path, *offset_bytes, block, self.start_lsn)?;
            }
        }
        Ok(())
    }

    /// The frames before the redo in the stream.
    fn frames(&self) -> Result<Vec<StreamFrame<'_>>, NodeError> {
        let next_lsn = self.start_lsn;
        match &self.shape {
            LogShape::File { file_size_bytes, header, checkpoints: [first, second] } => {
                let header = header.first_chunk().ok_or_else(cut_block)?;
                let checkpoints =
                    [first.first_chunk().ok_or_else(cut_block)?, second.first_chunk().ok_or_else(cut_block)?];
                let file_size_bytes = *file_size_bytes;
                Ok(vec![StreamFrame::LogFile { file_size_bytes, header, checkpoints, next_lsn }])
            }
            LogShape::Set(files) => {
                let mut frames = Vec::new();
                for file in files {
                    let path = file.path.as_bytes();
                    frames.push(StreamFrame::Create { path, kind: FileKind::Redo, mode: file.mode });
                    frames.push(StreamFrame::SetLen { path, len_bytes: file.len_bytes });
                    for (offset_bytes, block) in &file.blocks {
                        let block = block.first_chunk().ok_or_else(cut_block)?;
                        frames.push(StreamFrame::LogFront {
                            path,
                            offset_bytes: *offset_bytes,
                            next_lsn,
                            block,
                        });
                    }
                }
                Ok(frames)
            }
        }
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
        family: Family,
        system_files: &[(String, u64)],
    ) -> Result<Self, NodeError> {
        // First of all: parts of the volume elsewhere can be found, and removed, only by its id.
        let is_imported_from_mysql = family == Family::MySql;
        let family_name = Some(family.name().to_owned());
        let identity = Identity { is_imported_from_mysql, family: family_name, ..Identity::at(&home) };
        let own = home.own()?;
        identity.write(&own)?;
        let (store, _) = home.pages(&identity.volume_id, options, false)?;
        let plain = crate::plain::PlainStore::new(home.plain()?);
        let mut names = Namespace::default();
        names.set_family(family);
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
            family,
            options: options.clone(),
            store,
            plain,
            names,
            log: None,
            newest_server: None,
            _home: home,
        })
    }

    /// Directory in which it is being built.
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
    /// [`NodeError::Page`] if page 0 does not identify the tablespace.
    pub fn write(&mut self, file: FileId, offset_bytes: u64, bytes: &[u8]) -> Result<(), NodeError> {
        let Some(entry) = self.names.file(file).cloned() else {
            return Err(NodeError::Refused(format!("file {} is not being imported", file.0)));
        };
        let Some(object) = entry.object.map(ObjectId) else {
            if offset_bytes == 0 {
                self.note_server(imported_server::of_file(self.family, &entry.path, bytes));
            }
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
        let format = Format::of_page0(self.family, page0).map_err(|error| invalid(error.to_string()))?;
        let page_id = redoubt_page::layout::page_id(page0).ok_or_else(|| invalid("too short".to_owned()))?;
        self.names.set_flags(object, format.flags);
        if page_id.space != SpaceId(0) {
            self.names.bind_space(path, page_id.space);
        }
        Ok(())
    }

    /// Shape of the redo log; its bytes follow with [`Import::redo`].
    ///
    /// # Errors
    /// [`NodeError::Refused`] if the log is of another family.
    pub fn log(&mut self, shape: LogShape, start_lsn: Lsn) -> Result<(), NodeError> {
        if matches!(shape, LogShape::Set(_)) != (self.family == Family::MySql) {
            return Err(NodeError::Refused(format!("that is no redo log of {}", self.family)));
        }
        self.note_server(imported_server::of_log(self.family, &shape));
        self.log = Some(ImportedLog { shape, start_lsn, redo: Vec::new() });
        Ok(())
    }

    fn note_server(&mut self, server: Option<ServerVersion>) {
        self.newest_server = imported_server::newer(self.newest_server, server);
    }

    /// Notes the server that has removed the change buffer.
    fn note_change_buffer(&mut self) -> Result<(), NodeError> {
        let root = imported_server::CHANGE_BUFFER_ROOT;
        let Some(object) = self.names.known_object_of_space(root.space) else { return Ok(()) };
        let Some(flags) = self.names.object(object).and_then(|entry| entry.flags) else { return Ok(()) };
        let format = Format { family: self.family, flags };
        let mut image = vec![0; format.physical_page_size_bytes()];
        if self.store.read_page(object, root.page_no.0, &mut image)? {
            self.note_server(imported_server::of_change_buffer(self.family, &image));
        }
        Ok(())
    }

    /// Redo bytes from the checkpoint on, in order.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if the bytes do not follow the previous ones.
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

    /// See [`LastResets::note_stored`].
    fn note_stored(&self, walked: &mut WalkedLog) -> Result<(), NodeError> {
        for page in &walked.changed {
            let Some(object) = self.names.known_object_of_space(page.space) else { continue };
            let Some(flags) = self.names.object(object).and_then(|entry| entry.flags) else { continue };
            let format = Format { family: self.family, flags };
            let mut image = vec![0; format.physical_page_size_bytes()];
            if self.store.read_page(object, page.page_no.0, &mut image)?
                && let Some(lsn) = page_lsn(self.family, &image)
            {
                walked.resets.note_stored(*page, lsn);
            }
        }
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
        StoredFiles::create(&self.own, &*self.store, &self.plain)?;
        let mut walked = log.walk(self.family)?;
        if self.family == Family::MySql {
            self.note_stored(&mut walked)?;
        }
        log.note(&mut self.names)?;
        CheckpointFiles::create(&self.own, &self.names)?;
        self.note_change_buffer()?;
        self.identity.newest_server = self.newest_server;
        self.identity.imported_to_lsn = log.unclean_end().map_or(0, |end| end.0);
        self.identity.write(&self.own)?;
        drop(self.store);
        let volume = Volume::open(&self.name, &self.directory, &self.options)?;
        let fed = volume.feed_log(&log, walked).and_then(|()| volume.drain()).and_then(|end| {
            volume.receiving.push_own(close_table_at(end));
            volume.wait_applied(end)?;
            volume.check_whole()
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
    /// An import fails if a page of the source cannot be built: the source still is as it was.
    fn check_whole(&self) -> Result<(), NodeError> {
        let contents = self.quarantine.list.contents();
        let Some(first) = contents.entries().next() else { return Ok(()) };
        let page = PageId::new(first.space, first.page_no.unwrap_or(0));
        Err(NodeError::Page { page, file: first.file.clone(), reason: first.reason.clone() })
    }

    /// Feeds an imported redo log through the stream, as a server would.
    fn feed_log(&self, log: &ImportedLog, walked: WalkedLog) -> Result<(), NodeError> {
        self.indexing.index.leave_out(walked.resets);
        let connection = self.session.next_connection();
        self.receiving.set_current(connection);
        for frame in log.frames()? {
            self.feed(connection, &frame)?;
        }
        pieces(&log.redo, &walked.ends).try_for_each(|piece| self.feed(connection, &StreamFrame::Redo(piece)))
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

/// Findings of a scan of the whole redo.
#[derive(Default)]
struct WalkedLog {
    resets: LastResets,
    /// Pages that it changes.
    changed: BTreeSet<PageId>,
    /// End of each mini-transaction, in bytes from the start.
    ends: Vec<usize>,
}

impl MtrVisitor for WalkedLog {
    fn visit_mtr(&mut self, mtr: &Mtr<'_, '_>) {
        self.resets.visit_mtr(mtr);
        self.changed.extend(mtr.runs.iter().map(|run| run.page));
        self.ends.push(mtr.end_in_bytes());
    }
}

/// `redo` in pieces that end where a mini-transaction does: [`REDO_FRAME_BYTES`] at most, or a single one. The rest
/// after the last of `ends` is a piece too: the parser reports its error.
fn pieces<'r>(redo: &'r [u8], ends: &[usize]) -> impl Iterator<Item = &'r [u8]> {
    let mut starts = vec![0];
    let mut last = 0;
    for end in ends.iter().copied().chain([redo.len()]) {
        let start = starts.last().copied().unwrap_or_default();
        if end - start > REDO_FRAME_BYTES && last > start {
            starts.push(last);
        }
        last = end;
    }
    starts.push(redo.len());
    let bounds: Vec<_> = starts.windows(2).map(|pair| pair[0]..pair[1]).collect();
    bounds.into_iter().filter_map(|bounds| redo.get(bounds)).filter(|piece| !piece.is_empty())
}
