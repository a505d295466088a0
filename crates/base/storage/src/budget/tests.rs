use super::*;
use crate::sim::{Fault, OpKind, SimDisk};
use crate::{RealDir, StorageDir, StorageFile, UntornLimits, WriteOptions};
use fastrand::Rng;

redoubt_test_support::children!(files_beyond_the_limit, all_descriptors_taken);

fn dir(disk: &SimDisk, name: &str, budget: &Arc<FileBudget>) -> BudgetDir {
    BudgetDir::new(Arc::new(disk.subdirectory(name)), budget)
}

fn read(file: &dyn StorageFile) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let len = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// Files of `directory` that are open.
fn open_names(directory: &BudgetDir, files: &[&str]) -> Vec<String> {
    let is_open = |name: &&&str| directory.is_open(name);
    files.iter().filter(is_open).map(|name| (*name).to_owned()).collect()
}

#[test]
fn all_directories_share_one_limit() {
    for seed in 0..20 {
        let mut random = Rng::with_seed(seed);
        let limit = random.usize(1..8);
        let budget = FileBudget::new(limit);
        let disk = SimDisk::new(seed);
        let dirs = ["a", "b", "c"].map(|name| dir(&disk, name, &budget));
        let create = |n: usize| dirs[n % 3].create(&format!("f{n}")).unwrap();
        let mut files: Vec<_> = (0..20).map(|n| (create(n), Vec::new())).collect();
        for step in 0..400 {
            let number = random.usize(..files.len());
            let (file, expected) = &mut files[number];
            match random.u8(..10) {
                0..4 => assert_eq!(read(&**file), *expected, "seed {seed}, step {step}"),
                4..8 => {
                    let byte = [random.u8(..)];
                    file.write_at(expected.len() as u64 % 100, &byte).unwrap();
                    if expected.len() == 100 { expected[0] = byte[0] } else { expected.push(byte[0]) }
                }
                _ => file.sync_data().unwrap(),
            }
            assert!(budget.open_files() <= limit, "{} of {limit} are open", budget.open_files());
        }
        assert!(budget.closed_files() > 100 && budget.syncs() > 0, "{}", budget.closed_files());
        drop(files);
        assert_eq!(budget.open_files(), 0);
        assert!(budget.queue.lock().is_empty());
    }
}

#[test]
fn the_least_recently_used_synced_file_is_closed() {
    let (disk, budget) = (SimDisk::new(1), FileBudget::new(3));
    let dir = dir(&disk, "a", &budget);
    let files = ["1", "2", "3"].map(|name| dir.create(name).unwrap());
    // The oldest is in use again, the second one has unsynced writes.
    read(&*files[0]);
    files[1].write_at(0, b"x").unwrap();
    read(&*files[0]);
    let _fourth = dir.create("4").unwrap();
    assert_eq!(open_names(&dir, &["1", "2", "3", "4"]), ["1", "2", "4"]);
    let _fifth = dir.create("5").unwrap();
    assert_eq!(
        (open_names(&dir, &["1", "2", "4", "5"]), budget.syncs()),
        (vec!["2", "4", "5"].into_iter().map(String::from).collect(), 0)
    );
    // Its owner has synced it: it may be closed without another sync.
    files[1].sync_data().unwrap();
    read(&*dir.open("4").unwrap());
    let _sixth = dir.create("6").unwrap();
    assert_eq!(open_names(&dir, &["2", "4", "5", "6"]).len(), 3);
    assert_eq!(budget.syncs(), 0);
}

#[test]
fn unsynced_file_is_synced_before_it_is_closed() {
    for seed in 0..50 {
        let (disk, budget) = (SimDisk::new(seed), FileBudget::new(1));
        let dir = dir(&disk, "a", &budget);
        let file = dir.create("1").unwrap();
        dir.sync().unwrap();
        file.write_at(0, b"content").unwrap();
        let _other = dir.create("2").unwrap();
        assert!(!dir.is_open("1"));
        assert_eq!((budget.syncs(), budget.open_files()), (1, 1));
        assert_eq!(disk.after_power_cut().content("a/1"), b"content");
    }
}

#[test]
fn failed_sync_of_a_closed_file_is_reported_to_its_owner() {
    let lost = |disk: &SimDisk, budget: &Arc<FileBudget>| {
        let dir = dir(disk, "a", budget);
        let file = dir.create("1").unwrap();
        file.write_at(0, b"content").unwrap();
        disk.inject(Fault {
            kind: OpKind::Sync,
            name: "1".into(),
            skip: 0,
            error: io::ErrorKind::StorageFull,
        });
        // This closes the file.
        let other = dir.create("2").unwrap();
        assert!(!dir.is_open("1"));
        (dir, file, other)
    };
    let (disk, budget) = (SimDisk::new(1), FileBudget::new(1));
    let (dir, file, _other) = lost(&disk, &budget);
    // Not as a full disk: a repeated write would not bring the lost ones back.
    for _ in 0..2 {
        assert_eq!(file.sync_data().unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(file.sync_all().unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(file.write_at(9, b"more").unwrap_err().kind(), io::ErrorKind::Other);
        file.set_len(0).unwrap_err();
    }
    assert_eq!(read(&*dir.open("1").unwrap()), b"content");
    // The next handle knows that the caller has seen it.
    drop(file);
    dir.open("1").unwrap().sync_data().unwrap();

    let (dir, file, _other) = lost(&SimDisk::new(2), &FileBudget::new(1));
    drop(file);
    let error = dir.open("1").unwrap().sync_data().unwrap_err();
    assert!(error.to_string().contains("earlier sync of this file failed"), "{error}");
}

#[test]
fn unsynced_writes_of_a_dropped_handle_are_not_forgotten() {
    let (disk, budget) = (SimDisk::new(1), FileBudget::new(1));
    let dir = dir(&disk, "a", &budget);
    dir.create("1").unwrap().write_at(0, b"content").unwrap();
    dir.rename("1", "2").unwrap();
    let file = dir.open("2").unwrap();
    disk.inject(Fault { kind: OpKind::Sync, name: "2".into(), skip: 0, error: io::ErrorKind::Other });
    let _other = dir.create("3").unwrap();
    file.sync_data().unwrap_err();
    assert_eq!(disk.clear_faults(), 0);
}

#[test]
fn a_sync_of_a_file_that_was_only_read_reaches_the_disk() {
    let disk = SimDisk::new(1);
    disk.subdirectory("a").create("1").unwrap().write_at(0, b"of an earlier process").unwrap();
    let budget = FileBudget::new(1);
    let dir = dir(&disk, "a", &budget);
    let file = dir.open("1").unwrap();
    let _other = dir.create("2").unwrap();
    assert!(!dir.is_open("1"));
    dir.sync().unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.after_power_cut().content("a/1"), b"of an earlier process");
}

#[test]
fn removed_and_replaced_files_stay_open_for_their_handles() {
    let (disk, budget) = (SimDisk::new(1), FileBudget::new(1));
    let dir = dir(&disk, "a", &budget);
    let write = |name: &str| {
        let file = dir.create(name).unwrap();
        file.write_at(0, name.as_bytes()).unwrap();
        file
    };
    let (removed, replaced, moved) = (write("removed"), write("replaced"), write("moved"));
    dir.remove("removed").unwrap();
    dir.rename("moved", "replaced").unwrap();
    let others: Vec<_> = (0..5).map(|n| write(&format!("other{n}"))).collect();
    assert_eq!(read(&*removed), b"removed");
    assert_eq!(read(&*replaced), b"replaced");
    assert_eq!(read(&*moved), b"moved");
    assert_eq!(read(&*dir.open("replaced").unwrap()), b"moved");
    assert_eq!(dir.open("removed").err().unwrap().kind(), io::ErrorKind::NotFound);
    removed.write_at(0, b"R").unwrap();
    removed.sync_data().unwrap();
    // A new file of the name is another one.
    let again = write("removed");
    assert_eq!((read(&*removed), read(&*again)), (b"Removed".to_vec(), b"removed".to_vec()));
    assert_eq!(budget.open_files(), 3, "two without a name, and one of the others");
    drop((removed, replaced, others, moved, again));
    assert_eq!(budget.open_files(), 0);
}

#[test]
fn handles_of_one_file_share_its_descriptor() {
    let place = tempfile::tempdir().unwrap();
    let budget = FileBudget::new(4);
    let dir = BudgetDir::new(Arc::new(RealDir::open(place.path()).unwrap()), &budget);
    let one = dir.create("1").unwrap();
    let other = dir.open("1").unwrap();
    one.write_at(0, b"abc").unwrap();
    // The other descriptor is the directory's.
    assert_eq!((read(&*other), budget.open_files()), (b"abc".to_vec(), 2));
    drop(one);
    assert_eq!((read(&*other), budget.open_files()), (b"abc".to_vec(), 2));
    drop((other, dir));
    assert_eq!(budget.open_files(), 0);
}

/// A file that opens a second descriptor for untorn writes.
#[test]
fn second_descriptors_of_untorn_writes_count() {
    let place = tempfile::tempdir().unwrap();
    let options = crate::RealDirOptions { pretend_untorn: true };
    let real = RealDir::open_with(place.path(), options).unwrap();
    if !matches!(real.untorn_limits(), Ok(Some(UntornLimits { .. }))) {
        return redoubt_test_support::skip("direct I/O", "the temporary directory has none");
    }
    let budget = FileBudget::new(5);
    let dir = BudgetDir::new(Arc::new(real), &budget);
    let files: Vec<_> = (0..4).map(|n| dir.create(&n.to_string()).unwrap()).collect();
    let untorn = WriteOptions { untorn: true, ..WriteOptions::default() };
    for (n, file) in files.iter().enumerate() {
        file.write_with(0, &[n as u8; 4096], untorn).unwrap();
        file.sync_data().unwrap();
        assert!(budget.open_files() <= 5, "{}", budget.open_files());
    }
    // The last two files have two descriptors each, and the directory has one.
    assert_eq!(budget.open_files(), 5);
    for (n, file) in files.iter().enumerate() {
        assert_eq!(read(&**file), [n as u8; 100]);
    }
}

#[test]
fn files_in_use_exceed_the_limit_and_wait_for_nothing() {
    let (disk, budget) = (SimDisk::new(1), FileBudget::new(2));
    let dir = dir(&disk, "a", &budget);
    let handles: Vec<_> = (0..6).map(|n| dir.create(&n.to_string()).unwrap()).collect();
    let slots: Vec<_> = (0..6).map(|n: usize| dir.slot(&n.to_string())).collect();
    let uses: Vec<_> = slots.iter().map(|slot| slot.open().unwrap()).collect();
    assert_eq!(budget.open_files(), 6);
    drop(uses);
    read(&*handles[0]);
    assert_eq!(budget.open_files(), 6, "files are closed when another one is opened");
    let _another = dir.create("another").unwrap();
    assert_eq!(budget.open_files(), 2);
    let uses: Vec<_> = slots.iter().map(|slot| slot.open().unwrap()).collect();
    budget.trim();
    assert!(budget.open_files() >= 6);
    drop(uses);
    budget.trim();
    assert_eq!(budget.open_files(), 2);
}

#[test]
fn files_that_are_held_open_are_not_looked_at_first() {
    let (disk, budget) = (SimDisk::new(1), FileBudget::new(8));
    let dir = dir(&disk, "a", &budget);
    let held: Vec<_> = (0..4).map(|n| dir.create(&format!("held{n}")).unwrap()).collect();
    let open: Vec<_> = held.iter().map(|file| file.hold_open().unwrap()).collect();
    let _idle: Vec<_> = (0..6).map(|n| dir.create(&n.to_string()).unwrap()).collect();
    assert_eq!(budget.open_files(), 8);
    let oldest = budget.take_oldest(0).unwrap();
    assert!(matches!(oldest.try_close(), Closing::Closed(1)), "a file that is held is the first again");
    budget.note_closed(1);
    drop(open);
}

#[test]
fn file_that_is_held_open_is_not_closed() {
    let (disk, budget) = (SimDisk::new(1), FileBudget::new(1));
    let dir = dir(&disk, "a", &budget);
    let held = dir.create("1").unwrap();
    let open = held.hold_open().unwrap();
    assert!(open.is_some());
    let _other = dir.create("2").unwrap();
    assert_eq!(open_names(&dir, &["1", "2"]), ["1", "2"]);
    drop(open);
    let _third = dir.create("3").unwrap();
    assert!(!dir.is_open("1"));
}

#[test]
fn descriptors_of_others_take_room_from_files() {
    let (disk, budget) = (SimDisk::new(1), FileBudget::new(4));
    let dir = dir(&disk, "a", &budget);
    let files: Vec<_> = (0..4).map(|n| dir.create(&n.to_string()).unwrap()).collect();
    let held = budget.hold(3);
    assert_eq!(budget.open_files(), 4);
    assert_eq!(files.iter().map(|file| read(&**file).len()).sum::<usize>(), 0);
    assert_eq!(budget.open_files(), 4);
    drop(held);
    assert_eq!(budget.open_files(), 1);
}

fn limit_descriptors(more: u64) {
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = rustix::process::Rlimit { current: Some(used + more), maximum: Some(4096) };
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
}

/// A child process that may have fewer descriptors than its budget says.
fn files_beyond_the_limit() {
    let place = tempfile::tempdir().unwrap();
    let dir = BudgetDir::new(Arc::new(RealDir::open(place.path()).unwrap()), &FileBudget::new(1000));
    limit_descriptors(10);
    let files: Vec<_> = (0..40_u8).map(|n| dir.create(&n.to_string()).unwrap()).collect();
    for (n, file) in files.iter().enumerate() {
        file.write_at(0, &[n as u8]).unwrap();
    }
    dir.sync().unwrap();
    for (n, file) in files.iter().enumerate() {
        assert_eq!(read(&**file), [n as u8]);
        file.sync_all().unwrap();
    }
}

#[test]
fn idle_files_are_closed_when_the_process_runs_out() {
    let status = redoubt_test_support::child::command("files_beyond_the_limit").status().unwrap();
    assert!(status.success(), "{status}");
}

/// A child process without any descriptor left.
fn all_descriptors_taken() {
    let place = tempfile::tempdir().unwrap();
    let dir = BudgetDir::new(Arc::new(RealDir::open(place.path()).unwrap()), &FileBudget::new(1000));
    let file = dir.create("1").unwrap();
    file.write_at(0, b"a").unwrap();
    limit_descriptors(6);
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    // The file's own descriptor is free for the next one, but then there is none.
    let slot = dir.slot("1");
    let in_use = slot.open().unwrap();
    let error = dir.create("2").err().unwrap();
    assert!(is_out_of_descriptors(&error), "{error}");
    let limit = getrlimit(Resource::Nofile).current.unwrap().to_string();
    for part in [limit.as_str(), "LimitNOFILE", "ulimit -n"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    // Nothing has failed for good.
    drop((in_use, taken));
    dir.create("2").unwrap();
    file.sync_all().unwrap();
}

#[test]
fn lack_of_descriptors_names_the_limit_and_passes() {
    let status = redoubt_test_support::child::command("all_descriptors_taken").status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn lack_of_descriptors_is_told_from_other_errors() {
    for (code, expected) in
        [(libc::EMFILE, true), (libc::ENFILE, true), (libc::EIO, false), (libc::ENOSPC, false)]
    {
        let error = io::Error::from_raw_os_error(code);
        assert_eq!(is_out_of_descriptors(&error), expected, "{error}");
        let explained = OutOfDescriptors::error(error);
        assert!(is_out_of_descriptors(&explained) && explained.raw_os_error().is_none());
    }
}

/// A directory on a disk whose syncs wait until the gate opens.
struct HungDir(SimDisk, Arc<Gate>);

struct HungFile(Arc<dyn StorageFile>, Arc<Gate>);

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: redoubt_sync::Condvar,
    /// Syncs that wait.
    waiting: AtomicUsize,
}

impl Gate {
    fn wait(&self) {
        let mut is_open = self.is_open.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

impl StorageFile for HungFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset_bytes, buf)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset_bytes, bytes)
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.0.allocate(offset_bytes, len_bytes)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.wait();
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.1.wait();
        self.0.sync_all()
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.0.drop_cache()
    }
}

impl StorageDir for HungDir {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(HungFile(self.0.open(name)?, Arc::clone(&self.1))))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(HungFile(self.0.create(name)?, Arc::clone(&self.1))))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn hung_disk_does_not_hold_up_opens_on_another_one() {
    let (gate, budget) = (Arc::new(Gate::default()), FileBudget::new(4 * EXCESS_PART));
    let hung = BudgetDir::new(Arc::new(HungDir(SimDisk::new(1), Arc::clone(&gate))), &budget);
    let files: Vec<_> = (0..budget.limit()).map(|n| hung.create(&n.to_string()).unwrap()).collect();
    files.iter().for_each(|file| file.write_at(0, b"content").unwrap());
    let other = dir(&SimDisk::new(2), "a", &budget);
    // In a thread, so that a wait fails the test.
    let (opened, others) = std::sync::mpsc::channel();
    let open = std::thread::spawn(move || {
        let files: Vec<_> = (0..4).map(|n| other.create(&n.to_string()).unwrap()).collect();
        files.iter().for_each(|file| file.write_at(0, b"unsynced").unwrap());
        opened.send(()).unwrap();
        files
    });
    others.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    gate.open();
    let _others = open.join().unwrap();
    while budget.open_files() > budget.limit() - budget.limit() / EXCESS_PART {
        thread::yield_now();
    }
    files.iter().for_each(|file| assert_eq!(read(&**file), b"content"));
}

#[test]
fn files_in_a_hung_sync_hide_no_unsynced_file_of_another_disk() {
    let (gate, budget) = (Arc::new(Gate::default()), FileBudget::new(16));
    let hung = BudgetDir::new(Arc::new(HungDir(SimDisk::new(1), Arc::clone(&gate))), &budget);
    let files: Vec<_> = (0..2 * SYNCED_AT_ONCE).map(|n| hung.create(&n.to_string()).unwrap()).collect();
    files.iter().for_each(|file| file.write_at(0, b"content").unwrap());
    assert!(!budget.close_synced(), "all have unsynced writes");
    let other = dir(&SimDisk::new(2), "a", &budget);
    let closes = std::thread::scope(|scope| {
        files.iter().for_each(|file| drop(scope.spawn(|| file.sync_data())));
        while gate.waiting.load(Ordering::Relaxed) < files.len() {
            thread::yield_now();
        }
        let file = other.create("1").unwrap();
        file.write_at(0, b"unsynced").unwrap();
        // Before any assertion, because a failed one would leave the syncs waiting.
        let closes = [budget.close_one(), other.is_open("1")];
        gate.open();
        closes
    });
    assert_eq!((closes, budget.syncs()), ([true, false], 1));
}
