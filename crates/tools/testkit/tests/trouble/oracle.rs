//! The redo oracle in small: a seeded sample of random histories against stock recovery, every cut of a short one,
//! and defects planted in the replay, each of which must be found.
//!
//! `make soak` runs the same with a million statements.

#![allow(clippy::unwrap_used)] // A test fails by panicking.

use std::os::unix::fs::FileExt;
use std::path::Path;

use redoubt_harness::fetched::find_or_skip;
use redoubt_page::doublewrite::{TRX_SYS_PAGE_NO, copies, locate};
use redoubt_page::encryption::key_version;
use redoubt_page::layout::{page_id, page_lsn};
use redoubt_page::{RecordKind, flags_of_page0, verify};
use redoubt_redo::PageId;
use redoubt_redo::mariadb::{RecordReader, varint};
use redoubt_redo_oracle::base::Base;
use redoubt_redo_oracle::campaign::{Kind, Plan, run};
use redoubt_redo_oracle::check::{Checked, check_cut, check_whole, every_cut, random_cuts};
use redoubt_redo_oracle::compare::compare;
use redoubt_redo_oracle::generator::Config;
use redoubt_redo_oracle::history::{KilledState, Recorded, Setup, Workshop};
use redoubt_redo_oracle::recovery::{Crash, Outcome, next_directory, recover};
use redoubt_redo_oracle::redo::{MtrIndex, Redo, RunIndex};
use redoubt_redo_oracle::refused::refused_by_both;
use redoubt_redo_oracle::replay::{Defect, replay};
use redoubt_redo_oracle::{mysql, node_path, shrink};
use redoubt_workload::product::FetchedServer;

const PLAIN: Setup =
    Setup { page_size_bytes: 16384, full_crc32: true, pool_mib: 64, encrypted: false, server: None };

fn short_history(workshop: &Workshop, seed: u64, statements: usize, large_undo: bool) -> Recorded {
    let config = Config { seed, page_size_bytes: PLAIN.page_size_bytes, large_undo };
    let (recorded, _) = workshop.random(PLAIN, config, statements).unwrap();
    assert!(recorded.crash.is_none(), "{:?}", recorded.crash);
    recorded
}

/// A sample over page sizes and all statement classes; about a million statements run in `make soak`.
#[test]
fn random_histories_recover_as_the_stock_server_recovers_them() {
    let plan = Plan { cuts_each: 5, node_every: 2, threads: 2, ..Plan::random(1, 2000, 250) };
    let summary = run(&plan).unwrap();
    println!("{}", summary.json());
    assert!(summary.is_sound(), "{:?}\n{}", summary.failures, summary.checked.refusal);
    let never = summary.tally.never();
    assert!(never.is_empty(), "classes that never succeeded: {never:?}");
    assert_eq!(summary.page_sizes.len(), 5, "{:?}", summary.page_sizes);
    assert!(summary.checked.report.touched > 10_000, "{:?}", summary.checked.report);
    assert!(summary.checked.cuts > 30, "{:?}", summary.checked);
    assert!(summary.node.exported > 5_000, "{:?}", summary.node);
    assert!(summary.tally.succeeded() * 10 > summary.tally.tried() * 7, "{:?}", summary.tally);
}

/// The server encrypts all its tablespaces, the system tablespace included. The test compares the pages in clear, as
/// the node holds them.
#[test]
fn redo_of_encrypted_tables_makes_their_pages_in_clear() {
    let plan =
        Plan { encrypted: true, cuts_each: 3, node_every: 2, threads: 2, ..Plan::random(31, 1000, 250) };
    let summary = run(&plan).unwrap();
    println!("{}", summary.json());
    assert!(summary.is_sound(), "{:?}\n{}", summary.failures, summary.checked.refusal);
    assert!(summary.checked.encrypted_pages > 5_000, "{:?}", summary.checked);
    assert!(summary.checked.report.touched > 5_000, "{:?}", summary.checked.report);
    assert!(summary.node.exported > 2_000, "{:?}", summary.node);
}

/// Loads that other tests use, too.
#[test]
fn loads_recover_as_the_stock_server_recovers_them() {
    for kind in [Kind::Sysbench, Kind::Tpcc] {
        let plan = Plan { kind, cuts_each: 3, node_every: 1, ..Plan::random(3, 1500, 1500) };
        let summary = run(&plan).unwrap();
        assert!(summary.is_sound(), "{kind:?} {:?}\n{}", summary.failures, summary.checked.refusal);
        assert!(summary.checked.report.touched > 200, "{kind:?} {:?}", summary.checked);
        assert_eq!(summary.node.histories, 2, "as a stream, and as an import of what the kill left");
    }
}

/// A record that names a place outside the page, as a server with a defect might log it: its recovery and our replay
/// refuse it, and the oracle says that both do. A sound history has no such record.
#[test]
fn a_record_that_nobody_applies_is_no_difference() {
    let workshop = Workshop::new(None).unwrap();
    let mut recorded = short_history(&workshop, 9, 60, false);
    assert_eq!(refused_by_both(&workshop, &recorded).unwrap(), None);
    let (bytes, page) = recorded
        .redo
        .mtrs
        .iter()
        .rev()
        .find_map(|mtr| {
            recorded.redo.runs[mtr.runs.clone()].iter().find_map(|run| misplaced(&recorded, mtr, run))
        })
        .unwrap();
    recorded.redo = Redo::from_bytes(bytes, recorded.redo.start_lsn).unwrap();
    let refusal = refused_by_both(&workshop, &recorded).unwrap().unwrap();
    assert_eq!(refusal.page, page);
    assert!(refusal.what.contains("INSERT_HEAP_DYNAMIC"), "{refusal:?}");
}

/// The redo with the first record of a run, if it is an insertion with a place of two bytes, at the last place that has
/// two bytes, which is on no page of 16 KiB.
fn misplaced(recorded: &Recorded, mtr: &MtrIndex, run: &RunIndex) -> Option<(Vec<u8>, PageId)> {
    const INSERT_HEAP_DYNAMIC: u8 = 6;
    let redo = &recorded.redo;
    let mut bytes = redo.bytes.clone();
    let record = redo.run_bytes(run);
    let mut at = 1;
    let number = |at: &mut usize| {
        let (value, len_bytes) = varint::decode(record.get(*at..)?).ok()?;
        *at += len_bytes;
        Some((value, len_bytes))
    };
    if record.first()? & 0x0f == 0 {
        number(&mut at)?;
    }
    number(&mut at)?;
    number(&mut at)?;
    if record.first()? & 0xf0 != 0x20 || *record.get(at)? != INSERT_HEAP_DYNAMIC {
        return None;
    }
    at += 1;
    let place = run.bytes.start + at;
    if number(&mut at)?.1 != 2 {
        return None;
    }
    bytes[place..place + 2].copy_from_slice(&[0xbf, 0xff]);
    let [start, end] = [mtr.start_lsn, mtr.end_lsn].map(|lsn| (lsn.0 - redo.start_lsn.0) as usize);
    let sum = crc32c::crc32c(&bytes[start..end - 5]);
    bytes[end - 4..end].copy_from_slice(&sum.to_be_bytes());
    Some((bytes, run.page))
}

/// At the end of a mini-transaction and inside it, with zeros or garbage after it.
#[test]
fn cuts_of_a_short_history() {
    let workshop = Workshop::new(None).unwrap();
    let recorded = short_history(&workshop, 5, 25, false);
    let cuts = every_cut(&recorded, 5);
    // As many as there is time for; `redoubt-testkit oracle cuts` does all of them.
    let every = (cuts.len() / 30).max(1) | 1;
    let mut checked = Checked::default();
    for cut in cuts.into_iter().step_by(every) {
        checked.add(&check_cut(&workshop, &recorded, cut, None).unwrap());
    }
    assert!(checked.is_sound(), "{:?}\n{}", checked.report.differences, checked.refusal);
    assert!(checked.cuts >= 30 && checked.cuts_inside >= 10, "{checked:?}");
}

/// One recovery, and a replay with each defect against it.
#[test]
fn planted_defects_are_found() {
    let workshop = Workshop::new(None).unwrap();
    let recorded = short_history(&workshop, 11, 350, false);
    let (base, redo) = (&recorded.base, &recorded.redo);
    let directory = next_directory(workshop.path());
    let options = PLAIN.recovery(false).unwrap();
    let sound = replay(base, redo, redo.end_lsn, None).unwrap();
    let crash = Crash::new(base, redo, &sound, redo.end_lsn, true);
    let Outcome::Recovered(theirs) = recover(&crash, &directory, &options).unwrap() else {
        panic!("the server refused the history")
    };
    assert_eq!(compare(base, redo, &sound, &theirs.files).unwrap().differing, 0);
    let kinds = [
        RecordKind::InitPage,
        RecordKind::Write,
        RecordKind::Memset,
        RecordKind::Memmove,
        RecordKind::InitRowFormatRedundant,
        RecordKind::InitRowFormatDynamic,
        RecordKind::UndoInit,
        RecordKind::UndoAppend,
        RecordKind::InsertHeapRedundant,
        RecordKind::InsertReuseRedundant,
        RecordKind::InsertHeapDynamic,
        RecordKind::InsertReuseDynamic,
        RecordKind::DeleteRowFormatRedundant,
        RecordKind::DeleteRowFormatDynamic,
    ];
    let defects = kinds
        .into_iter()
        .map(Defect::SkipKind)
        .chain(
            [RecordKind::Write, RecordKind::InsertHeapDynamic, RecordKind::UndoAppend].map(Defect::OffByOne),
        )
        .chain([Defect::LoseLast, Defect::KeepPageLsn, Defect::IgnoreRename]);
    for defect in defects {
        let found = match replay(base, redo, redo.end_lsn, Some(defect)) {
            Ok(wrong) => compare(base, redo, &wrong, &theirs.files).unwrap().differing > 0,
            // A page that lost records may be refused, which is found, too.
            Err(_) => true,
        };
        assert!(found, "{defect:?} was not found");
    }
}

/// The recovered end of the log is part of the comparison: a cut elsewhere must show.
#[test]
fn another_end_of_the_redo_is_found() {
    let workshop = Workshop::new(None).unwrap();
    let recorded = short_history(&workshop, 12, 40, false);
    let cut = random_cuts(&recorded, 1, 3)[0];
    assert!(check_cut(&workshop, &recorded, cut, None).unwrap().is_sound());
    assert!(!check_cut(&workshop, &recorded, cut, Some(Defect::LoseLast)).unwrap().is_sound());
}

/// A failing script comes back from its file, fails again, and becomes smaller.
#[test]
fn a_failing_script_is_written_read_and_shrunk() {
    let workshop = Workshop::new(None).unwrap();
    let config = Config { seed: 4, page_size_bytes: PLAIN.page_size_bytes, large_undo: false };
    let (recorded, script) = workshop.random(PLAIN, config, 12).unwrap();
    node_path::pass(&workshop, &recorded).unwrap();
    let path = workshop.path().join("script");
    shrink::write(&script, &path).unwrap();
    let script = shrink::read(&path).unwrap();
    let defect = Some(Defect::OffByOne(RecordKind::UndoAppend));
    assert!(!shrink::fails(&workshop, &script, None).unwrap());
    let small = shrink::shrink(&workshop, &script, defect, 3).unwrap();
    assert!(small.statements.len() < script.statements.len());
    assert!(shrink::fails(&workshop, &small, defect).unwrap());
}

/// A kill ends a write of several blocks after any of them. Stock recovery takes such a page from the doublewrite area.
#[test]
fn a_page_that_a_kill_tore_is_read_from_the_doublewrite_area() {
    let workshop = Workshop::new(None).unwrap();
    let recorded = short_history(&workshop, 11, 350, false);
    let whole = Base::read_killed(&recorded.killed).unwrap();
    let spaces = whole.spaces().unwrap();
    let system_file = std::fs::read(recorded.killed.join("ibdata1")).unwrap();
    let system_flags = flags_of_page0(&system_file).unwrap();
    // Pages that were written from their copy, and not again since.
    let torn = copies(&system_file, system_flags).find_map(|copy| {
        let id = page_id(copy)?;
        let space = spaces.get(&id.space).filter(|space| id.space.0 > 0 && space.flags == system_flags)?;
        let page = whole.page(&space.path, id.page_no.0, copy.len())?;
        (page == copy && id.page_no.0 > 0).then_some((space.path.clone(), id.page_no.0, copy.to_vec()))
    });
    let (path, page_no, copy) = torn.expect("a page with a copy in the doublewrite area");

    let file = std::fs::File::options().write(true).open(recorded.killed.join(&path)).unwrap();
    let (half, page_at) = (copy.len() / 2, u64::from(page_no) * copy.len() as u64);
    file.write_all_at(&vec![0x5a; half], page_at + half as u64).unwrap();
    let mended = Base::read_killed(&recorded.killed).unwrap();
    assert_eq!(mended.page(&path, page_no, copy.len()), Some(copy.as_slice()), "page {page_no} of {path}");
}

/// Encrypted pages of `full_crc32` do not show their tablespace. Stock recovery reads a torn one from the doublewrite
/// area and leaves its file as it is.
#[test]
fn torn_encrypted_page_stays_torn_in_its_file() {
    let workshop = Workshop::new(None).unwrap();
    let setup = Setup { encrypted: true, pool_mib: 8, ..PLAIN };
    let config = Config { seed: 11, page_size_bytes: setup.page_size_bytes, large_undo: false };
    let (recorded, _) = workshop.random(setup, config, 350).unwrap();
    assert!(recorded.crash.is_none(), "{:?}", recorded.crash);
    let killed = recorded.killed_state().unwrap();
    let already_torn = killed.torn.len() as u64;
    let size = setup.page_size_bytes as usize;
    let (path, page_no, page) = written_and_encrypted(&recorded, &killed).expect("an encrypted page");
    let system_path = recorded.killed.join("ibdata1");
    let system_file = std::fs::read(&system_path).unwrap();
    let system_flags = flags_of_page0(&system_file).unwrap();
    let trx_sys = system_file.chunks_exact(size).nth(TRX_SYS_PAGE_NO as usize).unwrap();
    let first = locate(trx_sys, system_flags).unwrap().unwrap().block_1_page_no as usize;
    // Not over the copy of a page that the kill tore.
    let needed: Vec<_> = killed.torn.iter().map(|(_, page_no)| *page_no).collect();
    let is_needed = |copy: &[u8]| page_id(copy).is_some_and(|id| needed.contains(&id.page_no.0));
    let slot = system_file.chunks_exact(size).skip(first).position(|copy| !is_needed(copy)).unwrap();
    let write = |path: &Path, page_no: usize, bytes: &[u8]| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(bytes, (page_no * size) as u64).unwrap();
    };
    write(&system_path, first + slot, &page);
    let file = recorded.killed.join(&path);
    let half_written = [&page[..size / 2], &[0x5a].repeat(size / 2)].concat();
    write(&file, page_no as usize, &half_written);

    let torn = recorded.killed_state().unwrap().torn;
    assert!(torn.contains(&(path.clone(), page_no)), "page {page_no} of {path}: {torn:?}");
    let checked = check_whole(&workshop, &recorded, None).unwrap();
    assert!(checked.is_sound(), "{:?}\n{}", checked.report.differences, checked.refusal);
    assert_eq!((checked.from_killed, checked.report.torn), (1, already_torn + 1), "page {page_no} of {path}");
    let left = std::fs::read(&file).unwrap();
    assert!(left.chunks_exact(size).nth(page_no as usize) == Some(&half_written), "page {page_no} of {path}");
}

/// A page that recovery reads and does not change: encrypted, in the redo, and in its file as of its last change.
fn written_and_encrypted(recorded: &Recorded, killed: &KilledState) -> Option<(String, u32, Vec<u8>)> {
    let (base, redo) = (&killed.base, &killed.redo);
    let changed = replay(base, redo, redo.end_lsn, None).unwrap().pages;
    let is_read = |id: PageId, image: &[u8]| {
        let Some(page) = changed.get(&id).filter(|page| !page.freed) else { return false };
        let inits =
            page.runs.iter().flat_map(|(_, _, run)| RecordReader::new(redo.run_bytes(&redo.runs[*run])));
        let mut kinds = inits.map(|record| RecordKind::of(&record.unwrap().body));
        page_lsn(image) == page.runs.last().map(|(_, end_lsn, _)| *end_lsn)
            && kinds.all(|kind| !matches!(kind, RecordKind::InitPage | RecordKind::FreePage))
    };
    base.spaces().unwrap().iter().filter(|(space, _)| space.0 > 0).find_map(|(space, at)| {
        let bytes = std::fs::read(recorded.killed.join(&at.path)).unwrap();
        let pages = (0..).zip(bytes.chunks_exact(at.flags.physical_page_size_bytes()));
        let found = pages.map(|(page_no, page)| (PageId::new(space.0, page_no), page)).find(|(id, page)| {
            let is_whole = verify(page, at.flags).is_ok() && !at.flags.is_row_format_compressed();
            is_whole && key_version(page, *id, at.flags) > 0 && is_read(*id, page)
        });
        found.map(|(id, page)| (at.path.clone(), id.page_no.0, page.to_vec()))
    })
}

/// Crashes of MySQL in the middle of statements, with undo tablespaces that are truncated and without.
#[test]
fn crashes_of_mysql_recover_on_a_volume_as_the_stock_server_recovers_them() {
    let test = "crashes_of_mysql_recover_on_a_volume_as_the_stock_server_recovers_them";
    if find_or_skip(FetchedServer::MySql97, test).is_none() {
        return;
    }
    let failures = tempfile::tempdir().unwrap();
    let plan = mysql::Plan {
        seed: 2,
        statements: 500,
        statements_each: 250,
        crashes_each: 4,
        page_size_bytes: None,
        threads: 2,
        budget: None,
        scratch: None,
        failures: failures.path().to_owned(),
    };
    let summary = mysql::run(&plan, &|line| println!("{line}")).unwrap();
    println!("{}", summary.json());
    assert!(summary.is_sound(), "{:?}\n{}", summary.failures, summary.checked.refusal);
    // In so few statements some classes do not come up.
    let refused: Vec<_> = summary.never().into_iter().filter(|(_, why)| why != "never generated").collect();
    assert_eq!(refused, [], "classes that never succeeded");
    let checked = &summary.checked;
    assert_eq!(checked.crashes + checked.without_undo, 8);
    assert!(checked.cuts > 0 && checked.touched > 500 && checked.tables > 80, "{checked:?}");
}
