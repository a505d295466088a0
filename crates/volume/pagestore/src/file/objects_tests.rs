use super::*;
use fastrand::Rng;
use redoubt_storage::sim::SimDisk;

/// One open file as a list without a queue has it.
struct OpenFile {
    id: u32,
    last_used: u64,
    has_unsynced: bool,
}

/// Expected behaviour of the queue, by a full scan.
#[derive(Default)]
struct Model {
    open: Vec<OpenFile>,
    now: u64,
}

impl Model {
    fn use_file(&mut self, id: u32, limit: usize) {
        self.now += 1;
        match self.open.iter_mut().find(|file| file.id == id) {
            Some(file) => file.last_used = self.now,
            None => {
                self.open.push(OpenFile { id, last_used: self.now, has_unsynced: false });
                self.close_some(limit);
            }
        }
    }

    fn close_some(&mut self, limit: usize) {
        while self.open.len() > limit {
            let closable = self.open.iter().enumerate().filter(|(_, file)| !file.has_unsynced);
            let Some((at, _)) = closable.min_by_key(|(_, file)| file.last_used) else { return };
            self.open.remove(at);
        }
    }
}

fn is_open(objects: &Objects, id: u32) -> bool {
    objects.get(ObjectId(id)).is_ok_and(|object| object.handle.lock().is_some())
}

#[test]
fn the_file_that_was_not_used_for_longest_is_closed() {
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let (count, limit) = (random.u32(2..40), random.usize(1..12));
        let disk = SimDisk::new(seed);
        (0..count).for_each(|id| drop(disk.create(&file_name(ObjectId(id))).unwrap()));
        let objects = Objects::new((0..count).map(ObjectId), limit);
        let mut model = Model::default();
        for step in 0..1500 {
            let id = random.u32(..count);
            let object = objects.get(ObjectId(id)).unwrap();
            match random.u8(..20) {
                0..14 => {
                    objects.file(&disk, &object).unwrap();
                    model.use_file(id, limit);
                }
                14..16 => {
                    object.has_unsynced.store(true, Ordering::Release);
                    objects.file(&disk, &object).unwrap();
                    // The file is opened with the mark on it.
                    if !model.open.iter().any(|file| file.id == id) {
                        model.open.push(OpenFile { id, last_used: 0, has_unsynced: true });
                    }
                    model.use_file(id, limit);
                    model
                        .open
                        .iter_mut()
                        .filter(|file| file.id == id)
                        .for_each(|file| file.has_unsynced = true);
                    model.close_some(limit);
                }
                16..19 => {
                    object.has_unsynced.store(false, Ordering::Release);
                    objects.may_be_closed(&object);
                    model
                        .open
                        .iter_mut()
                        .filter(|file| file.id == id)
                        .for_each(|file| file.has_unsynced = false);
                    model.close_some(limit);
                }
                _ => {
                    objects.remove(ObjectId(id));
                    objects.insert(ObjectId(id));
                    model.open.retain(|file| file.id != id);
                }
            }
            let open: Vec<_> = (0..count).filter(|id| is_open(&objects, *id)).collect();
            let mut expected: Vec<_> = model.open.iter().map(|file| file.id).collect();
            expected.sort_unstable();
            assert_eq!(open, expected, "seed {seed}, step {step}");
            assert_eq!(objects.open_files(), open.len(), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn closing_a_file_looks_at_no_more_files_than_were_used() {
    const LIMIT: usize = 512;
    for count in [1 << 10, 1 << 14] {
        let disk = SimDisk::new(1);
        (0..count).for_each(|id| drop(disk.create(&file_name(ObjectId(id))).unwrap()));
        let objects = Objects::new((0..count).map(ObjectId), LIMIT);
        let mut random = Rng::with_seed(1);
        let uses = 20_000;
        for _ in 0..uses {
            let object = objects.get(ObjectId(random.u32(..count))).unwrap();
            objects.file(&disk, &object).unwrap();
        }
        let looked_at = objects.queue.lock().looked_at;
        assert!(looked_at <= uses, "{count} objects: {looked_at}");
        println!("{count} objects, {uses} uses: {looked_at} files looked at");
    }
}

#[test]
fn files_that_many_threads_use_are_counted_right() {
    let disk = SimDisk::new(1);
    (0..40).for_each(|id| drop(disk.create(&file_name(ObjectId(id))).unwrap()));
    let objects = Objects::new((0..40).map(ObjectId), 5);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (objects, disk) = (&objects, &disk);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                for _ in 0..20_000 {
                    let object = objects.get(ObjectId(random.u32(..36))).unwrap();
                    objects.file(disk, &object).unwrap();
                    if random.u8(..50) == 0 {
                        // Each thread has one of its own that comes and goes.
                        objects.remove(ObjectId(36 + seed as u32));
                        objects.insert(ObjectId(36 + seed as u32));
                    }
                }
            });
        }
    });
    // A file in use cannot be closed; it is closed with the next one.
    (0..40).for_each(|id| drop(objects.file(&disk, &objects.get(ObjectId(id)).unwrap()).unwrap()));
    let open = (0..40).filter(|id| is_open(&objects, *id)).count();
    assert_eq!((open, objects.open_files(), objects.queue.lock().by_use.len()), (5, 5, 5));
}
