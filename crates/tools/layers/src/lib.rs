//! The parts of the project and the edges between them: which crate may depend on which.
//!
//! [`rules`] is the only place that holds rules. [`workspace`] asks cargo for the packages and their dependencies, so
//! that a manifest means here what it means to the build. [`check`] compares the two. `tests/layers.rs` runs it on this
//! repository, and on made-up manifests that it must refuse.

pub mod check;
pub mod events;
pub mod rules;
pub mod workspace;
