use super::*;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

/// A file in memory, as one on tmpfs.
fn memory_file(len_bytes: u64) -> File {
    // SAFETY: the name is NUL-terminated; the descriptor is new and has no other owner.
    let file = unsafe {
        let fd = libc::memfd_create(c"redo".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.set_len(len_bytes).unwrap();
    file
}

fn open(file: &File) -> RedoFile {
    let counters = Arc::new(Counters::create(b"/no/such/directory"));
    RedoFile::open(file.as_raw_fd(), b"ib_logfile0", true, counters).unwrap()
}

fn must_not_be_called() -> Result<(), Errno> {
    panic!("the kernel is asked although nothing is left for it to do")
}

fn counted<const N: usize>(redo: &RedoFile, counters: [Counter; N]) -> [u64; N] {
    counters.map(|counter| redo.counters.get(counter))
}

#[test]
fn writes_inside_are_stored_and_need_no_sync() {
    let file = memory_file(8192);
    let (redo, fd) = (open(&file), file.as_raw_fd());
    // Earlier changes to the file are unknown.
    let mut called = false;
    redo.sync(|| {
        called = true;
        Ok(())
    })
    .unwrap();
    assert!(called);
    for (at, byte) in [(0_u64, b'a'), (513, b'b'), (8192 - 77, b'c')] {
        assert_eq!(redo.write(fd, &[byte; 77], at), Ok(77));
        redo.sync(must_not_be_called).unwrap();
        let mut found = [0; 77];
        file.read_exact_at(&mut found, at).unwrap();
        assert_eq!(found, [byte; 77]);
    }
    let counts = [Counter::MappedWrites, Counter::MappedBytes, Counter::SyncsAvoided, Counter::SyncsPassed];
    assert_eq!(counted(&redo, counts), [3, 231, 3, 1]);
    assert_eq!(counted(&redo, [Counter::PassedWrites, Counter::Mappings]), [0, 1]);
}

#[test]
fn growth_is_the_kernels_until_it_is_synced() {
    let file = memory_file(0);
    let (redo, fd) = (open(&file), file.as_raw_fd());
    redo.sync(|| Ok(())).unwrap();
    assert_eq!(redo.write(fd, &[1; 4096], 0), Ok(4096));
    assert_eq!(redo.write(fd, &[2; 4096], 4096), Ok(4096));
    assert_eq!(counted(&redo, [Counter::PassedWrites, Counter::MappedWrites, Counter::Mappings]), [2, 0, 0]);
    // Inside what it is now: mapped, and the new length still has to be made durable.
    assert_eq!(redo.write(fd, &[3; 100], 4000), Ok(100));
    let mut called = 0;
    for _ in 0..3 {
        redo.sync(|| {
            called += 1;
            Ok(())
        })
        .unwrap();
    }
    assert_eq!((called, counted(&redo, [Counter::MappedWrites, Counter::Mappings])), (1, [1, 1]));
    let mut content = Vec::new();
    (&file).read_to_end(&mut content).unwrap();
    assert_eq!(
        (content.len(), content[3999], content[4000], content[4099], content[4100]),
        (8192, 1, 3, 3, 2)
    );
    // Across the end: one write by the kernel.
    assert_eq!(redo.write(fd, &[4; 100], 8150), Ok(100));
    assert_eq!(file.metadata().unwrap().len(), 8250);
    assert_eq!(counted(&redo, [Counter::PassedWrites]), [3]);
}

#[test]
fn a_file_is_not_mapped_while_it_gets_shorter() {
    let file = memory_file(1 << 20);
    let (redo, fd) = (open(&file), file.as_raw_fd());
    redo.change_size(|| real::set_len(fd, 4096)).unwrap();
    assert_eq!(redo.write(fd, &[7; 512], 1 << 19), Ok(512), "beyond the new end");
    assert_eq!(redo.write(fd, &[8; 512], 0), Ok(512));
    assert_eq!(counted(&redo, [Counter::PassedWrites, Counter::MappedWrites, Counter::Mappings]), [1, 1, 2]);
    assert_eq!(counted(&redo, [Counter::Failures]), [0]);
}

#[test]
fn an_early_sync_does_not_cover_a_later_change() {
    let file = memory_file(4096);
    let (redo, fd) = (open(&file), file.as_raw_fd());
    // The file grows while a sync is under way: the next one has to go to the kernel again.
    redo.sync(|| redo.write(fd, &[1; 10], 4096).map(drop)).unwrap();
    let mut called = false;
    redo.sync(|| {
        called = true;
        Ok(())
    })
    .unwrap();
    assert!(called);
}

#[test]
fn after_a_failed_sync_every_call_fails() {
    let file = memory_file(4096);
    let (redo, fd) = (open(&file), file.as_raw_fd());
    assert_eq!(redo.sync(|| Err(Errno(libc::ENOSPC))), Err(Errno::EIO));
    assert_eq!(redo.sync(|| Ok(())), Err(Errno::EIO));
    assert_eq!(redo.write(fd, &[1; 10], 0), Err(Errno::EIO));
    assert_eq!(redo.change_size(|| Ok(())), Err(Errno::EIO));
    assert_eq!(counted(&redo, [Counter::Failures]), [1]);
}

#[test]
fn memory_that_is_gone_is_an_error() {
    let file = memory_file(1 << 16);
    let (redo, fd) = (open(&file), file.as_raw_fd());
    redo.sync(|| Ok(())).unwrap();
    // Truncated without a call of the library: the pages are gone, as after a failure of the module.
    file.set_len(4096).unwrap();
    assert_eq!(redo.write(fd, &[1; 512], 1 << 15), Err(Errno::EIO));
    assert_eq!(redo.sync(must_not_be_called), Err(Errno::EIO));
    assert_eq!(redo.write(fd, &[1; 512], 0), Err(Errno::EIO));
}

#[test]
fn a_file_on_a_disk_is_not_pretended_to_be_durable() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = directory.path().join("ib_logfile0");
    std::fs::write(&path, [0; 4096]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let on_disk = !real::is_memory_file_system(file.as_raw_fd()).unwrap();
    for pretend in [false, true] {
        let counters = Arc::new(Counters::create(b"/no/such/directory"));
        let opened = RedoFile::open(file.as_raw_fd(), b"ib_logfile0", pretend, counters);
        assert_eq!(opened.is_err(), on_disk || !pretend, "pretend: {pretend}");
    }
}

#[test]
fn a_file_opened_for_writing_only_is_mapped_too() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("#ib_redo0");
    std::fs::write(&path, [0; 4096]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let redo = open(&file);
    assert_eq!(redo.write(file.as_raw_fd(), &[9; 64], 64), Ok(64));
    assert_eq!(counted(&redo, [Counter::MappedWrites]), [1]);
    assert_eq!(std::fs::read(&path).unwrap()[63..66], [0, 9, 9]);
}
