//! `libredoubt.so`: preloaded into an unmodified MariaDB server, it sends the server's redo log to a storage
//! node, drops the page writes that redo explains, and gets pages back from the node.
//!
//! Layers, from the server downwards:
//!
//! * [`hooks`]: the C functions the server calls instead of the C library's; raw pointers end here.
//! * [`files`] and [`io`]: what a call means, by [`classify`] and the kind of file ([`target`]).
//! * [`redo_log`] (over [`log_memory`]), [`tablespace`], [`plain`], [`mapping`]: one module per kind of file.
//! * [`dirty`], [`need`], [`names`], [`fds`]: what must be remembered about pages, files and descriptors.
//! * [`stream`] and [`pool`]: the two kinds of connections, over [`link`]. What the stream has not got rid of is in
//!   [`unsent_file`].
//! * [`local_log`]: a mode of its own, without a storage node; it shares the hooks and [`real`] only.
//! * [`real`]: the C library.
//!
//! Lock order: names, a file's own lock, the redo log, the stream's state. No hook holds a lock when it
//! returns, none calls another hook, and a descriptor that is not tracked costs a hook two loads.
//!
//! The library is inactive (every hook passes straight through) in every process but `mariadbd` and `mysqld`
//! with `REDOUBT_NODE` or `REDOUBT_LOCAL_LOG` set, and in their forked children. See [`runtime`].

pub mod classify;
pub mod config;
pub mod counters;
pub mod dirty;
pub mod fds;
pub mod files;
pub mod hooks;
pub mod io;
pub mod link;
pub mod local_log;
pub mod log_memory;
pub mod mapping;
pub mod message;
pub mod names;
pub mod need;
pub mod page_cache;
pub mod paths;
pub mod plain;
pub mod pool;
pub mod read_ahead;
pub mod real;
pub mod redo_log;
pub mod runtime;
pub mod stream;
pub mod tablespace;
pub mod target;
pub mod trace;
pub mod unsent_file;
pub mod verify;
