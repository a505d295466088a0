//! Helpers for the tests of all crates. No product crate may depend on them.
//!
//! * [`skip`] reports tests that cannot run on this machine. * [`setting`] reads lengths and seeds of long runs.
//! * [`wait`]: waits for observable states. * [`port`]: TCP ports. * [`child`]: processes that a test starts.
//! * [`Mount`], [`LoopDevice`]: small disks. * [`NetworkPair`]: two networks. * [`NoDescriptors`]: a lack of them.
//! * [`planted`]: programs with planted bugs. * [`listed`]: lists in the documentation.
//! * [`log_segment`]: changed frames in a log.
//! * [`model_checker`]: locks and atomics for tests of all interleavings.

pub mod child;
pub mod listed;
pub mod log_segment;
mod loop_device;
pub mod model_checker;
mod mount;
mod network_pair;
mod no_descriptors;
pub mod planted;
pub mod port;
mod setting;
mod skip;
pub mod wait;

pub use loop_device::LoopDevice;
pub use mount::Mount;
pub use network_pair::{NetworkPair, Side, run};
pub use no_descriptors::NoDescriptors;
pub use setting::{setting, setting_os, setting_range, setting_text};
pub use skip::{LIST_VARIABLE, skip};
