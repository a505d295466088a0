//! Invented sysfs trees and lines of mountinfo, and the output for them. Probes of real paths.

use std::fs;
use std::os::unix::fs::symlink;

use super::device::DeviceLayer;
use super::path::{Mount, parse_mount};
use super::*;

/// A tree like `/sys`, with one disk.
struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    fn new(number: &str, device_dir: &str, files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("devices").join(device_dir);
        for (name, content) in files {
            let file = device.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        let links = dir.path().join("dev/block");
        fs::create_dir_all(&links).unwrap();
        symlink(format!("../../devices/{device_dir}"), links.join(number)).unwrap();
        Self { dir }
    }

    fn read(&self, major: u32, minor: u32) -> Option<BlockDevice> {
        BlockDevice::read(self.dir.path(), major, minor).unwrap()
    }
}

#[test]
fn a_partition_has_the_queue_of_its_disk() {
    let tree = Tree::new(
        "259:2",
        "pci0000:00/nvme/nvme0/nvme0n1/nvme0n1p2",
        &[
            ("partition", "2\n"),
            ("alignment_offset", "0\n"),
            ("../queue/logical_block_size", "4096\n"),
            ("../queue/physical_block_size", "16384\n"),
            ("../queue/write_cache", "write through\n"),
            ("../queue/fua", "1\n"),
            ("../queue/rotational", "0\n"),
            ("../queue/max_write_streams", "8\n"),
            ("../queue/write_stream_granularity", "16777216\n"),
            ("../queue/atomic_write_unit_max_bytes", "65536\n"),
            ("../device/model", "EXAMPLE DRIVE 960GB   \n"),
        ],
    );
    let device = tree.read(259, 2).unwrap();
    let expected = BlockDevice {
        name: "nvme0n1p2".into(),
        disk: "nvme0n1".into(),
        layer: DeviceLayer::Disk,
        model: Some("EXAMPLE DRIVE 960GB".into()),
        logical_block_len: Some(4096),
        physical_block_len: Some(16384),
        alignment_offset_bytes: Some(0),
        write_cache: WriteCache::Through,
        has_fua: Some(true),
        is_rotational: Some(false),
        max_write_streams: Some(8),
        write_stream_granularity_bytes: Some(16 << 20),
        atomic_write_unit_max_bytes: Some(65_536),
    };
    assert_eq!(device, expected);
    assert_eq!(
        device.to_string(),
        "nvme0n1 EXAMPLE DRIVE 960GB, no volatile write cache, FUA, 8 write streams of units of 16777216 bytes, \
         sectors of 16384 bytes shown as 4096, atomic writes of up to 65536 bytes"
    );
    assert_eq!(tree.read(259, 3), None);
}

#[test]
fn layers_are_told_apart() {
    let mapped = Tree::new("253:0", "virtual/block/dm-0", &[("dm/name", "vg-log\n")]);
    assert_eq!(mapped.read(253, 0).unwrap().layer, DeviceLayer::Mapped { name: "vg-log".into() });
    assert_eq!(mapped.read(253, 0).unwrap().to_string(), "dm-0 (vg-log), write cache unknown");
    let looped = Tree::new(
        "7:1",
        "virtual/block/loop1",
        &[("loop/backing_file", "/a/disk.img\n"), ("queue/fua", "x")],
    );
    let device = looped.read(7, 1).unwrap();
    assert_eq!(device.layer, DeviceLayer::Loop { backing_file: Some("/a/disk.img".into()) });
    assert_eq!((device.has_fua, device.write_cache), (None, WriteCache::Unknown));
    let memory = Tree::new("252:0", "virtual/block/zram0", &[("queue/write_cache", "write through\n")]);
    assert_eq!(memory.read(252, 0).unwrap().layer, DeviceLayer::Ram);
    let raid = Tree::new("9:0", "virtual/block/md0", &[("md/level", "raid1\n")]);
    assert_eq!(raid.read(9, 0).unwrap().layer, DeviceLayer::Mapped { name: "md0".into() });
}

#[test]
fn lines_of_mountinfo_are_taken_apart() {
    let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
    let mount =
        Mount { mount_id: 36, device: (98, 0), file_system: "ext3".into(), source: "/dev/root".into() };
    assert_eq!(parse_mount(line), Some(mount));
    for line in
        ["", "36 35 98:0 /mnt1 /mnt2 rw", "36 35 98 / / rw - ext4 /dev/a rw", "x 35 98:0 / / rw - ext4 a"]
    {
        assert_eq!(parse_mount(line), None, "{line}");
    }
}

/// A disk without a volatile cache.
fn disk() -> BlockDevice {
    BlockDevice {
        name: "sda1".into(),
        disk: "sda".into(),
        logical_block_len: Some(512),
        physical_block_len: Some(512),
        write_cache: WriteCache::Through,
        ..BlockDevice::default()
    }
}

fn good() -> PathProbe {
    PathProbe {
        path: "/log".into(),
        file_system: "ext4".into(),
        map_sync: false,
        direct_io: DirectIo::Supported { memory_align_bytes: 4, offset_align_bytes: 512 },
        file_block_len_bytes: 4096,
        untorn: None,
        block_device: Some(disk()),
        io_uring_refused: None,
    }
}

#[test]
fn untorn_writes_are_shown() {
    assert!(good().to_string().ends_with("direct I/O from 512 bytes, no untorn writes"), "{}", good());
    let untorn = Some(UntornLimits { min_len_bytes: 4096, max_len_bytes: 16_384 });
    let shown = PathProbe { untorn, ..good() }.to_string();
    assert!(shown.ends_with(", untorn writes of 4096 to 16384 bytes"), "{shown}");
}

#[test]
fn what_a_disk_has_is_shown_and_nothing_said_of_the_rest() {
    assert_eq!(disk().to_string(), "sda, no volatile write cache");
    let emulating = BlockDevice { physical_block_len: Some(4096), ..disk() };
    let shown = PathProbe { block_device: Some(emulating), ..good() }.to_string();
    assert!(shown.contains("sectors of 4096 bytes shown as 512"), "{shown}");
}

#[test]
fn a_real_directory_is_probed_and_left_empty() {
    let dir = tempfile::tempdir().unwrap();
    let found = probe(dir.path()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_ne!(found.file_system, "unknown file system");
}

#[test]
fn memory_is_no_block_device() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let found = probe(dir.path()).unwrap();
    assert_eq!(found.file_system, "tmpfs");
    assert!(!found.map_sync);
    assert_eq!(found.block_device, None);
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let error = probe(Path::new("/nonexistent/log")).unwrap_err();
    assert!(error.to_string().starts_with("cannot find the device of /nonexistent/log"), "{error}");
}
