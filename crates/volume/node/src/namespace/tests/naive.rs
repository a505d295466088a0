//! A naive model of the names: every query scans everything.

use super::super::*;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Naive {
    next_file: u32,
    next_object: u32,
    directories: BTreeMap<String, u32>,
    files: BTreeMap<u32, FileEntry>,
    objects: BTreeMap<u32, ObjectEntry>,
    system_files: Vec<(String, u64)>,
    log_file: Option<LogFileEntry>,
}

impl Naive {
    /// The result of [`Namespace::all`].
    pub fn all(&self) -> Vec<NameChange> {
        let mut all = vec![NameChange::Next { file: self.next_file, object: self.next_object }];
        all.extend(self.directories.iter().map(|(path, mode)| NameChange::Directory(path.clone(), *mode)));
        all.extend(self.objects.iter().map(|(id, entry)| NameChange::Object(*id, entry.clone())));
        all.extend(self.files.iter().map(|(id, entry)| NameChange::File(*id, entry.clone())));
        if !self.system_files.is_empty() {
            all.push(NameChange::SystemFiles(self.system_files.clone()));
        }
        all.extend(self.log_file.clone().map(NameChange::LogFile));
        all
    }

    pub fn file_at(&self, path: &str) -> Option<u32> {
        self.files.iter().find(|(_, entry)| entry.path == path).map(|(id, _)| *id)
    }

    pub fn of_space(&self, space: u32) -> Option<u32> {
        self.objects.iter().find(|(_, entry)| entry.space == Some(space)).map(|(id, _)| *id)
    }

    pub fn path_of_object(&self, object: u32) -> Option<&str> {
        self.files.values().find(|entry| entry.object == Some(object)).map(|entry| entry.path.as_str())
    }

    pub fn object_of_space(&mut self, space: u32) -> u32 {
        if let Some(object) = self.of_space(space) {
            return object;
        }
        let object = self.new_object(ObjectEntry { space: Some(space), ..ObjectEntry::default() });
        if space == 0 {
            self.link_system_files(object);
        }
        object
    }

    fn new_object(&mut self, entry: ObjectEntry) -> u32 {
        let id = self.next_object;
        self.next_object += 1;
        self.objects.insert(id, entry);
        id
    }

    pub fn object_of_file(&mut self, file: u32) -> Option<u32> {
        if let Some(object) = self.files.get(&file).filter(|entry| !entry.is_deleted)?.object {
            return Some(object);
        }
        let object = self.new_object(ObjectEntry::default());
        self.files.get_mut(&file)?.object = Some(object);
        Some(object)
    }

    pub fn set_flags(&mut self, object: u32, flags: u32) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.flags = Some(flags);
        }
    }

    fn hand_files(&mut self, from: u32, to: Option<u32>) {
        for entry in self.files.values_mut().filter(|entry| entry.object == Some(from)) {
            entry.object = to;
        }
    }

    fn kill(&mut self, object: u32, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.remove(&object) else { return };
        self.hand_files(object, None);
        effects.push(Effect::ObjectDead(ObjectId(object), entry));
    }

    pub fn created_or_modified(&mut self, space: u32, path: &str) -> Vec<Effect> {
        let effects = self.bind_space(path, space);
        self.renamed_to(space, path);
        effects
    }

    pub fn renamed_to(&mut self, space: u32, path: &str) {
        let object = self.object_of_space(space);
        self.objects.get_mut(&object).unwrap().name = Some(path.to_owned());
    }

    pub fn deleted(&mut self, space: u32) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(object) = self.of_space(space) {
            for entry in self.files.values_mut().filter(|entry| entry.object == Some(object)) {
                entry.is_deleted = true;
            }
            self.kill(object, &mut effects);
        }
        effects
    }

    pub fn bind_space(&mut self, path: &str, space: u32) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(file) = self.file_at(path) else { return effects };
        let placeholder = self.files[&file].object;
        let is_of_a_space = placeholder.is_some_and(|object| self.objects[&object].space.is_some());
        match (placeholder, self.of_space(space)) {
            _ if is_of_a_space => {}
            (Some(object), None) => self.objects.get_mut(&object).unwrap().space = Some(space),
            (placeholder, _) => {
                let object = self.object_of_space(space);
                let entry = self.files.get_mut(&file).unwrap();
                (entry.object, entry.is_deleted) = (Some(object), false);
                if let Some(placeholder) = placeholder {
                    self.kill(placeholder, &mut effects);
                }
            }
        }
        effects
    }

    pub fn trim(&mut self, space: u32) -> (u32, Vec<Effect>) {
        let mut effects = Vec::new();
        let Some(old) = self.of_space(space) else { return (self.object_of_space(space), effects) };
        let entry = self.objects.remove(&old).unwrap();
        let new = self.new_object(entry.clone());
        self.hand_files(old, Some(new));
        effects.push(Effect::ObjectDead(ObjectId(old), entry));
        (new, effects)
    }

    pub fn create(&mut self, path: &str, kind: FileKind, mode: u32) -> (u32, Vec<Effect>) {
        let mut effects = Vec::new();
        let tablespace = kind == FileKind::Tablespace;
        if let Some(id) = self.file_at(path) {
            if !self.files[&id].tablespace && !tablespace {
                return (id, effects);
            }
            self.remove(id, &mut effects);
        }
        let id = self.next_file;
        self.next_file += 1;
        let newest = self.objects.iter().rev().find(|(_, entry)| entry.name.as_deref() == Some(path));
        let object =
            newest.map(|(id, _)| *id).filter(|object| tablespace && self.path_of_object(*object).is_none());
        let entry = FileEntry {
            path: path.to_owned(),
            tablespace,
            mode,
            len_bytes: 0,
            object,
            first_byte: 0,
            is_deleted: false,
        };
        self.files.insert(id, entry);
        if tablespace && self.system_files.iter().any(|(name, _)| name == path) {
            let object = self.object_of_space(0);
            self.link_system_files(object);
        }
        (id, effects)
    }

    fn remove(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(entry) = self.files.remove(&id) else { return };
        match entry.object {
            Some(object) => self.kill(object, effects),
            None if !entry.tablespace => effects.push(Effect::PlainGone(FileId(id))),
            None => {}
        }
    }

    pub fn unlink(&mut self, path: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(id) = self.file_at(path) {
            self.remove(id, &mut effects);
        }
        effects
    }

    pub fn set_system_files(&mut self, files: &[(String, u64)]) {
        self.system_files = files.to_vec();
        if let Some(object) = self.of_space(0) {
            self.link_system_files(object);
        }
    }

    fn link_system_files(&mut self, object: u32) {
        let mut first_byte = 0;
        for (path, len_bytes) in self.system_files.clone() {
            if let Some(file) = self.file_at(&path) {
                let entry = self.files.get_mut(&file).unwrap();
                (entry.object, entry.first_byte) = (Some(object), first_byte);
            }
            first_byte += len_bytes;
        }
    }

    pub fn set_len(&mut self, path: &str, len_bytes: u64) -> Option<u32> {
        let id = self.file_at(path)?;
        self.files.get_mut(&id)?.len_bytes = len_bytes;
        Some(id)
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.file_at(from).is_some() {
            self.rename_file(from, to, &mut effects);
        } else if let Some(mode) = self.directories.remove(from) {
            let moved =
                |path: &str| path.strip_prefix(&format!("{from}/")).map(|rest| format!("{to}/{rest}"));
            let mut paths: Vec<_> = self.files.values().map(|entry| entry.path.clone()).collect();
            paths.sort();
            for path in paths {
                if let Some(new) = moved(&path) {
                    self.rename_file(&path, &new, &mut effects);
                }
            }
            let below: Vec<_> =
                self.directories.keys().filter(|path| moved(path).is_some()).cloned().collect();
            let below: Vec<_> = below
                .iter()
                .map(|path| (moved(path).unwrap(), self.directories.remove(path).unwrap()))
                .collect();
            self.directories.insert(to.to_owned(), mode);
            self.directories.extend(below);
        }
        effects
    }

    fn rename_file(&mut self, from: &str, to: &str, effects: &mut Vec<Effect>) {
        let id = self.file_at(from).unwrap();
        if let Some(target) = self.file_at(to).filter(|target| *target != id) {
            self.remove(target, effects);
        }
        self.files.get_mut(&id).unwrap().path = to.to_owned();
    }

    pub fn mkdir(&mut self, path: &str, mode: u32) {
        self.directories.insert(path.to_owned(), mode);
    }

    pub fn rmdir(&mut self, path: &str) -> Vec<Effect> {
        let is_below = |other: &str| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        let plain = self.files.values().filter(|entry| !entry.tablespace);
        let mut files: Vec<_> = plain.map(|entry| entry.path.clone()).collect();
        files.retain(|file| is_below(file));
        files.sort();
        let effects = files.iter().flat_map(|file| self.unlink(file)).collect();
        self.directories.retain(|directory, _| directory != path && !is_below(directory));
        effects
    }

    pub fn set_log_file(&mut self, entry: LogFileEntry) {
        let last = self.log_file.as_ref().map(|before| before.last_file_operation_lsn);
        self.log_file = Some(entry);
        last.into_iter().for_each(|last| self.operation_at(last));
    }

    pub fn operation_at(&mut self, lsn: u64) {
        if let Some(log_file) = &mut self.log_file {
            log_file.last_file_operation_lsn = lsn;
        }
    }

    pub fn set_checkpoint(&mut self, slot: u8, block: &[u8]) {
        if let Some(place) = self.log_file.as_mut().and_then(|log| log.checkpoints.get_mut(slot as usize)) {
            *place = block.to_vec();
        }
    }
}
