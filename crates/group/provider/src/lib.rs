//! Replication of whole servers: a wsrep provider that an unmodified MariaDB loads with `wsrep_provider=`.
//!
//! What a transaction changed goes into one order that all members share and that is durable at a majority of them
//! ([`redoubt_consensus`]); each member decides by itself, and all alike, which transactions conflict; what remains is
//! applied by the server's own threads.
//!
//! ```text
//! server's threads -> entry -> session -> order (member, log, peers) -> delivery (replica) -> appliers, transactions
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`abi`] | the interface in memory |
//! | [`entry`] | functions that the server calls |
//! | [`server`] | functions of the server |
//! | [`session`] | a server in its group |
//! | [`order`] | the member of the consensus, driven |
//! | [`deliveries`] | what is ordered, on its way |
//! | [`delivery`] | what is ordered goes to whoever has to do something |
//! | [`replica`] | what the order means |
//! | [`certification`] | which write sets conflict |
//! | [`ballots`] | who is right about what could not be applied |
//! | [`write_set`] | what is put into the order |
//! | [`transactions`], [`monitors`], [`appliers`] | where threads meet |
//! | [`pace`] | who is ahead waits a moment |
//! | [`peers`], [`frame`] | connections and what goes over them |
//! | [`store`] | what a member finds again |
//! | [`replay`] | a member from what it finds again |
//! | [`backlog`] | what waits, in memory or in the log |
//! | [`history`] | which of several histories of a group this is |
//! | [`rescue`] | the last member, when the others are lost |
//! | [`position`] | how far the server's data is |
//! | [`options`] | `wsrep_provider_options` |
//! | [`bytes`] | numbers and texts as bytes |

pub mod abi;
pub mod appliers;
pub mod backlog;
pub mod ballots;
pub mod bytes;
pub mod certification;
pub mod deliveries;
pub mod delivery;
pub mod entry;
pub mod frame;
pub mod history;
pub mod monitors;
pub mod options;
pub mod order;
pub mod pace;
pub mod peers;
pub mod position;
pub mod replay;
pub mod replica;
pub mod rescue;
pub mod server;
pub mod session;
pub mod store;
pub mod transactions;
pub mod write_set;
