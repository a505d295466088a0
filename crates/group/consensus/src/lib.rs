//! A total order of what the members of a group propose, durable at a majority of them.
//!
//! Mencius (Mao, Junqueira, Marzullo, OSDI 2008): the slots of the order belong to the members in turn, so that each
//! proposes without asking another one, and who has nothing to propose skips its turns in the messages that it sends
//! anyway. Different here: who owns slots is said by *epochs*. An epoch is a ballot of Paxos for all slots at once. A
//! member that holds the others up loses its slots with the next epoch, which a majority begins, and hands its
//! proposals on to an owner; there is no other way to take a slot from its owner. A member that was restarted owns
//! nothing.
//!
//! No I/O, no clock, no threads, no random numbers: a member is a state machine ([`Member`]), driven by a seeded
//! simulation in the tests and by sockets and a log device in the product.
//!
//! | module | what |
//! |---|---|
//! | [`types`] | slots, ballots, epochs |
//! | [`message`] | what members tell each other |
//! | [`record`] | what a member finds again after it was stopped |
//! | [`codec`] | messages, records and snapshots as bytes |
//! | [`log`] | what it has accepted |
//! | [`places`] | where in its store a member finds again what was chosen |
//! | [`origins`] | each proposal once, and in order |
//! | [`health`] | who should own slots |
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
