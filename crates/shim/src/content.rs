//! What is sent and what is read.

pub mod dirty;
pub mod names;
pub mod need;
pub mod page_cache;
pub mod read_ahead;
pub mod verify;
