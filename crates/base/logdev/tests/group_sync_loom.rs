//! The interleavings of threads that share syncs: the code of `src/group_sync.rs`, on that of `waiters.rs` and `slot.rs`
//! of `redoubt-commit-waiters`, with the model checker loom.
//!
//! What must hold: when a call returns, what it asked for is durable; a sync that failed is not believed; nobody
//! waits for ever (a deadlock, which loom reports).

#![allow(clippy::unwrap_used, reason = "a failed call fails the model")]

#[path = "../src/group_sync.rs"]
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it")]
mod group_sync;
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it")]
#[path = "../../commit-waiters/src/slot.rs"]
mod slot;
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it")]
#[path = "../../commit-waiters/src/waiters.rs"]
mod waiters;

use group_sync::GroupSync;
use loom::sync::{Arc, Mutex};
use loom::thread;
use redoubt_test_support::model_checker as primitives;

/// A device: where the stream ends, and how far it is durable.
#[derive(Default)]
struct Disk {
    end: u64,
    durable: u64,
    has_failed: bool,
}

struct Device {
    group: GroupSync,
    disk: Mutex<Disk>,
    /// The first sync fails.
    fails: bool,
}

impl Device {
    fn new(fails: bool) -> Arc<Self> {
        Arc::new(Self { group: GroupSync::new(0), disk: Mutex::new(Disk::default()), fails })
    }

    fn check(&self) -> Result<(), ()> {
        if self.disk.lock().unwrap().has_failed { Err(()) } else { Ok(()) }
    }

    /// What is written when it begins becomes durable when it ends.
    fn sync_all(&self) -> Result<u64, ()> {
        self.check()?;
        let end = self.disk.lock().unwrap().end;
        let mut disk = self.disk.lock().unwrap();
        if self.fails {
            disk.has_failed = true;
            return Err(());
        }
        disk.durable = disk.durable.max(end);
        Ok(end)
    }

    /// A commit: append, then make it durable.
    fn commit(&self) -> Result<(), ()> {
        let wanted = {
            let mut disk = self.disk.lock().unwrap();
            disk.end += 1;
            disk.end
        };
        let end = self.group.sync(wanted, || self.check(), || self.sync_all())?;
        assert!(end >= wanted, "less than asked for");
        assert!(self.disk.lock().unwrap().durable >= wanted, "answered before it was durable");
        Ok(())
    }
}

fn commit_in_thread(device: &Arc<Device>) -> thread::JoinHandle<Result<(), ()>> {
    let device = Arc::clone(device);
    thread::spawn(move || device.commit())
}

#[test]
fn two_commits_are_durable_when_they_are_answered() {
    primitives::model(3, || {
        let device = Device::new(false);
        let other = commit_in_thread(&device);
        device.commit().unwrap();
        other.join().unwrap().unwrap();
    });
}

#[test]
fn three_commits_are_durable_when_they_are_answered() {
    primitives::model(2, || {
        let device = Device::new(false);
        let others = [commit_in_thread(&device), commit_in_thread(&device)];
        device.commit().unwrap();
        for other in others {
            other.join().unwrap().unwrap();
        }
    });
}

#[test]
fn nobody_is_told_that_a_failed_sync_made_it_durable() {
    primitives::model(2, || {
        let device = Device::new(true);
        let other = commit_in_thread(&device);
        assert_eq!(device.commit(), Err(()));
        assert_eq!(other.join().unwrap(), Err(()));
    });
}
