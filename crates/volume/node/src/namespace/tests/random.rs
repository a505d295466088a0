//! Random operations, compared with a naive model; and names that follow others by their changes.

use super::super::*;
use super::LSN;
use super::naive::Naive;

struct Pair {
    random: fastrand::Rng,
    names: Namespace,
    naive: Naive,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut names = Namespace::default();
        names.track();
        Self { random: fastrand::Rng::with_seed(seed), names, naive: Naive::default() }
    }

    fn directory(&mut self) -> String {
        ["a", "b", "b/c", "ab", "a.x", "d"][self.random.usize(..6)].to_owned()
    }

    fn path(&mut self) -> String {
        if self.random.u8(..10) == 0 {
            return ["ibdata1", "ibdata2", "undo001"][self.random.usize(..3)].to_owned();
        }
        format!("{}/t{}.ibd", self.directory(), self.random.u8(..5))
    }

    fn of_redo(&mut self, space: u32, path: &str) -> (Vec<Effect>, Vec<Effect>) {
        let redo_path = format!("./{path}");
        let bytes = redo_path.as_bytes();
        let (record, naive) = match self.random.u8(..4) {
            0 => (FileRecord::Create { path: bytes }, self.naive.created_or_modified(space, path)),
            1 => (FileRecord::Modify { path: bytes }, self.naive.created_or_modified(space, path)),
            2 => {
                self.naive.renamed_to(space, path);
                (FileRecord::Rename { old_path: bytes, new_path: bytes }, Vec::new())
            }
            _ => (FileRecord::Delete { path: bytes }, self.naive.deleted(space)),
        };
        let lsn = Lsn(self.random.u64(1..100));
        if !matches!(record, FileRecord::Modify { .. }) {
            self.naive.operation_at(lsn.0);
        }
        (self.names.file_record(SpaceId(space), &record, lsn).unwrap(), naive)
    }

    /// One operation on both; returns the effects of each.
    fn step(&mut self) -> (Vec<Effect>, Vec<Effect>) {
        let (path, space, mode) = (self.path(), self.random.u32(..8), self.random.u32(..3));
        match self.random.u8(..20) {
            0..4 => return self.of_redo(space, &path),
            4..7 => {
                let kind = if self.random.u8(..4) == 0 { FileKind::Plain } else { FileKind::Tablespace };
                let ((id, effects), (naive_id, naive)) =
                    (self.names.create(&path, kind, mode), self.naive.create(&path, kind, mode));
                assert_eq!(id.0, naive_id);
                return (effects, naive);
            }
            7 => return (self.names.unlink(&path), self.naive.unlink(&path)),
            8 => {
                let to = self.path();
                return (self.names.rename(&path, &to), self.naive.rename(&path, &to));
            }
            9 => {
                let (from, to) = (self.directory(), self.directory());
                // No system renames a directory into itself.
                if !to.starts_with(&format!("{from}/")) {
                    return (self.names.rename(&from, &to), self.naive.rename(&from, &to));
                }
            }
            10 => {
                let path = self.directory();
                self.names.mkdir(&path, mode);
                self.naive.mkdir(&path, mode);
            }
            11 => {
                let path = self.directory();
                return (self.names.rmdir(&path), self.naive.rmdir(&path));
            }
            12 => {
                let len_bytes = self.random.u64(..4);
                let found = self.names.set_len(&path, len_bytes).map(|file| file.0);
                assert_eq!(found, self.naive.set_len(&path, len_bytes));
            }
            13 => {
                let space = SpaceId(space);
                return (self.names.bind_space(&path, space), self.naive.bind_space(&path, space.0));
            }
            14 => {
                let ((id, effects), (naive_id, naive)) =
                    (self.names.trim(SpaceId(space)), self.naive.trim(space));
                assert_eq!(id.0, naive_id);
                return (effects, naive);
            }
            15 => {
                let object = self.names.object_of_space(SpaceId(space));
                assert_eq!(object.0, self.naive.object_of_space(space));
                self.names.set_flags(object, mode);
                self.naive.set_flags(object.0, mode);
            }
            16 | 17 => {
                let file = self.random.u32(..60);
                let object = self.names.object_of_file(FileId(file)).map(|object| object.0);
                assert_eq!(object, self.naive.object_of_file(file));
            }
            18 => self.set_system_files(),
            _ => self.change_log_file(),
        }
        (Vec::new(), Vec::new())
    }

    fn set_system_files(&mut self) {
        let files: Vec<_> = ["ibdata1", "ibdata2"][..self.random.usize(..3)]
            .iter()
            .map(|path| ((*path).to_owned(), self.random.u64(..3) << 20))
            .collect();
        let of_frame: Vec<_> = files
            .iter()
            .map(|(path, len_bytes)| SystemFile { path: path.as_bytes().to_vec(), len_bytes: *len_bytes })
            .collect();
        self.names.set_system_files(&of_frame).unwrap();
        self.naive.set_system_files(&files);
    }

    fn change_log_file(&mut self) {
        if self.random.u8(..4) == 0 {
            let entry = LogFileEntry {
                file_size_bytes: self.random.u64(..3),
                header: vec![1],
                checkpoints: [vec![2], vec![3]],
                last_file_operation_lsn: 0,
            };
            self.names.set_log_file(entry.clone());
            self.naive.set_log_file(entry);
        } else {
            let (slot, block) = (self.random.u8(..3), [self.random.u8(..3)]);
            self.names.set_checkpoint(slot, &block);
            self.naive.set_checkpoint(slot, &block);
        }
    }

    fn check(&mut self) {
        assert_eq!(self.names.all().collect::<Vec<_>>(), self.naive.all());
        for space in 0..8 {
            let object = self.names.known_object_of_space(SpaceId(space)).map(|object| object.0);
            assert_eq!(object, self.naive.of_space(space));
        }
        let objects: Vec<_> = self.names.objects().collect();
        for object in objects {
            assert_eq!(self.names.path_of_object(object), self.naive.path_of_object(object.0));
        }
        let path = self.path();
        assert_eq!(self.names.file_at(&path).map(|(file, _)| file.0), self.naive.file_at(&path));
    }
}

#[test]
fn random_operations_do_what_the_naive_model_does() {
    let mut deaths = 0;
    for seed in 0..60 {
        let mut pair = Pair::new(seed);
        for step in 0..600 {
            let (effects, naive) = pair.step();
            assert_eq!(effects, naive, "seed {seed}, step {step}");
            deaths += effects.len();
            pair.check();
        }
    }
    assert!(deaths > 1000, "{deaths}");
}

#[test]
fn names_that_follow_by_changes_are_the_same_in_whatever_order_they_come() {
    for seed in 0..60 {
        let mut pair = Pair::new(seed);
        let mut follower = Namespace::default();
        for _ in 0..100 {
            for _ in 0..pair.random.usize(..12) {
                pair.step();
            }
            let mut changes = (*pair.names.take_changes()).clone();
            let json = serde_json::to_vec(&changes).unwrap();
            assert_eq!(serde_json::from_slice::<Vec<NameChange>>(&json).unwrap(), changes);
            let checkpoint = follower.server_checkpoint_after(&changes);
            pair.random.shuffle(&mut changes);
            // Only a block of the redo log file needs the file.
            changes.sort_by_key(|change| matches!(change, NameChange::Checkpoint(..)));
            follower.apply(&changes);
            assert!(follower == pair.names, "seed {seed}: {changes:?}");
            assert_eq!(follower.server_checkpoint(), checkpoint);
            assert!(pair.names.take_changes().is_empty());
        }
        let mut read = Namespace::default();
        read.apply(&pair.names.all().collect::<Vec<_>>());
        assert!(read == pair.names, "seed {seed}: all of them");
    }
}

#[test]
fn what_changes_all_the_time_is_a_small_change_and_what_is_as_it_was_is_none() {
    let mut names = Namespace::default();
    for table in 0..1000 {
        let path = format!("d/t{table}.ibd");
        names.file_record(SpaceId(table + 10), &FileRecord::Create { path: path.as_bytes() }, LSN).unwrap();
        names.create(&path, FileKind::Tablespace, 0o660);
    }
    let log_file = LogFileEntry {
        file_size_bytes: 1,
        header: vec![0; 512],
        checkpoints: [vec![1; 64], vec![2; 64]],
        last_file_operation_lsn: 0,
    };
    names.set_log_file(log_file.clone());
    names.track();
    // The records that a server writes after each of its checkpoints, for each tablespace that it changes.
    for table in 0..1000 {
        let path = format!("./d/t{table}.ibd");
        names.file_record(SpaceId(table + 10), &FileRecord::Modify { path: path.as_bytes() }, LSN).unwrap();
    }
    names.set_log_file(log_file);
    names.set_len("d/t7.ibd", 0);
    assert_eq!(*names.take_changes(), []);
    names.set_checkpoint(1, &[3; 64]);
    names.set_len("d/t7.ibd", 4096);
    let (file, _) = names.file_at("d/t7.ibd").unwrap();
    let expected = [NameChange::FileLen(file.0, 4096), NameChange::Checkpoint(1, vec![3; 64])];
    assert_eq!(*names.take_changes(), expected);
}
