//! `libredoubt_net.so`: preloaded into an unmodified MariaDB or MySQL server, it reduces the system calls for client
//! traffic. It can be loaded before or after `libredoubt.so`.
//!
//! * [`hooks`]: the C functions that the server calls instead of the C library's. Raw pointers end there.
//! * [`reading`], [`waiting`]: the implementation of reads and waits; the collapser. See `docs/net/README.md`.
//! * [`admission`]: a limit on the number of connections inside a transaction.
//! * [`sets`]: connections in epoll sets.
//! * [`tls`]: plaintext that a server with OpenSSL reads and writes.
//! * [`connection`], [`table`]: an accepted connection, and the lookup by descriptor.
//! * [`bypass`]: connections of clients on the same host that also load this library.
//! * [`redoubt_user_tcp`]: TCP in user space, for remote clients.
//! * [`control`]: the shared memory that `redoubt net` reads.
//! * [`process`]: whether the library is active in this process.
//! * [`next`]: the functions behind the hooks.
//!
//! It fails open: a connection in an unsupported state is left to the kernel from then on, after the bytes that were
//! read ahead. Examples are a duplicated descriptor, one in an epoll set, and a socket option that changes the
//! semantics of reads.
//!
//! Only connections that the server has accepted are intercepted; [`bypass`] also has a client's side. Connections of
//! [`redoubt_user_tcp`] take no part in the collapser or in [`admission`].

pub mod admission;
pub mod bypass;
pub mod connection;
pub mod control;
pub mod hooks;
mod next;
pub mod process;
pub mod reading;
pub mod sets;
pub mod table;
pub mod tls;
pub mod waiting;
