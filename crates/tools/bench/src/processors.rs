//! Which processors a side's processes use: all, or a half of those there are, as if each side were a machine of its
//! own.
//!
//! A thread's processors are those of the threads and processes it starts, so setting them once for the thread that
//! starts a side's processes is enough. Kernel threads (soft interrupts, write-back, loop devices) are not bound.

use clap::ValueEnum;
use redoubt_workload::error::{Error, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Distribution of CPUs to server, clients and storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Processors {
    /// All processors are for all
    Shared,
    /// Clients and server (with its mount) use one half, storage the other, as if on a machine of its own
    Separate,
}

impl Processors {
    /// As it stands on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Separate => "separate",
        }
    }
}

/// Processors for the calling thread and what it starts from then on.
#[derive(Debug, Clone, Copy)]
pub struct Share(CpuSet);

impl Share {
    /// The first and the second half of the processors that this thread may use; if they are odd, the first is smaller.
    ///
    /// # Errors
    /// [`Error::State`] if there is only one, [`Error::Io`].
    pub fn halves() -> Result<[Self; 2]> {
        let all =
            sched_getaffinity(None).map_err(|error| Error::io("ask for the processors")(error.into()))?;
        split(&all).map(|halves| halves.map(Self)).ok_or_else(|| {
            Error::State("--processors separate needs two processors: there is only one here".to_owned())
        })
    }

    /// Binds the calling thread.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn take(&self) -> Result<()> {
        sched_setaffinity(None, &self.0).map_err(|error| Error::io("choose processors")(error.into()))
    }
}

fn split(all: &CpuSet) -> Option<[CpuSet; 2]> {
    let numbers: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&number| all.is_set(number)).collect();
    if numbers.len() < 2 {
        return None;
    }
    let (first, second) = numbers.split_at(numbers.len() / 2);
    Some([first, second].map(|half| {
        let mut set = CpuSet::new();
        half.iter().for_each(|&number| set.set(number));
        set
    }))
}

#[cfg(test)]
#[path = "processors_tests.rs"]
mod tests;
