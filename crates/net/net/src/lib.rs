//! `libredoubt_net.so`: preloaded into an unmodified MariaDB or MySQL server, it makes fewer system calls for what
//! clients send. It also loads beside `libredoubt.so`, before or after it.
//!
//! * [`hooks`]: the C functions that the server calls instead of the C library's. Raw pointers end there.
//! * [`reading`], [`waiting`]: what reads and waits become; the collapser. See `docs/net/README.md`.
//! * [`admission`]: at most so many connections inside a transaction.
//! * [`sets`]: connections in sets of epoll.
//! * [`tls`]: what a server with OpenSSL reads and writes inside of TLS.
//! * [`connection`], [`table`]: one accepted connection, and which descriptor is which.
//! * [`bypass`]: connections of clients on the same host that have this library too.
//! * [`user_tcp`]: TCP in user space, for clients elsewhere.
//! * [`control`]: the memory that `redoubt net` looks at.
//! * [`process`]: whether this process is looked after at all.
//! * [`next`]: the functions behind the hooks.
//!
//! It fails open: whatever it does not know (a descriptor that is duplicated or put into an epoll set, an option of a
//! socket that changes what reads mean) leaves that connection to the kernel from then on, after the bytes that were
//! read ahead.
//!
//! Only connections that the server has accepted are looked after; [`bypass`] also has a client's side. Connections of
//! [`user_tcp`] are none of the collapser's and of [`admission`]'s.

pub mod admission;
pub mod bypass;
pub mod connection;
pub mod control;
mod descriptors;
pub mod hooks;
mod next;
pub mod process;
pub mod reading;
pub mod sets;
pub mod table;
pub mod tls;
pub mod user_tcp;
pub mod waiting;
