//! The thread that makes records durable.

use super::Input;
use super::inbox::{Inbox, Inlet};
use crate::store::StoreError;
use redoubt_locks::IgnorePoison;
use redoubt_logdev::LogDevice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

#[derive(Default)]
struct Wanted {
    count: u64,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().ignore_poison()
    }
}

/// Handle of the syncing thread, which ends when this is dropped.
pub struct Syncing(Arc<Shared>);

impl Syncing {
    /// Starts the thread for a device. Its results arrive as [`Input::Synced`]. The thread itself may drop the returned
    /// handle.
    pub fn start(device: Arc<dyn LogDevice>, inlet: Inlet) -> (Self, Option<JoinHandle<()>>) {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let failed = Arc::clone(&inlet);
        let spawned =
            std::thread::Builder::new().name("group-sync".into()).spawn(move || sync(&own, &*device, &inlet));
        let fail = |source| {
            failed.put(Input::StoreFailed(StoreError::Io { action: "start a thread for it", source }));
        };
        (Self(shared), spawned.map_err(fail).ok())
    }

    /// Requests that all `count` records so far become durable.
    pub fn want(&self, count: u64) {
        let mut wanted = self.0.wanted();
        if count > wanted.count {
            wanted.count = count;
            drop(wanted);
            self.0.changed.notify_one();
        }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.0.wanted().is_over = true;
        self.0.changed.notify_one();
    }
}

fn sync(shared: &Shared, device: &dyn LogDevice, inlet: &Inbox) {
    let mut synced = 0;
    loop {
        let mut wanted = shared.wanted();
        while wanted.count <= synced && !wanted.is_over {
            wanted = shared.changed.wait(wanted).ignore_poison();
        }
        if wanted.is_over {
            return;
        }
        let count = wanted.count;
        drop(wanted);
        let input = match device.sync() {
            Ok(_) => Input::Synced(count),
            Err(error) => Input::StoreFailed(error.into()),
        };
        synced = count;
        inlet.post(input);
    }
}
