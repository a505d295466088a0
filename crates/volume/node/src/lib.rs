//! The storage node: owns volumes, makes a server's redo durable, replays it into pages, serves pages.
//!
//! ```text
//! log connection -> log buffer -> log device            (W -> D, answers the server's fdatasync)
//!                       |
//!                       +-> parser -> log index -> apply workers -> page store   (P, A)
//!                                        |
//! page connection ---- construct <-------+
//! ```
//!
//! Modules: [`volume`] ties the parts of one volume together. The parts are [`log_buffer`], [`parser`], [`index`],
//! [`construct`], [`rescue`], [`apply`], [`quarantine`], [`server_image`], [`scrub`], [`namespace`], [`plain`] and
//! [`checkpoint`]. [`place`], [`log_device`] and [`page_store`] define where and how they are stored; [`at_rest`] encrypts
//! that. [`server`] is the network.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod apply;
pub mod at_rest;
pub mod checkpoint;
pub mod construct;
pub mod counters;
pub mod descriptors;
pub mod error;
pub mod figures;
pub mod home;
pub mod index;
pub mod log_buffer;
pub mod log_device;
pub mod mark;
pub mod memory;
pub mod namespace;
pub mod options;
pub mod page_store;
pub mod parser;
pub mod place;
pub mod plain;
pub mod quarantine;
pub mod rescue;
pub mod scrub;
pub mod server;
mod server_image;
pub mod snapshot;
pub mod trace;
pub mod volume;

/// Makes redo for tests.
#[cfg(test)]
#[path = "../../redo/tests/support/encoder.rs"]
mod encoder;

pub use error::{Kind, NodeError};
pub use log_device::LogOptions;
pub use options::NodeOptions;
pub use page_store::PageOptions;
pub use scrub::ScrubOptions;
pub use server::{ConnectionLimits, Node, VolumeReader};
