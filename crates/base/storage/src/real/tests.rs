//! Untorn writes on real files. They must work in `REDOUBT_UNTORN_DIR`, a directory on a file system with untorn
//! writes of 16 KiB. The default file system of the tests need not support them.

use super::*;
use crate::Stream;

const UNTORN: WriteOptions = WriteOptions { stream: Stream::HotPages, untorn: true };

fn read(file: &dyn StorageFile, offset_bytes: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    let n = file.read_at(offset_bytes, &mut bytes).unwrap();
    bytes.truncate(n);
    bytes
}

/// Untorn writes among ordinary ones. The next read returns each of them, regardless of how the previous bytes were
/// written.
fn check_untorn_writes(dir: &RealDir, limits: UntornLimits) {
    let page = 16384_usize;
    assert!(limits.allow(0, page as u64), "{limits:?}");
    let file = dir.create("pages").unwrap();
    // Past the end, into a hole, over cached bytes, over untorn writes.
    file.write_with(2 * page as u64, &vec![3; page], UNTORN).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 3 * page as u64);
    assert_eq!(read(&*file, 0, 2 * page), vec![0; 2 * page]);
    for round in 1..20_u8 {
        file.write_at(100, &vec![round; 2 * page]).unwrap();
        assert_eq!(read(&*file, 0, page)[100..], vec![round; page - 100]);
        file.write_with(0, &vec![round + 100; page], UNTORN).unwrap();
        let mut expected = vec![round + 100; page];
        expected.resize(2 * page + 100, round);
        expected.resize(3 * page, 3);
        assert_eq!(read(&*file, 0, 4 * page), expected, "{round}");
    }
    let max = limits.max_len_bytes as usize;
    file.write_with(max as u64, &vec![9; max], UNTORN).unwrap();
    assert_eq!(read(&*file, max as u64, max), vec![9; max]);
    // Writes outside the limits fail, and write nothing.
    let before = read(&*file, 0, 4 * max);
    for (offset, len) in [(8192, page), (0, 3 * 4096), (0, 2 * max), (0, (limits.min_len_bytes / 2) as usize)]
    {
        let error = file.write_with(offset, &vec![7; len], UNTORN).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{len} at {offset}: {error}");
    }
    assert_eq!(read(&*file, 0, 4 * max), before);
    // A rename or an unlink does not matter.
    dir.rename("pages", "others").unwrap();
    let reopened = dir.open("others").unwrap();
    reopened.write_with(0, &vec![5; page], UNTORN).unwrap();
    dir.remove("others").unwrap();
    reopened.write_with(page as u64, &vec![6; page], UNTORN).unwrap();
    assert_eq!((read(&*file, 0, 1), read(&*file, page as u64, 1)), (vec![5], vec![6]));
    file.sync_data().unwrap();
}

#[test]
fn untorn_writes_work_where_they_are_offered() {
    let Some(path) = redoubt_test_support::setting_os("REDOUBT_UNTORN_DIR") else {
        return redoubt_test_support::skip(
            "a directory of yours with untorn writes",
            "REDOUBT_UNTORN_DIR is not set",
        );
    };
    let dir = tempfile::tempdir_in(path).unwrap();
    let real = RealDir::open(dir.path()).unwrap();
    let limits = real.untorn_limits().unwrap().expect("no untorn writes in REDOUBT_UNTORN_DIR");
    assert_eq!(crate::probe::probe(dir.path()).unwrap().untorn, Some(limits));
    check_untorn_writes(&real, limits);
}

#[test]
fn what_is_not_offered_fails_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let real = RealDir::open(dir.path()).unwrap();
    let limits = real.untorn_limits().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(crate::probe::probe(dir.path()).unwrap().untorn, limits);
    let file = real.create("pages").unwrap();
    file.write_at(0, &[1; 40_000]).unwrap();
    if limits.is_none() {
        let error = file.write_with(0, &[2; 16_384], UNTORN).unwrap_err();
        assert!(
            matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput),
            "{:?}: {error}",
            error.kind()
        );
        assert!(error.to_string().contains("untorn") || error.to_string().contains("direct"), "{error}");
    }
    let error = file.write_with(8192, &[2; 16_384], UNTORN).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(read(&*file, 0, 50_000), vec![1; 40_000]);
    // A stream without an untorn write does not fail.
    let hot = WriteOptions { stream: Stream::HotPages, untorn: false };
    file.write_with(3, &[4; 5], hot).unwrap();
    assert_eq!(read(&*file, 2, 7), [1, 4, 4, 4, 4, 4, 1]);
}

#[test]
fn memory_has_no_untorn_writes() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let real = RealDir::open(dir.path()).unwrap();
    assert_eq!(real.untorn_limits().unwrap(), None);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let file = real.create("pages").unwrap();
    let error = file.write_with(0, &[2; 16_384], UNTORN).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput), "{error}");
    assert_eq!(file.len_bytes().unwrap(), 0);
}

#[test]
fn they_can_be_pretended_for_measurements() {
    let dir = tempfile::tempdir().unwrap();
    let real = RealDir::open_with(dir.path(), RealDirOptions { pretend_untorn: true }).unwrap();
    // Without direct I/O, there is nothing to measure either.
    let Some(limits) = real.untorn_limits().unwrap() else {
        return redoubt_test_support::skip(
            "untorn writes that are pretended",
            "no direct I/O where temporary files are",
        );
    };
    assert_eq!((limits.min_len_bytes, limits.max_len_bytes), (4096, 65_536));
    check_untorn_writes(&real, limits);
}

/// Counts its syncs, which may fail.
struct Synced {
    syncs: AtomicUsize,
    fails: bool,
}

impl StorageFile for Synced {
    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        unreachable!()
    }
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        unreachable!()
    }
    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        unreachable!()
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        unreachable!()
    }
    fn len_bytes(&self) -> io::Result<u64> {
        unreachable!()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if self.fails { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
    fn sync_all(&self) -> io::Result<()> {
        unreachable!()
    }
    fn drop_cache(&self) -> io::Result<()> {
        unreachable!()
    }
}

#[test]
fn of_several_files_each_is_synced_once_and_the_one_that_fails_is_named() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = RealDir::open(temporary.path()).unwrap();
    for count in [0_usize, 1, 3, 8, 100] {
        for failing in [None, Some(0), Some(count / 2), count.checked_sub(1)] {
            let failing = failing.filter(|failing| *failing < count);
            let synced =
                |number| Arc::new(Synced { syncs: AtomicUsize::new(0), fails: failing == Some(number) });
            let files: Vec<_> = (0..count).map(synced).collect();
            let as_files: Vec<_> = files.iter().map(|file| file.clone() as Arc<dyn StorageFile>).collect();
            let failed = dir.sync_files(&as_files).map_err(|(number, _)| number).err();
            assert_eq!(failed, failing);
            let most = if failing.is_some() { 0..=1 } else { 1..=1 };
            assert!(files.iter().all(|file| most.contains(&file.syncs.load(Ordering::Relaxed))), "{count}");
        }
    }
}

/// A child that another thread is starting has a copy of every descriptor until it executes its program.
#[test]
fn a_directory_can_be_opened_again_while_a_child_is_being_started() {
    let temporary = tempfile::tempdir().unwrap();
    let held = RealDir::open(temporary.path()).unwrap();
    let of_the_child = held.locked.as_ref().unwrap().try_clone().unwrap();
    assert_eq!(
        RealDir::open(temporary.path()).err().map(|error| error.kind()),
        Some(io::ErrorKind::WouldBlock)
    );
    drop(held);
    RealDir::open(temporary.path()).unwrap();
    drop(of_the_child);
}

#[test]
fn directory_counts_the_descriptor_of_its_lock() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("pages");
    let locked = RealDir::open(&path).unwrap();
    locked.sync().unwrap();
    assert_eq!((descriptors_of(&path), locked.descriptors()), (1, 1));
    drop(locked);
    let shared = RealDir::open_shared(&path).unwrap();
    shared.sync().unwrap();
    assert_eq!((descriptors_of(&path), shared.descriptors()), (0, 0));
    let missing = RealDir::open_shared(&path.join("missing"));
    assert_eq!(missing.err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
}

/// Descriptors of this process for a path.
fn descriptors_of(path: &Path) -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|target| target == path).count()
}

#[test]
fn length_of_a_file_is_told_without_an_open() {
    let place = tempfile::tempdir().unwrap();
    let dir = RealDir::open(place.path()).unwrap();
    dir.create("one").unwrap().write_at(0, &[1; 700]).unwrap();
    // A file that cannot be opened for writing has a length.
    let path = place.path().join("one");
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    assert_eq!(dir.len_bytes_of("one").unwrap(), 700);
    assert_eq!(dir.len_bytes_of("other").unwrap_err().kind(), io::ErrorKind::NotFound);
}
