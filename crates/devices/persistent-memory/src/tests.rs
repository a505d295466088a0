//! Tests on real memory: anonymous files, which are tmpfs, and files of the temporary directory.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::*;

/// A file in memory of `len` zero bytes.
fn memory_file(len: u64) -> File {
    let file = File::from(rustix::fs::memfd_create("pmem-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.set_len(len).unwrap();
    file
}

#[test]
fn every_kind_of_store_writes_every_range_and_nothing_else() {
    let kinds = Stores::all();
    assert!(!kinds.is_empty());
    for stores in kinds {
        let file = memory_file(4096);
        let mut mapping = Mapping::map(&file, 4096, true).unwrap();
        mapping.stores = stores;
        let mut expected = vec![0; 4096];
        let mut found = vec![0; 4096];
        for offset in 0..70_usize {
            for len in 0..300_usize {
                let bytes: Vec<u8> = (0..len).map(|n| (n * 7 + offset + len) as u8).collect();
                mapping.write(64 + offset as u64, &bytes).unwrap();
                expected[64 + offset..64 + offset + len].copy_from_slice(&bytes);
                mapping.fence().unwrap();
                mapping.read(0, &mut found).unwrap();
                assert!(found == expected, "{stores}, {len} bytes at {offset}");
            }
        }
        // The file has them, not only the mapping.
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected, "{stores}");
    }
}

#[test]
fn ranges_outside_are_refused() {
    let mapping = Mapping::map(memory_file(8192), 5000, true).unwrap();
    assert_eq!(mapping.len_bytes(), 5000);
    for (at, len) in [(5000, 1), (4999, 2), (0, 5001), (u64::MAX, 1), (u64::MAX - 3, 8)] {
        assert!(matches!(mapping.write(at, &vec![1; len]), Err(PmemError::OutOfRange { .. })), "{at} {len}");
        assert!(
            matches!(mapping.read(at, &mut vec![1; len]), Err(PmemError::OutOfRange { .. })),
            "{at} {len}"
        );
    }
    mapping.write(4999, &[1]).unwrap();
    mapping.write(5000, &[]).unwrap();
    for len in [0, 8193, u64::MAX] {
        assert!(matches!(Mapping::map(memory_file(8192), len, true), Err(PmemError::BadLength { .. })));
    }
}

#[test]
fn a_file_without_dax_is_refused_unless_pretended() {
    let on_disk = tempfile::tempfile().unwrap();
    on_disk.set_len(8192).unwrap();
    for file in [on_disk, memory_file(8192)] {
        let error = Mapping::map(&file, 8192, false).unwrap_err();
        if cfg!(target_arch = "x86_64") {
            assert!(matches!(error, PmemError::NotPersistent { .. }), "{error}");
            assert!(error.to_string().contains("dax=always"), "{error}");
        } else {
            assert!(matches!(error, PmemError::UnsupportedProcessor), "{error}");
        }
        let pretended = Mapping::map(&file, 8192, true).unwrap();
        assert_eq!(pretended.persistence(), Persistence::Pretended);
        pretended.prefault();
        pretended.write(100, b"pretended").unwrap();
        pretended.fence().unwrap();
        drop(pretended);
        let mut found = [0; 9];
        file.read_exact_at(&mut found, 100).unwrap();
        assert_eq!(&found, b"pretended");
    }
}

#[test]
fn a_lost_page_poisons_its_mapping_and_no_other() {
    let other = Mapping::map(memory_file(1 << 16), 1 << 16, true).unwrap();
    for touch in [
        (|mapping| mapping.write(40_000, &[1; 9000])) as fn(&Mapping) -> Result<(), PmemError>,
        |mapping| mapping.write(40_001, &[1]),
        |mapping| mapping.read(65_535, &mut [0]),
        |mapping| mapping.read(0, &mut vec![0; 1 << 16]),
    ] {
        let file = memory_file(1 << 16);
        let mapping = Mapping::map(&file, 1 << 16, true).unwrap();
        mapping.write(0, &[7; 1 << 16]).unwrap();
        mapping.fence().unwrap();
        // Real SIGBUS: the pages past the file's end are gone.
        file.set_len(4096).unwrap();
        mapping.fence().unwrap();
        assert!(matches!(touch(&mapping), Err(PmemError::Poisoned)));
        assert!(matches!(mapping.write(0, &[1]), Err(PmemError::Poisoned)));
        assert!(matches!(mapping.read(0, &mut [1]), Err(PmemError::Poisoned)));
        assert!(matches!(mapping.fence(), Err(PmemError::Poisoned)));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(matches!(mapping.fence(), Err(PmemError::Poisoned))));
        });
        other.write(3, &[5; 100]).unwrap();
        other.fence().unwrap();
    }
    // A table entry that was poisoned is clean when it is used again.
    let fresh = Mapping::map(memory_file(4096), 4096, true).unwrap();
    fresh.write(0, &[1]).unwrap();
}

#[test]
fn many_mappings_come_and_go() {
    let file = memory_file(4096);
    for _ in 0..3 {
        let mappings: Vec<_> = (0..600).map(|_| Mapping::map(&file, 4096, true).unwrap()).collect();
        for (n, mapping) in mappings.iter().enumerate() {
            let at = 8 * (n as u64 % 512);
            mapping.write(at, &n.to_ne_bytes()).unwrap();
            mapping.fence().unwrap();
            // Each is the same file's, whichever has written it.
            let (mut by_mapping, mut by_file) = ([0; 8], [0; 8]);
            mappings[mappings.len() - 1 - n].read(at, &mut by_mapping).unwrap();
            file.read_exact_at(&mut by_file, at).unwrap();
            assert_eq!((by_mapping, by_file), (n.to_ne_bytes(), n.to_ne_bytes()));
        }
        drop(mappings);
        assert_eq!(mapped_regions(&file), 0, "all are unmapped");
    }
}

/// Mappings of this file in this process.
fn mapped_regions(file: &File) -> usize {
    let inode = format!(" {} ", file.metadata().unwrap().ino());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:") && line.contains(&inode)).count()
}

redoubt_test_support::children!(child_with_own_handler, child_with_default, child_that_signals_itself);

/// How one of the child processes below ends.
fn run_in_child(name: &str) -> ExitStatus {
    redoubt_test_support::child::command(name).output().unwrap().status
}

/// A page of plain mapped memory past the end of its file, unknown to this module.
fn touch_page_past_end() {
    let file = memory_file(4096);
    let base = map_shared(file.as_fd(), 4096, libc::MAP_SHARED).unwrap();
    file.set_len(0).unwrap();
    // SAFETY: the address is mapped; the access raises SIGBUS, which is the point.
    unsafe { base.as_ptr().write_volatile(1) };
}

extern "C" fn exit_42(_signal: i32) {
    // SAFETY: `_exit` may be called anywhere.
    unsafe { libc::_exit(42) };
}

fn set_handler(handler: usize) {
    // SAFETY: the action is fully initialised and names a function of the right type, or a constant.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// A child process.
fn child_with_own_handler() {
    set_handler(exit_42 as *const () as usize);
    let _mapping = Mapping::map(memory_file(4096), 4096, true).unwrap();
    touch_page_past_end();
}

/// A child process.
fn child_with_default() {
    set_handler(libc::SIG_DFL);
    let _mapping = Mapping::map(memory_file(4096), 4096, true).unwrap();
    touch_page_past_end();
}

/// A child process.
fn child_that_signals_itself() {
    set_handler(libc::SIG_DFL);
    let _mapping = Mapping::map(memory_file(4096), 4096, true).unwrap();
    // SAFETY: sends a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
    std::thread::park();
}

#[test]
fn foreign_faults_go_where_they_went_before() {
    assert_eq!(run_in_child("child_with_own_handler").code(), Some(42));
    assert_eq!(run_in_child("child_with_default").signal(), Some(libc::SIGBUS));
    assert_eq!(run_in_child("child_that_signals_itself").signal(), Some(libc::SIGBUS));
}
