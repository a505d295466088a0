//! A total order of what the members of a group propose, durable at a majority of them.
//!
//! The protocol is Mencius (Mao, Junqueira, Marzullo, OSDI 2008): the members own the slots of the order in rotation.
//! So each member proposes without asking another one. A member without proposals skips its slots in messages that it
//! sends anyway. One difference: *epochs* assign the slots to their owners. An epoch is a ballot of Paxos for all
//! slots at once. A member that holds the others up loses its slots in the next epoch, which a majority begins, and
//! forwards its proposals to an owner. There is no other way to take a slot from its owner. A restarted member owns no
//! slots.
//!
//! No I/O, no clock, no threads, no random numbers: a member is a state machine ([`Member`]), driven by a seeded
//! simulation in the tests and by sockets and a log device in the product.
//!
//! | module | what |
//! |---|---|
//! | [`types`] | slots, ballots, epochs |
//! | [`message`] | messages between members |
//! | [`record`] | records that a member reads again after a restart |
//! | [`codec`] | messages, records and snapshots as bytes |
//! | [`log`] | accepted entries |
//! | [`places`] | position of each chosen entry in the member's store |
//! | [`origins`] | each proposal once, and in order |
//! | [`health`] | votes on which members own slots |
//! | [`member`] | the state machine |

pub mod codec;
pub mod health;
pub mod log;
pub mod member;
pub mod message;
pub mod origins;
pub mod places;
mod planted;
pub mod record;
pub mod types;

pub use member::{Effect, Member, MembershipError, RecoverError, Recovery, Replayed, Settings};
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
pub use planted::{Bug, MARKER};
