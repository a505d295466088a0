//! The host itself: kernel, clock, memory, TCP.

use super::report::Check;
use redoubt_client::events::bytes;
use std::path::Path;

/// 2025-01-01. An earlier clock is wrong.
const EARLIEST_S: i64 = 1_735_689_600;
const STA_UNSYNC: i32 = 0x40;
/// Below this a connection at 10 Gbit/s over 3 ms waits for acknowledgements.
const ENOUGH_WINDOW_BYTES: u64 = 4 << 20;

/// Kernel and processor.
pub fn kernel() -> Check {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    judge_kernel(release.trim(), std::env::consts::ARCH)
}

fn judge_kernel(release: &str, processor: &str) -> Check {
    const NAME: &str = "kernel";
    let found = format!("Linux {release}, {processor}");
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if processor != "x86_64" {
        return Check::note(
            NAME,
            found,
            "Redoubt is developed and tested on x86-64: try it out before you rely on it",
        );
    }
    match version {
        (0, _) => Check::note(NAME, "the kernel does not say its version", "Linux 5.10 or later is expected"),
        version if version < (5, 10) => {
            Check::warning(NAME, found, "use Linux 5.10 or later: older ones have never been tried")
        }
        version if version < (6, 11) => Check::ok(NAME, format!("{found} (untorn writes need 6.11)")),
        _ => Check::ok(NAME, found),
    }
}

/// The kernel's view of the clock.
struct Clock {
    now_s: i64,
    /// `None`: unknown.
    synchronised: Option<bool>,
}

/// The clock; certificates depend on it.
pub fn clock(tls: bool) -> Check {
    // SAFETY: timex is plain data, for which zeros are valid; with modes 0 nothing is set.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live value of the right type.
    let answered = unsafe { libc::adjtimex(&raw mut state) } >= 0;
    let synchronised = answered.then_some(state.status & STA_UNSYNC == 0);
    judge_clock(&Clock { now_s: redoubt_transport::certificate::now(), synchronised }, tls)
}

fn judge_clock(clock: &Clock, tls: bool) -> Check {
    const NAME: &str = "clock";
    const START: &str = "run a time service (Debian: apt install systemd-timesyncd, or chrony); certificates are valid for a time";
    let now = redoubt_transport::certificate::time_text(clock.now_s);
    match (clock.synchronised, tls) {
        _ if clock.now_s < EARLIEST_S && tls => Check::problem(NAME, format!("{now}, which is wrong"), START),
        _ if clock.now_s < EARLIEST_S => Check::warning(NAME, format!("{now}, which is wrong"), START),
        (Some(true), _) => Check::ok(NAME, format!("{now}, synchronised")),
        (Some(false), true) => Check::warning(NAME, format!("{now}, not synchronised"), START),
        (Some(false), false) => Check::note(NAME, format!("{now}, not synchronised"), START),
        (None, _) => Check::ok(NAME, now),
    }
}

/// Memory of the host, in bytes.
#[derive(Clone, Copy, Default)]
struct Memory {
    total: u64,
    available: u64,
    /// `vm.overcommit_memory` is 2.
    strict: bool,
}

/// Checks that the memory is enough for `wanted_bytes` in all; `parts` describes their use.
pub fn memory(wanted_bytes: u64, parts: &str) -> Check {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let strict = read_number("/proc/sys/vm/overcommit_memory") == Some(2);
    let facts =
        Memory { total: meminfo(&text, "MemTotal"), available: meminfo(&text, "MemAvailable"), strict };
    judge_memory(facts, wanted_bytes, parts)
}

fn judge_memory(memory: Memory, wanted_bytes: u64, parts: &str) -> Check {
    const NAME: &str = "memory";
    let found = format!("{} of {} available; {parts}", bytes(memory.available), bytes(memory.total));
    if memory.total == 0 {
        return Check::note(
            NAME,
            "the kernel does not say how much there is",
            format!("room is needed for {parts}"),
        );
    }
    if wanted_bytes > memory.total {
        return Check::problem(NAME, found, "make it smaller: it is more than this host has");
    }
    if wanted_bytes > memory.available {
        return Check::warning(
            NAME,
            found,
            "make it smaller, or end what uses the memory: the kernel would swap, or kill a process",
        );
    }
    if memory.strict {
        return Check::note(
            NAME,
            format!("{found}; vm.overcommit_memory=2"),
            "with strict accounting, memory that is only reserved counts too: leave room, or set it to 0",
        );
    }
    Check::ok(NAME, found)
}

fn meminfo(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Settings of TCP that matter for a node on another host.
pub fn network() -> Check {
    let largest = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    let idle = read_number("/proc/sys/net/ipv4/tcp_slow_start_after_idle");
    judge_network(largest("tcp_rmem"), largest("tcp_wmem"), idle)
}

fn judge_network(receive: Option<u64>, send: Option<u64>, slow_start_after_idle: Option<u64>) -> Check {
    const NAME: &str = "network";
    let shown = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), bytes);
    let found = format!("TCP windows up to {} (receive), {} (send)", shown(receive), shown(send));
    if receive.into_iter().chain(send).any(|window| window < ENOUGH_WINDOW_BYTES) {
        return Check::note(
            NAME,
            found,
            "raise the third number of net.ipv4.tcp_rmem and tcp_wmem to 4194304 or more: a fast link with a delay is \
             not filled otherwise",
        );
    }
    if slow_start_after_idle == Some(1) {
        return Check::ok(
            NAME,
            format!("{found}; slow start after idle (net.ipv4.tcp_slow_start_after_idle)"),
        );
    }
    Check::ok(NAME, found)
}

fn read_number(path: impl AsRef<Path>) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
