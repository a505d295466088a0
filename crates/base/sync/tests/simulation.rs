//! Errors that a simulation detects, and its repeatability.

use redoubt_sync::simulation::{self, Failure, Options, Report};
use redoubt_sync::{Condvar, Mutex, RwLock, thread, time};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Runs `body` with many seeds.
fn sweep<T: Send + 'static>(seeds: u64, body: fn() -> T) -> Vec<Result<(T, Report), Failure>> {
    (0..seeds).map(|seed| simulation::run(&Options::new(seed), body)).collect()
}

fn all_pass(seeds: u64, body: fn()) {
    for result in sweep(seeds, body) {
        result.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

fn first_failure(seeds: u64, body: fn()) -> Failure {
    sweep(seeds, body).into_iter().find_map(Result::err).expect("no seed fails")
}

#[test]
fn locks_exclude_and_threads_meet() {
    all_pass(50, || {
        let count = Arc::new(Mutex::new(0u64));
        let inside = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (count, inside) = (Arc::clone(&count), Arc::clone(&inside));
                thread::spawn(move || {
                    for _ in 0..20 {
                        let mut count = count.lock();
                        assert!(!inside.swap(true, Ordering::Relaxed));
                        simulation::point();
                        *count += 1;
                        inside.store(false, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*count.lock(), 80);
    });
}

#[test]
fn a_lost_update_is_found() {
    let failure = first_failure(50, || {
        let count = Arc::new(Mutex::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let read = *count.lock();
                    *count.lock() = read + 1;
                });
            }
        });
        assert_eq!(*count.lock(), 2, "an update was lost");
    });
    assert!(failure.message.contains("an update was lost"), "{failure}");
}

#[test]
fn a_deadlock_is_reported_with_who_waits_where() {
    let failure = first_failure(50, || {
        let locks = Arc::new((Mutex::new(()), Mutex::new(())));
        let other = Arc::clone(&locks);
        let thread = thread::spawn(move || {
            let _second = other.1.lock();
            let _first = other.0.lock();
        });
        let first = locks.0.lock();
        drop((locks.1.lock(), first));
        thread.join().unwrap();
    });
    assert!(failure.message.contains("deadlock"), "{failure}");
    assert_eq!(failure.message.matches("waits for Mutex").count(), 2, "{failure}");
    assert!(failure.message.contains("tests/simulation.rs"), "{failure}");
}

/// Uses a flag and a condition variable. With `forget`, the thread that sets the flag does not take the lock.
fn hand_over(forget: bool) {
    let shared = Arc::new((Mutex::new(()), AtomicBool::new(false), Condvar::new()));
    let theirs = Arc::clone(&shared);
    thread::spawn(move || {
        let locked = (!forget).then(|| theirs.0.lock());
        theirs.1.store(true, Ordering::Relaxed);
        drop(locked);
        theirs.2.notify_one();
    });
    let mut guard = shared.0.lock();
    while !shared.1.load(Ordering::Relaxed) {
        simulation::point();
        shared.2.wait(&mut guard);
    }
}

#[test]
fn a_lost_wake_up_is_found() {
    all_pass(200, || hand_over(false));
    let failure = first_failure(200, || hand_over(true));
    assert!(failure.message.contains("waits for Condvar"), "{failure}");
}

#[test]
fn a_reader_that_reads_twice_can_wait_for_itself() {
    let failure = first_failure(200, || {
        let lock = Arc::new(RwLock::new(0));
        let theirs = Arc::clone(&lock);
        let thread = thread::spawn(move || *theirs.write() += 1);
        let outer = lock.read();
        drop((lock.read(), outer));
        thread.join().unwrap();
    });
    assert!(failure.message.contains("waits for ReadLock"), "{failure}");
}

#[test]
fn readers_share_and_writers_do_not() {
    all_pass(100, || {
        let lock = Arc::new(RwLock::new((0u32, 0u32)));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        simulation::point();
                        pair.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..10 {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1);
                        simulation::point();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(*lock.read(), (20, 20));
    });
}

#[test]
fn time_is_virtual_and_deadlines_come_in_order() {
    let began = std::time::Instant::now();
    all_pass(20, || {
        simulation::set_calm(true);
        let begin = time::now();
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = [3u64, 1, 2]
            .into_iter()
            .map(|hours| {
                let order = Arc::clone(&order);
                thread::spawn(move || {
                    thread::sleep(Duration::from_secs(3600 * hours));
                    order.lock().push(hours);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*order.lock(), [1, 2, 3]);
        assert!(time::elapsed(begin) >= Duration::from_secs(3 * 3600));
        let (lock, never) = (Mutex::new(()), Condvar::new());
        assert!(never.wait_for(&mut lock.lock(), Duration::from_secs(7)).timed_out());
        let _held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock_for(Duration::from_secs(9)).is_none());
    });
    // Less than what each run slept: that was virtual time.
    assert!(began.elapsed() < Duration::from_secs(3 * 3600));
}

#[test]
fn a_deadline_sometimes_comes_while_others_could_run() {
    let late = sweep(300, || {
        let done = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&done);
        thread::spawn(move || {
            for _ in 0..300 {
                simulation::point();
            }
            *theirs.0.lock() = true;
            theirs.1.notify_all();
        });
        let mut is_done = done.0.lock();
        let mut timed_out = false;
        while !*is_done && !timed_out {
            timed_out = done.1.wait_for(&mut is_done, Duration::from_millis(500)).timed_out();
        }
        timed_out
    });
    let late = late.into_iter().filter(|result| result.as_ref().is_ok_and(|(late, _)| *late)).count();
    assert!((1..300).contains(&late), "{late} of 300");
}

#[test]
fn threads_park_and_futexes_wake() {
    all_pass(100, || {
        let word = Arc::new(AtomicU32::new(0));
        let parked = thread::current();
        let theirs = Arc::clone(&word);
        let thread = thread::spawn(move || {
            while theirs.load(Ordering::Acquire) == 0 {
                redoubt_sync::futex::wait(&theirs, 0, None);
            }
            parked.unpark();
        });
        word.store(1, Ordering::Release);
        redoubt_sync::futex::wake_one(&word);
        thread::park();
        thread.join().unwrap();
    });
}

/// A mixture of all calls.
fn mixture() -> u64 {
    let turns = Arc::new(AtomicU64::new(0));
    let lock = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for n in 0..5u64 {
            let (turns, lock) = (Arc::clone(&turns), Arc::clone(&lock));
            scope.spawn(move || {
                for _ in 0..20 {
                    lock.lock().push(n * 1000 + fastrand::u64(..1000));
                    thread::sleep(Duration::from_micros(simulation::random().u64(..20)));
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let digest = lock.lock().iter().fold(0u64, |digest, n| digest.wrapping_mul(31).wrapping_add(*n));
    simulation::trace(digest);
    digest
}

#[test]
fn the_same_seed_is_the_same_run() {
    let of = |seed| simulation::run(&Options::new(seed), mixture).unwrap();
    let mut traces = HashSet::new();
    for seed in 0..40 {
        let first = of(seed);
        assert_eq!(first, of(seed));
        traces.insert(first.1.trace);
    }
    assert_eq!(traces.len(), 40, "different seeds, different runs");
}

#[test]
fn a_killed_group_vanishes_and_leaves_its_locks() {
    all_pass(200, || {
        let lock = Arc::new(Mutex::new(0u64));
        let dropped = Arc::new(AtomicBool::new(false));
        struct Told(Arc<AtomicBool>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (theirs, told) = (Arc::clone(&lock), Told(Arc::clone(&dropped)));
        simulation::spawn_in_group(7, "victim", move || {
            let _told = told;
            // Threads of a group start threads in the same group.
            let again = Arc::clone(&theirs);
            let _other = thread::spawn(move || {
                loop {
                    *again.lock() += 1;
                }
            });
            thread::scope(|scope| {
                scope.spawn(|| {
                    loop {
                        let mut held = theirs.lock();
                        thread::sleep(Duration::from_millis(1));
                        *held += 1;
                    }
                });
            });
        });
        thread::sleep(Duration::from_millis(simulation::random().u64(..5)));
        assert!(!simulation::has_ended(7));
        simulation::kill(7);
        simulation::wait_for_end_of(7);
        assert!(dropped.load(Ordering::Relaxed));
        let before = *lock.lock();
        thread::sleep(Duration::from_secs(1));
        assert_eq!(*lock.lock(), before);
    });
}

#[test]
fn the_step_hook_sees_every_step() {
    let failure = first_failure(50, || {
        let level = Arc::new(AtomicU64::new(0));
        let watched = Arc::clone(&level);
        simulation::set_step_hook(move || match watched.load(Ordering::Relaxed) {
            0 | 1 => Ok(()),
            level => Err(format!("level {level}")),
        });
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    level.fetch_add(1, Ordering::Relaxed);
                    simulation::point();
                    level.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
    });
    assert!(failure.message.contains("level 2"), "{failure}");
}

#[test]
fn running_in_circles_is_a_failure() {
    let options = Options { max_steps: 10_000, ..Options::new(3) };
    let failure = simulation::run(&options, || {
        loop {
            thread::yield_now();
        }
    });
    let failure: Failure = failure.map(|((), report)| report).unwrap_err();
    assert!(failure.message.contains("not done after 10000 steps"), "{failure}");
}

#[test]
#[cfg(feature = "planted-bugs")]
fn planted_bug_is_on_only_in_its_simulation() {
    use redoubt_sync::planted::{Bug, is_planted};
    assert!(!is_planted(Bug::ReadTooOld));
    let asked = || (is_planted(Bug::ReadTooOld), is_planted(Bug::ReadsNotFenced));
    let with = Options { planted: Some(Bug::ReadTooOld), ..Options::new(1) };
    assert_eq!(simulation::run(&with, asked).unwrap().0, (true, false));
    assert_eq!(simulation::run(&Options::new(1), asked).unwrap().0, (false, false));
    assert!(!is_planted(Bug::ReadTooOld));
}

#[test]
fn simulations_and_real_threads_run_side_by_side() {
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || simulation::run(&Options::new(seed), mixture).unwrap());
        }
        let lock = Mutex::new(0);
        let real = thread::spawn(|| 5);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4000);
        assert_eq!(real.join().unwrap(), 5);
    });
}
