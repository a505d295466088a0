//! What the tests of all crates share, and no product crate may depend on: saying what cannot run on this machine
//! ([`skip`]), the lengths and seeds of long runs ([`setting`]), small disks ([`Mount`],
//! [`LoopDevice`]), two networks ([`NetworkPair`]), lists in the documentation ([`listed`]), which programs have planted
//! bugs ([`planted`]), and what code without locks stands on while all its interleavings are tried ([`model_checker`]).

pub mod listed;
mod loop_device;
pub mod model_checker;
mod mount;
mod network_pair;
pub mod planted;
mod setting;
mod skip;

pub use loop_device::LoopDevice;
pub use mount::Mount;
pub use network_pair::{NetworkPair, Side, run};
pub use setting::setting;
pub use skip::{LIST_VARIABLE, skip};
