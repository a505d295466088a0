//! Commits that wait for a device thread: each in a slot of its own ([`CommitWaiters`]) against one condition
//! variable for all, in turns.
//!
//! Clients append 512 bytes and wait until they are durable. One thread makes durable what has come in:
//! * `file`: a real [`FileLogDevice`], everything pending with one sync;
//! * `memory`: no device, everything pending at once. What is left is the cost of waiting and waking;
//! * `pieces`: no device, at most eight commits at a time, in order. That is how a device with several durable
//!   writes on their way finishes them.
//!
//! Counted are commits, wake-ups of clients and voluntary context switches of clients, each per commit.
//! Options: `--seconds S` per cell, `--rounds N`, `--dir DIR` on the disk to measure. JSON goes to standard output, the
//! table to standard error.

mod support;

use redoubt_logdev::waiters::{CommitWaiters, WaitEnd};
use redoubt_logdev::{FileLogDevice, LogDevice, SegmentOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use support::{Arguments, Samples, median, print_table, short, voluntary_switches};

const RECORD_LEN: u64 = 512;
const PIECE: u64 = 8 * RECORD_LEN;

/// The two things compared.
trait Waiting: Send + Sync {
    fn wait(&self, position: u64);
    fn advance(&self, position: u64);
    fn durable(&self) -> u64;
    /// Wake-ups, and those that found their position not reached.
    fn wakeups(&self) -> (u64, u64);
}

impl Waiting for CommitWaiters {
    fn wait(&self, position: u64) {
        assert_eq!(CommitWaiters::wait(self, position, None), WaitEnd::Reached);
    }

    fn advance(&self, position: u64) {
        CommitWaiters::advance(self, position);
    }

    fn durable(&self) -> u64 {
        CommitWaiters::durable(self)
    }

    fn wakeups(&self) -> (u64, u64) {
        (self.stats().wakeups, self.stats().wakeups_not_reached)
    }
}

/// One condition variable for all.
#[derive(Default)]
struct Broadcast {
    durable: AtomicU64,
    lock: Mutex<()>,
    moved: Condvar,
    wakeups: AtomicU64,
    not_reached: AtomicU64,
}

impl Waiting for Broadcast {
    fn wait(&self, position: u64) {
        if self.durable() >= position {
            return;
        }
        let mut guard = self.lock.lock().expect("the lock");
        while self.durable() < position {
            guard = self.moved.wait(guard).expect("the lock");
            self.wakeups.fetch_add(1, Ordering::Relaxed);
            if self.durable() < position {
                self.not_reached.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn advance(&self, position: u64) {
        self.durable.fetch_max(position, Ordering::AcqRel);
        drop(self.lock.lock());
        self.moved.notify_all();
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    fn wakeups(&self) -> (u64, u64) {
        (self.wakeups.load(Ordering::Relaxed), self.not_reached.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Device {
    File,
    Memory,
    Pieces,
}

impl Device {
    fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "memory",
            Self::Pieces => "pieces",
        }
    }
}

/// Where appended bytes go.
struct Log {
    file: Option<FileLogDevice>,
    end: AtomicU64,
}

impl Log {
    /// Returns the position after the record.
    fn append(&self) -> u64 {
        match &self.file {
            Some(log) => log.append(&[0x5a; RECORD_LEN as usize]).expect("append").0,
            None => self.end.fetch_add(RECORD_LEN, Ordering::AcqRel) + RECORD_LEN,
        }
    }

    fn end(&self) -> u64 {
        self.file.as_ref().map_or_else(|| self.end.load(Ordering::Acquire), |log| log.end().0)
    }
}

/// Figures of one run.
struct Cell {
    commits_per_second: f64,
    wakeups: f64,
    not_reached: f64,
    switches: f64,
    p50_us: f64,
    p99_us: f64,
}

fn device_thread(log: &Log, device: Device, waiting: &dyn Waiting, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        let (durable, end) = (waiting.durable(), log.end());
        if end == durable {
            thread::park();
            continue;
        }
        waiting.advance(match (&log.file, device) {
            (Some(log), _) => {
                let end = log.sync().expect("sync");
                log.discard_before(end).expect("discard");
                end.0
            }
            (None, Device::Pieces) => end.min(durable + PIECE),
            (None, _) => end,
        });
    }
}

fn client(
    log: &Log,
    waiting: &dyn Waiting,
    device: &Thread,
    start: &Barrier,
    stop: &AtomicBool,
) -> (Samples, u64) {
    start.wait();
    let (before, mut samples) = (voluntary_switches(), Samples::default());
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let position = log.append();
        device.unpark();
        waiting.wait(position);
        samples.push(began.elapsed());
    }
    (samples, voluntary_switches() - before)
}

fn run(device: Device, clients: usize, waiting: &dyn Waiting, arguments: &Arguments) -> Cell {
    let dir = tempfile::tempdir_in(arguments.dir()).expect("a directory");
    let file = (device == Device::File)
        .then(|| FileLogDevice::open(dir.path(), SegmentOptions::default()).expect("a log"));
    let log = Log { file, end: AtomicU64::new(0) };
    let (done, stop) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let start = Barrier::new(clients + 1);
    let (mut samples, mut switches, mut elapsed) = (Samples::default(), 0, Duration::ZERO);
    thread::scope(|scope| {
        let flag = Arc::clone(&done);
        let log = &log;
        let device = scope.spawn(move || device_thread(log, device, waiting, &flag));
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                let (device, start, stop) = (device.thread().clone(), &start, &stop);
                thread::Builder::new()
                    .stack_size(128 << 10)
                    .spawn_scoped(scope, move || client(log, waiting, &device, start, stop))
                    .expect("a thread")
            })
            .collect();
        start.wait();
        let began = Instant::now();
        thread::sleep(arguments.cell(1.0));
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let (its_samples, its_switches) = thread.join().expect("a client");
            samples.join(its_samples);
            switches += its_switches;
        }
        elapsed = began.elapsed();
        done.store(true, Ordering::Release);
        device.thread().unpark();
    });
    let commits = samples.len() as f64;
    let (wakeups, not_reached) = waiting.wakeups();
    Cell {
        commits_per_second: commits / elapsed.as_secs_f64(),
        wakeups: wakeups as f64 / commits,
        not_reached: not_reached as f64 / commits,
        switches: switches as f64 / commits,
        p50_us: samples.percentile_us(50.0),
        p99_us: samples.percentile_us(99.0),
    }
}

type Figure = fn(&Cell) -> f64;

const FIGURES: [(&str, Figure); 6] = [
    ("commits_per_second", |cell| cell.commits_per_second),
    ("wakeups_per_commit", |cell| cell.wakeups),
    ("not_reached_per_commit", |cell| cell.not_reached),
    ("switches_per_commit", |cell| cell.switches),
    ("p50_us", |cell| cell.p50_us),
    ("p99_us", |cell| cell.p99_us),
];

fn main() {
    let arguments = Arguments::read();
    let mut rows = Vec::new();
    for device in [Device::File, Device::Memory, Device::Pieces] {
        for clients in [64, 512] {
            let (mut slots, mut broadcast) = (Vec::new(), Vec::new());
            for round in 0..arguments.rounds(3) {
                let mut one = || slots.push(run(device, clients, &CommitWaiters::default(), &arguments));
                let mut other = || broadcast.push(run(device, clients, &Broadcast::default(), &arguments));
                if round % 2 == 0 {
                    one();
                    other();
                } else {
                    other();
                    one();
                }
            }
            let ratio = slots.iter().zip(&broadcast);
            let ratio = median(ratio.map(|(s, b)| s.commits_per_second / b.commits_per_second).collect());
            for (name, cells) in [("slots", &slots), ("broadcast", &broadcast)] {
                let figure = |get: Figure| median(cells.iter().map(get).collect());
                let mut row = vec![device.name().to_owned(), clients.to_string(), name.to_owned()];
                row.extend(FIGURES.iter().map(|(_, get)| short(figure(*get))));
                row.push(if name == "slots" { short(ratio) } else { "1".to_owned() });
                rows.push(row);
                let mut json = serde_json::json!({
                    "bench": "waiters", "device": device.name(), "clients": clients, "waiting": name,
                });
                for (name, get) in FIGURES {
                    json[name] = figure(get).into();
                }
                if name == "slots" {
                    json["commits_ratio_to_broadcast"] = ratio.into();
                }
                println!("{json}");
            }
        }
    }
    let head = [
        "device",
        "clients",
        "waiting",
        "commits/s",
        "wake-ups/commit",
        "in vain/commit",
        "switches/commit",
        "p50 us",
        "p99 us",
        "ratio of commits/s",
    ];
    print_table(&head, &rows);
}
