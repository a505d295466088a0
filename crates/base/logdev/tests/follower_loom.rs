//! The interleavings of a thread that goes to sleep and one that offers it a write and wakes it: the code of
//! `src/block/follower.rs`, with the model checker loom. A thread that is never woken is a deadlock, which loom
//! reports.

#![allow(clippy::unwrap_used, reason = "a failed call fails the model")]

#[path = "../src/block/follower.rs"]
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it")]
mod follower;

use follower::Follower;
use loom::sync::{Arc, Mutex};
use loom::thread;
use redoubt_test_support::model_checker as primitives;

/// As the pipeline does: the follower is entered under the lock, taken out under the lock, and woken without it.
fn wake(queue: &Mutex<Vec<Arc<Follower>>>, offer: Option<u64>) {
    let taken = {
        let mut queue = queue.lock().unwrap();
        let taken = queue.pop();
        if let (Some(follower), Some(write)) = (&taken, offer) {
            follower.offer(write);
        }
        taken
    };
    if let Some(follower) = taken {
        follower.wake();
    }
}

fn sleeps_once(offer: Option<u64>) {
    primitives::model(3, move || {
        let queue = Arc::new(Mutex::new(Vec::new()));
        let waker = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                // It wakes whoever is there; the one that comes later looks for itself, as the pipeline's callers do.
                wake(&queue, offer);
                queue.lock().unwrap().is_empty()
            })
        };
        let follower = Arc::new(Follower::of_this_thread());
        queue.lock().unwrap().push(Arc::clone(&follower));
        // Somebody is there to wake it: the thread itself, if the waker was too early.
        if !waker_is_too_late(&queue, &follower) {
            assert_eq!(follower.sleep(), offer);
        }
        waker.join().unwrap();
    });
}

/// The waker found nobody: the follower takes itself out.
fn waker_is_too_late(queue: &Mutex<Vec<Arc<Follower>>>, follower: &Arc<Follower>) -> bool {
    // An interleaving in which the waker comes now, or not at all.
    thread::yield_now();
    let mut queue = queue.lock().unwrap();
    let before = queue.len();
    queue.retain(|other| !Arc::ptr_eq(other, follower));
    queue.len() < before
}

#[test]
fn a_follower_that_was_taken_out_is_woken() {
    sleeps_once(None);
}

#[test]
fn a_follower_that_is_woken_sees_its_offer() {
    sleeps_once(Some(7));
}

#[test]
fn a_wake_before_the_sleep_is_not_lost() {
    primitives::model(3, || {
        let follower = Arc::new(Follower::of_this_thread());
        let waker = {
            let follower = Arc::clone(&follower);
            thread::spawn(move || {
                follower.offer(1);
                follower.wake();
            })
        };
        assert_eq!(follower.sleep(), Some(1));
        waker.join().unwrap();
    });
}
