//! Lines of the log on their way to standard error.
//!
//! Owns the lines that are not written yet, and the thread that writes them. A reader of the log that stops reading, as
//! a stopped `less` or a log collector that hangs, so delays no thread that logs.
//!
//! Bound: [`MAX_QUEUED_BYTES`]. Lines beyond it are dropped and counted; the event `log_lines_dropped` says how many, as
//! soon as there is a reader again.

use redoubt_locks::IgnorePoison;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::MakeWriter;

/// Limit of the lines that wait. As many again may be with the thread that writes them.
pub const MAX_QUEUED_BYTES: usize = 1 << 20;

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    dropped_lines: u64,
    is_writing: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

/// The lines.
#[derive(Clone, Default)]
pub struct Queue(Arc<Shared>);

impl Queue {
    /// Starts the thread that writes the lines to `out`. It reports dropped lines with `report`, through this queue.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        out: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Self::default();
        let shared = Arc::clone(&queue.0);
        std::thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || write_lines(&shared, out, &report))?;
        Ok(queue)
    }

    /// Adds a line, or drops it.
    fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        if state.lines.len() + line.len() > MAX_QUEUED_BYTES {
            state.dropped_lines += 1;
            return;
        }
        state.lines.extend_from_slice(line);
        self.0.changed.notify_all();
    }

    /// Waits until all lines are written, but not longer than `patience`.
    pub fn flush(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let mut state = self.0.lock();
        while state.is_writing || !state.lines.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.0.changed.wait_timeout(state, left).ignore_poison().0;
        }
    }
}

fn write_lines(shared: &Shared, mut out: impl Write, report: &impl Fn(u64)) {
    loop {
        let mut state = shared.lock();
        while state.lines.is_empty() {
            state = shared.changed.wait(state).ignore_poison();
        }
        let lines = std::mem::take(&mut state.lines);
        state.is_writing = true;
        drop(state);
        // A log that cannot be written, as on a full disk, ends nothing.
        let _ = out.write_all(&lines).and_then(|()| out.flush());
        let mut state = shared.lock();
        state.is_writing = false;
        let dropped_lines = std::mem::take(&mut state.dropped_lines);
        shared.changed.notify_all();
        drop(state);
        if dropped_lines > 0 {
            report(dropped_lines);
        }
    }
}

impl<'w> MakeWriter<'w> for Queue {
    type Writer = &'w Self;

    fn make_writer(&'w self) -> Self::Writer {
        self
    }
}

/// Each write is one line: the subscriber writes events whole.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
