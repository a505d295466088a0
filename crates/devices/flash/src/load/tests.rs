//! Renumbering, refusals, and a trace's worth.

use std::collections::BTreeMap;

use super::*;
use crate::trace::TraceWriter;

fn write(sector: u64, sectors: u32, origin: Origin) -> Record {
    Record { time_us: 0, sector, sectors, op: Op::Write, origin }
}

fn info() -> TraceInfo {
    TraceInfo {
        label: "test".into(),
        device_sectors: 8 * 1000,
        page_len_bytes: 16384,
        ..TraceInfo::default()
    }
}

fn saved(records: &[Record], info: &TraceInfo) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace");
    let mut writer = TraceWriter::create(&path).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    info.save(&path).unwrap();
    (dir, path)
}

fn load(records: &[Record], info: &TraceInfo) -> Result<LoadedTrace> {
    LoadedTrace::load(&saved(records, info).1)
}

fn lap(trace: &LoadedTrace) -> (Vec<Step>, Lap) {
    let mut steps = Vec::new();
    let mut source = trace;
    let lap = source.lap(&mut |step| steps.push(*step));
    (steps, lap)
}

#[test]
fn written_blocks_are_numbered_in_the_order_of_addresses() {
    let records = [
        write(8 * 500 + 3, 2, Origin::Redo),
        write(8 * 100, 32, Origin::Data),
        write(8 * 900 + 7, 10, Origin::Metadata),
        Record { op: Op::Trim, ..write(8 * 90 + 1, 8 * 12, Origin::Data) },
        Record { op: Op::Trim, ..write(8 * 600, 8, Origin::Data) },
    ];
    let trace = load(&records, &info()).unwrap();
    // 100..104 are 0..4, 500 is 4, 900..903 are 5..8.
    let step = |sector, sectors, origin| Step { sector, sectors, trim: false, origin };
    let (steps, _) = lap(&trace);
    assert_eq!(
        steps,
        [
            step(8 * 4 + 3, 2, Origin::Redo),
            step(0, 32, Origin::Data),
            step(8 * 5 + 7, 10, Origin::Metadata),
            // Whole blocks 91 to 101, of which 100 and 101 are ever written.
            Step { trim: true, ..step(0, 16, Origin::Data) },
        ]
    );
    assert_eq!((&trace).used_blocks(), 8);
    assert_eq!(trace.bytes_per_loop(), 44 * 512);
    assert_eq!((&trace).occurs(), [true, true, false, false, true, false, false]);
}

#[test]
fn renumbering_agrees_with_a_sorted_map() {
    let mut random = fastrand::Rng::with_seed(4);
    let records: Vec<_> = (0..300)
        .map(|_| {
            let op = if random.u8(..5) == 0 { Op::Trim } else { Op::Write };
            Record { op, ..write(random.u64(..7900), random.u32(1..100), Origin::ALL[random.usize(..7)]) }
        })
        .collect();
    let trace = load(&records, &info()).unwrap();
    let mut numbers = BTreeMap::new();
    for record in records.iter().filter(|record| record.op == Op::Write) {
        blocks_of(record).for_each(|block| {
            numbers.insert(block, 0);
        });
    }
    numbers.values_mut().zip(0u64..).for_each(|(number, next)| *number = next);
    assert_eq!(u64::from((&trace).used_blocks()), numbers.len() as u64);
    let (steps, _) = lap(&trace);
    let mut steps = steps.iter().peekable();
    for record in &records {
        if record.op == Op::Write {
            let step = steps.next().unwrap();
            assert_eq!(step.sector, numbers[&(record.sector / 8)] * 8 + record.sector % 8);
            assert_eq!((step.sectors, step.trim, step.origin), (record.sectors, false, record.origin));
        } else {
            let whole = record.sector.div_ceil(8)..(end_of(record) / 8).max(record.sector.div_ceil(8));
            let expected: Vec<u64> = numbers.range(whole).map(|(_, number)| *number).collect();
            let step = steps.next_if(|step| step.trim && !expected.is_empty());
            let trimmed: Vec<u64> = step
                .map(|step| (step.sector / 8..step.sector / 8 + u64::from(step.sectors) / 8).collect())
                .unwrap_or_default();
            assert_eq!(trimmed, expected);
        }
    }
    assert!(steps.next().is_none());
}

#[test]
fn a_drive_is_filled_with_every_block_once_and_still_data_in_between() {
    let records: Vec<_> = (0..50).map(|page| write(8 * (page * 20), 32, Origin::Data)).collect();
    let trace = load(&records, &info()).unwrap();
    for cold_blocks in [0, 10, 400, 800, 5000] {
        let (mut times, mut before_last, mut placed) = (vec![0; 200 + cold_blocks as usize], 0, 0);
        (&trace).fill(cold_blocks, &mut |block, _| {
            times[block as usize] += 1;
            placed += 1;
            if block == 199 {
                before_last = placed;
            }
        });
        assert!(times.iter().all(|times| *times == 1), "{cold_blocks}");
        // The last block written by the trace is near the end of the device, so most of what lies still on the
        // device comes before it.
        let on_device = cold_blocks.min(800);
        assert!(before_last >= 200 + on_device * 9 / 10, "{cold_blocks}: {before_last}");
    }
}

#[test]
fn marks_go_before_the_description_and_pages_are_counted_without_it() {
    let pages = [write(0, 64, Origin::Data), write(64, 32, Origin::DataHot), write(96, 32, Origin::Journal)];
    let described = TraceInfo { transactions: 7, ..info() };
    let worth = |records: &[Record], info: &TraceInfo| lap(&load(records, info).unwrap()).1;
    assert_eq!(worth(&pages, &described), Lap { transactions: 7, pages: 3, page_len_bytes: 16384 });
    let mark = Record { op: Op::Mark, ..write(0, 5, Origin::Other) };
    let marked = [&pages[..], &[mark, mark]].concat();
    let counted = TraceInfo { pages_written: Some(11), ..described };
    assert_eq!(worth(&marked, &counted), Lap { transactions: 10, pages: 11, page_len_bytes: 16384 });
    let no_pages = TraceInfo { page_len_bytes: 0, ..info() };
    assert_eq!(worth(&pages, &no_pages), Lap::default());
}

#[test]
fn what_cannot_be_replayed_is_refused_by_name() {
    let refused = |records: &[Record], info: &TraceInfo| load(records, info).unwrap_err().to_string();
    let message = refused(&[write(7999, 2, Origin::Data)], &info());
    assert!(
        message.contains("record 0") && message.contains("8001") && message.contains("a.json"),
        "{message}"
    );
    let flush = Record { op: Op::Flush, ..write(u64::MAX, u32::MAX, Origin::Data) };
    assert!(refused(&[flush], &info()).contains("no write"));
    let huge = TraceInfo { device_sectors: u64::MAX, ..info() };
    assert!(refused(&[write(0, 8, Origin::Data)], &huge).contains("16 TiB"));

    let (dir, path) = saved(&[write(0, 8, Origin::Data)], &info());
    std::fs::remove_file(dir.path().join("a.json")).unwrap();
    assert!(LoadedTrace::load(&path).unwrap_err().to_string().contains("a.json"));
}

#[test]
fn sizes_of_drives() {
    let trace = load(&[write(0, 8 * 90, Origin::Data)], &info()).unwrap();
    let blocks = |size: LogicalSize| size.blocks(&trace, 90.0, 64).unwrap();
    assert_eq!(blocks(LogicalSize::Device), 1024);
    assert_eq!(blocks(LogicalSize::Fit), 128);
    assert_eq!(blocks(LogicalSize::Mib(1)), 256);
    assert!(LogicalSize::Mib(u64::MAX).blocks(&trace, 90.0, 64).is_err());
    assert_eq!("12".parse(), Ok(LogicalSize::Mib(12)));
    assert_eq!("fit".parse(), Ok(LogicalSize::Fit));
    assert!("12G".parse::<LogicalSize>().is_err());
}
