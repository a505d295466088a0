//! The server's side of TCP, without I/O, clocks, threads and unsafe code: packets and time in, packets out.
//!
//! An [`Engine`] has listeners and connections that were opened to them; it opens none itself. Its driver passes each
//! IP packet to [`Engine::receive`] and sends the packets of [`Engine::transmit`]. For timers it calls
//! [`Engine::advance`] at the time that [`Engine::next_timer`] returns. Everything happens within these calls.
//!
//! Implemented RFCs:
//!
//! | RFC | subject |
//! |---|---|
//! | 9293 | TCP |
//! | 5961 | blind attacks |
//! | 7323 | window scale, timestamps, PAWS |
//! | 2018, 2883 | selective acknowledgements |
//! | 8985 | RACK-TLP, loss detection |
//! | 9937 | rate reduction during recovery |
//! | 6582 | recovery with peers without selective acknowledgements |
//! | 6298 | retransmission timeout |
//! | 5681, 9438 | congestion control, CUBIC |
//! | 6928 | initial window |
//! | 6528 | initial sequence numbers |
//! | 4987 | SYN cookies |
//! | 6191 | TIME-WAIT |
//!
//! Not implemented: ECN, urgent data, path MTU discovery (the don't-fragment bit is not set; over IPv6 the link's MTU
//! counts), fast open, ICMP.
//!
//! **Cost.** A segment costs the same whether there is one connection or ten thousand. Connections are found by a keyed
//! hash ([`demux`]), timers lie in a wheel ([`timers`]), and connections with data to send are in a queue. Data lies in
//! chunks of a shared pool ([`buffers`]); a connection without waiting data holds none.
//!
//! **Bounds.** Connections, half-open ones, TIME-WAITs, queued answers, and the memory of all data have bounds in
//! [`Config`]. No input from a peer can exceed them, and a segment that belongs to no connection is dropped after one
//! look-up.
//!
//! | module | owns |
//! |---|---|
//! | [`segment`] | headers as bytes |
//! | [`engine`] | the calls, and whose a segment is |
//! | [`connection`] | a connection after its handshake |
//! | [`half_open`], [`cookies`], [`listener`] | handshakes |
//! | [`time_wait`] | ends |
//! | [`demux`], [`timers`], [`slots`], [`buffers`], [`replies`] | tables, all with bounds |
//!
//! **For callers.** A [`ConnectionId`] is never reused: after [`Engine::close`] each call with it returns
//! [`CallError::Stale`]. [`Engine::changed`] returns each connection that became readable or writable, ended or failed
//! since it was last returned. Connections that were not accepted are left out. Call [`Engine::accept`] after each
//! batch of packets; data that arrived earlier is readable at once, without a reported change.

#![forbid(unsafe_code)]

pub(crate) mod buffers;
mod config;
pub(crate) mod connection;
pub(crate) mod cookies;
mod counters;
pub(crate) mod demux;
pub mod engine;
mod error;
pub(crate) mod half_open;
pub(crate) mod hash;
pub(crate) mod listener;
mod planted;
pub(crate) mod replies;
pub mod segment;
mod sequence;
pub(crate) mod slots;
mod time;
pub(crate) mod time_wait;
pub(crate) mod timers;

pub use config::{Config, ConfigError, LOW_WATER_LEN_BYTES};
pub use connection::{Keepalive, State};
pub use counters::{Counters, Dropped, Refused};
pub use engine::{ConnectionId, ConnectionState, Engine, Heard, ListenerId, Memory, Transmit, Verdict};
pub use error::{CallError, ConnectionError, ListenError};
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
pub use planted::{Bug, MARKER};
pub use segment::{Checksum, Refusal};
pub use sequence::Seq;
pub use time::Micros;
