//! What follows from what was found out about a place, made up or real.

use redoubt_storage::probe::{BlockDevice, probe};

use super::*;
use crate::{BlockLogDevice, BlockLogOptions, FileLogDevice, LogDevice, SegmentOptions, Seq};

/// A disk without a volatile cache.
pub(crate) fn disk() -> BlockDevice {
    BlockDevice {
        name: "sda1".into(),
        disk: "sda".into(),
        logical_block_len: Some(512),
        physical_block_len: Some(512),
        alignment_offset_bytes: Some(0),
        write_cache: WriteCache::Through,
        has_fua: Some(false),
        ..BlockDevice::default()
    }
}

/// A place that a block device log fits.
pub(crate) fn good() -> PathProbe {
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
fn the_device_follows_from_the_path() {
    let kind = |probe: PathProbe| choose(&probe, false).kind;
    assert_eq!(kind(good()), DeviceKind::Block);
    assert_eq!(warnings(&good()), Vec::<String>::new());
    assert_eq!(kind(PathProbe { file_system: "btrfs".into(), ..good() }), DeviceKind::File);
    assert_eq!(kind(PathProbe { block_device: None, ..good() }), DeviceKind::File);
    let no_direct = DirectIo::Unsupported { reason: "no".into() };
    assert_eq!(kind(PathProbe { direct_io: no_direct, ..good() }), DeviceKind::File);
    let refused = PathProbe { io_uring_refused: Some("not permitted".into()), ..good() };
    assert_eq!(kind(refused.clone()), DeviceKind::File);
    assert!(choose(&refused, false).reason.contains("not permitted"));
    assert_eq!(warnings(&refused).len(), 1);
    let with_cache = |has_fua| BlockDevice { write_cache: WriteCache::Back, has_fua, ..disk() };
    for (has_fua, expected) in [(Some(true), DeviceKind::Block), (Some(false), DeviceKind::File)] {
        let cached = PathProbe { block_device: Some(with_cache(has_fua)), ..good() };
        assert_eq!(kind(cached), expected);
    }
}

#[test]
fn persistent_memory_is_chosen_if_the_build_supports_it() {
    let dax = PathProbe { map_sync: true, ..good() };
    if HAS_PMEM {
        assert_eq!(choose(&dax, false).kind, DeviceKind::Pmem);
        assert_eq!(warnings(&dax), Vec::<String>::new());
        // Pretending does not hide what is not there.
        let pretended = choose(&good(), true);
        assert_eq!(pretended.kind, DeviceKind::Pmem);
        assert!(pretended.reason.contains("is not persistent memory"), "{}", pretended.reason);
        assert!(!choose(&dax, true).reason.contains("pretend"));
    } else {
        assert_eq!(choose(&dax, true).kind, DeviceKind::Block);
        assert!(warnings(&dax)[0].contains(EXPERIMENTAL_PACKAGE), "{:?}", warnings(&dax));
    }
}

#[test]
fn the_unit_is_what_device_and_file_system_take() {
    let unit = |logical, offset_align_bytes| {
        let block_device = Some(BlockDevice { logical_block_len: logical, ..disk() });
        let direct_io = DirectIo::Supported { memory_align_bytes: 512, offset_align_bytes };
        PathProbe { block_device, direct_io, ..good() }
    };
    assert_eq!(write_unit_len(&unit(Some(512), 512)), 512);
    assert_eq!(write_unit_len(&unit(Some(4096), 512)), 4096);
    assert_eq!(write_unit_len(&unit(None, 4096)), 4096);
    assert_eq!(write_unit_len(&unit(Some(1), 1)), 512);
    assert_eq!(choose(&unit(Some(16384), 512), false).kind, DeviceKind::File);
}

#[test]
fn the_unit_is_what_the_drive_writes_at_once() {
    let unit = |physical_block_len| {
        let block_device = Some(BlockDevice { physical_block_len, ..disk() });
        PathProbe { block_device, ..good() }
    };
    assert_eq!(write_unit_len(&unit(Some(512))), 512);
    assert_eq!(write_unit_len(&unit(Some(4096))), 4096);
    assert_eq!(choose(&unit(Some(4096)), false).kind, DeviceKind::Block);
    // Unknown: the safe choice.
    assert_eq!(write_unit_len(&unit(None)), 4096);
    assert_eq!(choose(&unit(Some(16384)), false).kind, DeviceKind::File);
}

#[test]
fn a_place_where_writes_straddle_physical_blocks_is_warned_of() {
    let drive = |alignment_offset_bytes| {
        Some(BlockDevice { physical_block_len: Some(4096), alignment_offset_bytes, ..disk() })
    };
    for block_device in [drive(Some(512)), drive(Some(-1))] {
        let probe = PathProbe { block_device, ..good() };
        assert_eq!(choose(&probe, false).kind, DeviceKind::File);
        assert!(warnings(&probe)[0].contains("align the partition"), "{:?}", warnings(&probe));
    }
    let small_blocks = PathProbe { block_device: drive(Some(0)), file_block_len_bytes: 1024, ..good() };
    assert_eq!(choose(&small_blocks, false).kind, DeviceKind::File);
    assert!(warnings(&small_blocks)[0].contains("have 1024 bytes"), "{:?}", warnings(&small_blocks));
    let fine = PathProbe { block_device: drive(Some(0)), ..good() };
    assert_eq!(warnings(&fine), Vec::<String>::new());
}

#[test]
fn what_an_operator_should_know_is_said() {
    let warned = |device: BlockDevice, word: &str| {
        let warnings = warnings(&PathProbe { block_device: Some(device), ..good() });
        assert!(warnings.len() == 1 && warnings[0].contains(word), "{warnings:?}");
    };
    warned(BlockDevice { write_cache: WriteCache::Back, ..disk() }, "power-loss protection");
    warned(BlockDevice { write_cache: WriteCache::Unknown, ..disk() }, "does not say");
    warned(BlockDevice { is_rotational: Some(true), model: Some("M".into()), ..disk() }, "rotating");
    warned(BlockDevice { layer: DeviceLayer::Ram, ..disk() }, "memory");
    warned(BlockDevice { layer: DeviceLayer::Loop { backing_file: None }, ..disk() }, "loop");
    let nowhere = PathProbe { block_device: None, ..good() };
    assert_eq!(warnings(&nowhere).len(), 1);
}

#[test]
fn what_is_chosen_for_a_real_place_can_be_opened_there() {
    let dir = tempfile::tempdir().unwrap();
    let found = probe(dir.path()).unwrap();
    assert!(write_unit_len(&found).is_power_of_two());
    let device: Box<dyn LogDevice> = match choose(&found, false).kind {
        DeviceKind::Block => {
            let write_unit_bytes = write_unit_len(&found) as usize;
            let options = BlockLogOptions { write_unit_bytes, ..BlockLogOptions::default() };
            Box::new(BlockLogDevice::open(dir.path(), options).unwrap())
        }
        _ => Box::new(FileLogDevice::open(dir.path(), SegmentOptions::default()).unwrap()),
    };
    device.append(b"abc").unwrap();
    assert_eq!(device.sync().unwrap(), Seq(3));
}

#[test]
fn memory_gets_a_file_device() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let found = probe(dir.path()).unwrap();
    assert_eq!(choose(&found, false).kind, DeviceKind::File);
    assert_eq!(choose(&found, true).kind, if HAS_PMEM { DeviceKind::Pmem } else { DeviceKind::File });
    assert_eq!(warnings(&found).len(), 1);
}
