//! Behaviour on a model of a drive, on a regular file and, where the system allows it, on a loop device. Also on the
//! block device `REDOUBT_RAW_DEVICE`, if set, which is overwritten.

use std::process::Command;

use super::media::MediaWrite;
use super::model::{ModelDrive, Op};
use super::*;
use crate::{StorageFile, WriteOptions};
use redoubt_test_support::{LoopDevice, skip};

const CHUNK: u64 = 64 << 10;
const LEN: usize = 2 << 20;
/// Number of chunks of a device of [`LEN`] bytes.
const CHUNKS: u64 = 21;

fn options() -> RawFormatOptions {
    RawFormatOptions { force: false, chunk_len_bytes: CHUNK }
}

fn path() -> &'static Path {
    Path::new("/model")
}

pub(super) fn formatted(seed: u64) -> ModelDrive {
    let drive = ModelDrive::new(LEN, seed);
    format_media(drive.boxed(), path(), options()).unwrap();
    drive
}

pub(super) fn open(drive: &ModelDrive) -> Result<Arc<RawDevice>, StorageError> {
    RawDevice::open_on(drive.boxed(), path())
}

pub(super) fn try_read_all(file: &dyn StorageFile) -> io::Result<Vec<u8>> {
    let len = file.len_bytes()? as usize;
    let mut bytes = vec![0xEE; len + 10];
    assert_eq!(file.read_at(0, &mut bytes)?, len);
    bytes.truncate(len);
    Ok(bytes)
}

pub(super) fn read_all(file: &dyn StorageFile) -> Vec<u8> {
    try_read_all(file).unwrap()
}

/// Lock for tests that start programs, or reopen a device of the system: a starting program has this process's open
/// files, and so holds their locks, until it executes.
fn one_at_a_time() -> redoubt_sync::MutexGuard<'static, ()> {
    static LOCK: redoubt_sync::Mutex<()> = redoubt_sync::Mutex::new(());
    LOCK.lock()
}

/// Reopens a device that this process has just closed. Other tests of the crate start programs, too.
fn open_again(path: &Path) -> Arc<RawDevice> {
    loop {
        match RawDevice::open(path) {
            Err(StorageError::InUse { .. }) => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

/// A loop device. Skips with `None` where this process may not create one.
fn loop_device() -> Option<LoopDevice> {
    LoopDevice::create(64 << 20).map_err(|reason| skip("a raw device", reason)).ok()
}

/// Checks all operations of directories on a newly formatted device, which `reopen` opens.
fn check_directories(reopen: &dyn Fn() -> Arc<RawDevice>) {
    let device = reopen();
    let empty = device.info();
    assert_eq!((empty.used_bytes, device.dirs()), (0, Vec::new()));
    let dir = device.dir("pages").unwrap();
    assert_eq!(device.dir("pages").err().unwrap().kind(), io::ErrorKind::WouldBlock);
    let kind = |result: io::Result<Arc<dyn StorageFile>>| result.err().unwrap().kind();
    assert_eq!(kind(dir.open("a")), io::ErrorKind::NotFound);
    let file = dir.create("a").unwrap();
    assert_eq!(kind(dir.create("a")), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(dir.create("x/y")), io::ErrorKind::InvalidInput);
    assert_eq!(read_all(&*file), [0u8; 0]);
    let expected = check_one_file(&device, &*file);
    check_names(&*dir, &expected);
    file.sync_data().unwrap();
    dir.sync().unwrap();

    // Other directories. All of them survive the process.
    let chunk = device.info().chunk_len_bytes;
    let other = device.dir("log").unwrap();
    other.create("b").unwrap().write_at(0, b"other").unwrap();
    other.open("b").unwrap().sync_all().unwrap();
    other.sync().unwrap();
    assert_eq!(device.remove_dir("log").unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    let kept: [Arc<dyn StorageDir>; 2] = [dir, other];
    drop((device, file, kept));
    let device = reopen();
    assert_eq!(device.dirs(), ["log", "pages"]);
    assert!(read_all(&*device.dir("pages").unwrap().open("b").unwrap()) == expected);
    assert_eq!(read_all(&*device.dir("log").unwrap().open("b").unwrap()), b"other");
    device.remove_dir("pages").unwrap();
    device.remove_dir("pages").unwrap();
    drop(device);
    let device = reopen();
    assert_eq!(device.dirs(), ["log"]);
    assert_eq!(device.info().used_bytes, chunk);
    device.remove_dir("log").unwrap();
    assert_eq!(device.info(), empty);
    check_full(&device);
}

/// Reads and writes of all kinds. Returns the resulting content of the file.
fn check_one_file(device: &RawDevice, file: &dyn StorageFile) -> Vec<u8> {
    // Small and large, aligned and not, inside and after the end, over a hole.
    let chunk = device.info().chunk_len_bytes;
    let mut expected = Vec::new();
    for (n, (at, len)) in [
        (0, 10),
        (5, 4096),
        (4096, 8192),
        (4000, 200),
        (3 * chunk - 100, 5000),
        (chunk, 4096),
        (chunk + 4095, 2),
        (2 * chunk - 4096, 8192),
        (3 * chunk + 20_000, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = vec![n as u8 + 1; len];
        file.write_at(at, &bytes).unwrap();
        let end = at as usize + len;
        if len > 0 {
            expected.resize(expected.len().max(end), 0);
            expected[at as usize..end].copy_from_slice(&bytes);
        }
        assert!(read_all(file) == expected, "{n}");
    }
    // Truncations and extensions: truncated content must not reappear.
    for len in [chunk + 5000, chunk + 100, 3 * chunk + 7, chunk, 7 * chunk, 2 * chunk + 1] {
        file.set_len(len).unwrap();
        expected.resize(len as usize, 0);
        assert!(read_all(file) == expected, "{len}");
    }
    file.set_len(10).unwrap();
    file.write_at(20, &[9]).unwrap();
    expected.truncate(10);
    expected.extend_from_slice(&[0; 10]);
    expected.push(9);
    assert_eq!(read_all(file), expected);
    // Space is reserved once, and existing content stays.
    file.allocate(0, 3 * chunk).unwrap();
    expected.resize(3 * chunk as usize, 0);
    assert!(read_all(file) == expected);
    let used = device.info().used_bytes;
    assert_eq!(used, 3 * chunk);
    file.allocate(chunk, chunk).unwrap();
    file.write_at(2 * chunk, &vec![4; chunk as usize]).unwrap();
    expected[2 * chunk as usize..].fill(4);
    assert_eq!(device.info().used_bytes, used);
    for refused in
        [file.write_at(u64::MAX - 1, &[1; 4]), file.set_len(u64::MAX), file.allocate(1 << 60, 1 << 61)]
    {
        assert!(refused.is_err());
    }
    assert!(read_all(file) == expected);
    expected
}

/// Creates, renames and removes files. The file `a` has the content `expected`, and is `b` at the end.
fn check_names(dir: &dyn StorageDir, expected: &[u8]) {
    // Names; a file without one stays readable.
    dir.create("b").unwrap().write_at(0, b"bb").unwrap();
    let lost = dir.open("b").unwrap();
    dir.rename("a", "b").unwrap();
    assert_eq!(dir.list().unwrap(), ["b"]);
    assert_eq!(dir.rename("a", "c").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(read_all(&*lost), b"bb");
    lost.write_at(2, b"more").unwrap();
    lost.sync_data().unwrap();
    assert_eq!(read_all(&*lost), b"bbmore");
    drop(lost);
    assert!(read_all(&*dir.open("b").unwrap()) == expected);
    dir.create("c").unwrap();
    dir.remove("c").unwrap();
    assert_eq!(dir.remove("c").unwrap_err().kind(), io::ErrorKind::NotFound);
}

/// Fills the device. A write that does not fit changes nothing, and released space is usable again.
fn check_full(device: &Arc<RawDevice>) {
    let dir = device.dir("full").unwrap();
    let info = device.info();
    let (chunk, count) = (info.chunk_len_bytes, info.size_bytes / info.chunk_len_bytes);
    let file = dir.create("f").unwrap();
    file.allocate(0, (count - 1) * chunk).unwrap();
    file.sync_data().unwrap();
    for refused in [
        file.allocate(0, (count + 1) * chunk),
        file.write_at((count - 1) * chunk, &vec![1; chunk as usize + 1]),
    ] {
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.len_bytes().unwrap(), (count - 1) * chunk);
    }
    let small = dir.create("g").unwrap();
    small.write_at(0, &[1]).unwrap();
    assert_eq!(dir.create("h").unwrap().write_at(0, &[1]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    // A write inside the file's length still succeeds.
    file.write_at(5, &[7; 10_000]).unwrap();
    file.set_len(chunk).unwrap();
    small.allocate(0, (count - 1) * chunk).unwrap();
    assert_eq!(device.info().used_bytes, info.size_bytes);
    small.sync_data().unwrap();
    drop((small, file, dir));
    device.remove_dir("full").unwrap();
}

#[test]
fn directories_work_on_a_model() {
    let drive = formatted(1);
    check_directories(&|| open(&drive).unwrap());
    assert!(!drive.take_discards().is_empty());
}

#[test]
fn directories_work_on_a_regular_file() {
    let _alone = one_at_a_time();
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(LEN as u64).unwrap();
    RawDevice::format(file.path(), options()).unwrap();
    check_directories(&|| open_again(file.path()));
    // On a file system without direct I/O, too.
    if let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") {
        file.as_file().set_len(LEN as u64).unwrap();
        RawDevice::format(file.path(), options()).unwrap();
        check_directories(&|| open_again(file.path()));
    }
}

#[test]
fn directories_work_on_a_loop_device() {
    let _alone = one_at_a_time();
    let Some(device) = loop_device() else { return };
    RawDevice::format(device.path(), RawFormatOptions { chunk_len_bytes: 4 << 20, ..options() }).unwrap();
    check_directories(&|| open_again(device.path()));
    let opened = open_again(device.path());
    assert_eq!((opened.info().streams, opened.stream_of(Stream::Journal)), (0, 0));
    // The kernel itself rejects streams on this device, with an error.
    let media = &opened.volume.media;
    let in_stream = MediaWrite { stream: 1, untorn: false };
    let error = media.write(64 << 10, AlignedBuffer::zeroed(4096), in_stream).err().unwrap();
    assert!(error.to_string().contains("write stream 1") || error.raw_os_error().is_some(), "{error}");
    assert!(matches!(RawDevice::open(device.path()), Err(StorageError::InUse { .. })));
    assert!(matches!(RawDevice::format(device.path(), options()), Err(StorageError::InUse { .. })));
}

#[test]
fn a_file_system_is_not_overwritten_by_accident() {
    let _alone = one_at_a_time();
    let Some(device) = loop_device() else { return };
    let made = Command::new("mkfs.ext4").arg("-q").arg(device.path()).status();
    assert!(made.unwrap().success());
    let error = RawDevice::format(device.path(), options()).unwrap_err();
    assert!(matches!(&error, StorageError::Occupied { found, .. } if found.contains("ext4")), "{error}");
    let error = RawDevice::open(device.path()).err().unwrap();
    assert!(matches!(&error, StorageError::NotFormatted { found, .. } if found.contains("ext4")), "{error}");
    let mount = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").arg(device.path()).arg(mount.path()).status();
    if mounted.unwrap().success() {
        let error = RawDevice::format(device.path(), RawFormatOptions { force: true, ..options() });
        let unmounted = Command::new("umount").arg(mount.path()).status();
        assert!(matches!(error, Err(StorageError::InUse { .. })));
        assert!(unmounted.unwrap().success());
    } else {
        skip("a raw device that is mounted", "mount failed");
    }
    RawDevice::format(device.path(), RawFormatOptions { force: true, ..options() }).unwrap();
    open_again(device.path());
}

/// Writes in every stream, and untorn writes, if the device supports them.
#[test]
fn directories_work_on_the_device_named() {
    let _alone = one_at_a_time();
    let Some(path) = redoubt_test_support::setting_os("REDOUBT_RAW_DEVICE").map(PathBuf::from) else {
        return skip("a raw device of yours", "REDOUBT_RAW_DEVICE is not set");
    };
    RawDevice::format(&path, RawFormatOptions { force: true, chunk_len_bytes: 1 << 20 }).unwrap();
    check_directories(&|| open_again(&path));
    let device = open_again(&path);
    eprintln!("{:?}", device.info());
    assert_eq!(device.info().streams_refused, None);
    let dir = device.dir_in("streams", Stream::Redo).unwrap();
    let file = dir.create("f").unwrap();
    file.write_at(0, &[1; 100_000]).unwrap();
    let streams = [Stream::Metadata, Stream::Redo, Stream::Journal, Stream::HotPages, Stream::ColdPages];
    for (n, stream) in streams.into_iter().enumerate() {
        let untorn = device.info().untorn.is_some();
        let bytes = vec![n as u8; 16_384];
        file.write_with(n as u64 * 16_384, &bytes, WriteOptions { stream, untorn }).unwrap();
    }
    file.sync_data().unwrap();
    let bytes = read_all(&*file);
    for n in 0..streams.len() {
        assert!(bytes[n * 16_384..(n + 1) * 16_384].iter().all(|&byte| byte == n as u8), "{n}");
    }
    drop((file, dir));
    device.remove_dir("streams").unwrap();
}

#[test]
fn writes_go_to_the_streams_of_their_lifetimes() {
    let write = |streams, takes| {
        let drive = formatted(1).with_streams(streams, takes);
        let device = open(&drive).unwrap();
        let dir = device.dir_in("log", Stream::Redo).unwrap();
        let file = dir.create("f").unwrap();
        drive.take_writes();
        file.write_at(0, &[1; 100]).unwrap();
        // Zeros for the chunk, then the bytes.
        let redo: Vec<u8> = drive.take_writes().iter().map(|write| write.2).collect();
        file.sync_data().unwrap();
        let metadata: Vec<u8> = drive.take_writes().iter().map(|write| write.2).collect();
        for stream in [Stream::Journal, Stream::HotPages, Stream::ColdPages] {
            file.write_with(0, &[2; 100], WriteOptions { stream, untorn: false }).unwrap();
        }
        let others: Vec<u8> = drive.take_writes().iter().map(|write| write.2).collect();
        (device.info(), redo, metadata, others)
    };
    let (info, redo, metadata, others) = write(8, true);
    assert_eq!((info.streams, info.streams_refused), (8, None));
    assert_eq!((redo, metadata, others), (vec![2, 2], vec![1, 1], vec![3, 4, 5]));
    let (_, redo, metadata, others) = write(2, true);
    assert_eq!((redo, metadata, others), (vec![2, 2], vec![1, 1], vec![2, 1, 1]));
    for (streams, takes) in [(0, true), (8, false)] {
        let (info, redo, metadata, others) = write(streams, takes);
        assert_eq!((info.streams, info.streams_refused.is_some()), (0, streams > 0));
        assert_eq!((redo, metadata, others), (vec![0, 0], vec![0, 0], vec![0, 0, 0]));
    }
}

#[test]
fn untorn_writes_are_passed_on_where_the_drive_has_them() {
    let untorn = WriteOptions { stream: Stream::HotPages, untorn: true };
    let drive = formatted(1).with_untorn(512, 16_384);
    let device = open(&drive).unwrap();
    let dir = device.dir("pages").unwrap();
    let limits = dir.untorn_limits().unwrap().unwrap();
    assert_eq!((limits.min_len_bytes, limits.max_len_bytes), (4096, 16_384));
    let file = dir.create("f").unwrap();
    // After the end, into a hole and in place.
    for at in [5 * 16_384, 0, 16_384, 5 * 16_384] {
        file.write_with(at, &[at as u8 | 1; 16_384], untorn).unwrap();
    }
    assert_eq!(file.len_bytes().unwrap(), 6 * 16_384);
    for (at, len) in [(0, 32_768), (4096, 8192), (0, 512), (0, 12_288)] {
        let error = file.write_with(at, &vec![0xFF; len], untorn).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
    assert!(read_all(&*file)[..32_768].iter().all(|&byte| byte == 1));
    // The limits that the drive reports may be wrong: then there are none.
    let drive = formatted(1);
    let device = open(&drive).unwrap();
    let file = device.dir("pages").unwrap().create("f").unwrap();
    let error = file.write_with(0, &[1; 16_384], untorn).unwrap_err();
    assert_eq!((error.kind(), file.len_bytes().unwrap()), (io::ErrorKind::Unsupported, 0));
}

#[test]
fn only_what_may_be_lost_is_formatted() {
    let again = |drive: &ModelDrive, force| {
        format_media(drive.boxed(), path(), RawFormatOptions { force, ..options() })
    };
    // A raw device of Redoubt without files.
    let drive = formatted(1);
    again(&drive, false).unwrap();
    let dir = open(&drive).unwrap().dir("d").unwrap();
    dir.create("f").unwrap().write_at(0, b"abc").unwrap();
    dir.sync().unwrap();
    drop(dir);
    let error = again(&drive, false).unwrap_err();
    assert!(matches!(&error, StorageError::Occupied { found, .. } if found.contains("1 files")), "{error}");
    again(&drive, true).unwrap();
    assert_eq!(open(&drive).unwrap().dirs(), Vec::<String>::new());
    drive.damage(100, 1);
    assert!(matches!(again(&drive, false), Err(StorageError::Occupied { .. })));
    // Zeros may be overwritten, other bytes may not.
    let drive = ModelDrive::new(LEN, 1);
    assert!(matches!(open(&drive), Err(StorageError::NotFormatted { found: "nothing", .. })));
    drive.put(70_000, b"x");
    let error = again(&drive, false).unwrap_err();
    assert!(error.to_string().contains("something else"), "{error}");
    again(&drive, true).unwrap();
    let small = ModelDrive::new(512 << 10, 1);
    assert!(matches!(again(&small, true), Err(StorageError::Unsuitable { .. })));
}

#[test]
fn a_device_that_changed_does_not_open() {
    let drive = formatted(1);
    let dir = open(&drive).unwrap().dir("d").unwrap();
    dir.create("f").unwrap().write_at(0, b"abc").unwrap();
    dir.sync().unwrap();
    drop(dir);
    let open_damaged = |drive: &ModelDrive| match open(drive) {
        Err(StorageError::Damaged { reason, .. }) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was opened"),
    };
    assert!(open_damaged(&drive.resized(LEN - 4096)).contains("had 2097152"));
    open(&drive.resized(LEN + 4096)).unwrap();
    let layout = Layout::decode(&drive.bytes(0, 512)).unwrap().unwrap();
    // Snapshot 1, of the format, is in area 0. Snapshot 2 is in area 1, and the mark contains its number.
    let damaged = |offset| {
        let drive = drive.after_process_death();
        drive.damage(offset, 1);
        drive
    };
    let names = |drive: &ModelDrive| open(drive).unwrap().dirs();
    assert_eq!(names(&damaged(layout.area_offset(0) + 20)), ["d"]);
    assert!(open_damaged(&damaged(layout.area_offset(1) + 20)).contains("snapshot 2"));
    assert!(open_damaged(&damaged(layout.area_offset(1) + 4096)).contains("snapshot 2"));
    let both = damaged(layout.area_offset(0));
    both.damage(layout.area_offset(1), 1);
    assert!(open_damaged(&both).contains("neither"));
    // Without the mark, snapshot 2 would count as interrupted.
    let cut_off = damaged(layout.area_offset(1) + 4096);
    cut_off.put(layout::MARK_OFFSET, &layout.encode_mark(1));
    assert_eq!(names(&cut_off), Vec::<String>::new());
    assert!(open_damaged(&damaged(30)).contains("first sector"));
    let version = damaged(8);
    assert!(matches!(open(&version), Err(StorageError::Unsuitable { .. })));
}

#[test]
fn after_a_failed_flush_nothing_is_promised_any_more() {
    for skip in 0..3 {
        let drive = formatted(1);
        let device = open(&drive).unwrap();
        let dir = device.dir("d").unwrap();
        let file = dir.create("f").unwrap();
        file.write_at(0, b"abc").unwrap();
        // The flush before the snapshot, the flush after it, or the flush of a later sync.
        drive.fail(Op::Flush, skip);
        let results: Vec<_> = (0..3).map(|_| file.sync_data()).collect();
        let synced = results.iter().take_while(|result| result.is_ok()).count() as u64;
        let error = results.into_iter().find_map(Result::err).unwrap();
        assert_eq!((error.kind(), synced), (io::ErrorKind::InvalidData, skip / 2));
        for refused in [
            file.sync_data(),
            file.write_at(0, b"x"),
            file.set_len(0),
            file.allocate(0, 1),
            dir.sync(),
            dir.remove("f"),
            dir.rename("f", "g"),
            dir.create("g").map(drop),
            device.remove_dir("e"),
        ] {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains("open it again"), "{error}");
        }
        assert_eq!(read_all(&*file), b"abc");
        drop((file, dir, device));
        let names = open(&drive).unwrap().dirs();
        assert!(names.is_empty() || names == ["d"]);
    }
}

#[test]
fn a_failed_write_leaves_the_rest_alone() {
    let drive = formatted(1);
    let device = open(&drive).unwrap();
    let dir = device.dir("d").unwrap();
    let file = dir.create("f").unwrap();
    // The chunk cannot be filled with zeros, so it is still free.
    drive.fail(Op::Write, 0);
    assert_eq!(file.write_at(0, b"abc").unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!((file.len_bytes().unwrap(), device.info().used_bytes), (0, 0));
    file.write_at(0, &[1; 10_000]).unwrap();
    file.sync_data().unwrap();
    for n in 0..50 {
        drive.fail(Op::Write, 0);
        file.write_at(5000, &[2; 1000]).unwrap_err();
        let bytes = read_all(&*file);
        assert!(bytes.len() == 10_000 && bytes[..5000] == [1; 5000] && bytes[6000..] == [1; 4000], "{n}");
        assert!(bytes[5000..6000].iter().all(|&byte| byte == 1 || byte == 2));
    }
    // An incomplete write does not extend the file, because old bytes could become visible.
    file.set_len(100).unwrap();
    drive.fail(Op::Write, 0);
    file.write_at(100, &[3; 5000]).unwrap_err();
    assert_eq!(read_all(&*file), [1; 100]);
    file.set_len(10_000).unwrap();
    assert!(read_all(&*file)[100..].iter().all(|&byte| byte == 0));
    drive.fail(Op::Read, 0);
    file.drop_cache().unwrap();
    assert!(file.write_at(5, b"x").is_err());
    drive.fail(Op::Read, 0);
    assert!(file.read_at(5, &mut [0; 10]).is_err());
    // A failed write of a snapshot is a failure of the device.
    file.set_len(5).unwrap();
    drive.fail(Op::Write, 0);
    assert!(file.sync_data().is_err());
    assert!(file.sync_data().unwrap_err().to_string().contains("open it again"));
}

#[test]
fn chunks_of_removed_files_are_trimmed_and_come_back_as_zeros() {
    let drive = formatted(1);
    drive.take_discards();
    let device = open(&drive).unwrap();
    let dir = device.dir("d").unwrap();
    let file = dir.create("f").unwrap();
    file.write_at(0, &vec![7; (CHUNKS * CHUNK) as usize]).unwrap();
    file.sync_data().unwrap();
    dir.remove("f").unwrap();
    dir.sync().unwrap();
    assert_eq!(drive.take_discards(), []);
    drop(file);
    // The space is needed, so the snapshot that releases it is written now.
    let file = dir.create("g").unwrap();
    file.write_at(100, &[1]).unwrap();
    assert_eq!(drive.take_discards().len() as u64, CHUNKS);
    file.allocate(0, CHUNKS * CHUNK).unwrap();
    let mut expected = vec![0; (CHUNKS * CHUNK) as usize];
    expected[100] = 1;
    assert!(read_all(&*file) == expected);
}

#[test]
fn appends_in_small_steps_read_nothing() {
    let drive = formatted(1);
    let device = open(&drive).unwrap();
    let dir = device.dir("d").unwrap();
    let file = dir.create("f").unwrap();
    file.write_at(0, &[1; 100]).unwrap();
    let mut expected = vec![1; 100];
    // The first append that reads fails.
    drive.fail(Op::Read, 0);
    for n in 0..500_u32 {
        let bytes = vec![n as u8; n as usize % 300 + 1];
        file.write_at(expected.len() as u64, &bytes).unwrap();
        expected.extend_from_slice(&bytes);
    }
    assert!(file.read_at(0, &mut [0]).is_err());
    assert!(read_all(&*file) == expected);
}

/// Threads with a file each, and a shared file that they write page by page.
#[test]
fn threads_do_not_disturb_each_other() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(16 << 20).unwrap();
    RawDevice::format(file.path(), options()).unwrap();
    let device = open_again(file.path());
    let dir = device.dir("d").unwrap();
    let shared = dir.create("shared").unwrap();
    shared.set_len(40 * 4096).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (dir, shared) = (&dir, &shared);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                let mut expected = Vec::new();
                for round in 0..60_u8 {
                    let name = format!("{thread}-{round}");
                    let file = dir.create(&name).unwrap();
                    let bytes = vec![round; rng.usize(1..100_000)];
                    file.write_at(0, &bytes).unwrap();
                    // Blocks of four threads are adjacent; some are written in part.
                    let page = rng.u64(..10) * 4 + thread;
                    shared.write_at(page * 4096, &[round ^ thread as u8; 4096][rng.usize(..100)..]).unwrap();
                    if rng.bool() {
                        file.sync_data().unwrap();
                        dir.sync().unwrap();
                    }
                    assert!(read_all(&*file) == bytes);
                    if rng.u8(..3) == 0 {
                        expected.push((name, bytes));
                    } else {
                        dir.remove(&name).unwrap();
                    }
                    if expected.len() > 8 {
                        let (name, bytes) = expected.remove(0);
                        assert!(read_all(&*dir.open(&name).unwrap()) == bytes);
                        dir.remove(&name).unwrap();
                    }
                }
            });
        }
    });
    assert!(device.info().used_bytes <= 40 * 2 * CHUNK, "{:?}", device.info());
}
