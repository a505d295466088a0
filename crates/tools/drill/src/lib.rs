//! Groups of stock servers with a wsrep provider: created, put under load, broken on purpose, and compared.
//!
//! * [`group`]: the servers of a group on this host, their load, and the comparison of their data.
//! * [`drill`]: one run through the events that a group has to survive, for people.

pub mod drill;
pub mod group;
