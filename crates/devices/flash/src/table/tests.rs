//! Rows from a directory, one drive for all, the order of entries, and rejected input.

use super::*;
use crate::report;
use crate::trace::{Op, Origin, Record, TraceInfo, TraceWriter};

const DEVICE_BLOCKS: u64 = 8192;

/// Random pages of 16 KiB in place and, where asked, once more in a ring before; a transaction for every other page.
fn save(dir: &Path, name: &str, info: TraceInfo, ring: Option<Origin>) {
    let path = dir.join(name);
    let mut random = fastrand::Rng::with_seed(1);
    let mut writer = TraceWriter::create(&path).unwrap();
    let mut write = |block: u64, blocks: u32, op: Op, origin: Origin| {
        writer.write(&Record { time_us: 0, sector: block * 8, sectors: blocks * 8, op, origin }).unwrap();
    };
    for page in 0..12_000u64 {
        if let Some(origin) = ring {
            write(page % 128 * 4, 4, Op::Write, origin);
        }
        write(512 + random.u64(..1600) * 4, 4, Op::Write, Origin::Data);
    }
    writer
        .write(&Record { time_us: 0, sector: 0, sectors: 6000, op: Op::Mark, origin: Origin::Other })
        .unwrap();
    writer.finish().unwrap();
    let device_sectors = DEVICE_BLOCKS * 8;
    let label = name.into();
    TraceInfo { label, device_sectors, page_len_bytes: 16384, pages_written: Some(12_000), ..info }
        .save(&path)
        .unwrap();
}

fn row(name: &str, streams: &[&str]) -> TraceInfo {
    let streams = streams.iter().map(|one| (*one).to_owned()).collect();
    TraceInfo { row: Some(name.into()), streams, ..TraceInfo::default() }
}

fn traces() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), "3-atomic.trace", row("Atomic", &[]), None);
    save(dir.path(), "1-stock.trace", row("Stock", &["one", "doublewrite"]), Some(Origin::Doublewrite));
    let journal = TraceInfo { journal_mb: Some(2), ..row("Journal", &["journal"]) };
    save(dir.path(), "2-journal.trace", journal, Some(Origin::Journal));
    save(dir.path(), "4-no-row.trace", TraceInfo::default(), None);
    std::fs::write(dir.path().join("README"), "not a trace").unwrap();
    dir
}

fn options() -> Options {
    Options {
        logical_size: LogicalSize::Device,
        over_provisioning_percent: vec![12.0, 28.0],
        utilisation_percent: 95.0,
        superblock_blocks: 4096,
        gc: GcDestination::Shared,
        coalesce_small: true,
        warm_up_drive_writes: 2.0,
        measured_drive_writes: 2.0,
        jobs: 2,
    }
}

#[test]
fn a_directory_becomes_a_table_with_plots() {
    let dir = traces();
    let rows = rows_of(dir.path()).unwrap();
    assert_eq!(run_count(&rows, &options()), 8);
    let seen = Mutex::new(vec![0.0; 8]);
    let entries = run(&rows, &options(), &|number, done| seen.lock().unwrap()[number] = done).unwrap();
    assert_eq!(seen.into_inner().unwrap(), [1.0; 8]);
    let names: Vec<_> = entries.iter().take(4).map(ReportedRun::name).collect();
    assert_eq!(
        names,
        [
            "Stock, one stream",
            "Stock, streams: doublewrite",
            "Journal, journal 2 MB, streams: journal",
            "Atomic, one stream"
        ]
    );
    let nand = |entry: &ReportedRun| entry.outcome.nand_bytes_per_transaction.unwrap();
    for op in entries.chunks(4) {
        assert!(op.iter().all(|one| one.outcome.settings.logical_blocks == 8192));
        assert!(op.iter().all(|one| one.outcome.settings.superblock_blocks == 64));
        // No ring is less than a ring. A ring apart need not be less than a ring between the pages here: it is only
        // eight superblocks long, and greedy collection takes the oldest of them before it is wholly overwritten.
        let [one, apart, _, atomic] = [0, 1, 2, 3].map(|index| nand(&op[index]));
        assert!(atomic * 1.2 < apart.min(one) && (apart - one).abs() > 1.0, "{one} {apart} {atomic}");
        // The same ring under another name.
        assert_eq!(op[1].outcome.nand_bytes, op[2].outcome.nand_bytes);
        // Two pages of 16 KiB twice, exactly, per transaction.
        assert_eq!(op[0].outcome.host_bytes_per_transaction, Some(65536.0));
        assert!(op[0].looped.starts_with("trace of 0.37 GiB looped "));
    }
    assert!(nand(&entries[4]) < nand(&entries[0]), "more over-provisioning");

    let markdown = report::markdown(&entries);
    assert!(markdown.contains("Over-provisioning 12 %") && markdown.contains("Over-provisioning 28 %"));
    assert!(markdown.contains("| Stock | - | one |") && markdown.contains("| Journal | 2 | journal |"));
    assert!(markdown.contains("x1.00") && markdown.contains("looped"));
    // Every line of a table has as many cells as its head.
    for table in markdown.split("\n\n").filter(|part| part.starts_with('|')) {
        let cells: Vec<_> = table.lines().map(|line| line.matches('|').count()).collect();
        assert!(cells.len() == 6 && cells.iter().all(|one| *one == cells[0]), "{table}");
    }
    let plots = report::plots(&entries, dir.path()).unwrap();
    assert_eq!(plots.len(), 4);
    for plot in plots {
        assert!(std::fs::read_to_string(plot).unwrap().contains("Stock, streams: doublewrite"));
    }
    let path = dir.path().join("table.json");
    report::json(&entries, &path).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(value[2]["journal_mb"], 2);
    assert_eq!(value[2]["settings"]["policy"], "journal");
    assert_eq!(value[0]["transactions"].as_u64().unwrap() % 6000, 0);
}

#[test]
fn a_run_does_not_depend_on_the_number_of_threads() {
    let dir = traces();
    let rows = rows_of(dir.path()).unwrap();
    let nand = |jobs: usize| -> Vec<u64> {
        let entries = run(&rows, &Options { jobs, ..options() }, &|_, _| ()).unwrap();
        entries.iter().map(|entry| entry.outcome.nand_bytes).collect()
    };
    assert_eq!(nand(1), nand(3));
}

#[test]
fn the_drive_is_as_large_as_the_largest_trace_needs() {
    let dir = traces();
    let rows = rows_of(dir.path()).unwrap();
    let fit = drive_of(&rows, &Options { logical_size: LogicalSize::Fit, ..options() }).unwrap();
    // The ring and nearly all of 1600 pages are 95 % of it.
    assert!((7200..7360).contains(&fit.0) && fit.1 == 64, "{fit:?}");
    let mib = drive_of(&rows, &Options { logical_size: LogicalSize::Mib(1024), ..options() }).unwrap();
    assert_eq!(mib, (262_144, 512));
}

#[test]
fn what_cannot_run_is_refused_by_name() {
    let empty = tempfile::tempdir().unwrap();
    assert!(rows_of(empty.path()).unwrap_err().to_string().contains("\"row\""));
    assert!(rows_of(&empty.path().join("none")).unwrap_err().to_string().contains("none"));

    save(empty.path(), "x.trace", row("X", &["jurnal"]), None);
    let message = rows_of(empty.path()).unwrap_err().to_string();
    assert!(message.contains("x.json") && message.contains("jurnal"), "{message}");

    let dir = traces();
    let rows = rows_of(dir.path()).unwrap();
    let refused = |options: Options| run(&rows, &options, &|_, _| ()).unwrap_err().to_string();
    let small = Options { logical_size: LogicalSize::Mib(16), ..options() };
    assert!(refused(small).contains("make the drive larger"));
    assert!(
        refused(Options { over_provisioning_percent: vec![0.0], ..options() }).contains("over-provisioning")
    );
    assert!(refused(Options { superblock_blocks: 96, ..options() }).contains("superblock"));
    assert!(refused(Options { superblock_blocks: 0, ..options() }).contains("superblock"));
}
