//! A log device under load until the machine is reset, and the check of its remaining records.
//!
//! The stream consists of cells (see [`super::cell`]) that say by themselves what they must be, so it can be checked
//! after the reset without another record of what was written. Lines for the outside, on standard output:
//! `ACK DEVICE END .` when everything before END is durable; `START DEVICE N .` and `END DEVICE N .` from the check.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use redoubt_logdev::pmem::{PmemLogDevice, PmemLogOptions};
use redoubt_logdev::{
    BlockLogDevice, BlockLogOptions, FileLogDevice, LogDevice, LogDeviceError, SegmentOptions, Seq,
};

use super::Device;
use super::cell::{CELL_LEN_BYTES, Cell, Follower};

/// Small, so that a short run goes through many segments and recycles them.
const SEGMENT_LEN_BYTES: u64 = 1 << 20;
/// Bytes below the durable end that are not given up.
const KEEP_LEN_BYTES: u64 = 3 << 20;
/// Records are 1 to this many cells long.
const MAX_RECORD_CELLS: u64 = 98;
const APPENDING_THREADS: u64 = 3;

/// Why the test failed.
#[derive(thiserror::Error, Debug)]
pub enum LogDeviceTestError {
    /// The device refused something.
    #[error("log device in {dir}: {source}")]
    Device {
        /// The directory.
        dir: String,
        /// The device's error.
        source: LogDeviceError,
    },
    /// Standard output is closed.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
    /// The device did not do what it promises.
    #[error("log device in {dir}: {what}")]
    Wrong {
        /// The directory.
        dir: String,
        /// The broken promise.
        what: String,
    },
}

/// One test of the device in one directory.
pub struct LogDeviceTest {
    dir: String,
    /// The device's, in the lines for the outside.
    name: &'static str,
    device: Box<dyn LogDevice>,
}

impl LogDeviceTest {
    /// Opens the device, or makes one.
    ///
    /// # Errors
    /// The device's own.
    pub fn open(dir: &Path, device: Device) -> Result<Self, LogDeviceTestError> {
        let options = SegmentOptions { segment_len_bytes: SEGMENT_LEN_BYTES, ..SegmentOptions::default() };
        let opened: Result<Box<dyn LogDevice>, LogDeviceError> = match device {
            Device::Pmem => {
                let options = PmemLogOptions { segments: options, ..PmemLogOptions::default() };
                PmemLogDevice::open(dir, options).map(|device| Box::new(device) as _)
            }
            Device::Block => {
                let options = BlockLogOptions { segments: options, ..BlockLogOptions::default() };
                BlockLogDevice::open(dir, options).map(|device| Box::new(device) as _)
            }
            Device::File => FileLogDevice::open(dir, options).map(|device| Box::new(device) as _),
        };
        let dir = dir.display().to_string();
        match opened {
            Ok(device) => {
                let test = Self { dir, name: device.info().kind.name(), device };
                eprintln!("{}: {:?}", test.dir, test.device.info());
                Ok(test)
            }
            Err(source) => Err(LogDeviceTestError::Device { dir, source }),
        }
    }

    /// Appends records by several threads. Each waits until its record is durable and prints a line. The call ends when
    /// `len_bytes` were appended; with `None` when the machine does.
    ///
    /// # Errors
    /// The device's own.
    pub fn append(&self, len_bytes: Option<u64>) -> Result<(), LogDeviceTestError> {
        let run = self.device.end().0;
        let discarded = AtomicU64::new(self.device.start().0);
        let limit = len_bytes.map_or(u64::MAX, |len| run.saturating_add(len));
        let work = |thread| -> Result<(), LogDeviceTestError> {
            let mut random = fastrand::Rng::with_seed(run ^ thread);
            let mut record = Vec::new();
            for counter in 0.. {
                let count = random.u64(1..=MAX_RECORD_CELLS);
                record.clear();
                for index in 0..count {
                    Cell { run, thread, counter, index, count }.write_to(&mut record);
                }
                let end = self.device.append(&record).map_err(|error| self.failed(error))?;
                self.acknowledge(end)?;
                self.discard(end, &discarded)?;
                if end.0 >= limit {
                    break;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (1..APPENDING_THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
            let mut outcome = work(0);
            for thread in threads {
                let joined = thread.join().unwrap_or_else(|_| Err(self.wrong("a thread panicked".into())));
                outcome = outcome.and(joined);
            }
            outcome
        })
    }

    /// Waits until everything before `end` is durable, and prints it.
    fn acknowledge(&self, end: Seq) -> Result<(), LogDeviceTestError> {
        let durable = self.device.wait_durable(end).map_err(|error| self.failed(error))?;
        if durable < end {
            return Err(self.wrong(format!("durable up to {durable} after waiting for {end}")));
        }
        // One write per line, so that lines of several threads do not mix.
        io::stdout().lock().write_all(format!("ACK {} {durable} .\n", self.name).as_bytes())?;
        Ok(())
    }

    /// Gives up what is no longer needed, a segment's length at a time.
    fn discard(&self, durable: Seq, discarded: &AtomicU64) -> Result<(), LogDeviceTestError> {
        let until = durable.0.saturating_sub(KEEP_LEN_BYTES);
        let before = discarded.load(Ordering::Relaxed);
        let is_due = until >= before + SEGMENT_LEN_BYTES;
        // Only the thread that moves the mark on discards.
        if is_due && discarded.compare_exchange(before, until, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.device.discard_before(Seq(until)).map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// Reads and checks everything that is kept, and says where it starts and ends.
    ///
    /// # Errors
    /// [`LogDeviceTestError::Wrong`] if a cell is not whole or not the next one, if the end is not the end of a
    /// record, or if more was given up than the test asked for.
    pub fn verify(&self) -> Result<(), LogDeviceTestError> {
        let (start, end) = (self.device.start().0, self.device.end().0);
        if start > end.saturating_sub(KEEP_LEN_BYTES) {
            return Err(self.wrong(format!("bytes before {start} are gone, the end is {end}")));
        }
        let cell_len = CELL_LEN_BYTES as u64;
        let mut follower = Follower::default();
        let mut bytes = [0; CELL_LEN_BYTES];
        let first = start.next_multiple_of(cell_len);
        for at in (first..end).step_by(CELL_LEN_BYTES) {
            let found = if at + cell_len > end {
                Err("the end cuts a cell".to_owned())
            } else {
                self.device.read_at(Seq(at), &mut bytes).map_err(|error| self.failed(error))?;
                Cell::read_from(&bytes).ok_or_else(|| "this is not what was appended".to_owned())
            };
            found
                .and_then(|cell| follower.take(cell))
                .map_err(|what| self.wrong(format!("position {at} of {start} to {end}: {what}")))?;
        }
        if !follower.is_at_record_end() {
            return Err(self.wrong(format!("the end {end} is inside a record")));
        }
        let mut output = io::stdout().lock();
        writeln!(output, "START {name} {start} .\nEND {name} {end} .", name = self.name)?;
        eprintln!("{}: {} bytes are what was appended", self.dir, end - first.min(end));
        Ok(())
    }

    /// Prints the device's counters since it was opened.
    pub fn print_stats(&self) {
        eprintln!("{}: {:?}", self.dir, self.device.stats());
    }

    fn failed(&self, source: LogDeviceError) -> LogDeviceTestError {
        LogDeviceTestError::Device { dir: self.dir.clone(), source }
    }

    fn wrong(&self, what: String) -> LogDeviceTestError {
        LogDeviceTestError::Wrong { dir: self.dir.clone(), what }
    }
}
