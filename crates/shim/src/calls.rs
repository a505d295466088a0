//! The calls of the server.

pub mod files;
pub mod hooks;
pub mod io;
pub mod library;
pub mod target;
