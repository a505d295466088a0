use super::*;
use crate::report::Level;

#[test]
fn kernels() {
    let level = |release: &str| judge_kernel(release, "x86_64").level;
    assert_eq!(level("6.18.44-fc-v669"), Level::Ok);
    assert_eq!(level("6.1.0-37-amd64"), Level::Ok);
    assert!(judge_kernel("6.1.0-37-amd64", "x86_64").found.contains("6.11"));
    assert_eq!(level("4.19.0"), Level::Warning);
    assert_eq!(level("5.4.0-1-generic"), Level::Warning);
    assert_eq!(level(""), Level::Note);
    assert_eq!(judge_kernel("6.12.0", "riscv64").level, Level::Note);
}

#[test]
fn a_clock_matters_more_with_certificates() {
    let level = |now_s, synchronised, tls| judge_clock(&Clock { now_s, synchronised }, tls).level;
    let now = EARLIEST_S + 1;
    assert_eq!(level(now, Some(true), true), Level::Ok);
    assert_eq!(level(now, Some(false), true), Level::Warning);
    assert_eq!(level(now, Some(false), false), Level::Note);
    assert_eq!(level(now, None, true), Level::Ok);
    assert_eq!(level(0, Some(true), true), Level::Problem);
    assert_eq!(level(0, Some(true), false), Level::Warning);
}

#[test]
fn memory_is_compared_with_what_is_wanted() {
    let memory = Memory { total: 8 << 30, available: 4 << 30, strict: false };
    let level = |memory, wanted| judge_memory(memory, wanted, "a pool").level;
    assert_eq!(level(memory, 1 << 30), Level::Ok);
    assert_eq!(level(memory, 5 << 30), Level::Warning);
    assert_eq!(level(memory, 9 << 30), Level::Problem);
    assert_eq!(level(Memory { strict: true, ..memory }, 1 << 30), Level::Note);
    assert_eq!(level(Memory::default(), 1), Level::Note);
    let text = "MemTotal:       24573772 kB\nMemAvailable:   20100000 kB\n";
    assert_eq!(meminfo(text, "MemTotal"), 24_573_772 << 10);
    assert_eq!(meminfo(text, "MemFree"), 0);
}

#[test]
fn small_windows_are_pointed_out() {
    assert_eq!(judge_network(Some(6 << 20), Some(4 << 20), Some(0)).level, Level::Ok);
    assert_eq!(judge_network(Some(6 << 20), Some(1 << 20), None).level, Level::Note);
    assert!(judge_network(Some(6 << 20), Some(4 << 20), Some(1)).found.contains("slow start"));
    assert_eq!(judge_network(None, None, None).level, Level::Ok);
}

#[test]
fn this_host_has_a_kernel_and_memory() {
    assert!(kernel().found.contains("Linux "));
    assert!(memory(1, "nothing").found.contains("available"));
    assert!(clock(false).found.contains("20"));
    assert!(network().found.contains("TCP"));
}
