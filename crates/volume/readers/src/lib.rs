//! A volume as the files of a data directory, for programs that are not its server.
//!
//! | module | owns |
//! |---|---|
//! | [`source`] | the source of names, lengths and contents: a node over the wire, or the volume itself |
//! | [`tree`] | names and files as a file system shows them, through any protocol |
//! | [`live`], [`log`] | the tree of a live volume; the redo log file is composed here |
//! | [`fixed`] | the tree of a snapshot, with local changes |
//! | `fuse` | a tree for the programs of this host: `redoubt run --reader` (feature `fuse`) |
//! | `nfs` | the volumes of a node, read-only, for NFS clients (feature `nfs`) |
//!
//! Arrows: `fuse` and `nfs` use `tree`, `live` and `fixed`; these use `source`; `fuse` and `nfs` do not use each other.

pub mod fixed;
#[cfg(feature = "fuse")]
pub mod fuse;
pub mod live;
pub mod log;
#[cfg(feature = "nfs")]
pub mod nfs;
pub mod source;
pub mod tree;

pub use fixed::Fixed;
pub use live::{Live, Removed, meta_of};
pub use source::{Contents, LogFollower, LogPiece, ViewError, ViewSource};
pub use tree::{Called, Change, Complaints, Errno, Meta, OpenFile, Tree};
