//! The log device on persistent memory.
//!
//! [`PmemLogDevice`] keeps its segments in mappings of [`redoubt_persistent_memory`]; [`numa`] is what it knows about
//! the machine. `model_disk` is a directory in modelled memory, for tests.

mod device;
mod log;
#[cfg(test)]
mod model_disk;
pub mod numa;

pub use device::{PmemLogDevice, PmemLogOptions};
