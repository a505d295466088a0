//! The connections to the storage node: the ordered log connection with its notices, and those of page requests.

pub mod link;
pub mod pool;
pub mod stream;
pub mod trace;
