//! One connection to the node: connecting, the greeting, frames in both directions.
//!
//! Owns no state shared between threads. Uses socket calls only (`send`, `recv`), which this library does not
//! hook; with TLS, also clock and random numbers.

use crate::base::counters::Counters;
use redoubt_transport::{Connection, Connector, TransportError};
use redoubt_wire::frame::{HEADER_LEN_BYTES, append_frame, decompress};
use redoubt_wire::greeting::{self, Features, GreetingError};
use redoubt_wire::hello::{Compression, Hello, Role, Status, Welcome};
use redoubt_wire::negotiation::Announcement;
use redoubt_wire::stream::Counter;
use redoubt_wire::{FrameHeader, Seq, WireError};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A node that is there greets at once. Less, where a server waits for its node for less.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// Also ends a connection whose peer receives nothing for this time; the bytes sent on it are then sent again.
pub const SILENT_PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// Reason why a connection could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The network failed; another attempt may succeed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer sent bytes that must not be used.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// One side rejects the other. The cause may be fixed while the server runs: certificates are read again.
    #[error("TLS authentication with the storage node failed: {0}")]
    Trust(String),
    /// Not now.
    #[error("{0}")]
    Later(String),
    /// The node will never accept this connection.
    #[error("{0}")]
    Final(String),
}

impl LinkError {
    /// Another attempt cannot succeed. `was_connected`: this server has had a connection to its node. Then something
    /// else that answers at the node's address, as a proxy does while the node restarts, is no reason to give up.
    pub const fn is_final(&self, was_connected: bool) -> bool {
        match self {
            Self::Final(_) | Self::Wire(WireError::Disagreement(_)) => true,
            Self::Wire(WireError::BadMagic { .. }) => !was_connected,
            _ => false,
        }
    }
}

impl From<TransportError> for LinkError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Io(error) => Self::Io(error),
            TransportError::Trust(why) | TransportError::Credentials(why) => Self::Trust(why),
        }
    }
}

impl From<GreetingError> for LinkError {
    fn from(error: GreetingError) -> Self {
        match error {
            GreetingError::Io(error) => Self::Io(error),
            GreetingError::Wire(error) => Self::Wire(error),
        }
    }
}

/// Address of the node, and identity of this server.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address of the node.
    pub connector: Connector,
    /// Timeout of the node's greeting.
    pub greeting_timeout: Duration,
    /// Volume name.
    pub volume: String,
    /// Generation of the attachment.
    pub generation: u64,
    /// Random number of this process.
    pub session: u64,
    /// Compression that is asked for.
    pub compression: Compression,
    /// Versions and features, those required that the server's redo cannot do without.
    pub announced: Announcement,
}

/// Outcome of a greeting.
#[derive(Debug)]
pub struct Greeted {
    /// The node's answer.
    pub welcome: Welcome,
    /// Features that both sides have.
    pub features: Features,
}

/// Connects and greets.
///
/// # Errors
/// [`LinkError`]; see [`LinkError::is_final`].
pub fn connect(
    peer: &Peer,
    role: Role,
    resume: Seq,
    counters: &Counters,
) -> Result<(Arc<dyn Connection>, Greeted), LinkError> {
    let connection = peer.connector.connect(CONNECT_TIMEOUT, peer.greeting_timeout)?;
    let greeted = greet(&*connection, peer, role, resume, counters);
    // Over TLS the first bytes may be an alert by which the node rejects this server.
    let greeted = greeted.map_err(|error| match error {
        LinkError::Io(error) => TransportError::from_io(error).into(),
        other => other,
    })?;
    connection.set_deadline(None)?;
    Ok((connection, greeted))
}

fn greet(
    socket: &dyn Connection,
    peer: &Peer,
    role: Role,
    resume: Seq,
    counters: &Counters,
) -> Result<Greeted, LinkError> {
    let hello = Hello {
        role,
        compression: peer.compression,
        generation: peer.generation,
        session: peer.session,
        resume,
        volume: peer.volume.clone(),
    };
    let write = |bytes: &[u8]| {
        counters.add(Counter::SentBytes, bytes.len() as u64);
        socket.write_all(bytes)
    };
    let read = |out: &mut [u8]| {
        (&mut { socket }).read_exact(out)?;
        counters.add(Counter::ReceivedBytes, out.len() as u64);
        Ok(())
    };
    let (welcome, agreement) = greeting::exchange(&hello, peer.announced, write, read)?;
    match welcome.status {
        Status::Accepted => Ok(Greeted { welcome, features: agreement.features }),
        Status::TryLater => {
            Err(LinkError::Later(format!("the storage node is not ready: {}", welcome.message)))
        }
        Status::Fenced => Err(LinkError::Final(format!(
            "this server is fenced: another server took the volume over ({}); it must not be used any more",
            welcome.message
        ))),
        Status::Refused => Err(LinkError::Final(format!("the node refuses the volume: {}", welcome.message))),
    }
}

/// Reads one frame whose checksum position is `position` into `payload`; returns its kind.
///
/// # Errors
/// [`LinkError::Io`] or [`LinkError::Wire`]; the connection must be given up.
pub fn read_frame(
    socket: &mut impl Read,
    position: u64,
    payload: &mut Vec<u8>,
    counters: &Counters,
) -> Result<u8, LinkError> {
    let mut head = [0; HEADER_LEN_BYTES];
    socket.read_exact(&mut head).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the node closed the connection"),
        _ => error,
    })?;
    let header = FrameHeader::decode(&head);
    payload.clear();
    // Grows with what arrives, so that a wrong length cannot make this allocate much.
    let received = socket.take(u64::from(header.len_bytes)).read_to_end(payload)?;
    if received as u64 != u64::from(header.len_bytes) {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    header.check(position, payload)?;
    counters.add(Counter::ReceivedBytes, header.total_len_bytes());
    if header.compressed {
        *payload = decompress(payload)?;
    }
    Ok(header.kind)
}

/// Sends one frame.
///
/// # Errors
/// [`LinkError`]; the connection must be given up.
pub fn write_frame(
    socket: &dyn Connection,
    kind: u8,
    position: u64,
    payload: &[u8],
    buffer: &mut Vec<u8>,
    counters: &Counters,
) -> Result<(), LinkError> {
    buffer.clear();
    append_frame(buffer, kind, position, payload)?;
    socket.write_all(buffer)?;
    counters.add(Counter::SentBytes, buffer.len() as u64);
    Ok(())
}
