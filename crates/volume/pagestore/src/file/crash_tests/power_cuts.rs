//! The power is cut at every operation of a history, and then at random ones of several lives after that.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::planted::{self, Bug};
use super::*;

/// Settings that may differ from one life to the next.
#[derive(Clone, Copy)]
enum Changes {
    None,
    /// The mode, the journal's length and its place.
    Setup,
}

/// The power is cut at operation `cut` of a history, then in each of three more lives; returns how many operations
/// the history has, if the cut came after it.
fn run_lives(setup: Setup, changes: Changes, seed: u64, cut: u64) -> Option<u64> {
    let mut setup = setup;
    let mut disk = setup.disk(seed + cut * 1000);
    disk.cut_power_at(cut);
    let mut model = Model::default();
    let mut rng = Rng::with_seed(seed);
    let done = setup.open(&disk).and_then(|store| run_history(&store, &mut model, &mut rng, 24));
    let ops = (done.is_ok() && !disk.is_off()).then(|| disk.ops_done());
    assert!(ops.is_some() || disk.is_off(), "{setup:?}, seed {seed}, cut at {cut}: {done:?}");
    for life in 0..4 {
        // Now and then only the process dies, and the system keeps what it wrote.
        disk = if rng.u8(..4) == 0 { disk.copy() } else { disk.after_power_cut() };
        if let Changes::Setup = changes {
            setup.mode = *rng.choice(&MODES).unwrap();
            setup.journal_len_bytes = MIN_JOURNAL_LEN + rng.u64(..3) * 45056;
            setup.is_apart |= rng.u8(..4) == 0;
        }
        let context = format!("{setup:?}, seed {seed}, cut at {cut}, life {life}");
        if life < 3 {
            disk.cut_power_at(rng.u64(..40));
        }
        match setup.open(&disk) {
            Ok(store) => {
                if sync_objects(&store).is_err() {
                    assert!(disk.is_off(), "{context}");
                    continue;
                }
                model.check(&store, &context);
                let done = run_history(&store, &mut model, &mut rng, 5);
                assert!(done.is_ok() || disk.is_off(), "{context}: {done:?}");
            }
            Err(error) => assert!(disk.is_off(), "{context}: {error}"),
        }
    }
    // A last opening brings everything home, where it is the tablespace file byte for byte.
    let disk = disk.after_power_cut();
    let context = format!("{setup:?}, seed {seed}, cut at {cut}, at the end");
    let store = Setup { mode: PageProtection::Doublewrite, ..setup }.open(&disk).unwrap();
    model.check(&store, &context);
    model.check_files(&disk, &context);
    ops
}

/// Cuts the power at each operation of the history of each seed; returns how many cuts that were.
fn cut_everywhere(setup: Setup, changes: Changes, seeds: std::ops::Range<u64>) -> u64 {
    let mut cuts = 0;
    for seed in seeds {
        let mut ops = u64::MAX;
        let mut cut = 0;
        while cut < ops {
            ops = run_lives(setup, changes, seed, cut).unwrap_or(ops);
            cut += 1;
        }
        cuts += cut;
    }
    println!("{setup:?}: {cuts} cut points, each with 3 more lives");
    cuts
}

fn cut_in_mode(mode: PageProtection) {
    for sector_len in [512, 4096] {
        let setup = Setup::new(mode, sector_len);
        assert!(cut_everywhere(setup, Changes::None, seeds(0, 16)) > 700);
    }
}

#[test]
fn no_power_cut_tears_loses_or_brings_back_pages_in_mode_journal() {
    cut_in_mode(PageProtection::Journal);
}

#[test]
fn no_power_cut_tears_loses_or_brings_back_pages_in_mode_doublewrite() {
    cut_in_mode(PageProtection::Doublewrite);
}

#[test]
fn no_power_cut_tears_loses_or_brings_back_pages_in_mode_atomic() {
    cut_in_mode(PageProtection::Atomic);
    // Pages shorter than an untorn write.
    let short = Setup { untorn_len: 4096, ..Setup::new(PageProtection::Atomic, 512) };
    assert!(cut_everywhere(short, Changes::None, seeds(0, 8)) > 500);
}

#[test]
fn no_power_cut_matters_while_files_are_closed_and_opened() {
    for mode in MODES {
        for open_files in [1, 2] {
            let setup = Setup { open_files: Some(open_files), ..Setup::new(mode, 512) };
            assert!(cut_everywhere(setup, Changes::None, seeds(2000, 8)) > 300);
        }
        let setup = Setup { open_files: Some(1), ..Setup::new(mode, 4096) };
        assert!(cut_everywhere(setup, Changes::Setup, seeds(3000, 8)) > 300);
    }
}

#[test]
fn no_power_cut_matters_while_mode_length_and_place_of_the_journal_change() {
    for setup in Setup::all() {
        assert!(cut_everywhere(setup, Changes::Setup, seeds(1000, 8)) > 300);
    }
}

#[test]
fn a_journal_that_only_memory_holds_is_not_taken_from_there() {
    for setup in Setup::all() {
        for seed in 0..12 {
            // The process dies between writing the journal and syncing it, or while it writes home.
            let disk = setup.disk(seed);
            let store = setup.prepared(&disk);
            disk.cut_power_at(disk.ops_done() + 1 + seed % 3);
            let _ = write_versions(&store, 12, 2);
            // Opening is cut at each operation in turn, and then done once more.
            for cut in 0..20 {
                let disk = disk.copy();
                disk.cut_power_at(cut);
                let _ = setup.open(&disk);
                assert!(
                    versions(&setup.open(&disk.after_power_cut()).unwrap())[..8].iter().all(|&it| it > 0)
                );
            }
        }
    }
}

#[test]
fn histories_find_planted_bugs() {
    let in_journal = |sector_len| Setup::new(PageProtection::Journal, sector_len);
    for bug in [Bug::TailBeforeHome, Bug::ImagesNotChecked, Bug::NothingForgotten] {
        planted::plant(Some(bug));
        let found = catch_unwind(AssertUnwindSafe(|| {
            cut_everywhere(in_journal(512), Changes::None, 0..16);
            cut_everywhere(in_journal(4096), Changes::None, 0..16);
        }));
        planted::plant(None);
        assert!(found.is_err(), "{bug:?} was not found");
    }
}
