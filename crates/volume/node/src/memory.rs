//! One memory bound for all volumes of a node: received frames, and the index that refers to them.
//!
//! Each volume counts its memory ([`VolumeMemory`]); the node's budget is the sum. A volume whose frames find no room
//! in either waits, and its server with it, until a table is applied. A volume that keeps nothing unapplied may always
//! take one frame, so no volume starves or waits for another for ever.
//!
//! Not counted, because it does not grow with the load: the pages that are being built and written, buffers of
//! connections, names. A test with a bound of 64 MiB sees 175 to 298 MiB of a process with one volume.
//!
//! No locks: the numbers are atomics, and a frame more or less does not matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The default bound: a quarter of the host's memory, but not less than this.
const SMALLEST_DEFAULT_BYTES: u64 = 1 << 30;

/// Memory of a node.
#[derive(Debug)]
pub struct MemoryBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, used_bytes: AtomicU64::new(0) }
    }

    /// The bound in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Memory of all volumes, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        let info = rustix::system::sysinfo();
        let host_bytes = u64::from(info.mem_unit).saturating_mul(info.totalram as u64);
        Self::new((host_bytes / 4).max(SMALLEST_DEFAULT_BYTES))
    }
}

/// Memory of one volume.
#[derive(Debug)]
pub struct VolumeMemory {
    budget: Arc<MemoryBudget>,
    used_bytes: AtomicU64,
}

impl VolumeMemory {
    /// Nothing yet.
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self { budget: Arc::clone(budget), used_bytes: AtomicU64::new(0) }
    }

    /// Without a bound.
    pub fn unbounded() -> Self {
        Self::new(&Arc::new(MemoryBudget::new(u64::MAX)))
    }

    /// So many bytes more.
    pub fn add(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes less.
    pub fn remove(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Memory of the volume, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The node has room for another `bytes`.
    pub fn fits(&self, bytes: u64) -> bool {
        self.budget.used_bytes().saturating_add(bytes) <= self.budget.limit_bytes
    }
}

impl Drop for VolumeMemory {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(*self.used_bytes.get_mut(), Ordering::Relaxed);
    }
}
