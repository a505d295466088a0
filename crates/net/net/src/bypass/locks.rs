//! Waits for the locks of the bypass.
//!
//! The holder of a lock may be preempted for long, by many other threads that connect at the same time. A thread that
//! gave up then would have exchanged one end of a connection and not the other. So waits for a lock have a long
//! timeout. They are not endless, since a signal handler may have interrupted the holder.
//!
//! Invariant: no other thread has a lock while the process forks, so no lock stays taken in a child.

use super::server::{DOORS, Door};
use super::{RECORDS, Record};
use libc::c_int;
use redoubt_locks::IgnorePoisonIfFree;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

/// Attempts before the thread sleeps between them.
const TRIES: usize = 100;
const NAP: Duration = Duration::from_micros(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

type Held = (Option<MutexGuard<'static, Vec<Door>>>, Option<MutexGuard<'static, BTreeMap<c_int, Record>>>);

thread_local! {
    /// Locks of a thread that forks.
    static HELD: RefCell<Held> = const { RefCell::new((None, None)) };
}

pub fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let mut tries = 0;
    let mut end = None;
    loop {
        if let Some(guard) = mutex.try_lock().ignore_poison_if_free() {
            return Some(guard);
        }
        tries += 1;
        if tries < TRIES {
            std::thread::yield_now();
        } else if Instant::now() < *end.get_or_insert_with(|| Instant::now() + LONGEST_WAIT) {
            std::thread::sleep(NAP);
        } else {
            return None;
        }
    }
}

/// From now on no other thread has a lock while the process forks.
pub fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers take and leave locks; they are never unloaded (preloaded libraries stay).
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    });
}

extern "C" fn before() {
    let held = (lock(&DOORS), lock(&RECORDS));
    let _ = HELD.try_with(|place| place.replace(held));
}

extern "C" fn after() {
    let _ = HELD.try_with(RefCell::take);
}
