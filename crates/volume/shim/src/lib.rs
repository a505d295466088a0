//! `libredoubt.so`: preloaded into an unmodified MariaDB or MySQL server, it sends the server's redo log to a storage
//! node, drops the page writes that redo explains, and gets pages back from the node.
//!
//! Layers, from the server downwards. Each is a folder, and uses only those below it (`tests/layers.rs`):
//!
//! * [`calls`]: the C functions that the server calls instead of the C library's ([`calls::hooks`]; raw pointers end
//!   there), and the handling of each call by [`base::classify`] and the kind of file.
//!   * [`calls::files`]: calls on names.
//!   * [`calls::io`]: calls on descriptors.
//!   * [`calls::library`]: the state of an active library.
//!   * [`calls::process`]: the only place that refers to it process-wide.
//! * [`kinds`]: one module per kind of file: the redo log, tablespaces, plain files, mappings. Each is handed a
//!   [`content::Content`], and is independent of descriptors and the process.
//! * [`content`]: what is sent and what is read: names, dirty pages, need, page cache, reading ahead, verification.
//! * [`connections`]: the stream and the page requests. Unsent frames of the stream are in
//!   [`connections::unsent_file`].
//! * [`base`]: the C library ([`base::real`]), messages, configuration, the meaning of paths.
//!
//! [`kinds::local_log`] is a mode of its own, without a storage node; it shares hooks and `base` only. Builds without the
//! feature `experimental-devices` refuse it.
//!
//! Lock order: names, a file's own lock, the redo log, the stream's state. No hook holds a lock when it
//! returns, none calls another hook, and a descriptor that is not tracked costs a hook two loads.
//!
//! The library is inactive (every hook passes straight through) in every process but `mariadbd` and `mysqld`
//! with `REDOUBT_NODE` or `REDOUBT_LOCAL_LOG` set, and in their forked children. See [`calls::process`].

pub mod base;
pub mod calls;
pub mod connections;
pub mod content;
pub mod kinds;
