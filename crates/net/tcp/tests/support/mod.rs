//! Helpers shared by the tests.

#![allow(dead_code, reason = "each test uses a part")]

pub mod exact;
pub mod peers;
pub mod server;
