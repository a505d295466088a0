//! Frames that a server wrote and its storage node has not made durable yet, in a file that outlives the server's
//! process.
//!
//! A server may answer a commit that it only wrote (`sync_binlog=0`, `innodb_flush_log_at_trx_commit=2`). On a local
//! disk such a commit is in the page cache and survives the process. Here it is a frame on its way to the node, and the
//! node may be away. So the library retains the frames in a file that it has mapped, shared. The kernel retains the
//! file's pages when the process is killed, and the next start of a server on this host sends the frames first.
//!
//! * [`layout`]: the bytes of the file, and reading them when the process is gone.
//! * [`ring`]: the writer's side, over mapped words. No I/O and no system call.
//! * [`send`]: sending what is left, as the session that wrote it.
//!
//! This crate never opens, maps or locks a file: the library and `redoubt run` each do that in their own way.

pub mod layout;
pub mod ring;
pub mod send;

pub use layout::{BadFile, Contents, FILE_LEN_BYTES, FILE_NAME, Kept, read};
pub use ring::{Full, UnsentFile, UnsentRing};
pub use send::{SendError, send};
