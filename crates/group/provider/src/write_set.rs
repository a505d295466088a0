//! Entries of the total order, as bytes: the body of a proposal.
//!
//! The module owns the format, and the hashing of keys.
//!
//! Invariants:
//! * Decoded bytes encode to the same bytes again: everything has one form.
//! * The decoder trusts no number. It never allocates more than the length of the input justifies.
//! * Keys are sorted by hash and unique, so that all members process them in the same order.
//!
//! All numbers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version: 1, or 2 for a part of a transaction ([`WriteSet::is_part`]), added later, of the same layout |
//! | 1 | 1 | type: 1 write set, 2 arrival, 3 departure, 4 vote, 5 removal, 6 member alone |
//! | 2 | | one of the following bodies, and nothing after it |
//!
//! | write set | |
//! |---|---|
//! | 8 | number of the transaction at its server |
//! | 8 | number of the connection at its server |
//! | 4 | flags |
//! | 8 | last seen: everything up to this sequence number was committed at the server when it sent the write set |
//! | 8 | number of keys |
//! | 9 each | hash, kind (1 byte) |
//! | 8 | length of the data |
//! | | data of the server, opaque |
//!
//! | arrival | |
//! |---|---|
//! | 8 | incarnation |
//! | 1 | length of the name, up to 31 |
//! | | name, UTF-8 |
//! | 1 | length of the address for clients |
//! | | address for clients, UTF-8 |
//! | 1 | length of the address for members |
//! | | address for members, UTF-8 |
//!
//! | departure | | vote | |
//! |---|---|---|---|
//! | 8 | member | 8 | sequence number that is voted on |
//! | 8 | incarnation | 8 | code |
//!
//! | removal, member alone | |
//! |---|---|
//! | 8 | member |
//!
//! The hash of a key of *n* parts is XXH3-64 with seed *n* over its parts, each as its length (8 bytes) and its bytes.
//! A change of key hashing, of the key kinds, or of any rule in [`super::certification`] that affects verdicts needs a
//! new version: all members of a group must come to the same verdicts.

mod kinds;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use redoubt_codec::{Reader, Truncated};
use twox_hash::XxHash3_64;

const VERSION: u8 = 1;
/// Version of parts of transactions. A library without support for them would reach other verdicts.
const PART_VERSION: u8 = 2;
const WRITE_SET_TAG: u8 = 1;
const ARRIVED_TAG: u8 = 2;
const DEPARTED_TAG: u8 = 3;
const VOTE_TAG: u8 = 4;
const REMOVED_TAG: u8 = 5;
const ALONE_TAG: u8 = 6;

/// Version and tag.
const HEAD_LEN_BYTES: usize = 2;
/// Length of a write set without head, keys and data.
const WRITE_SET_FIELDS_LEN_BYTES: usize = 5 * 8 + 4;
const KEY_LEN_BYTES: usize = 9;
const LENGTH_LEN_BYTES: usize = 8;

/// Longest name of a server: the provider interface has a field of 32 bytes, with a zero at the end.
pub const MAX_NAME_LEN_BYTES: usize = 31;
/// Longest address: the field has 256 bytes.
pub const MAX_ADDRESS_LEN_BYTES: usize = 255;

/// A position in the group's commits, counted from 1. 0: before everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Seqno(pub i64);

impl fmt::Display for Seqno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Hash of a key. Keys with equal hashes are treated as one key, which at worst costs a needless conflict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The hash of a key with these parts.
    pub fn of(parts: &[&[u8]]) -> Self {
        let bytes = with_lengths(parts);
        Self(XxHash3_64::oneshot_with_seed(parts.len() as u64, &bytes))
    }
}

fn with_lengths(parts: &[&[u8]]) -> Vec<u8> {
    let len_bytes = parts.iter().map(|part| LENGTH_LEN_BYTES + part.len()).sum();
    let mut bytes = Vec::with_capacity(len_bytes);
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Access of a transaction to a key, from weak to strong, with the numbers of the provider interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum KeyKind {
    /// The key must continue to exist: the table of a row.
    Shared = 0,
    /// The key is referred to: the row of a parent.
    Reference = 1,
    /// The row was changed, but not its unique columns.
    Update = 2,
    /// The key was added, removed or replaced.
    Exclusive = 3,
}

impl KeyKind {
    /// All kinds, from weak to strong.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Reference, Self::Update, Self::Exclusive];

    /// The kind with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// Keys of a transaction: each hash once, with the strongest kind that it was added with.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Keys(BTreeMap<KeyHash, KeyKind>);

impl Keys {
    /// Adds a key with its kind, and its prefixes (the key without its last part, without its last two, ...) as
    /// [`KeyKind::Shared`]. A key without parts adds nothing.
    pub fn add(&mut self, parts: &[&[u8]], kind: KeyKind) {
        let bytes = with_lengths(parts);
        let mut end = 0;
        for (part, count) in parts.iter().zip(1..) {
            end += LENGTH_LEN_BYTES + part.len();
            let hash = XxHash3_64::oneshot_with_seed(count, bytes.get(..end).unwrap_or_default());
            let is_whole = end == bytes.len() && count == parts.len() as u64;
            self.insert(KeyHash(hash), if is_whole { kind } else { KeyKind::Shared });
        }
    }

    fn insert(&mut self, hash: KeyHash, kind: KeyKind) {
        match self.0.entry(hash) {
            Entry::Vacant(entry) => {
                entry.insert(kind);
            }
            Entry::Occupied(mut entry) => {
                let strongest = kind.max(*entry.get());
                entry.insert(strongest);
            }
        }
    }

    /// All keys, sorted by hash.
    pub fn iter(&self) -> impl Iterator<Item = (KeyHash, KeyKind)> + '_ {
        self.0.iter().map(|(&hash, &kind)| (hash, kind))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The changes of a transaction, or of a part of it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WriteSet {
    /// Number of the transaction at its server.
    pub transaction_id: u64,
    /// Number of the connection at its server.
    pub connection_id: u64,
    /// Flags of the provider interface.
    pub flags: u32,
    /// Everything up to here was committed at its server when the write set was sent, so it cannot conflict with that.
    pub last_seen: Seqno,
    /// Touched keys.
    pub keys: Keys,
    /// The changes, for the servers.
    pub data: Vec<u8>,
}

impl WriteSet {
    /// Flag: the last part of a transaction.
    pub const END: u32 = 0x1;
    /// Flag: rolls back the transaction whose parts came before.
    pub const ROLLBACK: u32 = 0x2;
    /// Flag: the first part of a transaction.
    pub const START: u32 = 0x40;
    /// Flag: depends on everything that its server had committed, whatever its keys are.
    pub const IMPLICIT_DEPENDENCIES: u32 = 0x200;
    /// Flag: runs alone everywhere, after everything before it and before everything after it (DDL).
    pub const ISOLATION: u32 = 0x4;
    /// Flag: later write sets must not be applied in parallel with it.
    pub const PARALLEL_UNSAFE: u32 = 0x8;

    /// Whether it is less than a whole transaction (streaming replication): a part of a large one, or a rollback of its
    /// parts.
    pub fn is_part(&self) -> bool {
        !self.is_isolated() && self.flags & (Self::START | Self::END) != Self::START | Self::END
    }

    /// Whether everything that its server had committed when it was sent must be applied first: it is flagged so, or is
    /// a part after the first one.
    pub fn depends_on_all_seen(&self) -> bool {
        let is_continued = self.is_part() && self.flags & Self::START == 0;
        is_continued || self.flags & Self::IMPLICIT_DEPENDENCIES != 0
    }

    /// Whether it rolls back its previous parts. It always passes.
    pub fn rolls_back(&self) -> bool {
        self.is_part() && self.flags & Self::ROLLBACK != 0
    }

    /// Whether it runs alone, and always passes.
    pub fn is_isolated(&self) -> bool {
        self.flags & Self::ISOLATION != 0
    }

    /// Whether everything later depends on it.
    pub fn is_parallel_unsafe(&self) -> bool {
        self.flags & (Self::ISOLATION | Self::PARALLEL_UNSAFE) != 0
    }

    /// Length in bytes of its encoding by [`Action::encode`].
    pub fn encoded_len_bytes(&self) -> usize {
        HEAD_LEN_BYTES + WRITE_SET_FIELDS_LEN_BYTES + self.keys.len() * KEY_LEN_BYTES + self.data.len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.reserve_exact(self.encoded_len_bytes().saturating_sub(out.len()));
        out.extend_from_slice(&self.transaction_id.to_le_bytes());
        out.extend_from_slice(&self.connection_id.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.last_seen.0.to_le_bytes());
        out.extend_from_slice(&(self.keys.len() as u64).to_le_bytes());
        for (hash, kind) in self.keys.iter() {
            out.extend_from_slice(&hash.0.to_le_bytes());
            out.push(kind as u8);
        }
        out.extend_from_slice(&(self.data.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.data);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, ActionError> {
        Ok(Self {
            transaction_id: reader.u64("transaction")?,
            connection_id: reader.u64("connection")?,
            flags: reader.u32("flags")?,
            last_seen: Seqno(reader.i64("last seen")?),
            keys: decode_keys(reader)?,
            data: {
                let len_bytes = reader.u64("length of the data")?;
                reader.bytes(len_bytes, "data")?.to_vec()
            },
        })
    }
}

/// Decodes keys with strictly ascending hashes.
fn decode_keys(reader: &mut Reader<'_>) -> Result<Keys, ActionError> {
    let count = reader.u64("number of keys")?;
    reader.require(count.saturating_mul(KEY_LEN_BYTES as u64), "keys")?;
    let mut kinds: Vec<(KeyHash, KeyKind)> = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    for _ in 0..count {
        let at_byte = reader.at_byte();
        let hash = KeyHash(reader.u64("hash")?);
        if kinds.last().is_some_and(|&(last, _)| last >= hash) {
            return Err(ActionError::KeysOutOfOrder { at_byte });
        }
        let at_byte = reader.at_byte();
        let number = reader.u8("kind")?;
        let kind = KeyKind::from_number(number).ok_or(ActionError::UnknownKind { number, at_byte })?;
        kinds.push((hash, kind));
    }
    Ok(Keys(kinds.into_iter().collect()))
}

/// A server has joined.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Arrival {
    /// Incarnation of the server.
    pub incarnation: u64,
    /// Name of the server. A name of more than [`MAX_NAME_LEN_BYTES`] is truncated when it is encoded.
    pub name: String,
    /// Address for clients. An address of more than [`MAX_ADDRESS_LEN_BYTES`] is truncated when it is encoded.
    pub incoming_address: String,
    /// Address for other members. Truncated like `incoming_address`.
    pub listen_address: String,
}

impl Arrival {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        encode_text(&self.name, MAX_NAME_LEN_BYTES, out);
        encode_text(&self.incoming_address, MAX_ADDRESS_LEN_BYTES, out);
        encode_text(&self.listen_address, MAX_ADDRESS_LEN_BYTES, out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, ActionError> {
        Ok(Self {
            incarnation: reader.u64("incarnation")?,
            name: decode_text(reader, "name", MAX_NAME_LEN_BYTES)?,
            incoming_address: decode_text(reader, "address for clients", MAX_ADDRESS_LEN_BYTES)?,
            listen_address: decode_text(reader, "address for members", MAX_ADDRESS_LEN_BYTES)?,
        })
    }
}

/// Encodes whole characters of at most `limit_bytes`, which fits in a byte.
fn encode_text(text: &str, limit_bytes: usize, out: &mut Vec<u8>) {
    let cut = (0..=limit_bytes.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    out.push(cut.len() as u8);
    out.extend_from_slice(cut.as_bytes());
}

fn decode_text(
    reader: &mut Reader<'_>,
    what: &'static str,
    limit_bytes: usize,
) -> Result<String, ActionError> {
    let at_byte = reader.at_byte();
    let len_bytes = reader.u8(what)?;
    if usize::from(len_bytes) > limit_bytes {
        return Err(ActionError::TooLong { what, len_bytes, limit_bytes, at_byte });
    }
    let at_byte = reader.at_byte();
    let text = std::str::from_utf8(reader.bytes(u64::from(len_bytes), what)?);
    text.map(str::to_owned)
        .map_err(|error| ActionError::NotText { what, at_byte: at_byte + error.valid_up_to() })
}

/// A member is gone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Departure {
    /// Id of the member.
    pub member: u64,
    /// Its incarnation.
    pub incarnation: u64,
}

/// One entry of the total order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A transaction.
    WriteSet(WriteSet),
    /// The proposing member is present.
    Arrived(Arrival),
    /// A member is not present any more.
    Departed(Departure),
    /// The proposing member's outcome of applying a write set.
    Vote {
        /// Sequence number of the write set.
        seqno: Seqno,
        /// 0: success. Any other value identifies the error.
        code: i64,
    },
    /// An absent member that is not to return.
    Removed {
        /// Id of the member.
        member: u64,
    },
    /// A member continues without a majority. The others receive later entries only from that member.
    Alone {
        /// Id of the member.
        member: u64,
    },
}

impl Action {
    /// Encodes the action.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.version(), self.tag()];
        match self {
            Self::WriteSet(write_set) => write_set.encode(&mut out),
            Self::Arrived(arrival) => arrival.encode(&mut out),
            Self::Departed(departure) => {
                out.extend_from_slice(&departure.member.to_le_bytes());
                out.extend_from_slice(&departure.incarnation.to_le_bytes());
            }
            Self::Vote { seqno, code } => {
                out.extend_from_slice(&seqno.0.to_le_bytes());
                out.extend_from_slice(&code.to_le_bytes());
            }
            Self::Removed { member } | Self::Alone { member } => out.extend_from_slice(&member.to_le_bytes()),
        }
        out
    }

    fn version(&self) -> u8 {
        match self {
            Self::WriteSet(write_set) if write_set.is_part() => PART_VERSION,
            _ => VERSION,
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::WriteSet(_) => WRITE_SET_TAG,
            Self::Arrived(_) => ARRIVED_TAG,
            Self::Departed(_) => DEPARTED_TAG,
            Self::Vote { .. } => VOTE_TAG,
            Self::Removed { .. } => REMOVED_TAG,
            Self::Alone { .. } => ALONE_TAG,
        }
    }

    /// Decodes the output of [`Action::encode`].
    ///
    /// # Errors
    /// [`ActionError`]: these bytes are not in the format.
    pub fn decode(bytes: &[u8]) -> Result<Self, ActionError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8("version")?;
        if ![VERSION, PART_VERSION].contains(&version) {
            return Err(ActionError::UnknownVersion { version });
        }
        let at_byte = reader.at_byte();
        let action: Self = match reader.u8("tag")? {
            WRITE_SET_TAG => Self::WriteSet(WriteSet::decode(&mut reader)?),
            ARRIVED_TAG => Self::Arrived(Arrival::decode(&mut reader)?),
            DEPARTED_TAG => Self::Departed(Departure {
                member: reader.u64("member")?,
                incarnation: reader.u64("incarnation")?,
            }),
            VOTE_TAG => {
                Self::Vote { seqno: Seqno(reader.i64("sequence number")?), code: reader.i64("code")? }
            }
            REMOVED_TAG => Self::Removed { member: reader.u64("member")? },
            ALONE_TAG => Self::Alone { member: reader.u64("member")? },
            tag => return Err(ActionError::UnknownTag { tag, at_byte }),
        };
        if version != action.version() {
            return Err(ActionError::UnknownVersion { version });
        }
        match reader.rest() {
            [] => Ok(action),
            rest => Err(ActionError::Trailing { len_bytes: rest.len(), at_byte: reader.at_byte() }),
        }
    }
}

/// Reason why bytes are not a valid [`Action`]. Positions are counted in bytes from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ActionError {
    /// Too few bytes.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// There are bytes after the end.
    #[error("{len_bytes} extra bytes at byte {at_byte}")]
    Trailing {
        /// Number of extra bytes.
        len_bytes: usize,
        /// Where the action ends.
        at_byte: usize,
    },
    /// A later version, none, or the version of another action.
    #[error(
        "unknown version {version} at byte 0: {PART_VERSION} is for parts of transactions, {VERSION} for all else"
    )]
    UnknownVersion {
        /// The version in the bytes.
        version: u8,
    },
    /// No action has this tag.
    #[error("unknown action tag {tag} at byte {at_byte}")]
    UnknownTag {
        /// The tag.
        tag: u8,
        /// Position of the tag.
        at_byte: usize,
    },
    /// A hash that is not above the previous one.
    #[error("the key at byte {at_byte} is not above the previous key")]
    KeysOutOfOrder {
        /// Position of the key.
        at_byte: usize,
    },
    /// Unknown kind of key.
    #[error("unknown kind of keys {number} at byte {at_byte}")]
    UnknownKind {
        /// The number.
        number: u8,
        /// Position of the kind.
        at_byte: usize,
    },
    /// A text that is longer than its field in the provider interface.
    #[error("{what} at byte {at_byte} has {len_bytes} bytes; the limit is {limit_bytes}")]
    TooLong {
        /// Name of the field.
        what: &'static str,
        /// Its length.
        len_bytes: u8,
        /// Its limit.
        limit_bytes: usize,
        /// Position of the length.
        at_byte: usize,
    },
    /// A text that is not UTF-8.
    #[error("{what} is not UTF-8 at byte {at_byte}")]
    NotText {
        /// Name of the field.
        what: &'static str,
        /// Position of the first invalid byte.
        at_byte: usize,
    },
}

#[cfg(test)]
#[path = "write_set/tests.rs"]
mod tests;
