//! The drive against a plain map, its invariants under random work, and its refusals.

use std::collections::BTreeSet;

use super::*;

fn geometry(host_streams: u8, gc: GcDestination) -> Geometry {
    Geometry {
        logical_blocks: 64 * 64,
        superblock_blocks: 64,
        over_provisioning_percent: 35.0,
        host_streams,
        gc,
        victims: Victims::Greedy,
    }
}

#[test]
fn invariants_hold_under_random_writes_and_trims() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let streams = random.u8(1..=5);
        let gc = if random.bool() { GcDestination::Shared } else { GcDestination::PerStream };
        let mut geometry = geometry(streams, gc);
        if seed % 4 == 3 {
            geometry.victims = Victims::Random { seed };
        }
        let mut ftl = Ftl::new(&geometry).unwrap();
        let mut mapped = BTreeSet::new();
        let (mut writes, mut by_stream) = (0, [0; MAX_STREAMS + 1]);
        for step in 0..60_000 {
            // Now and then whole runs, so that superblocks become wholly invalid and the drive wholly mapped.
            let len = if random.u32(..50) == 0 { 200 } else { 1 };
            let first = random.u32(..geometry.logical_blocks - len + 1);
            let trim = random.u32(..100) < 15;
            let stream = random.u8(..streams);
            let origin = Origin::ALL[random.usize(..7)];
            for block in first..first + len {
                if trim {
                    ftl.trim(block);
                    mapped.remove(&block);
                } else {
                    ftl.write(block, stream, origin);
                    mapped.insert(block);
                    writes += 1;
                    by_stream[usize::from(stream)] += 1;
                }
            }
            if step % 2500 == 0 {
                ftl.check().unwrap();
            }
        }
        ftl.check().unwrap();
        assert_eq!(ftl.mapped_blocks(), mapped.len() as u64);
        for block in 0..geometry.logical_blocks {
            assert_eq!(ftl.l2p[block as usize] != NONE, mapped.contains(&block));
        }
        let counters = ftl.counters();
        assert_eq!(counters.host, by_stream);
        assert_eq!(counters.host_by_origin.iter().sum::<u64>(), writes);
        assert_eq!(counters.gc_by_origin.iter().sum::<u64>(), counters.gc_blocks());
        assert!(counters.gc_blocks() > 0 && counters.erased_superblocks() > 100);
        // Every block programmed is in a superblock that was erased or is still there.
        let there: u64 = ftl.superblocks.iter().filter(|one| one.state == SuperblockState::Closed).count()
            as u64
            * 64
            + ftl.cursors.iter().filter(|&&next| next != NONE).map(|next| u64::from(next % 64)).sum::<u64>();
        assert_eq!(counters.nand_blocks(), counters.erased_superblocks() * 64 + there);
    }
}

#[test]
fn the_check_notices_each_kind_of_damage() {
    let filled = || {
        let mut ftl = Ftl::new(&geometry(2, GcDestination::Shared)).unwrap();
        for block in 0..4096 {
            ftl.write(block, 0, Origin::Data);
        }
        for block in (0..4096).step_by(3) {
            ftl.write(block, 1, Origin::Redo);
        }
        ftl.check().unwrap();
        ftl
    };
    let damages: [fn(&mut Ftl); 7] = [
        |ftl| ftl.l2p.swap(1, 2),
        |ftl| ftl.valid_bits[0] ^= 1 << 1,
        |ftl| ftl.mapped += 1,
        |ftl| ftl.superblocks[3].valid += 1,
        |ftl| ftl.fewest_valid += 1,
        |ftl| ftl.superblocks[3].state = SuperblockState::Open,
        |ftl| ftl.free.push(3),
    ];
    for (number, damage) in damages.iter().enumerate() {
        let mut ftl = filled();
        damage(&mut ftl);
        assert!(ftl.check().is_err(), "damage {number} was not noticed");
    }
}

#[test]
fn sequential_overwrites_copy_nothing() {
    let mut ftl = Ftl::new(&geometry(1, GcDestination::Shared)).unwrap();
    for _ in 0..10 {
        for block in 0..4096 {
            ftl.write(block, 0, Origin::Journal);
        }
    }
    assert_eq!(ftl.counters().gc_blocks(), 0);
    assert!(ftl.counters().erased_superblocks() > 500);
    ftl.check().unwrap();
}

#[test]
fn trimmed_blocks_are_not_copied() {
    let written = |trim: bool| {
        let mut ftl = Ftl::new(&geometry(1, GcDestination::Shared)).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        for block in 0..4096 {
            ftl.write(block, 0, Origin::Data);
        }
        if trim {
            (0..2048).for_each(|block| ftl.trim(block));
        }
        for _ in 0..40_000 {
            ftl.write(random.u32(2048..4096), 0, Origin::Data);
        }
        ftl.counters().gc_blocks()
    };
    assert!(written(true) * 4 < written(false), "{} {}", written(true), written(false));
}

#[test]
fn a_ring_on_its_own_stream_is_erased_whole() {
    // A long ring and random pages: apart, superblocks of the ring are all invalid when their turn comes.
    let run = |stream: u8, gc: GcDestination| {
        let tight = Geometry { over_provisioning_percent: 12.0, ..geometry(2, gc) };
        let mut ftl = Ftl::new(&tight).unwrap();
        let mut random = fastrand::Rng::with_seed(2);
        (0..4096).for_each(|block| ftl.write(block, if block < 2048 { stream } else { 0 }, Origin::Data));
        let before = *ftl.counters();
        for step in 0..100_000u32 {
            ftl.write(step % 2048, stream, Origin::Journal);
            ftl.write(random.u32(2048..4096), 0, Origin::Data);
        }
        ftl.counters().since(&before)
    };
    let one = run(0, GcDestination::Shared);
    for gc in [GcDestination::Shared, GcDestination::PerStream] {
        let apart = run(1, gc);
        assert_eq!(apart.gc_by_origin[Origin::Journal as usize], 0);
        assert!(one.gc_by_origin[Origin::Journal as usize] > 0);
        assert!(apart.gc_blocks() < one.gc_blocks(), "{} {}", apart.gc_blocks(), one.gc_blocks());
        assert_eq!(apart.gc[1], 0);
        assert!(apart.erases[1] > 1000);
        // Writes of the collection are a stream of its own only where it is shared.
        assert_eq!(apart.erases[2] > 0, gc == GcDestination::Shared);
    }
}

#[test]
fn impossible_drives_are_refused() {
    let good = geometry(1, GcDestination::Shared);
    assert!(good.superblocks().is_ok());
    let spare = |geometry: Geometry| matches!(geometry.superblocks(), Err(GeometryError::Spare { .. }));
    assert_eq!(Geometry { superblock_blocks: 96, ..good }.superblocks(), Err(GeometryError::Superblock(96)));
    assert_eq!(Geometry { superblock_blocks: 32, ..good }.superblocks(), Err(GeometryError::Superblock(32)));
    assert_eq!(Geometry { logical_blocks: 63, ..good }.superblocks(), Err(GeometryError::Size(63)));
    assert!(Geometry { logical_blocks: u32::MAX, ..good }.superblocks().is_err());
    for percent in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(Geometry { over_provisioning_percent: percent, ..good }.superblocks().is_err());
    }
    for streams in [0, 9] {
        let refused = Geometry { host_streams: streams, ..good }.superblocks();
        assert_eq!(refused, Err(GeometryError::Streams(streams)));
    }
    let tight = Geometry { over_provisioning_percent: 4.0, ..good };
    assert!(!spare(tight));
    assert!(spare(Geometry { host_streams: 5, ..tight }));
    assert!(spare(Geometry { host_streams: 4, gc: GcDestination::PerStream, ..tight }));
}

#[test]
fn the_tightest_drive_that_is_allowed_never_comes_to_a_stop() {
    for streams in 1..=4 {
        for gc in [GcDestination::Shared, GcDestination::PerStream] {
            let mut geometry = geometry(streams, gc);
            geometry.over_provisioning_percent = 0.01;
            while geometry.superblocks().is_err() {
                geometry.over_provisioning_percent += 0.25;
            }
            let mut ftl = Ftl::new(&geometry).unwrap();
            let mut random = fastrand::Rng::with_seed(u64::from(streams));
            (0..4096).for_each(|block| ftl.write(block, 0, Origin::Data));
            for _ in 0..100_000 {
                ftl.write(random.u32(..4096), random.u8(..streams), Origin::Data);
            }
            ftl.check().unwrap();
        }
    }
}
