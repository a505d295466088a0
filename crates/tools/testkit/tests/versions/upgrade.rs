//! Volumes that releases of Redoubt made, opened by this version. Files of versions that it does not read: it rejects
//! them and names the way out.
//!
//! A fixture is the directory of a node. When the server was killed, and then the node, redo was not applied and the
//! page journal had pages. `fixtures/volumes/README.md` describes each fixture.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod fixture;
mod releases;
mod unknown;
