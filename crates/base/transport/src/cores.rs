//! CPU utilisation of the processors that this process may use.
//!
//! Reads `/proc/stat` and `/proc/loadavg` with direct system calls, because the preloaded library may use this inside
//! a server whose file calls it intercepts. A processor also counts as idle during disk waits. Time that a hypervisor
//! took counts as busy. Limits of control groups (`cpu.max`) are ignored.

use std::time::{Duration, Instant};

/// Minimum interval, for meaningful differences of counters with steps of 10 ms.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const STAT_LEN_BYTES: usize = 64 << 10;
/// Columns of a processor's line after its name: user, nice, system, idle, iowait, irq, softirq, steal. Guest time is
/// part of user time.
const COLUMNS: usize = 8;
const IDLE_COLUMNS: [usize; 2] = [3, 4];

/// The CPUs that this process may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreUse {
    /// Number of processors.
    pub cores: f64,
    /// Average number of idle processors over the measured interval.
    pub idle_cores: f64,
    /// Average number of runnable threads of the host, over about a second.
    pub runnable: f64,
}

/// Sum of the counters of all allowed processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    cores: u64,
    idle: u64,
    all: u64,
}

/// Measures the processors.
#[derive(Default)]
pub struct Cores {
    before: Option<(Instant, Ticks)>,
    known: Option<CoreUse>,
    runnable: Option<f64>,
    text: Vec<u8>,
}

impl Cores {
    /// Recent utilisation; `None` if it is unknown, or not yet known.
    pub fn look(&mut self) -> Option<CoreUse> {
        let now = Instant::now();
        if let Some((at, _)) = self.before
            && now.saturating_duration_since(at) < INTERVAL_MIN
        {
            return self.known;
        }
        let allowed = allowed();
        // One of them is this thread, which only runs for this measurement.
        let runnable = read(c"/proc/loadavg", &mut self.text).and_then(runnable_threads)?.saturating_sub(1);
        let before = self.runnable.unwrap_or(f64::from(runnable));
        let runnable = before + (f64::from(runnable) - before) / 8.0;
        self.runnable = Some(runnable);
        let ticks = read(c"/proc/stat", &mut self.text).and_then(|text| add_up(text, &allowed));
        if let (Some(ticks), Some((_, before))) = (ticks, self.before)
            && let Some((cores, idle_cores)) = used(before, ticks)
        {
            let found = CoreUse { cores, idle_cores, runnable };
            // Two processors have 20 steps in a tenth of a second.
            self.known = Some(match self.known {
                Some(known) if known.cores == found.cores => {
                    CoreUse { idle_cores: (known.idle_cores + found.idle_cores) / 2.0, ..found }
                }
                _ => found,
            });
        }
        self.before = ticks.map(|ticks| (now, ticks));
        if ticks.is_none() {
            self.known = None;
        }
        self.known
    }
}

/// The fourth word has the number of runnable threads, and of all threads.
fn runnable_threads(text: &str) -> Option<u32> {
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Number of processors, and of idle ones, between two measurements.
fn used(before: Ticks, now: Ticks) -> Option<(f64, f64)> {
    let all = now.all.checked_sub(before.all).filter(|all| *all > 0 && now.cores == before.cores)?;
    // Counters of idle time may decrease by a step.
    let idle = now.idle.saturating_sub(before.idle).min(all);
    let cores = now.cores as f64;
    Some((cores, cores * idle as f64 / all as f64))
}

/// Adds up the lines of the processors for which `is_allowed` holds.
fn add_up(text: &str, is_allowed: &dyn Fn(usize) -> bool) -> Option<Ticks> {
    let mut sum = Ticks::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(number) = words.next().and_then(|name| name.strip_prefix("cpu")) else { break };
        let Ok(number) = number.parse() else { continue };
        if !is_allowed(number) {
            continue;
        }
        sum.cores += 1;
        for (column, word) in words.take(COLUMNS).enumerate() {
            let ticks: u64 = word.parse().ok()?;
            sum.all += ticks;
            sum.idle += if IDLE_COLUMNS.contains(&column) { ticks } else { 0 };
        }
    }
    (sum.cores > 0).then_some(sum)
}

/// The processors that this process may use, or all if that is unknown.
fn allowed() -> impl Fn(usize) -> bool {
    // SAFETY: a set of processors is plain bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the length is the size of the set.
    let is_known = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } == 0;
    move |number| {
        // SAFETY: the number is below that of the bits in the set.
        !is_known || (number < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(number, &set) })
    }
}

/// Reads the beginning of a file: in `/proc/stat` it has the lines of the processors.
fn read<'t>(path: &std::ffi::CStr, text: &'t mut Vec<u8>) -> Option<&'t str> {
    text.resize(STAT_LEN_BYTES, 0);
    // SAFETY: the path ends with a NUL; the call has no other requirement.
    let file = unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0)
    };
    if file < 0 {
        return None;
    }
    // SAFETY: the descriptor was just opened; the length is that of the buffer.
    let len = unsafe { libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len()) };
    // SAFETY: the descriptor has no other owner, and is not used after this.
    unsafe { libc::syscall(libc::SYS_close, file) };
    let read = text.get(..usize::try_from(len).ok()?)?;
    // A truncated line is dropped.
    let end = read.iter().rposition(|byte| *byte == b'\n')?;
    std::str::from_utf8(read.get(..end)?).ok()
}

#[cfg(test)]
mod tests;
