//! Tests with real files in the temporary directory.

use std::os::unix::fs::FileExt;

use super::*;
use crate::AlignedBuffer;

fn new_file(dir: &Path, len: usize) {
    std::fs::write(dir.join("file"), vec![0xee; len]).unwrap();
}

fn filled(byte: u8, len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::with_capacity(len);
    assert!(buffer.extend(&vec![byte; len]));
    buffer
}

#[test]
fn files_are_open_for_direct_io() {
    let dir = tempfile::tempdir().unwrap();
    new_file(dir.path(), 4096);
    let before = direct_descriptors(dir.path());
    assert_eq!(before, 0);
    let io = UringIo::new(dir.path(), 1).unwrap();
    let file = io.open("file").unwrap();
    assert_eq!(direct_descriptors(dir.path()), 1);
    drop(file);
    assert_eq!(direct_descriptors(dir.path()), 0);
}

/// Number of this process's descriptors of files in `dir` that were opened with `O_DIRECT`.
fn direct_descriptors(dir: &Path) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Ok(target) = std::fs::read_link(format!("/proc/self/fd/{name}")) else { continue };
        let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{name}")) else { continue };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        let is_direct = u32::from_str_radix(flags, 8).unwrap() & OFlags::DIRECT.bits() != 0;
        found += usize::from(target.starts_with(dir) && is_direct);
    }
    found
}

#[test]
fn writes_under_way_at_once_are_all_there_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    new_file(dir.path(), 64 * 512);
    let io = UringIo::new(dir.path(), 4).unwrap();
    let file = io.open("file").unwrap();
    for round in 0..8_u64 {
        for slot in 0..4 {
            let number = round * 4 + slot;
            file.start(slot as usize, number * 1024, filled(number as u8, 512)).unwrap();
        }
        // Completed in another order than started.
        for slot in [2, 0, 3, 1] {
            assert_eq!(io.finish(slot).unwrap().bytes()[0] as usize, round as usize * 4 + slot);
        }
    }
    let content = std::fs::read(dir.path().join("file")).unwrap();
    for (number, unit) in content.chunks(512).enumerate() {
        let expected = if number % 2 == 0 { number as u8 / 2 } else { 0xee };
        assert!(unit.iter().all(|&byte| byte == expected), "unit {number}");
    }
}

#[test]
fn a_slot_takes_one_write() {
    let dir = tempfile::tempdir().unwrap();
    new_file(dir.path(), 4096);
    let io = UringIo::new(dir.path(), 1).unwrap();
    let file = io.open("file").unwrap();
    let is_refused = |result: io::Result<()>| result.unwrap_err().kind() == io::ErrorKind::InvalidInput;
    assert!(is_refused(io.finish(0).map(drop)));
    file.start(0, 0, filled(1, 512)).unwrap();
    assert!(is_refused(file.start(0, 512, filled(2, 512))));
    assert!(is_refused(file.start(1, 512, filled(2, 512))));
    io.finish(0).unwrap();
    assert!(is_refused(io.finish(0).map(drop)));
}

#[test]
fn a_write_that_the_kernel_refuses_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    new_file(dir.path(), 4096);
    let io = UringIo::new(dir.path(), 1).unwrap();
    let file = io.open("file").unwrap();
    // The length is not a multiple of the unit.
    file.start(0, 100, filled(1, 100)).unwrap();
    assert_eq!(io.finish(0).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), vec![0xee; 4096]);
    file.start(0, 0, filled(1, 512)).unwrap();
    io.finish(0).unwrap();
}

#[test]
fn a_thread_that_ends_does_not_take_its_writes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    new_file(dir.path(), 64 * 512);
    let io = UringIo::new(dir.path(), 8).unwrap();
    let file = io.open("file").unwrap();
    for round in 0..8_u64 {
        std::thread::scope(|scope| {
            let start = || {
                for slot in 0..8 {
                    let at = (round * 8 + slot as u64) * 512;
                    file.start(slot, at, filled(round as u8, 512)).unwrap();
                }
            };
            scope.spawn(start).join().unwrap();
        });
        for slot in 0..8 {
            io.finish(slot).unwrap();
        }
    }
    let content = std::fs::read(dir.path().join("file")).unwrap();
    assert!(content.chunks(4096).enumerate().all(|(n, bytes)| bytes.iter().all(|&byte| byte == n as u8)));
}

#[test]
fn what_the_page_cache_holds_is_not_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    new_file(dir.path(), 8192);
    let cached = File::open(dir.path().join("file")).unwrap();
    let io = UringIo::new(dir.path(), 1).unwrap();
    let file = io.open("file").unwrap();
    for round in 0..50_u8 {
        let at = u64::from(round % 16) * 512;
        let mut byte = [0];
        cached.read_exact_at(&mut byte, at).unwrap();
        file.start(0, at, filled(round, 512)).unwrap();
        io.finish(0).unwrap();
        cached.read_exact_at(&mut byte, at + 511).unwrap();
        assert_eq!(byte[0], round);
    }
}

/// The kernel keeps a file open, and so its lock, until the last write to it completes. Here the test does that.
#[test]
fn opening_a_file_waits_until_no_write_to_it_is_under_way() {
    use crate::{RealDir, StorageDir};
    let dir = tempfile::tempdir().unwrap();
    new_file(dir.path(), 4096);
    let io = UringIo::new(dir.path(), 1).unwrap();
    let file = io.open("file").unwrap();
    let real = RealDir::open(dir.path()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            real.open("file").unwrap();
            sender.send(()).unwrap();
        });
        // The thread counts as waiting when the kernel has queued its request for the lock.
        redoubt_test_support::wait::until("a thread that waits for the lock of the file", || {
            is_anyone_waiting_for_a_lock(&dir.path().join("file"))
        });
        assert!(receiver.try_recv().is_err());
        drop(file);
        receiver.recv().unwrap();
    });
}

/// `/proc/locks` marks a waiting request with an arrow.
fn is_anyone_waiting_for_a_lock(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&inode))
}
