//! Real threads on [`CommitWaiters`]. Seeds vary what the threads do, not how the kernel runs them; every
//! interleaving of small cases is in `waiters_loom.rs`.

use redoubt_commit_waiters::{CommitWaiters, WaitEnd, WaiterStats};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Waits until `count` threads sleep in `waiters`, or are about to.
fn until_asleep(waiters: &CommitWaiters, count: u64) {
    redoubt_test_support::wait::until("threads that wait for a position", || waiters.stats().waits >= count);
}

#[test]
fn a_reached_position_needs_no_wait() {
    let waiters = CommitWaiters::new(10);
    assert_eq!(waiters.wait(10, None), WaitEnd::Reached);
    waiters.advance(5);
    assert_eq!(waiters.durable(), 10);
    waiters.close();
    assert_eq!(waiters.wait(10, None), WaitEnd::Reached);
    assert_eq!(waiters.wait(11, None), WaitEnd::Closed);
    assert_eq!(waiters.stats(), WaiterStats::default());
}

#[test]
fn a_deadline_ends_a_wait_and_leaves_nobody_behind() {
    let waiters = CommitWaiters::new(0);
    let begin = Instant::now();
    let deadline = begin + Duration::from_millis(20);
    assert_eq!(waiters.wait(1, Some(deadline)), WaitEnd::TimedOut);
    assert!(Instant::now() >= deadline);
    assert_eq!(waiters.wait(1, Some(begin)), WaitEnd::TimedOut);
    waiters.advance(1);
    assert_eq!(waiters.wait(1, Some(begin)), WaitEnd::Reached);
    assert_eq!(waiters.stats(), WaiterStats { waits: 2, wakeups: 0, wakeups_not_reached: 0 });
}

#[test]
fn an_advance_wakes_those_it_reaches_and_nobody_else() {
    let waiters = CommitWaiters::new(0);
    thread::scope(|scope| {
        let waiter = |position| {
            scope.spawn({
                let waiters = &waiters;
                move || waiters.wait(position, None)
            })
        };
        let near: Vec<_> = (1..=8).map(waiter).collect();
        let far: Vec<_> = (101..=108).map(waiter).collect();
        until_asleep(&waiters, 16);
        waiters.advance(8);
        for thread in near {
            assert_eq!(thread.join().unwrap(), WaitEnd::Reached);
        }
        assert_eq!(waiters.stats().wakeups, 8);
        assert!(far.iter().all(|thread| !thread.is_finished()));
        waiters.close();
        for thread in far {
            assert_eq!(thread.join().unwrap(), WaitEnd::Closed);
        }
    });
    assert_eq!(waiters.stats(), WaiterStats { waits: 16, wakeups: 16, wakeups_not_reached: 0 });
}

/// Threads commit repeatedly, each at its own position. A device thread makes the new positions durable, sometimes
/// only in part. No thread may return early, be forgotten, or be woken without reason.
fn stress(seed: u64, threads: usize, commits_each: u64) {
    let waiters = CommitWaiters::new(0);
    let (end, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let timed_out = AtomicU64::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..threads as u64)
            .map(|client| {
                let (waiters, end, timed_out) = (&waiters, &end, &timed_out);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 1000 + client);
                    for _ in 0..commits_each {
                        let position = end.fetch_add(random.u64(1..100), Ordering::AcqRel) + 1;
                        let mut deadline = (random.u8(0..4) == 0)
                            .then(|| Instant::now() + Duration::from_micros(random.u64(0..100)));
                        while waiters.wait(position, deadline) == WaitEnd::TimedOut {
                            timed_out.fetch_add(1, Ordering::Relaxed);
                            deadline = None;
                        }
                        assert!(waiters.durable() >= position);
                    }
                })
            })
            .collect();
        let (waiters, end, done) = (&waiters, &end, &done);
        for device in 0..2 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 1000 + 500 + device);
                while !done.load(Ordering::Acquire) {
                    let (from, to) = (waiters.durable(), end.load(Ordering::Acquire));
                    waiters.advance(if random.bool() { to } else { from + (to - from.min(to)) / 2 });
                    thread::yield_now();
                }
            });
        }
        let all_well = clients.into_iter().all(|client| client.join().is_ok());
        done.store(true, Ordering::Release);
        assert!(all_well, "seed {seed}");
    });
    let stats = waiters.stats();
    assert_eq!(stats.wakeups_not_reached, 0, "seed {seed}");
    assert_eq!(stats.wakeups, stats.waits - timed_out.load(Ordering::Relaxed), "seed {seed}");
}

#[test]
fn every_commit_is_woken_once_under_stress() {
    let rounds = redoubt_test_support::setting("REDOUBT_SOAK_ROUNDS", 6);
    for seed in 0..rounds {
        stress(seed, 4 + (seed as usize % 4) * 8, 300);
    }
}

#[test]
fn closing_lets_everyone_go_under_stress() {
    for seed in 0..20 {
        let waiters = CommitWaiters::new(0);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..16_u64)
                .map(|client| {
                    let waiters = &waiters;
                    scope
                        .spawn(move || (1..).find(|n| waiters.wait(n * 16 + client, None) == WaitEnd::Closed))
                })
                .collect();
            for step in 0..50 + seed {
                waiters.advance(step * 20);
                thread::yield_now();
            }
            waiters.close();
            for thread in threads {
                assert!(thread.join().unwrap().is_some(), "seed {seed}");
            }
        });
        assert_eq!(waiters.stats().wakeups_not_reached, 0, "seed {seed}");
    }
}
