//! The lowest layer: the C library, messages, the configuration, the classification of paths and descriptors. It is
//! independent of the storage node.

pub mod classify;
pub mod config;
pub mod counters;
pub mod fds;
pub mod message;
pub mod open_flags;
pub mod paths;
pub mod real;
