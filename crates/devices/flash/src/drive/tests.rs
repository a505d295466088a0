//! Parts of blocks, the write buffer, trims.

use super::*;
use crate::ftl::{GcDestination, Victims};

fn drive(coalesce: bool) -> Drive {
    let geometry = Geometry {
        logical_blocks: 4096,
        superblock_blocks: 64,
        over_provisioning_percent: 20.0,
        host_streams: 2,
        gc: GcDestination::Shared,
        victims: Victims::Greedy,
    };
    Drive::new(&geometry, [0, 1, 0, 0, 0, 0, 0], coalesce).unwrap()
}

fn write(sector: u64, sectors: u32, origin: Origin) -> Step {
    Step { sector, sectors, trim: false, origin }
}

fn redo(sector: u64, sectors: u32) -> Step {
    write(sector, sectors, Origin::Redo)
}

#[test]
fn whole_blocks_are_programmed_once() {
    for coalesce in [false, true] {
        let mut drive = drive(coalesce);
        drive.apply(&write(16, 32, Origin::Data));
        let totals = drive.totals();
        assert_eq!(totals.counters.host[..2], [4, 0]);
        assert_eq!(totals.host_bytes[Origin::Data as usize], 16384);
        assert_eq!((totals.nand_bytes(), totals.waf()), (16384, 1.0));
    }
}

#[test]
fn without_the_buffer_each_part_programs_its_block() {
    let mut drive = drive(false);
    (0..16).for_each(|sector| drive.apply(&redo(sector, 1)));
    // Seven sectors over the border of two blocks: two blocks.
    drive.apply(&redo(4, 7));
    let totals = drive.totals();
    assert_eq!(totals.counters.host[..2], [0, 18]);
    assert_eq!(totals.all_host_bytes(), 23 * 512);
}

#[test]
fn with_the_buffer_parts_of_a_block_come_together() {
    let mut drive = drive(true);
    let blocks = 100;
    (0..blocks * 8).for_each(|sector| drive.apply(&redo(sector, 1)));
    // The last ones are still in the buffer.
    assert_eq!(drive.totals().counters.host[..2], [0, blocks - BUFFER_BLOCKS as u64]);
    assert_eq!(drive.totals().all_host_bytes(), blocks * 4096);
}

#[test]
fn the_buffer_outlasts_other_writes_but_not_too_many_parts() {
    let mut drive = drive(true);
    drive.apply(&redo(800, 1));
    drive.apply(&write(1600, 320, Origin::Data));
    drive.apply(&redo(801, 1));
    assert_eq!(drive.totals().counters.host[..2], [40, 0]);
    for block in 0..BUFFER_BLOCKS as u64 {
        drive.apply(&write(8 * block, 3, Origin::Metadata));
    }
    // The one that left was the redo block, the longest untouched.
    assert_eq!(drive.totals().counters.host[..2], [40, 1]);
    drive.apply(&redo(802, 1));
    assert_eq!(drive.totals().counters.host[..2], [41, 1]);
}

#[test]
fn a_whole_write_or_a_trim_replaces_what_was_buffered() {
    let mut drive = drive(true);
    drive.apply(&redo(0, 1));
    drive.apply(&redo(8, 1));
    drive.apply(&write(0, 8, Origin::Data));
    drive.apply(&Step { trim: true, ..redo(8, 8) });
    assert!(drive.buffer.is_empty());
    assert_eq!(drive.totals().counters.host[..2], [1, 0]);
}

#[test]
fn a_trim_unmaps_only_the_blocks_that_it_covers() {
    let mut drive = drive(true);
    drive.apply(&write(0, 64, Origin::Data));
    drive.apply(&Step { trim: true, ..write(4, 24, Origin::Data) });
    assert_eq!(drive.ftl().mapped_blocks(), 8 - 2);
    drive.apply(&Step { trim: true, ..write(1, 6, Origin::Data) });
    assert_eq!(drive.ftl().mapped_blocks(), 8 - 2);
    drive.ftl().check().unwrap();
}
