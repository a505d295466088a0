//! Effects of stream frames and FILE_ records on the names.

use super::log_set::{LogSetFile, wrong_front};
use super::{
    Effect, FileEntry, FileId, FileKind, FileRecord, LogFileEntry, Lsn, Namespace, NodeError, ObjectEntry,
    ObjectId, SpaceId, SystemFile, is_no_file, redo_path, text_path,
};

impl Namespace {
    /// The live object of a space; a new one if redo names the space for the first time.
    pub fn object_of_space(&mut self, space: SpaceId) -> ObjectId {
        if let Some(object) = self.known_object_of_space(space) {
            return object;
        }
        let object = self.new_object(ObjectEntry { space: Some(space.0), ..ObjectEntry::default() });
        if space.0 == 0 {
            self.link_system_files(object);
        }
        object
    }

    /// The live object of a space, without creating one.
    pub fn known_object_of_space(&self, space: SpaceId) -> Option<ObjectId> {
        self.tables.object_of_space(space.0).map(ObjectId)
    }

    /// Whether a file is this tablespace's.
    pub fn has_file(&self, space: SpaceId) -> bool {
        self.tables
            .object_of_space(space.0)
            .is_some_and(|object| self.tables.holders_of(object).next().is_some())
    }

    /// The object of a file; a new one, without a space, if pages are written before redo names it. `None` for a
    /// file that is gone or about to go.
    pub fn object_of_file(&mut self, id: FileId) -> Option<ObjectId> {
        if let Some(object) = self.file(id).filter(|entry| !entry.is_deleted)?.object {
            return Some(ObjectId(object));
        }
        let object = self.new_object(ObjectEntry::default());
        self.tables.change_file(id.0, |entry| entry.object = Some(object.0));
        Some(object)
    }

    /// The flags of an object are known now.
    pub fn set_flags(&mut self, object: ObjectId, flags: u32) {
        self.tables.change_object(object.0, |entry| entry.flags = Some(flags));
    }

    fn new_object(&mut self, entry: ObjectEntry) -> ObjectId {
        let id = self.tables.new_object();
        self.tables.set_object(id, entry);
        ObjectId(id)
    }

    fn kill_object(&mut self, object: u32, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tables.remove_object(object) else { return };
        self.hand_files(object, None);
        effects.push(Effect::ObjectDead(ObjectId(object), entry));
    }

    /// From now on the files of one object hold another one, or none.
    fn hand_files(&mut self, from: u32, to: Option<u32>) {
        let files: Vec<_> = self.tables.holders_of(from).collect();
        for file in files {
            self.tables.change_file(file, |entry| entry.object = to);
        }
    }

    /// A FILE_ record.
    ///
    /// # Errors
    /// If a path is not UTF-8 or leaves the volume: the redo cannot be followed.
    pub fn file_record(
        &mut self,
        space: SpaceId,
        record: &FileRecord<'_>,
        lsn: Lsn,
    ) -> Result<Vec<Effect>, NodeError> {
        let mut effects = Vec::new();
        if let FileRecord::Rename { new_path, .. } = record
            && is_no_file(&redo_path(new_path, lsn)?)
        {
            // The server logs a rename before it tries it. This one failed: the file has its old name, and a recovery
            // has nothing to do.
            return Ok(effects);
        }
        if matches!(record, FileRecord::Create { .. } | FileRecord::Rename { .. } | FileRecord::Delete { .. })
        {
            self.tables.note_file_operation(lsn);
        }
        match record {
            FileRecord::Create { path } | FileRecord::Modify { path } => {
                let path = redo_path(path, lsn)?;
                if let Some(file) = self.tables.file_at(&path) {
                    self.bind(space, file, &mut effects);
                }
                self.set_name(space, path);
            }
            FileRecord::Rename { new_path, .. } => self.set_name(space, redo_path(new_path, lsn)?),
            FileRecord::Delete { .. } => {
                if let Some(object) = self.tables.object_of_space(space.0) {
                    let files: Vec<_> = self.tables.holders_of(object).collect();
                    for file in files {
                        self.tables.change_file(file, |entry| entry.is_deleted = true);
                    }
                    self.kill_object(object, &mut effects);
                }
            }
            FileRecord::Extend { .. } | FileRecord::Checkpoint { .. } => {}
        }
        Ok(effects)
    }

    fn set_name(&mut self, space: SpaceId, path: String) {
        let object = self.object_of_space(space);
        self.tables.change_object(object.0, |entry| entry.name = Some(path));
    }

    /// The server wrote pages of `space` to the file at `path`.
    pub fn bind_space(&mut self, path: &str, space: SpaceId) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(file) = self.tables.file_at(path) {
            self.bind(space, file, &mut effects);
        }
        effects
    }

    fn bind(&mut self, space: SpaceId, file: u32, effects: &mut Vec<Effect>) {
        let of_file = self.file(FileId(file)).and_then(|entry| entry.object);
        let of_space = self.tables.object_of_space(space.0);
        let space_of = |object| self.object(ObjectId(object)).map(|entry| entry.space);
        match (of_file, of_space) {
            // Pages came before the first redo of the space: that object becomes the space's.
            (Some(object), None) if space_of(object) == Some(None) => {
                self.tables.change_object(object, |entry| entry.space = Some(space.0));
            }
            (Some(object), Some(known)) if object == known => {}
            // The file holds another live tablespace: its own rename has not been seen yet. Names follow
            // system calls, so nothing changes here.
            (Some(object), _) if space_of(object).flatten().is_some() => {}
            (placeholder, _) => {
                let object = self.object_of_space(space);
                self.tables.change_file(file, |entry| {
                    entry.object = Some(object.0);
                    entry.is_deleted = false;
                });
                if let Some(placeholder) = placeholder {
                    self.kill_object(placeholder, effects);
                }
            }
        }
    }

    /// TRIM_PAGES of the system tablespace, at `lsn`: its file is about to be cut.
    pub fn note_cut(&mut self, lsn: Lsn) {
        self.tables.note_file_operation(lsn);
    }

    /// TRIM_PAGES: the space starts again. Returns its new object.
    pub fn trim(&mut self, space: SpaceId) -> (ObjectId, Vec<Effect>) {
        let mut effects = Vec::new();
        let Some(old) = self.tables.object_of_space(space.0) else {
            return (self.object_of_space(space), effects);
        };
        let unknown = || ObjectEntry { space: Some(space.0), ..ObjectEntry::default() };
        let entry = self.object(ObjectId(old)).cloned().unwrap_or_else(unknown);
        let new = self.new_object(entry);
        self.hand_files(old, Some(new.0));
        self.kill_object(old, &mut effects);
        (new, effects)
    }

    /// A file of MySQL's redo log was created, or emptied if it existed.
    pub fn create_log_file(&mut self, path: &str, mode: u32) {
        let file = LogSetFile { mode, ..LogSetFile::default() };
        self.tables.change_log_set(|log_set| log_set.files.insert(path.to_owned(), file));
    }

    /// There is a file or a directory at `path`.
    pub fn has_path(&self, path: &str) -> bool {
        self.is_log_file(path) || self.file_at(path).is_some() || self.directory(path).is_some()
    }

    fn is_log_file(&self, path: &str) -> bool {
        self.log_set().is_some_and(|log_set| log_set.files.contains_key(path))
    }

    /// One of the first blocks of a file of MySQL's redo log was written, at `lsn`.
    ///
    /// # Errors
    /// [`NodeError::Redo`] for a block that cannot be followed.
    pub fn write_log_front(
        &mut self,
        path: &str,
        offset_bytes: u32,
        block: &[u8; 512],
        lsn: Lsn,
    ) -> Result<(), NodeError> {
        let written = self.tables.write_log_front(path, offset_bytes, block);
        written.map_err(|why| wrong_front(path, lsn, &why))
    }

    /// A tablespace or plain file was created, or emptied if it existed.
    pub fn create(&mut self, path: &str, kind: FileKind, mode: u32) -> (FileId, Vec<Effect>) {
        let mut effects = Vec::new();
        let tablespace = kind == FileKind::Tablespace;
        if let Some(id) = self.tables.file_at(path) {
            if !tablespace && self.file(FileId(id)).is_some_and(|entry| !entry.tablespace) {
                return (FileId(id), effects);
            }
            self.remove_file(id, &mut effects);
        }
        let id = self.tables.new_file();
        let object = tablespace.then(|| self.unlinked_object_named(path)).flatten();
        let path_of = path.to_owned();
        let entry = FileEntry {
            path: path_of,
            tablespace,
            mode,
            len_bytes: 0,
            object,
            first_byte: 0,
            is_deleted: false,
        };
        self.tables.set_file(id, entry);
        if tablespace && self.tables.system_files().iter().any(|(name, _)| name == path) {
            let object = self.object_of_space(SpaceId(0));
            self.link_system_files(object);
        }
        (FileId(id), effects)
    }

    fn unlinked_object_named(&self, path: &str) -> Option<u32> {
        let object = self.tables.newest_named(path)?;
        self.tables.holders_of(object).next().is_none().then_some(object)
    }

    /// The files of the system tablespace, in order.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn set_system_files(&mut self, files: &[SystemFile]) -> Result<(), NodeError> {
        let mut named = Vec::with_capacity(files.len());
        for file in files {
            named.push((text_path(&file.path)?, file.len_bytes));
        }
        self.tables.set_system_files(named);
        if let Some(object) = self.known_object_of_space(SpaceId(0)) {
            self.link_system_files(object);
        }
        Ok(())
    }

    fn link_system_files(&mut self, object: ObjectId) {
        let mut first_byte = 0;
        for (path, len_bytes) in self.tables.system_files().to_vec() {
            if let Some(file) = self.tables.file_at(&path) {
                self.tables.change_file(file, |entry| {
                    entry.object = Some(object.0);
                    entry.first_byte = first_byte;
                });
            }
            first_byte = first_byte.saturating_add(len_bytes);
        }
    }

    /// The file at `path` has this length now, in bytes.
    pub fn set_len(&mut self, path: &str, len_bytes: u64) -> Option<FileId> {
        if self.is_log_file(path) {
            self.tables.change_log_set(|log_set| {
                log_set.files.entry(path.to_owned()).or_default().len_bytes = len_bytes;
            });
            return None;
        }
        let id = self.tables.file_at(path)?;
        self.tables.set_file_len(id, len_bytes).then_some(FileId(id))
    }

    /// A file or directory was renamed.
    pub fn rename(&mut self, from: &str, to: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.is_log_file(from) {
            self.tables.change_log_set(|log_set| {
                let file = log_set.files.remove(from).unwrap_or_default();
                log_set.files.insert(to.to_owned(), file);
            });
        } else if self.tables.file_at(from).is_some() {
            self.move_file(from, to, &mut effects);
        } else if let Some(mode) = self.tables.directories().get(from).copied() {
            self.move_directory(from, to, mode, &mut effects);
        }
        effects
    }

    fn move_file(&mut self, from: &str, to: &str, effects: &mut Vec<Effect>) {
        let Some(id) = self.tables.file_at(from) else { return };
        if let Some(target) = self.tables.file_at(to).filter(|target| *target != id) {
            self.remove_file(target, effects);
        }
        self.tables.change_file(id, |entry| to.clone_into(&mut entry.path));
    }

    fn move_directory(&mut self, from: &str, to: &str, mode: u32, effects: &mut Vec<Effect>) {
        let prefix = format!("{from}/");
        let files = self.tables.paths_below(&prefix);
        let directories = self.tables.directories_below(&prefix);
        let moved = |path: &str| format!("{to}/{}", path.strip_prefix(&prefix).unwrap_or(path));
        for path in &files {
            self.move_file(path, &moved(path), effects);
        }
        let modes = directories.iter().filter_map(|path| self.tables.directories().get(path).copied());
        let modes: Vec<_> = modes.collect();
        for path in directories.iter().map(String::as_str).chain([from]) {
            self.tables.set_directory(path, None);
        }
        self.tables.set_directory(to, Some(mode));
        for (path, mode) in directories.iter().zip(modes) {
            self.tables.set_directory(&moved(path), Some(mode));
        }
    }

    /// A file was unlinked.
    pub fn unlink(&mut self, path: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.is_log_file(path) {
            self.tables.change_log_set(|log_set| log_set.files.remove(path));
        } else if let Some(id) = self.tables.file_at(path) {
            self.remove_file(id, &mut effects);
        }
        effects
    }

    fn remove_file(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(entry) = self.tables.remove_file(id) else { return };
        match entry.object {
            Some(object) => self.kill_object(object, effects),
            None if !entry.tablespace => effects.push(Effect::PlainGone(FileId(id))),
            None => {}
        }
    }

    /// A directory was created.
    pub fn mkdir(&mut self, path: &str, mode: u32) {
        self.tables.set_directory(path, Some(mode));
    }

    /// A directory was removed. It was empty, or the server could not have removed it: plain files that
    /// an administrator removed without the server (`rm` in the data directory) go with it. Tablespaces stay, as their
    /// removal is in the redo.
    pub fn rmdir(&mut self, path: &str) -> Vec<Effect> {
        let prefix = format!("{path}/");
        let is_plain = |path: &String| {
            let entry = self.tables.file_at(path).and_then(|file| self.tables.files().get(&file));
            entry.is_some_and(|entry| !entry.tablespace) && !self.is_log_file(path)
        };
        let gone: Vec<_> = self.tables.paths_below(&prefix).into_iter().filter(is_plain).collect();
        let effects = gone.iter().flat_map(|file| self.unlink(file)).collect();
        for directory in self.tables.directories_below(&prefix) {
            self.tables.set_directory(&directory, None);
        }
        self.tables.set_directory(path, None);
        effects
    }

    /// The redo log file has this shape now.
    pub fn set_log_file(&mut self, entry: LogFileEntry) {
        self.tables.set_log_file(entry);
    }

    /// A checkpoint block was written.
    pub fn set_checkpoint(&mut self, slot: u8, block: &[u8]) {
        self.tables.set_checkpoint(slot, block);
    }
}
