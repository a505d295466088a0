//! The server's side of TCP, without I/O, clocks, threads and unsafe code: packets and time in, packets out.
//!
//! An [`Engine`] has listeners and connections that were opened to them; it opens none itself. Whoever drives it hands it
//! each IP packet ([`Engine::receive`]), asks it for what to send ([`Engine::transmit`]) and when it wants to be called
//! for time alone ([`Engine::next_timer`], [`Engine::advance`]). Everything happens within these calls.
//!
//! What it follows: RFC 9293 (TCP), 5961 (blind attacks), 7323 (window scale, timestamps, PAWS), 2018 and 2883
//! (selective acknowledgements), 8985 (RACK-TLP, finding losses), 9937 (rate reduction while they are repaired), 6582
//! (the same for peers without selective acknowledgements), 6298 (retransmission timeout), 5681 and 9438 (CUBIC), 6928
//! (initial window), 6528 (initial sequence numbers), 4987 (SYN cookies), 6191 (TIME-WAIT). What it leaves out: ECN,
//! urgent data, path MTU discovery (the don't-fragment bit is not set; over IPv6 the link's MTU counts), fast open, ICMP.
//!
//! **Cost.** A segment costs the same whether there is one connection or ten thousand: connections are found by a keyed
//! hash ([`demux`]), timers lie in a wheel ([`timers`]), and who has something to send is in a queue. Data lies in
//! chunks of a shared pool ([`buffers`]); a connection on which nothing waits has none.
//!
//! **Bounds.** Connections, half-open ones, TIME-WAITs, answers that wait, and the memory of all data have bounds in
//! [`Config`]. What a peer sends cannot make any of them larger, and what does not belong to a connection is dropped
//! after one look-up.
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
//! **For callers.** A [`ConnectionId`] is of one connection for ever: after [`Engine::close`] each call with it says
//! [`CallError::Stale`]. [`Engine::changed`] gives out each connection on which something became readable or writable,
//! ended or failed since it was given out last; it says nothing of connections that were not accepted. Ask
//! [`Engine::accept`] after each batch of packets; what came before is readable at once, without a change being told.

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
