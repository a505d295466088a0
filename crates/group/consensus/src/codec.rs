//! Messages, records and snapshots as bytes.
//!
//! Which version of this layout bytes are of is not in them: the hello of a connection says it for all its messages,
//! the header of a store for all its records. Nor is where they end: a frame of the connection, a record of the store
//! has a length.
//!
//! Invariants:
//! * Each value has one encoding. What a decoder takes is encoded to the same bytes again; all other bytes are refused.
//! * A decoder may be given any bytes. It says what is wrong and where, and does not panic.
//! * A list is given memory only after its number of items was found to fit into the bytes that are left. So a decoder
//!   takes less than 25 times as many bytes as it is given: 22 for many short epochs, 13 for proposals without a body.
//! * The body of a proposal is copied once, from the bytes to where it stays.
//!
//! # Layout
//!
//! | kind | bytes |
//! |---|---|
//! | number | LEB128, below 2^64: 7 bits a byte, the lowest first, bit 7 set in all but the last; as short as can be |
//! | flag | one byte, 0 or 1 |
//! | tag | one byte. 0 is none, and none is both of a message and of a record |
//! | bytes | number: how many; they |
//! | list of … | number: how many; they |
//! | optional … | flag; if 1, it |
//!
//! Everything else is made of these, with nothing between. What is not mentioned is a number.
//!
//! | part | made of |
//! |---|---|
//! | ballot | round, candidate |
//! | owner | member, incarnation |
//! | membership | list of members, ascending, none twice |
//! | epoch | ballot, slot, previous (membership), membership, list of owners |
//! | proposal | member, incarnation, number, body (bytes) |
//! | entry | slot; tag 1: proposal, 2: epoch |
//! | turns | from, to, list of entries |
//! | opinion | member, incarnation, tag 1: bad, 2: keep, 3: good |
//! | origins | list of (member, incarnation, number of its last proposal), members ascending, none twice; membership |
//! | snapshot | next, epoch, origins, as of (ballot) |
//!
//! | tag | message | then |
//! |---|---|---|
//! | 1 | progress | incarnation, epoch (ballot), optional turns, acked (optional list of slots), delivered, |
//! | | | is willing (flag), list of opinions |
//! | 2 | prepare | ballot, epoch (ballot), frontiers (list of slots), delivered |
//! | 3 | promise | ballot, epoch, frontiers (list of slots), delivered, settled (ballot), list of entries |
//! | 4 | refuse | promised (ballot) |
//! | 5 | adopt | epoch, from, list of entries |
//! | 6 | need prefix | ballot, delivered |
//! | 7 | fetch | from |
//! | 8 | chosen | from, to, list of entries, as of (ballot) |
//! | 9 | given up | base |
//! | 10 | forward | list of proposals |
//! | 11 | barrier ask | nonce |
//! | 12 | barrier answer | nonce, epoch (ballot), to |
//!
//! | tag | record | then |
//! |---|---|---|
//! | 65 | started | incarnation |
//! | 66 | promised | ballot |
//! | 67 | snapshot | snapshot |
//! | 68 | adopted | epoch, from, list of entries |
//! | 69 | accepted | epoch (ballot), place of the owner, turns |
//! | 70 | chosen | from, to, list of entries |
//! | 71 | delivered | slot |
//!
//! A snapshot by itself has no tag. `codec/golden.txt` has bytes of each variant.
//!
//! | part | what |
//! |---|---|
//! | `bytes` | numbers, flags, lists: reading with an offset for errors |
//! | `parts` | what messages and records have in common |
//! | `variants` | messages and records by their tags |

mod bytes;
mod parts;
#[cfg(test)]
mod tests;
mod variants;

use crate::message::Message;
use crate::record::{Record, Snapshot};
use bytes::{Coded, Reader};

/// What is wrong with bytes. Offsets count from their beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// They end too early.
    #[error("truncated at byte {offset}, within {what}")]
    Truncated {
        /// In what they end.
        what: &'static str,
        /// How many there are.
        offset: usize,
    },
    /// More follows than was to be read.
    #[error("{count} extra bytes after byte {offset}")]
    Trailing {
        /// Of the first that is too many.
        offset: usize,
        /// How many there are.
        count: usize,
    },
    /// There is no such variant in this version.
    #[error("byte {offset} is {tag}, not a {what}; the encoding is damaged or of a later version")]
    UnknownTag {
        /// Of what.
        what: &'static str,
        /// The tag.
        tag: u8,
        /// Where it is.
        offset: usize,
    },
    /// A flag is neither 0 nor 1.
    #[error("flag {what} at byte {offset} is {value}, expected 0 or 1; the encoding is damaged")]
    NoFlag {
        /// Which flag.
        what: &'static str,
        /// The byte.
        value: u8,
        /// Where it is.
        offset: usize,
    },
    /// A number is too large, or takes more bytes than it needs.
    #[error(
        "the number at byte {offset}, {what}, is too large or not in its shortest form; the encoding is damaged"
    )]
    BadNumber {
        /// Which number.
        what: &'static str,
        /// Of its first byte.
        offset: usize,
    },
    /// A list has more items than there are bytes for.
    #[error(
        "{what} at byte {offset} has {count} items, but only {left} bytes follow; the encoding is damaged or \
         truncated"
    )]
    TooMany {
        /// Which list.
        what: &'static str,
        /// Its number of items.
        count: u64,
        /// How many bytes follow that number.
        left: usize,
        /// Of that number.
        offset: usize,
    },
    /// Members do not ascend, or one comes twice.
    #[error("{what} at byte {offset} does not ascend; the encoding is damaged")]
    NotAscending {
        /// Which list.
        what: &'static str,
        /// Of the list.
        offset: usize,
    },
    /// [`Message::is_sane`] says no.
    #[error("the message has numbers that no member uses; its sender is defective, or not of this product")]
    NotSane,
}

/// Appends a message.
pub fn encode_message(message: &Message, out: &mut Vec<u8>) {
    message.put(out);
}

/// The message that all of `bytes` are.
///
/// # Errors
/// If they are none, or one that is not [sane](Message::is_sane).
pub fn decode_message(bytes: &[u8]) -> Result<Message, CodecError> {
    let message: Message = Reader::whole(bytes, "message")?;
    if message.is_sane() { Ok(message) } else { Err(CodecError::NotSane) }
}

/// Appends a record.
pub fn encode_record(record: &Record, out: &mut Vec<u8>) {
    record.put(out);
}

/// The record that all of `bytes` are. Whether it fits those before it only [`Member::start`] can say.
///
/// # Errors
/// If they are none.
///
/// [`Member::start`]: crate::Member::start
pub fn decode_record(bytes: &[u8]) -> Result<Record, CodecError> {
    Reader::whole(bytes, "record")
}

/// Appends a snapshot.
pub fn encode_snapshot(snapshot: &Snapshot, out: &mut Vec<u8>) {
    snapshot.put(out);
}

/// The snapshot that all of `bytes` are.
///
/// # Errors
/// If they are none.
pub fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, CodecError> {
    Reader::whole(bytes, "snapshot")
}
