//! Memory that a preloaded library shares with the `redoubt` command: its layout, and how each side reads it.
//!
//! * [`net`]: the network library's counters and settings, in memory without a name in the file system.
//! * [`local_log`]: the counters of `redoubt run --local-log`, in a file of the data directory.
//!
//! The crate holds layouts only. The library maps the memory and the command opens it, each in its own way. A layout
//! starts with a magic number that contains its version; a change of the layout changes the number.

pub mod local_log;
pub mod net;
