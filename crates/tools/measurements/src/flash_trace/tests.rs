use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use redoubt_flash::trace::{Op, Origin, Record, TraceReader};
use redoubt_workload::error::Error;

use super::collect::{Collector, Snapshots, attribute};
use super::disk::{DeviceCounters, parse_extents, parse_stat};
use super::extents::{Extent, OwnerMap, Part, assign};
use super::origin;
use super::recorder::{Event, Mark, Sink, Totals, parse};
use super::require_complete;

#[test]
fn reads_requests_of_all_kinds() {
    let request = |time_us, op, sector, sectors| Some(Event::Request { time_us, op, sector, sectors });
    for (line, event) in [
        (
            "       jbd2/loop0-8-31055   [001] ..... 23700.607773: block_rq_issue: 7,0 WSM 1024 () 229378 + 2 be,0,3 [jbd2/loop0-8]",
            request(23_700_607_773, Op::Write, 229_378, 2),
        ),
        (
            "  a name with: blanks-3 [000] ...1. 1.000002: block_rq_issue: 7,0 FWFS 16384 () 8 + 32 none,0,0 [a name]",
            request(1_000_002, Op::Write, 8, 32),
        ),
        (
            " kworker/1:1H-30601   [001] ..... 1.5: block_rq_issue: 7,0 FF 0 () 0 + 0 none,0,0 [kworker/1:1H]",
            request(1_000_005, Op::Flush, 0, 0),
        ),
        (
            " x-1   [001] ..... 2.000000: block_rq_issue: 7,0 DS 4096 () 16 + 8 none,0,0 [x]",
            request(2_000_000, Op::Trim, 16, 8),
        ),
        (
            " x-1   [001] ..... 2.000000: block_rq_issue: 7,0 NS 16384 () 64 + 32 be,0,4 [x]",
            request(2_000_000, Op::Write, 64, 32),
        ),
        (" x-1   [001] ..... 2.000000: block_rq_issue: 7,0 N 0 () 0 + 0 be,0,4 [x]", None),
        (" x-1   [001] ..... 2.000000: block_rq_issue: 7,0 RA 4096 () 16 + 8 none,0,0 [x]", None),
        ("# tracer: nop", None),
        (
            " x-1 [000] ...1. 3.000000: tracing_mark_write: redoubt begin 12",
            Some(Event::Mark { time_us: 3_000_000, mark: Mark::Begin(12) }),
        ),
    ] {
        assert_eq!(parse(line).unwrap(), event, "{line}");
    }
}

#[test]
fn refuses_what_it_does_not_know_and_lost_events() {
    for line in [
        "CPU:1 [LOST 23 EVENTS]",
        " x-1 [001] ..... 2.000000: block_rq_issue: 7,0 ZS 4096 () 16 + 8 none,0,0 [x]",
        " x-1 [001] ..... 2.000000: block_rq_issue: 7,0 FX 4096 () 16 + 8 none,0,0 [x]",
        " x-1 [001] ..... 2.000000: block_rq_issue: 7,0 W 4096 () 16 8 none,0,0 [x]",
        " x-1 [001] ..... soon: block_rq_issue: 7,0 W 4096 () 16 + 8 none,0,0 [x]",
        " x-1 [001] ..... 2.000000: tracing_mark_write: redoubt begin",
        " x-1 [001] ..... 2.000000: something_else: 7,0",
    ] {
        assert!(matches!(parse(line), Err(Error::Parse { .. } | Error::State(_))), "{line}");
    }
}

#[test]
fn reads_the_journal_of_a_file_system_and_the_counters_of_a_device() {
    let text = "Inode: 8   Type: regular\nEXTENTS:\n(ETB0):77, (0-32766):98304-131070, (32767):5\n";
    assert_eq!(parse_extents(text).unwrap(), [98304 * 8..131_071 * 8, 40..48]);
    assert!(parse_extents("Inode: 8   Type: regular\n").is_err());
    assert!(parse_extents("EXTENTS:\n(0-1):x-y\n").is_err());
    let stat = "    2932      127   319330      522   126415    75116 36281498   246136        3    71248   300724        \
                5        0       64        0    58544    54065\n";
    let counters = DeviceCounters { written_sectors: 36_281_498, discarded_sectors: 64 };
    assert_eq!(parse_stat(stat).unwrap(), (counters, 3));
    assert!(parse_stat("1 2 3").is_err());
}

#[test]
fn files_have_their_origins() {
    let blocks = [64, 128];
    let page = origin::PAGE_LEN_BYTES;
    let parts = origin::of_server(Path::new("server/data/ibdata1"), blocks);
    let expected = [
        (0..64 * page, Origin::Data),
        (64 * page..128 * page, Origin::Doublewrite),
        (128 * page..192 * page, Origin::Doublewrite),
        (192 * page..u64::MAX, Origin::Data),
    ];
    assert_eq!(parts.iter().map(|part| (part.bytes.clone(), part.origin)).collect::<Vec<_>>(), expected);
    for (name, origin) in [
        ("data/tpcc/stock.ibd", Origin::Data),
        ("data/undo001", Origin::Data),
        ("data/ib_logfile0", Origin::Redo),
        ("data/aria_log.00000001", Origin::Other),
        ("error.log", Origin::Other),
    ] {
        let parts = origin::of_server(Path::new(name), blocks);
        assert_eq!(parts, [Part { bytes: 0..u64::MAX, origin }], "{name}");
    }
    let ring = Path::new("node/v/pages/pages.journal");
    let expected = Part { bytes: 0..u64::MAX, origin: Origin::Doublewrite };
    assert_eq!(origin::of_node(ring, Origin::Doublewrite), [expected]);
    for (name, origin) in [
        ("node/v/pages/00000001.pages", Origin::Data),
        ("node/v/log/log-00000000000000000000.seg", Origin::Redo),
        ("node/v/log/spare-3.seg", Origin::Redo),
        ("node/v/pages/pages.journal", Origin::Journal),
        ("node/node.log", Origin::Other),
    ] {
        assert_eq!(
            origin::of_node(Path::new(name), Origin::Journal),
            [Part { bytes: 0..u64::MAX, origin }],
            "{name}"
        );
    }
}

#[test]
fn sectors_follow_the_parts_of_a_file() {
    // A file of two extents, on the disk the other way round; the border between the parts is in the second.
    let extents =
        [Extent { logical: 0, physical: 8192, len: 4096 }, Extent { logical: 4096, physical: 0, len: 8192 }];
    let parts = [
        Part { bytes: 0..8192, origin: Origin::Data },
        Part { bytes: 8192..u64::MAX, origin: Origin::Doublewrite },
    ];
    let mut ranges = Vec::new();
    assign(&extents, &parts, &mut ranges);
    let map = OwnerMap::new(ranges);
    let pieces = map.pieces(0..32);
    assert_eq!(
        pieces,
        [
            (0..8, Some(Origin::Data)),
            (8..16, Some(Origin::Doublewrite)),
            (16..24, Some(Origin::Data)),
            (24..32, None),
        ]
    );
    assert_eq!(map.pieces(10..12), [(10..12, Some(Origin::Doublewrite))]);
    assert_eq!(map.pieces(40..41), [(40..41, None)]);
}

fn owners(ranges: &[(Range<u64>, Origin)]) -> OwnerMap {
    OwnerMap::new(ranges.to_vec())
}

#[test]
fn the_next_snapshot_decides_then_the_one_before_then_the_file_system() {
    let previous = owners(&[(0..8, Origin::Redo), (8..16, Origin::Redo)]);
    let next = owners(&[(0..8, Origin::Data), (24..32, Origin::Journal)]);
    assert_eq!(
        attribute(&next, &previous, 0..32),
        [(0..8, Origin::Data), (8..16, Origin::Redo), (16..24, Origin::Metadata), (24..32, Origin::Journal),]
    );
}

#[test]
fn the_trace_has_the_part_that_counts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.trace");
    let snapshots = Snapshots::default();
    let mut collector =
        Collector::create(&path, owners(&[(0..8, Origin::Redo)]), Arc::clone(&snapshots)).unwrap();
    let write = |time_us, sector, sectors| Event::Request { time_us, op: Op::Write, sector, sectors };
    let mark = |time_us, mark| Event::Mark { time_us, mark };
    let mut take = |event: Event| collector.take(&event).unwrap();
    take(write(10, 0, 8));
    take(mark(20, Mark::Begin(100)));
    take(write(30, 0, 16));
    take(mark(40, Mark::Commits(150)));
    take(mark(41, Mark::Commits(149)));
    take(Event::Request { time_us: 45, op: Op::Flush, sector: 0, sectors: 0 });
    take(mark(50, Mark::End(160)));
    take(write(60, 0, 8));
    snapshots.lock().unwrap().push_back(Arc::new(owners(&[(0..8, Origin::Redo), (8..16, Origin::Data)])));
    take(mark(70, Mark::Snapshot));
    let window = collector.finish().unwrap();
    assert_eq!((window.transactions, window.flushes), (60, 1));
    assert_eq!((window.bytes(Origin::Redo), window.bytes(Origin::Data)), (4096, 4096));
    let record = |time_us, sector, sectors, op, origin| Record { time_us, sector, sectors, op, origin };
    let records: Vec<_> = TraceReader::open(&path).unwrap().map(Result::unwrap).collect();
    assert_eq!(
        records,
        [
            record(10, 0, 8, Op::Write, Origin::Redo),
            record(10, 8, 8, Op::Write, Origin::Data),
            record(20, 0, 50, Op::Mark, Origin::Other),
            record(25, 0, 0, Op::Flush, Origin::Metadata),
            record(30, 0, 10, Op::Mark, Origin::Other),
        ]
    );
}

#[test]
fn a_recording_that_did_not_see_its_end_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.trace");
    let mut collector = Collector::create(&path, OwnerMap::default(), Snapshots::default()).unwrap();
    collector.take(&Event::Mark { time_us: 1, mark: Mark::Begin(0) }).unwrap();
    let snapshot = collector.take(&Event::Mark { time_us: 1, mark: Mark::Snapshot });
    assert!(snapshot.unwrap_err().to_string().contains("without the snapshot"));
    assert!(collector.finish().unwrap_err().to_string().contains("before the load did"));
}

#[test]
fn one_sector_more_or_less_is_not_complete() {
    let before = DeviceCounters { written_sectors: 100, discarded_sectors: 8 };
    let after = DeviceCounters { written_sectors: 164, discarded_sectors: 8 };
    for (written_sectors, is_complete) in [(63, false), (64, true), (65, false)] {
        let totals = Totals { written_sectors, ..Totals::default() };
        assert_eq!(require_complete(&totals, before, after).is_ok(), is_complete);
    }
    let totals = Totals { written_sectors: 64, discarded_sectors: 8, ..Totals::default() };
    assert!(require_complete(&totals, before, after).is_err());
}
