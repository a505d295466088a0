//! Waits of tests for observable states, never for a time.
//!
//! [`GUARD`] only ends a test that would hang. It is many times the time that a busy machine needs, so it never
//! decides whether an operation is fast.

use std::time::{Duration, Instant};

/// Time after which an awaited state counts as unreachable.
pub const GUARD: Duration = Duration::from_secs(180);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not hold within [`GUARD`].
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Waits until `find` returns a value, and returns it.
///
/// # Panics
/// If there is no value within [`GUARD`].
pub fn until_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    let mut pause = Duration::from_micros(50);
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < GUARD, "{what}: not within {GUARD:?}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// The calling thread's `gettid`.
pub fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Number of calls that [`assert_at_once`] tries.
const TRIES: usize = 20;

/// Asserts that a call does not wait: each wait is a sleep in the kernel. On a busy machine a thread also sleeps for
/// other reasons, but not in each call. So one of several calls without a sleep is the proof.
///
/// # Panics
/// If all calls sleep.
pub fn assert_at_once(what: &str, mut call: impl FnMut()) {
    let thread = this_thread();
    let mut slept = Vec::new();
    for _ in 0..TRIES {
        let before = sleeps(thread);
        call();
        match sleeps(thread) - before {
            0 => return,
            count => slept.push(count),
        }
    }
    panic!("{what} slept each time: {slept:?}");
}

/// CPU time of the calling thread, without that of other programs.
///
/// # Panics
/// If the kernel does not support it.
#[expect(clippy::expect_used, reason = "it is called by tests")]
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    let nanoseconds = u32::try_from(time.tv_nsec).expect("less than a second");
    Duration::new(u64::try_from(time.tv_sec).expect("since the thread began"), nanoseconds)
}

/// Waits until a thread of this process sleeps in the kernel, or has ended. `thread` is its `gettid`.
pub fn until_asleep(thread: i32) {
    until("a thread that sleeps", || {
        // The state follows the name, which is in parentheses.
        std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"))
            .map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
    });
}

/// System call in which a thread of this process sleeps: its number and its arguments. `None` if the thread runs or
/// has ended. `thread` is its `gettid`.
pub fn system_call(thread: i32) -> Option<(i64, [u64; 6])> {
    parse_call(&std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?)
}

fn parse_call(text: &str) -> Option<(i64, [u64; 6])> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, arguments))
}

/// Waits until a thread of this process sleeps in one of these system calls, and returns the call's arguments.
pub fn until_in_call(thread: i32, numbers: &[i64]) -> [u64; 6] {
    until_some("a thread in a system call", || {
        system_call(thread).filter(|(number, _)| numbers.contains(number)).map(|(_, arguments)| arguments)
    })
}

/// Number of times that a thread of this process has slept in the kernel. `thread` is its `gettid`.
///
/// # Panics
/// If there is no such thread.
#[expect(clippy::expect_used, reason = "it is called by tests")]
pub fn sleeps(thread: i32) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).expect("the thread runs");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).expect("the kernel counts context switches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_returns_what_is_found_after_some_tries() {
        let mut tries = 0;
        let found = until_some("a fifth try", || {
            tries += 1;
            (tries == 5).then_some("found")
        });
        assert_eq!((found, tries), ("found", 5));
    }

    #[test]
    fn system_call_and_its_arguments_are_parsed() {
        let text = "232 0x4 0x7ffc0010 0x40 0xbb8 0x0 0x8 0x7ffc0000 0x7f001234\n";
        assert_eq!(parse_call(text), Some((232, [4, 0x7ffc_0010, 64, 3000, 0, 8])));
        assert_eq!(parse_call("running\n"), None);
    }

    #[test]
    fn call_that_sleeps_each_time_is_not_at_once() {
        assert_at_once("a sum", || assert_eq!(std::hint::black_box(1) + 1, 2));
        let nap = || std::thread::sleep(Duration::from_micros(10));
        assert!(std::panic::catch_unwind(|| assert_at_once("a nap", nap)).is_err());
    }

    #[test]
    fn cpu_time_grows_by_work_only() {
        let begin = cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        let slept = cpu_time() - begin;
        until("some work", || cpu_time() - begin > slept);
        assert!(slept < Duration::from_millis(50), "{slept:?}");
    }

    #[test]
    fn sleeping_thread_is_seen_and_its_sleeps_are_counted() {
        let (tell, told) = std::sync::mpsc::channel();
        let (wake, woken) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(this_thread()).unwrap();
            woken.recv().unwrap();
            woken.recv().unwrap();
        });
        let thread = told.recv().unwrap();
        until_asleep(thread);
        let before = sleeps(thread);
        wake.send(()).unwrap();
        until("a second sleep", || sleeps(thread) > before);
        wake.send(()).unwrap();
        sleeper.join().unwrap();
    }
}
