//! Version ranges and feature bits that the two ends of a connection announce in their greetings.
//!
//! Owns the rule by which two announcements become one agreement. How an announcement travels belongs to each
//! protocol (`redoubt-wire` for nodes, `redoubt-group` for members of a group); its bytes are the same in both.
//!
//! * The agreed version is the newest one that both sides speak.
//! * A feature is usable when both sides know its bit.
//! * A *required* bit ends the connection if the other side does not know it. An *optional* bit is ignored by a side
//!   that does not know it.
//!
//! Invariants: `oldest <= newest`, and no bit is both required and optional. Both sides compute the same outcome from
//! the same two announcements, so each can report a refusal, with both versions, without asking the other one.
//!
//! Layout, little-endian: oldest version (u16), newest version (u16), required bits (u64), optional bits (u64). Bytes
//! after these are ignored: a later version may append to them.

use std::fmt;

/// Length of an encoded announcement.
pub const LEN_BYTES: usize = 20;

/// An inclusive range of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    oldest: u16,
    newest: u16,
}

impl Versions {
    /// A range.
    ///
    /// # Panics
    /// If it is empty. In a constant this is a compile-time error.
    pub const fn new(oldest: u16, newest: u16) -> Self {
        assert!(oldest <= newest, "the range of versions is empty");
        Self { oldest, newest }
    }

    /// The range of a peer that has one version.
    pub const fn only(version: u16) -> Self {
        Self { oldest: version, newest: version }
    }

    /// The oldest version.
    pub const fn oldest(self) -> u16 {
        self.oldest
    }

    /// The newest version.
    pub const fn newest(self) -> u16 {
        self.newest
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(out, "version {}", self.oldest)
        } else {
            write!(out, "versions {} to {}", self.oldest, self.newest)
        }
    }
}

/// A set of feature bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);

    /// All bits of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits of this set that are not in the other one.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all bits of the other set are in this one.
    pub const fn contains(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    /// Whether no bit is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Bit numbers, for messages: the name of a bit is known only to the side that has it.
impl fmt::Display for Features {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits: Vec<String> =
            (0..u64::BITS).filter(|bit| self.0 >> bit & 1 == 1).map(|bit| bit.to_string()).collect();
        out.write_str(&bits.join(", "))
    }
}

/// The versions and features of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    versions: Versions,
    required: Features,
    optional: Features,
}

impl Announcement {
    /// An announcement.
    ///
    /// # Panics
    /// If a bit is both required and optional. In a constant this is a compile-time error.
    pub const fn new(versions: Versions, required: Features, optional: Features) -> Self {
        assert!(required.0 & optional.0 == 0, "a feature bit is both required and optional");
        Self { versions, required, optional }
    }

    /// The announcement that a peer from before negotiation stands for: one version, no features.
    pub const fn of_legacy_peer(version: u16) -> Self {
        Self::new(Versions::only(version), Features::NONE, Features::NONE)
    }

    /// The same, but a peer that does not know these (known) features is refused.
    #[must_use]
    pub const fn requiring(self, features: Features) -> Self {
        Self {
            versions: self.versions,
            required: self.required.with(features),
            optional: self.optional.without(features),
        }
    }

    /// The versions this side speaks.
    pub const fn versions(self) -> Versions {
        self.versions
    }

    /// The features this side knows, required or not.
    pub const fn known(self) -> Features {
        self.required.with(self.optional)
    }

    /// As it goes over a connection.
    pub fn encode(self) -> [u8; LEN_BYTES] {
        let mut out = [0; LEN_BYTES];
        out[..2].copy_from_slice(&self.versions.oldest.to_le_bytes());
        out[2..4].copy_from_slice(&self.versions.newest.to_le_bytes());
        out[4..12].copy_from_slice(&self.required.0.to_le_bytes());
        out[12..].copy_from_slice(&self.optional.0.to_le_bytes());
        out
    }

    /// From the bytes of [`Announcement::encode`] and any that follow them.
    ///
    /// # Errors
    /// [`BadAnnouncement`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadAnnouncement> {
        let bytes: &[u8; LEN_BYTES] =
            bytes.first_chunk().ok_or(BadAnnouncement::Truncated { len_bytes: bytes.len() })?;
        let [o0, o1, n0, n1, ..] = *bytes;
        let (oldest, newest) = (u16::from_le_bytes([o0, o1]), u16::from_le_bytes([n0, n1]));
        if oldest > newest {
            return Err(BadAnnouncement::EmptyRange { oldest, newest });
        }
        let bits = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            Features(u64::from_le_bytes(word))
        };
        let (required, optional) = (bits(4), bits(12));
        let both = required.0 & optional.0;
        if both != 0 {
            return Err(BadAnnouncement::RequiredAndOptional { bits: both });
        }
        Ok(Self { versions: Versions { oldest, newest }, required, optional })
    }

    /// The version and the features that this side and a peer have in common.
    ///
    /// # Errors
    /// [`Disagreement`], with the versions of both sides.
    pub const fn agree(self, peer: Self) -> Result<Agreement, Disagreement> {
        let (ours, theirs) = (self.versions, peer.versions);
        let version = if ours.newest < theirs.newest { ours.newest } else { theirs.newest };
        if version < ours.oldest || version < theirs.oldest {
            return Err(Disagreement::Versions { ours, theirs });
        }
        let unknown_here = peer.required.without(self.known());
        if !unknown_here.is_empty() {
            return Err(Disagreement::UnknownHere { features: unknown_here, ours, theirs });
        }
        let unknown_there = self.required.without(peer.known());
        if !unknown_there.is_empty() {
            return Err(Disagreement::UnknownThere { features: unknown_there, ours, theirs });
        }
        Ok(Agreement { version, features: Features(self.known().0 & peer.known().0) })
    }
}

/// The common version and features of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The newest version of both.
    pub version: u16,
    /// The features that both know.
    pub features: Features,
}

impl Agreement {
    /// Whether a feature may be used on this connection.
    pub const fn has(self, feature: Features) -> bool {
        self.features.contains(feature)
    }
}

/// Why two peers cannot work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// The ranges do not meet.
    #[error("the peer has protocol {theirs}, this side {ours}")]
    Versions {
        /// Of this side.
        ours: Versions,
        /// Of the peer.
        theirs: Versions,
    },
    /// The peer requires a feature that this side does not know.
    #[error(
        "the peer (protocol {theirs}) requires feature {features}, which this side (protocol {ours}) does not know"
    )]
    UnknownHere {
        /// The features.
        features: Features,
        /// Of this side.
        ours: Versions,
        /// Of the peer.
        theirs: Versions,
    },
    /// This side requires a feature that the peer does not know.
    #[error(
        "this side (protocol {ours}) requires feature {features}, which the peer (protocol {theirs}) does not know"
    )]
    UnknownThere {
        /// The features.
        features: Features,
        /// Of this side.
        ours: Versions,
        /// Of the peer.
        theirs: Versions,
    },
}

/// Why bytes are no announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnouncement {
    /// Too short.
    #[error("the announcement of versions has {len_bytes} bytes, expected {LEN_BYTES} or more")]
    Truncated {
        /// Its length.
        len_bytes: usize,
    },
    /// No version.
    #[error("the announced range of versions is empty: {oldest} to {newest}")]
    EmptyRange {
        /// The oldest one.
        oldest: u16,
        /// The newest one.
        newest: u16,
    },
    /// A contradiction.
    #[error("the announcement has feature bits {bits:#x} both as required and as optional")]
    RequiredAndOptional {
        /// These bits.
        bits: u64,
    },
}

#[cfg(test)]
mod tests;
