//! The greeting of a connection: which versions and features both sides have, then [`Hello`] and [`Welcome`].
//!
//! A peer of Redoubt 0.1.0 has protocol version 5, compares that number, and supports no features. So the greeting
//! begins as in 0.1.0: the client sends a Hello. A flag in it, which 0.1.0 ignores, offers to negotiate.
//!
//! ```text
//! client                                  node
//! Hello, flag "negotiates" ────────────▶
//!                          ◀──────────── announcement    (0.1.0: Welcome, and the greeting is over)
//! announcement             ────────────▶
//!                          ◀──────────── Welcome
//! ```
//!
//! Nothing happens on the node before both announcements agree ([`redoubt_negotiation`]). Both sides compute the same
//! outcome, so that each reports a refusal with both versions.
//!
//! An announcement is a u32 length like that of a Hello, the magic `RDBN`, and the bytes of an [`Announcement`].
//!
//! Invariant: a field, frame kind or request that [`crate::hello`] of 0.1.0 did not have belongs to a feature here or
//! to a later version (`tests/shapes.rs` checks it).

use crate::error::WireError;
use crate::hello::{self, Hello, Status, Welcome};
use crate::{OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, ServerVersion};
pub use redoubt_negotiation::{Agreement, Features};
use redoubt_negotiation::{Announcement, BadAnnouncement, Disagreement, Versions};
use redoubt_types::Family;
use std::io;

const MAGIC: [u8; 4] = *b"RDBN";
/// The last version whose peers compare one number. The greeting can negotiate since then.
const LEGACY_VERSION: u16 = 5;
const LEGACY_AGREEMENT: Agreement = Agreement { version: LEGACY_VERSION, features: Features::NONE };
const _: () =
    assert!(LEGACY_VERSION <= OLDEST_PROTOCOL_VERSION, "a legacy peer cannot speak an older version");
const _: () = assert!(OLDEST_PROTOCOL_VERSION <= PROTOCOL_VERSION);

/// `attach` names the server ([`crate::ServerVersion`]), so that one other than MariaDB 10.11 can run on a volume.
pub const SERVER_VERSION: Features = Features(1 << 0);
/// MySQL: kinds 15 and 16 and files of kind 3 on log connections, request 6 on page connections, `family` and
/// `import_log_set` on control connections.
pub const MYSQL: Features = Features(1 << 1);
/// `attach` names the generation that the client has seen, so that one that was queued fences no later attach.
pub const SEEN_GENERATION: Features = Features(1 << 2);
/// `with_damaged` in `export_file`, its reply `damaged`, and `frozen` in the reply to `export_begin`. Notice 7: the node
/// asks for a page that is damaged in its store, and the server's library sends it with its next write.
pub const DAMAGED_PAGES: Features = Features(1 << 3);
/// Notice 8: the server writes a plain file that the volume does not have.
pub const UNKNOWN_FILES: Features = Features(1 << 4);
/// Log connections carry the unlogged kind 67: a dropped page write to be compared, where the node takes the server's page
/// if it differs.
pub const ON_DIFFERENCE: Features = Features(1 << 5);
/// `volume_check`, and its reply `checked`.
pub const VOLUME_CHECK: Features = Features(1 << 6);
/// All features, with names for people, in the order of their bits.
pub const ALL: [(Features, &str); 7] = [
    (SERVER_VERSION, "server-version"),
    (MYSQL, "mysql"),
    (SEEN_GENERATION, "seen-generation"),
    (DAMAGED_PAGES, "damaged-pages"),
    (UNKNOWN_FILES, "unknown-files"),
    (ON_DIFFERENCE, "on-difference"),
    (VOLUME_CHECK, "volume-check"),
];

/// The announcement of nodes and clients of this version. A client adds the features that it requires
/// ([`Announcement::requiring`]).
pub const ANNOUNCED: Announcement = Announcement::new(
    Versions::new(OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION),
    Features::NONE,
    SERVER_VERSION
        .with(MYSQL)
        .with(SEEN_GENERATION)
        .with(DAMAGED_PAGES)
        .with(UNKNOWN_FILES)
        .with(ON_DIFFERENCE)
        .with(VOLUME_CHECK),
);

const _: () = {
    let (mut at, mut all) = (0, Features::NONE);
    while at < ALL.len() {
        assert!(ALL[at].0.0 == 1 << at, "bits are given out in order, one for each feature");
        all = all.with(ALL[at].0);
        at += 1;
    }
    assert!(all.0 == ANNOUNCED.known().0, "every feature is announced");
};

/// The series that run on a volume, each with the features of a node that can apply its redo. A series that 0.1.0 did
/// not support needs at least one feature.
pub const SERIES: [(Family, (u32, u32), Features); 4] = [
    (Family::MariaDb, (10, 11), Features::NONE),
    (Family::MariaDb, (11, 4), SERVER_VERSION),
    (Family::MariaDb, (11, 8), SERVER_VERSION),
    (Family::MySql, (9, 7), SERVER_VERSION.with(MYSQL)),
];

/// The features of a node that can apply the redo of this server; `None`: no version of the node can.
pub fn required_by(server: ServerVersion) -> Option<Features> {
    let known = SERIES.iter().find(|(family, series, _)| server.is_of_series(*family, *series));
    known.map(|(_, _, features)| *features)
}

/// The features of a node that can apply the redo of each of these servers. The redo of an unknown series requires all
/// features.
pub fn required_by_all(servers: impl IntoIterator<Item = ServerVersion>) -> Features {
    let each = servers.into_iter().map(|server| required_by(server).unwrap_or_else(|| ANNOUNCED.known()));
    each.fold(Features::NONE, Features::with)
}

/// An announcement as it goes over the connection, length included.
pub fn encode_announcement(announcement: Announcement) -> Vec<u8> {
    let bytes = announcement.encode();
    let mut out = Vec::with_capacity(4 + MAGIC.len() + bytes.len());
    out.extend_from_slice(&((MAGIC.len() + bytes.len()) as u32).to_le_bytes());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&bytes);
    out
}

/// Decodes the bytes after the length field; `None`: they are no announcement.
///
/// # Errors
/// [`WireError::Invalid`] for a damaged announcement.
pub fn decode_announcement(bytes: &[u8]) -> Result<Option<Announcement>, WireError> {
    let Some(bytes) = bytes.strip_prefix(&MAGIC) else { return Ok(None) };
    let invalid = |error: BadAnnouncement| WireError::Invalid {
        what: "greeting",
        field: "announcement",
        why: error.to_string(),
    };
    Announcement::decode(bytes).map(Some).map_err(invalid)
}

/// The next step of a node after a Hello.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// The client is a legacy peer within the range: it gets its Welcome.
    Legacy(Hello, Agreement),
    /// The client gets the node's announcement, and answers with its own ([`receive_answer`]).
    Negotiates(Hello),
}

/// A client's Hello, without its length field.
///
/// # Errors
/// Any [`WireError`]; a client outside of the range is refused with [`WireError::Disagreement`].
pub fn receive_hello(bytes: &[u8], ours: Announcement) -> Result<Opening, WireError> {
    if hello::negotiates(bytes) {
        return Ok(Opening::Negotiates(Hello::decode(bytes)?));
    }
    let agreement = ours.agree(Announcement::of_legacy_peer(hello::version(bytes)?))?;
    Ok(Opening::Legacy(Hello::decode(bytes)?, agreement))
}

/// A client's announcement, without its length field.
///
/// # Errors
/// Any [`WireError`]; a client outside of the range is refused with [`WireError::Disagreement`].
pub fn receive_answer(bytes: &[u8], ours: Announcement) -> Result<Agreement, WireError> {
    let theirs = decode_announcement(bytes)?.ok_or_else(|| hello::bad_magic(bytes))?;
    Ok(ours.agree(theirs)?)
}

/// The next step of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes, then receive again.
    Send(Vec<u8>),
    /// The greeting is over.
    Done(Welcome, Agreement),
}

/// A client's side of a greeting. Owns no socket: the caller sends and receives.
#[derive(Debug)]
pub struct ClientGreeting {
    ours: Announcement,
    theirs: Option<Announcement>,
}

impl ClientGreeting {
    /// Begins a greeting; the returned bytes must be sent first.
    pub fn begin(hello: &Hello, ours: Announcement) -> (Self, Vec<u8>) {
        (Self { ours, theirs: None }, hello.encode_negotiating())
    }

    /// A message of the node, without its length field.
    ///
    /// # Errors
    /// Any [`WireError`]; a node outside of the range is refused with [`WireError::Disagreement`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Step, WireError> {
        match (decode_announcement(bytes)?, self.theirs) {
            (Some(theirs), None) => {
                // Sent even without agreement: the node then reports that, too.
                self.theirs = Some(theirs);
                Ok(Step::Send(encode_announcement(self.ours)))
            }
            (Some(_), Some(_)) => Err(hello::bad_magic(bytes)),
            (None, Some(theirs)) => {
                let agreement = self.ours.agree(theirs)?;
                Ok(Step::Done(Welcome::decode_negotiated(bytes)?, agreement))
            }
            (None, None) => self.receive_legacy(bytes),
        }
    }

    /// Why the two sides cannot work together, as far as the node has announced itself. A node of another version may
    /// close the connection after that, without a word.
    fn disagreement(&self) -> Option<WireError> {
        self.ours.agree(self.theirs?).err().map(WireError::from)
    }

    fn receive_legacy(&self, bytes: &[u8]) -> Result<Step, WireError> {
        let agreed = self.ours.agree(Announcement::of_legacy_peer(hello::version(bytes)?));
        if let Err(outside @ Disagreement::Versions { .. }) = agreed {
            return Err(outside.into());
        }
        let welcome = Welcome::decode_negotiated(bytes)?;
        match agreed {
            Ok(agreement) => Ok(Step::Done(welcome, agreement)),
            // The node's own refusal explains more than a missing feature.
            Err(_) if welcome.status != Status::Accepted => Ok(Step::Done(welcome, LEGACY_AGREEMENT)),
            Err(lacking) => Err(lacking.into()),
        }
    }
}

/// A greeting that failed.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The node sent bytes that must not be used, or is of another version.
    #[error("{0}")]
    Wire(#[from] WireError),
}

/// Greets a node as a client. `read` fills its buffer.
///
/// # Errors
/// [`GreetingError`]. A node outside of the range is [`WireError::Disagreement`], also if it closes the connection after
/// its announcement.
pub fn exchange(
    hello: &Hello,
    ours: Announcement,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
    mut read: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> Result<(Welcome, Agreement), GreetingError> {
    let (mut greeting, bytes) = ClientGreeting::begin(hello, ours);
    write(&bytes)?;
    loop {
        let mut step = || {
            let mut len = [0; 4];
            read(&mut len)?;
            let mut bytes = vec![0; hello::decode_len(len)?];
            read(&mut bytes)?;
            match greeting.receive(&bytes)? {
                Step::Send(bytes) => write(&bytes).map(|()| None).map_err(GreetingError::Io),
                Step::Done(welcome, agreement) => Ok(Some((welcome, agreement))),
            }
        };
        match step() {
            Ok(None) => {}
            Ok(Some(done)) => return Ok(done),
            Err(GreetingError::Io(error)) => {
                return Err(greeting.disagreement().map_or(GreetingError::Io(error), GreetingError::Wire));
            }
            Err(other) => return Err(other),
        }
    }
}

#[cfg(test)]
mod tests;
