//! Messages, records and snapshots as bytes.
//!
//! The bytes contain neither the version of this layout nor their length. The hello of a connection gives the version
//! of all its messages, the header of a store that of all its records. A frame of the connection or a record of the
//! store gives the length.
//!
//! Invariants:
//! * Each value has one encoding. A decoder accepts only bytes that the encoder produces from the decoded value.
//! * A decoder accepts any input. It returns the error and its offset, and does not panic.
//! * A list gets memory only after its number of items was found to fit into the remaining bytes. So a decoder
//!   allocates less than 25 times its input: 22 times for many short epochs, 13 times for proposals without a body.
//! * The body of a proposal is copied once, from the bytes to its final location.
//!
//! # Layout
//!
//! | kind | bytes |
//! |---|---|
//! | number | LEB128, below 2^64: 7 bits a byte, the lowest first, bit 7 set in all but the last; as short as can be |
//! | flag | one byte, 0 or 1 |
//! | tag | one byte, not 0; no tag belongs to both a message and a record |
//! | bytes | number: how many; they |
//! | list of … | number: how many; they |
//! | optional … | flag; if 1, it |
//!
//! Everything else consists of these, with nothing between. A field without a kind is a number.
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
//! | `parts` | common parts of messages and records |
//! | `variants` | messages and records by their tags |

mod bytes;
mod parts;
#[cfg(test)]
mod tests;
mod variants;

use crate::message::Message;
use crate::record::{Record, Snapshot};
use bytes::{Coded, Reader};

/// Decoding error. Offsets count from the beginning of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// The bytes end too early.
    #[error("truncated at byte {offset}, within {what}")]
    Truncated {
        /// Field in which the bytes end.
        what: &'static str,
        /// Number of bytes.
        offset: usize,
    },
    /// Bytes follow the end of the value.
    #[error("{count} extra bytes after byte {offset}")]
    Trailing {
        /// Offset of the first extra byte.
        offset: usize,
        /// Number of extra bytes.
        count: usize,
    },
    /// This version has no such variant.
    #[error("byte {offset} is {tag}, not a {what}; the encoding is damaged or of a later version")]
    UnknownTag {
        /// Kind of variant.
        what: &'static str,
        /// The unknown tag.
        tag: u8,
        /// Offset of the tag.
        offset: usize,
    },
    /// A flag is neither 0 nor 1.
    #[error("flag {what} at byte {offset} is {value}, expected 0 or 1; the encoding is damaged")]
    NoFlag {
        /// Name of the flag.
        what: &'static str,
        /// The byte's value.
        value: u8,
        /// Offset of the flag.
        offset: usize,
    },
    /// A number is too large, or takes more bytes than it needs.
    #[error(
        "the number at byte {offset}, {what}, is too large or not in its shortest form; the encoding is damaged"
    )]
    BadNumber {
        /// Name of the number.
        what: &'static str,
        /// Offset of its first byte.
        offset: usize,
    },
    /// A list has more items than there are bytes for.
    #[error(
        "{what} at byte {offset} has {count} items, but only {left} bytes follow; the encoding is damaged or \
         truncated"
    )]
    TooMany {
        /// Name of the list.
        what: &'static str,
        /// Its number of items.
        count: u64,
        /// Number of bytes after the number of items.
        left: usize,
        /// Offset of the number of items.
        offset: usize,
    },
    /// Members do not ascend, or a member occurs twice.
    #[error("{what} at byte {offset} does not ascend; the encoding is damaged")]
    NotAscending {
        /// Name of the list.
        what: &'static str,
        /// Offset of the list.
        offset: usize,
    },
    /// [`Message::is_sane`] returned false.
    #[error("the message has numbers that no member uses; its sender is defective, or not of this product")]
    NotSane,
}

/// Appends a message.
pub fn encode_message(message: &Message, out: &mut Vec<u8>) {
    message.put(out);
}

/// Decodes a message from all of `bytes`.
///
/// # Errors
/// If the bytes are not a message, or the message is not [sane](Message::is_sane).
pub fn decode_message(bytes: &[u8]) -> Result<Message, CodecError> {
    let message: Message = Reader::whole(bytes, "message")?;
    if message.is_sane() { Ok(message) } else { Err(CodecError::NotSane) }
}

/// Appends a record.
pub fn encode_record(record: &Record, out: &mut Vec<u8>) {
    record.put(out);
}

/// Decodes a record from all of `bytes`. Only [`Member::start`] can check that it fits the previous records.
///
/// # Errors
/// If the bytes are not a record.
///
/// [`Member::start`]: crate::Member::start
pub fn decode_record(bytes: &[u8]) -> Result<Record, CodecError> {
    Reader::whole(bytes, "record")
}

/// Appends a snapshot.
pub fn encode_snapshot(snapshot: &Snapshot, out: &mut Vec<u8>) {
    snapshot.put(out);
}

/// Decodes a snapshot from all of `bytes`.
///
/// # Errors
/// If the bytes are not a snapshot.
pub fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, CodecError> {
    Reader::whole(bytes, "snapshot")
}
