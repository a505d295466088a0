//! `libredoubt.so`: preloaded into an unmodified MariaDB server, it sends the server's redo log to a storage
//! node, drops the page writes that redo explains, and gets pages back from the node.
//!
//! Layers, from the server downwards:
//!
//! * [`hooks`]: the C functions the server calls instead of the C library's; raw pointers end here.
//! * [`files`] and [`io`]: what a call means, by [`classify`] and the kind of file ([`target`]).
//! * [`redo_log`] (over [`log_memory`]), [`tablespace`], [`plain`], [`mapping`]: one module per kind of file.
//! * [`dirty`], [`need`], [`names`], [`fds`]: what must be remembered about pages, files and descriptors.
//! * [`stream`] and [`pool`]: the two kinds of connections, over [`link`].
//! * [`local_log`]: a mode of its own, without a storage node; it shares the hooks and [`real`] only.
//! * [`real`]: the C library.
//!
//! Lock order: names, a file's own lock, the redo log, the stream's state. No hook holds a lock when it
//! returns, none calls another hook, and a descriptor that is not tracked costs a hook two loads.
//!
//! The library is inactive (every hook passes straight through) in every process but `mariadbd` and `mysqld`
//! with `REDOUBT_NODE` or `REDOUBT_LOCAL_LOG` set, and in their forked children. See [`runtime`].

pub mod base;
pub mod calls;
pub mod connections;
pub mod content;
pub mod kinds;

pub use base::{classify, config, counters, fds, message, paths, real};
pub use calls::{files, hooks, io, library as runtime, target};
pub use connections::{link, pool, stream, trace};
pub use content::{dirty, names, need, page_cache, read_ahead, verify};
pub use kinds::{local_log, log_memory, mapping, plain, redo_log, tablespace};
