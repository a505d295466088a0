//! Durable appends on each log device, in turns: how many per second, how long one takes, and what is written for it.
//!
//! A client appends a record, waits until it is durable, and does it again. Devices:
//! * `file`: [`FileLogDevice`] in a directory on a disk;
//! * `block`: [`BlockLogDevice`] in a directory on the same disk;
//! * `pmem`: [`PmemLogDevice`] on tmpfs. That is DRAM, an upper bound: nothing of it survives a power cut, and
//!   real persistent memory is slower.
//!
//! All three stay open; each cell of the table visits all of them, in an order that changes from round to round. Ratios
//! are taken within a round. "Written" is what the device says it wrote per byte appended; "to storage" is
//! what the kernel says this process caused to be written (`write_bytes` in `/proc/self/io`, whole pages for `file`).
//!
//! Options: `--seconds S` per cell and device, `--rounds N`, `--dir DIR` on the disk to measure, `--shm DIR` a tmpfs.
//! JSON goes to standard output, the table to standard error.

mod support;

use redoubt_logdev::pmem::{PmemLogDevice, PmemLogOptions};
use redoubt_logdev::{BlockLogDevice, BlockLogOptions, FileLogDevice, LogDevice, SegmentOptions};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use support::{Arguments, Samples, median, print_table, short, storage_bytes};

const RECORD_LENS: [usize; 4] = [512, 1024, 4096, 8192];
const CLIENTS: [usize; 4] = [1, 4, 16, 64];
/// A client gives up what is before its record so often.
const DISCARD_EVERY: usize = 64;

/// Figures of one device in one round of a cell.
struct Cell {
    appends_per_second: f64,
    p10_us: f64,
    p50_us: f64,
    p99_us: f64,
    written: f64,
    to_storage: f64,
}

type Figure = fn(&Cell) -> f64;

const FIGURES: [(&str, Figure); 6] = [
    ("appends_per_second", |cell| cell.appends_per_second),
    ("p10_us", |cell| cell.p10_us),
    ("p50_us", |cell| cell.p50_us),
    ("p99_us", |cell| cell.p99_us),
    ("written_per_byte", |cell| cell.written),
    ("to_storage_per_byte", |cell| cell.to_storage),
];

fn client(device: &dyn LogDevice, record: &[u8], start: &Barrier, stop: &AtomicBool) -> Samples {
    start.wait();
    let mut samples = Samples::default();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let end = device.append(record).expect("append");
        device.wait_durable(end).expect("wait");
        samples.push(began.elapsed());
        if samples.len() % DISCARD_EVERY == 0 {
            device.discard_before(end).expect("discard");
        }
    }
    samples
}

fn run(device: &dyn LogDevice, record_len: usize, clients: usize, arguments: &Arguments) -> Cell {
    let (start, stop) = (Barrier::new(clients + 1), AtomicBool::new(false));
    let record = vec![0x5a; record_len];
    let (stats, storage) = (device.stats(), storage_bytes());
    let (mut samples, mut elapsed) = (Samples::default(), 0.0);
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..clients).map(|_| scope.spawn(|| client(device, &record, &start, &stop))).collect();
        start.wait();
        let began = Instant::now();
        thread::sleep(arguments.cell(0.25));
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            samples.join(thread.join().expect("a client"));
        }
        elapsed = began.elapsed().as_secs_f64();
    });
    let after = device.stats();
    let appended = (after.bytes_appended - stats.bytes_appended) as f64;
    let prepared = (after.bytes_preallocated - stats.bytes_preallocated) as f64;
    Cell {
        appends_per_second: samples.len() as f64 / elapsed,
        p10_us: samples.percentile_us(10.0),
        p50_us: samples.percentile_us(50.0),
        p99_us: samples.percentile_us(99.0),
        written: (after.bytes_written - stats.bytes_written) as f64 / appended,
        to_storage: ((storage_bytes() - storage) as f64 - prepared).max(0.0) / appended,
    }
}

fn report(names: &[&str; 3], cells: &[Vec<Cell>; 3], (record_len, clients): (usize, usize)) -> Vec<String> {
    let mut row = vec![record_len.to_string(), clients.to_string()];
    for (name, its_cells) in names.iter().zip(cells) {
        let figure = |get: Figure| median(its_cells.iter().map(get).collect());
        let ratios = its_cells.iter().zip(&cells[0]);
        let ratio = median(ratios.map(|(c, file)| c.appends_per_second / file.appends_per_second).collect());
        row.push(format!("{} ({}x)", short(figure(FIGURES[0].1)), short(ratio)));
        row.push(format!("{} / {}", short(figure(|cell| cell.p50_us)), short(figure(|cell| cell.p99_us))));
        row.push(format!("{:.3}", figure(|cell| cell.written)));
        let mut json = serde_json::json!({
            "bench": "devices", "device": name, "record_len_bytes": record_len, "clients": clients,
            "rounds": its_cells.len(), "appends_ratio_to_file": ratio,
        });
        for (name, get) in FIGURES {
            json[name] = figure(get).into();
        }
        if *name == "pmem" {
            json["label"] = "DRAM (tmpfs), an upper bound".into();
        }
        println!("{json}");
    }
    row
}

fn main() {
    let arguments = Arguments::read();
    let (disk, memory) = (arguments.dir(), arguments.shm());
    let directory = |parent| tempfile::tempdir_in(parent).expect("a directory");
    let dirs = [directory(&disk), directory(&disk), directory(&memory)];
    let segments = SegmentOptions { segment_len_bytes: 32 << 20, ..SegmentOptions::default() };
    let block = BlockLogOptions { segments: segments.clone(), ..BlockLogOptions::default() };
    let pmem = PmemLogOptions { segments: segments.clone(), pretend: true, ..PmemLogOptions::default() };
    let devices: [Box<dyn LogDevice>; 3] = [
        Box::new(FileLogDevice::open(dirs[0].path(), segments).expect("the file device")),
        Box::new(BlockLogDevice::open(dirs[1].path(), block).expect("the block device")),
        Box::new(PmemLogDevice::open(dirs[2].path(), pmem).expect("the pmem device")),
    ];
    let names = ["file", "block", "pmem"];
    for (name, device) in names.iter().zip(&devices) {
        eprintln!("{name}: {:?}", device.info());
    }
    eprintln!("pmem is on tmpfs: DRAM, an upper bound\n");
    let mut rows = Vec::new();
    for record_len in RECORD_LENS {
        for clients in CLIENTS {
            let mut cells: [Vec<Cell>; 3] = Default::default();
            for round in 0..arguments.rounds(3) {
                for turn in 0..devices.len() {
                    let at = (round + turn) % devices.len();
                    cells[at].push(run(&*devices[at], record_len, clients, &arguments));
                }
            }
            rows.push(report(&names, &cells, (record_len, clients)));
        }
    }
    let mut head = vec!["bytes".to_owned(), "clients".to_owned()];
    for name in names {
        head.extend([format!("{name}: appends/s"), "p50 / p99 us".to_owned(), "written/byte".to_owned()]);
    }
    print_table(&head, &rows);
}
