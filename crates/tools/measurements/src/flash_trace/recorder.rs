//! Records what the kernel sends to a block device, with the kernel's own trace events.
//!
//! Owns a trace instance of its own in tracefs. The event is `block_rq_issue`: a request as the driver gets it, merged
//! and split, in the order of issue. Marks that the caller makes go through the same buffer (`trace_marker`), so they
//! stand between the requests where they belong.
//!
//! Invariants: a lost event is an error, never a gap. The caller compares [`Totals`] with the device's own counters. A
//! thread reads the buffer and passes [`Event`]s to a sink in order; it ends at the mark [`Mark::Stop`], the last entry
//! of the buffer.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use redoubt_flash::trace::Op;
use redoubt_workload::error::{Error, Result};

use super::guard::Guard;

/// Where the kernel's trace file system is mounted.
const TRACEFS: &str = "/sys/kernel/tracing";
/// Per processor. The reader is rarely late by more than a few thousand events of about 100 bytes.
const BUFFER_KIB: u32 = 16 * 1024;
const EVENT: &str = "block_rq_issue";
const MARK_PREFIX: &str = "redoubt ";

/// Marks that the caller writes between the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The part that counts begins; so many transactions had committed.
    Begin(u64),
    /// So many transactions have committed.
    Commits(u64),
    /// The part that counts ends; so many transactions have committed.
    End(u64),
    /// A snapshot of the files was just taken.
    Snapshot,
    /// Nothing comes after it.
    Stop,
}

impl Mark {
    fn text(self) -> String {
        match self {
            Self::Begin(count) => format!("{MARK_PREFIX}begin {count}"),
            Self::Commits(count) => format!("{MARK_PREFIX}commits {count}"),
            Self::End(count) => format!("{MARK_PREFIX}end {count}"),
            Self::Snapshot => format!("{MARK_PREFIX}snapshot"),
            Self::Stop => format!("{MARK_PREFIX}stop"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix(MARK_PREFIX)?.split_whitespace();
        let (word, count) = (words.next()?, words.next().and_then(|count| count.parse().ok()));
        match (word, count) {
            ("begin", Some(count)) => Some(Self::Begin(count)),
            ("commits", Some(count)) => Some(Self::Commits(count)),
            ("end", Some(count)) => Some(Self::End(count)),
            ("snapshot", None) => Some(Self::Snapshot),
            ("stop", None) => Some(Self::Stop),
            _ => None,
        }
    }
}

/// One line of the kernel's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A request.
    Request {
        /// Kernel time in microseconds.
        time_us: u64,
        op: Op,
        /// First sector, of 512 bytes.
        sector: u64,
        sectors: u32,
    },
    /// A mark, and when it was made.
    Mark { time_us: u64, mark: Mark },
}

/// Sums over everything recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sectors of 512 bytes written.
    pub written_sectors: u64,
    /// Sectors of 512 bytes discarded.
    pub discarded_sectors: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Flushes of the drive's write cache.
    pub flushes: u64,
}

impl Totals {
    fn add(&mut self, event: &Event) {
        let Event::Request { op, sectors, .. } = event else { return };
        match op {
            Op::Write => {
                self.written_sectors += u64::from(*sectors);
                self.writes += 1;
            }
            Op::Trim => self.discarded_sectors += u64::from(*sectors),
            Op::Flush => self.flushes += 1,
            Op::Mark => {}
        }
    }
}

/// A running recording.
pub(super) struct Recorder<S> {
    instance: PathBuf,
    marker: File,
    reader: Option<JoinHandle<Result<(S, Totals)>>>,
    _guard: Guard,
}

/// Takes events in their order.
pub(super) trait Sink: Send + 'static {
    /// The next one.
    ///
    /// # Errors
    /// Ends the recording.
    fn take(&mut self, event: &Event) -> Result<()>;
}

/// Says why this machine cannot record, if so.
///
/// # Errors
/// [`Error::Unavailable`].
pub(super) fn check() -> Result<()> {
    let event = Path::new(TRACEFS).join("events/block").join(EVENT);
    if event.is_dir() && Path::new(TRACEFS).join("instances").is_dir() {
        return Ok(());
    }
    Err(Error::Unavailable(format!(
        "{} does not exist: the kernel has no such trace event, or tracefs is not mounted (mount -t tracefs tracefs \
         {TRACEFS})",
        event.display()
    )))
}

impl<S: Sink> Recorder<S> {
    /// Starts to record the requests of `device_number`. The device should be idle.
    ///
    /// # Errors
    /// [`Error::Io`] when the kernel does not allow it.
    pub(super) fn start(device_number: u64, sink: S) -> Result<Self> {
        check()?;
        let name = format!("redoubt-{}-{device_number:x}", std::process::id());
        let instance = Path::new(TRACEFS).join("instances").join(name);
        std::fs::create_dir(&instance).map_err(Error::io_at("create", &instance))?;
        let guard = Guard::trace_instance(&instance)?;
        let set = |file: &str, value: &str| {
            let path = instance.join(file);
            std::fs::write(&path, value).map_err(Error::io(format!("write {value:?} to {}", path.display())))
        };
        set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        set("trace_clock", "mono")?;
        let event = format!("events/block/{EVENT}");
        set(&format!("{event}/filter"), &format!("dev == {device_number} && !(rwbs ~ \"R*\")"))?;
        set(&format!("{event}/enable"), "1")?;
        let pipe = instance.join("trace_pipe");
        let pipe = File::open(&pipe).map_err(Error::io_at("open", &pipe))?;
        let marker = instance.join("trace_marker");
        let marker = OpenOptions::new().write(true).open(&marker).map_err(Error::io_at("open", &marker))?;
        let reader = std::thread::spawn(move || read(BufReader::with_capacity(1 << 18, pipe), sink));
        Ok(Self { instance, marker, reader: Some(reader), _guard: guard })
    }

    /// Writes a mark.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn mark(&self, mark: Mark) -> Result<()> {
        (&self.marker).write_all(mark.text().as_bytes()).map_err(Error::io("write to trace_marker"))
    }

    /// True when the reading thread has ended, which before [`Recorder::stop`] means that it failed.
    pub(super) fn has_ended(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the recording; the device should be idle.
    ///
    /// # Errors
    /// An error of the reading thread or the sink, and lost events.
    pub(super) fn stop(mut self) -> Result<(S, Totals)> {
        self.mark(Mark::Stop)?;
        let Some(reader) = self.reader.take() else {
            return Err(Error::State("the recording has ended before".into()));
        };
        let result = reader.join().map_err(|_| Error::State("the recording thread panicked".into()))??;
        check_losses(&self.instance)?;
        Ok(result)
    }
}

impl<S> Drop for Recorder<S> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            // Wakes the thread; its result no longer matters.
            if (&self.marker).write_all(Mark::Stop.text().as_bytes()).is_ok() {
                let _ = reader.join();
            }
        }
    }
}

fn read<S: Sink>(mut pipe: impl BufRead, mut sink: S) -> Result<(S, Totals)> {
    let mut totals = Totals::default();
    let mut line = String::new();
    loop {
        line.clear();
        let len = pipe.read_line(&mut line).map_err(Error::io("read trace_pipe"))?;
        if len == 0 {
            return Err(Error::State("the kernel's trace buffer ended before the recording did".into()));
        }
        let Some(event) = parse(line.trim_end())? else { continue };
        if matches!(event, Event::Mark { mark: Mark::Stop, .. }) {
            return Ok((sink, totals));
        }
        totals.add(&event);
        sink.take(&event)?;
    }
}

/// The kernel counts what it had to drop, per processor.
fn check_losses(instance: &Path) -> Result<()> {
    let directory = instance.join("per_cpu");
    for entry in std::fs::read_dir(&directory).map_err(Error::io_at("list", &directory))? {
        let path = entry.map_err(Error::io_at("list", &directory))?.path().join("stats");
        let text = std::fs::read_to_string(&path).map_err(Error::io_at("read", &path))?;
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            if matches!(name, "overrun" | "commit overrun" | "dropped events") && value.trim() != "0" {
                return Err(Error::State(format!(
                    "the kernel lost trace events ({line} in {}): record again with less load on the machine",
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

/// Understands a line of `trace_pipe`; none for a line without meaning here.
pub(super) fn parse(line: &str) -> Result<Option<Event>> {
    let fault = |detail: &str| Error::Parse {
        what: "a line of trace_pipe".into(),
        detail: format!("{detail}: {line:?}"),
    };
    if line.contains("LOST") && line.contains("EVENTS]") {
        return Err(Error::State(format!("the kernel lost trace events: {line}")));
    }
    let (head, name, body) = if let Some((head, body)) = line.split_once(": block_rq_issue: ") {
        (head, EVENT, body)
    } else if let Some((head, body)) = line.split_once(": tracing_mark_write: ") {
        (head, "mark", body)
    } else if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    } else {
        return Err(fault("unknown"));
    };
    let time_us = head
        .split_whitespace()
        .next_back()
        .and_then(|time| time.split_once('.'))
        .and_then(|(seconds, micros)| {
            let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
            seconds.checked_mul(1_000_000)?.checked_add(micros)
        })
        .ok_or_else(|| fault("no time"))?;
    if name == "mark" {
        let mark = Mark::parse(body).ok_or_else(|| fault("unknown mark"))?;
        return Ok(Some(Event::Mark { time_us, mark }));
    }
    request(body, time_us).ok_or_else(|| fault("not a request"))
}

/// `7,0 WS 4096 () 18434 + 8 be,0,4 [dd]`. None: not understood. Some(None): of no interest.
fn request(body: &str, time_us: u64) -> Option<Option<Event>> {
    let mut words = body.split_whitespace();
    let (_device, flags) = (words.next()?, words.next()?);
    let rest = body.split_once("() ")?.1;
    let mut words = rest.split_whitespace();
    let sector: u64 = words.next()?.parse().ok()?;
    if words.next()? != "+" {
        return None;
    }
    let sectors: u32 = words.next()?.parse().ok()?;
    // `F` in front asks for a flush before, and is a request of its own; the operation comes after it.
    let operation = flags.strip_prefix('F').filter(|rest| !rest.is_empty()).unwrap_or(flags);
    let op = match operation.chars().next()? {
        'W' => Op::Write,
        'D' => Op::Trim,
        'F' => Op::Flush,
        'R' => return Some(None),
        // The kernel has no letter for writing zeroes without sending them (ext4, when a file grows). Some drives only
        // take notes; here it counts as a write, as the device's own counters have it.
        'N' => Op::Write,
        _ => return None,
    };
    // Nothing is written, and its flush is a request of its own.
    if op == Op::Write && sectors == 0 {
        return Some(None);
    }
    Some(Some(Event::Request { time_us, op, sector, sectors }))
}
