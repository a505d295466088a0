//! A volume as the files of a data directory.
//!
//! * [`source`]: where names, lengths and contents come from: a node over the wire, or the volume itself
//! * [`tree`]: what a file system shows, whatever it is shown through
//! * [`live`] and [`log`]: the tree of a source; the redo log file is composed here
//!
//! Users: `redoubt run --reader` shows it to the kernel, a node over NFS.

pub mod live;
pub mod log;
pub mod source;
pub mod tree;

pub use live::{Live, Removed, meta_of};
pub use source::{Contents, LogFollower, LogPiece, ViewError, ViewSource};
pub use tree::{Called, Change, Complaints, Errno, Meta, OpenFile, Tree};
