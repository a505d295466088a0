//! The lowest layer: the C library, messages, the configuration, what paths and descriptors mean. It knows nothing of a
//! storage node.

pub mod classify;
pub mod config;
pub mod counters;
pub mod fds;
pub mod message;
pub mod open_flags;
pub mod paths;
pub mod real;
