//! What the tests of all crates share, and no product crate may depend on: saying what cannot run on this machine
//! ([`skip`]), and the lengths and seeds of long runs ([`setting`]).

mod setting;
mod skip;

pub use setting::setting;
pub use skip::{LIST_VARIABLE, skip};
