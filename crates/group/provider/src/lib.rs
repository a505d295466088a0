//! Replication of whole servers: a wsrep provider that an unmodified MariaDB loads with `wsrep_provider=`.
//!
//! The changes of a transaction go into one order that all members share and that is durable at a majority of them
//! ([`redoubt_consensus`]). Each member decides by itself which transactions conflict, with the same result everywhere.
//! The server's own threads apply the rest.
//!
//! ```text
//! server's threads -> entry -> session -> order (member, log, peers) -> delivery (replica) -> appliers, transactions
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`abi`] | memory layout of the interface |
//! | [`entry`] | functions that the server calls |
//! | [`server`] | functions of the server |
//! | [`session`] | a server in its group |
//! | [`order`] | drives the consensus member |
//! | [`deliveries`] | queue of ordered entries |
//! | [`delivery`] | interprets ordered entries and passes them on |
//! | [`replica`] | the replicated state machine |
//! | [`certification`] | detection of conflicts between write sets |
//! | [`ballots`] | inconsistency votes on write sets that failed somewhere |
//! | [`write_set`] | entries of the order |
//! | [`transactions`], [`monitors`], [`appliers`] | synchronisation of the server's threads |
//! | [`pace`] | flow control |
//! | [`peers`], [`frame`] | connections and their frames |
//! | [`store`] | durable state of a member |
//! | [`replay`] | recovery of a member from its store |
//! | [`backlog`] | queues in memory and in the log |
//! | [`history`] | distinguishes histories of a group after a split brain |
//! | [`rescue`] | makes the last member the only one, when the others are lost |
//! | [`position`] | position of the server's data |
//! | [`options`] | `wsrep_provider_options` |
//! | [`bytes`] | encoding of numbers and texts |

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
