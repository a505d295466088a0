//! Groups of stock servers with a wsrep provider: made, put under load, broken on purpose, and compared.
//!
//! * [`group`]: the servers of a group on this host, their load, and what must be the same on all of them.
//! * [`drill`]: one run through what a group has to live through, for people.

pub mod drill;
pub mod group;
