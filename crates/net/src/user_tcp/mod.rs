//! TCP in user space.
pub mod interface;
pub mod link;
pub mod xdp;
