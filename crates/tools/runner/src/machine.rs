//! Limits of this machine, and signals that the caller ignores.

use std::path::Path;

/// Memory that a slot may need: a test starts a server or two, a node, and a load.
const SLOT_MEMORY_BYTES: u64 = 2 << 30;

/// Slots, unless the caller says how many: twice the processors, but no more than fit into memory.
pub fn slots(processors: usize) -> usize {
    slots_in(processors, memory_bytes())
}

/// A machine of 8 GiB reports a little less, so parts of a slot count as one.
fn slots_in(processors: usize, memory_bytes: Option<u64>) -> usize {
    let fit = memory_bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(SLOT_MEMORY_BYTES));
    (2 * processors).min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1)
}

/// Memory of this machine, or of the container if it has less.
fn memory_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).ok();
    let machine = read("/proc/meminfo").and_then(|text| total_bytes(&text));
    // The whole of a container with version 2 of control groups; "max" where nothing limits it.
    let container = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(container).min()
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether this process began with a signal ignored, as SIGHUP is below `nohup`. Such a signal is not for it.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, signal)
}

fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    u32::try_from(signal - 1).ok().and_then(|bit| mask.checked_shr(bit)).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_by_memory() {
        let gib = |count: u64| Some(count << 30);
        assert_eq!(slots_in(2, gib(64)), 4);
        assert_eq!(slots_in(16, gib(8)), 4);
        assert_eq!(slots_in(16, Some((8 << 30) - (300 << 20))), 4);
        assert_eq!(slots_in(16, gib(1)), 1);
        assert_eq!(slots_in(16, Some(0)), 1);
        assert_eq!(slots_in(16, None), 32);
        assert_eq!(total_bytes("MemFree: 1 kB\nMemTotal:       16314532 kB\n"), Some(16_314_532 * 1024));
        assert_eq!(total_bytes("MemTotal: x kB"), None);
    }

    #[test]
    fn ignored_signals_are_bits_of_a_mask() {
        let status = "SigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(ignores(status, 1) && ignores(status, 13));
        assert!(!ignores(status, 2) && !ignores(status, 15) && !ignores("", 1));
    }
}
