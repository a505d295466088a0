//! Data that the simulated disk retains, and data that it tears.

use std::collections::HashSet;

use super::*;
use crate::{StorageDir, StorageFile, WriteOptions};

const LIMITS: UntornLimits = UntornLimits { min_len_bytes: 4096, max_len_bytes: 16384 };

/// A disk with one durable file of 64 KiB of ones.
fn disk(seed: u64, sector_len: usize) -> (SimDisk, Arc<dyn StorageFile>) {
    let disk = SimDisk::new(seed);
    disk.set_sector_len_bytes(sector_len);
    disk.set_untorn_limits(Some(LIMITS));
    let file = disk.create("file").unwrap();
    file.write_at(0, &[1; 65536]).unwrap();
    file.sync_all().unwrap();
    StorageDir::sync(&disk).unwrap();
    (disk, file)
}

fn untorn() -> WriteOptions {
    WriteOptions { untorn: true, stream: Stream::HotPages }
}

/// The bytes of a block's sectors. Each sector has to consist of one byte value.
fn sectors(content: &[u8], sector_len: usize) -> Vec<u8> {
    let bytes = content.chunks(sector_len).map(|sector| {
        assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector is torn");
        sector[0]
    });
    bytes.collect()
}

#[test]
fn a_power_cut_tears_writes_at_sectors() {
    for sector_len in [512, 4096] {
        let mut seen = HashSet::new();
        for seed in 0..200 {
            let (disk, file) = disk(seed, sector_len);
            file.write_at(16384, &[2; 16384]).unwrap();
            let after = disk.after_power_cut().content("file");
            seen.insert(sectors(&after[16384..32768], sector_len));
            assert!(after[..16384].iter().chain(&after[32768..]).all(|&byte| byte == 1));
        }
        let sectors = 16384 / sector_len;
        assert!(seen.contains(&vec![1; sectors]) && seen.contains(&vec![2; sectors]));
        assert!(seen.len() > 10, "{}", seen.len());
    }
}

#[test]
fn an_untorn_write_is_kept_whole_or_not_at_all() {
    let mut seen = HashSet::new();
    for seed in 0..400 {
        let (disk, file) = disk(seed, 512);
        file.write_with(16384, &[2; 16384], untorn()).unwrap();
        if seed % 2 == 0 {
            // A shorter write over a part of it, and an ordinary one beside them.
            file.write_with(20480, &[3; 4096], untorn()).unwrap();
            file.write_at(32768, &[4; 4096]).unwrap();
        }
        let disk = if seed % 3 == 0 {
            disk.inject(Fault {
                kind: OpKind::Sync,
                name: "".into(),
                skip: 0,
                error: io::ErrorKind::InvalidData,
            });
            file.sync_data().unwrap_err();
            file.drop_cache().unwrap();
            disk
        } else {
            disk.after_power_cut()
        };
        let content = disk.content("file");
        let inner = sectors(&content[20480..24576], 4096)[0];
        let outer = [&content[16384..20480], &content[24576..32768]].concat();
        let outer = sectors(&outer, 12288)[0];
        assert!(matches!((outer, inner), (1, 1) | (2, 2) | (2, 3)), "seed {seed}: {outer}, {inner}");
        seen.insert((outer, inner));
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn a_failed_untorn_write_is_done_or_not() {
    let mut seen = HashSet::new();
    for seed in 0..50 {
        let (disk, file) = disk(seed, 512);
        let fault =
            Fault { kind: OpKind::Write, name: "".into(), skip: 0, error: io::ErrorKind::StorageFull };
        disk.inject(fault);
        file.write_with(0, &[2; 16384], untorn()).unwrap_err();
        seen.insert(sectors(&disk.content("file")[..16384], 16384));
        assert_eq!(disk.bytes_written(Stream::HotPages), 0);
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn untorn_writes_that_do_not_fit_are_refused() {
    let (disk, file) = disk(1, 512);
    for (at, len) in [(0, 2048), (0, 32768), (4096, 8192), (0, 12288)] {
        let error = file.write_with(at, &vec![2; len], untorn()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    file.write_with(8192, &[2; 8192], untorn()).unwrap();
    assert_eq!(disk.bytes_written(Stream::HotPages), 8192);
    disk.set_untorn_limits(None);
    let error = file.write_with(8192, &[2; 8192], untorn()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn a_subdirectory_has_names_of_its_own_and_shares_the_power() {
    let (disk, _) = disk(1, 512);
    let inner = disk.subdirectory("inner");
    inner.create("file").unwrap().write_at(0, &[9]).unwrap();
    assert_eq!((disk.list().unwrap(), inner.list().unwrap()), (vec!["file".into()], vec!["file".into()]));
    inner.rename("file", "other").unwrap();
    assert_eq!(disk.content("inner/other"), [9]);
    disk.cut_power_at(disk.ops_done());
    assert!(inner.remove("other").is_err());
    assert!(disk.is_off() && inner.list().is_err());
}

#[test]
fn lost_sectors_fail_to_be_read_until_they_are_written() {
    let (disk, file) = disk(1, 512);
    disk.lose("file", 1024..1536);
    let mut buffer = [0; 512];
    let mut is_lost = |disk: &SimDisk, at: u64| {
        let error = disk.open("file").unwrap().read_at(at, &mut buffer).err();
        error.is_some_and(|error| crate::is_lost_content(&error))
    };
    assert!(is_lost(&disk, 1024) && is_lost(&disk, 1000) && is_lost(&disk, 1535));
    assert!(!is_lost(&disk, 512) && !is_lost(&disk, 1536));
    for disk in [disk.copy(), disk.after_power_cut()] {
        assert!(is_lost(&disk, 1024));
    }
    file.write_at(1024, &[9; 512]).unwrap();
    assert!(!is_lost(&disk, 1024));
}
