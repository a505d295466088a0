//! The order of the methods is that of the reference; loads write what their description says.

use std::collections::BTreeMap;

use super::*;
use crate::ftl::GcDestination;
use crate::simulate::{self, Outcome, Settings};

/// A quarter of the reference's drive, with superblocks of a quarter.
const LOGICAL_BLOCKS: u32 = 1 << 19;

fn outcome(reference: &Reference, op_percent: f64) -> Outcome {
    let shape = Shape::reference(LOGICAL_BLOCKS, reference.journal_mib);
    let settings = Settings {
        logical_blocks: LOGICAL_BLOCKS,
        superblock_blocks: 1024,
        over_provisioning_percent: op_percent,
        utilisation_percent: 90.0,
        gc: GcDestination::Shared,
        policy: reference.policy,
        coalesce_small: true,
        warm_up_drive_writes: 2.0,
        measured_drive_writes: 2.0,
    };
    simulate::run(Synthetic::new(shape, reference.method, 1).unwrap(), &settings, &mut |_| ()).unwrap()
}

/// Labels in the order of a figure.
fn order(figures: &[(&'static str, f64)]) -> Vec<&'static str> {
    let mut figures = figures.to_vec();
    figures.sort_by(|one, other| one.1.total_cmp(&other.1));
    figures.into_iter().map(|(label, _)| label).collect()
}

#[test]
fn bytes_programmed_per_page_byte_order_the_methods_as_in_the_reference() {
    for (column, op_percent) in REFERENCE_OP_PERCENT.into_iter().enumerate() {
        let (mut model, mut reference, mut all) = (Vec::new(), Vec::new(), BTreeMap::new());
        for row in REFERENCE {
            let Some(expected) = row.nand_per_page_byte[column] else { continue };
            let outcome = outcome(&row, op_percent);
            let nand = outcome.nand_bytes_per_page_byte.unwrap();
            // A large journal in one stream with the pages: the turns of the journal and of garbage collection beat
            // against each other, and write amplification swings by 15 % over several drive writes.
            let swings = row.label == "data journal 1 GiB, one stream";
            let tolerance = if swings { 0.12 } else { 0.06 };
            assert!((nand / expected - 1.0).abs() < tolerance, "{op_percent} %, {}: {nand}", row.label);
            all.insert(row.label, nand);
            // Nor is there an order to insist on between atomic with and without redo apart: 2 % at 10 %.
            if !swings && row.label != "atomic, redo apart" {
                model.push((row.label, nand));
                reference.push((row.label, expected));
            }
        }
        assert_eq!(order(&model), order(&reference), "{model:?}");
        if let Some(one_stream) = all.get("data journal 1 GiB, one stream") {
            assert!(all["data journal 1 GiB, own stream"] < *one_stream);
            assert!(*one_stream < all["data journal 128 MB, own stream"]);
        }
    }
}

#[test]
fn loads_write_what_they_say() {
    let shape = Shape::reference(LOGICAL_BLOCKS, 128);
    for method in [Method::Atomic, Method::Doublewrite, Method::DataJournal] {
        let mut load = Synthetic::new(shape, method, 3).unwrap();
        let mut blocks = BTreeMap::new();
        let mut highest = 0;
        let lap = load.lap(&mut |step| {
            *blocks.entry(step.origin).or_insert(0u64) += u64::from(step.sectors) / 8;
            highest = highest.max(step.sector + u64::from(step.sectors));
        });
        let pages = u64::from(shape.lap_pages);
        assert_eq!(lap.pages, pages);
        assert!(highest <= u64::from(shape.used_blocks) * 8);
        assert_eq!(blocks[&Origin::Redo], (pages as f64 * 4.0 * REDO_SHARE) as u64);
        let home = blocks[&Origin::Data];
        match method {
            Method::Atomic => assert_eq!(home, pages * 4),
            Method::Doublewrite => {
                assert_eq!((home, blocks[&Origin::Doublewrite]), (pages * 4, pages * 4));
            }
            Method::DataJournal => {
                assert_eq!(blocks[&Origin::Journal], pages * 4);
                // Hot pages come together on their way home.
                assert!(home < pages * 4 * 9 / 10 && home > pages, "{home}");
            }
        }
        let mut filled = vec![0u8; shape.used_blocks as usize + 100];
        load.fill(100, &mut |block, _| filled[block as usize] += 1);
        assert!(filled.iter().all(|times| *times == 1));
    }
}

#[test]
fn impossible_shapes_are_refused() {
    let shape = Shape::reference(LOGICAL_BLOCKS, 128);
    for bad in [
        Shape { used_blocks: 10, ..shape },
        Shape { redo_blocks: 0, ..shape },
        Shape { journal_blocks: 4, ..shape },
        Shape { used_blocks: 0, ..shape },
        Shape { journal_blocks: u32::MAX, ..shape },
        Shape { skew: 1.0, ..shape },
        Shape { skew: f64::NAN, ..shape },
    ] {
        assert!(Synthetic::new(bad, Method::DataJournal, 1).is_err(), "{bad:?}");
    }
}
