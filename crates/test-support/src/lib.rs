//! What the tests of all crates share, and no product crate may depend on: saying what cannot run on this machine
//! ([`skip`]), the lengths and seeds of long runs ([`setting`]), and small disks ([`Mount`], [`LoopDevice`]).

mod loop_device;
mod mount;
mod setting;
mod skip;

pub use loop_device::LoopDevice;
pub use mount::Mount;
pub use setting::setting;
pub use skip::{LIST_VARIABLE, skip};
