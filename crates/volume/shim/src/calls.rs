//! The calls of the server: hooks in place of the C library's functions, and the handling of each call.

pub mod files;
pub mod hooks;
pub mod io;
pub mod library;
pub mod process;
pub mod target;
