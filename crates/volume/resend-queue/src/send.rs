//! Sending the frames that a server has left, as the session that wrote them.
//!
//! The node treats a connection of that session as a reconnection of the server. It returns the position of its stream,
//! and gets the frames from there on. So a frame that the node has is not sent again, and no frame is sent out of
//! order. The node refuses the session when a newer generation has the volume: then these frames can never be accepted.

use crate::layout::Kept;
use redoubt_transport::{Connection, Connector, TransportError};
use redoubt_types::Seq;
use redoubt_wire::greeting::{self, GreetingError};
use redoubt_wire::hello::{Compression, Hello, Role, Status, Welcome};
use redoubt_wire::negotiation::Announcement;
use redoubt_wire::notice::Notice;
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, WireError};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of the time without a message of the node, not even a notice that it waits.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);

/// Error that stopped the sending. No frame is lost, and it can be tried again, except after [`SendError::Fenced`].
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The network failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The node sent invalid bytes.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// One side rejects the other.
    #[error("TLS authentication with the storage node failed: {0}")]
    Trust(String),
    /// The node asks to try again.
    #[error("the storage node is not ready: {0}")]
    Later(String),
    /// Another server has attached the volume since.
    #[error("{0}")]
    Fenced(String),
    /// The node rejects the frames.
    #[error("the storage node rejected it: {0}")]
    Refused(String),
}

impl From<TransportError> for SendError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Io(error) => Self::Io(error),
            TransportError::Trust(why) | TransportError::Credentials(why) => Self::Trust(why),
        }
    }
}

impl From<GreetingError> for SendError {
    fn from(error: GreetingError) -> Self {
        match error {
            GreetingError::Io(error) => Self::Io(error),
            GreetingError::Wire(error) => Self::Wire(error),
        }
    }
}

/// Sends the frames of `kept`, which lie in `file`, and waits until the node confirms them as durable. Returns how many
/// bytes the node did not have. `announced` requires the features that the frames need.
///
/// # Errors
/// [`SendError`].
pub fn send(
    connector: &Connector,
    announced: Announcement,
    volume: &str,
    kept: &Kept,
    file: &[u8],
) -> Result<u64, SendError> {
    let (log, welcome) = greet(connector, announced, volume, kept, Role::Log)?;
    let log = Ending(log);
    let notices = Ending(greet(connector, announced, volume, kept, Role::Notices)?.0);
    let from = welcome.next_seq;
    let first = kept.frames.partition_point(|(position, _)| *position < from);
    let missing = kept.frames.get(first..).unwrap_or(&[]);
    if missing.first().is_some_and(|(position, _)| *position != from) {
        let why = format!("it expects position {}, which is inside a frame: it stored a part of one", from.0);
        return Err(SendError::Refused(why));
    }
    for (_, range) in missing {
        let frame = file.get(range.clone()).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        log.0.write_all(frame)?;
    }
    wait_durable(&*notices.0, kept.sound_end)?;
    Ok(kept.sound_end.0.saturating_sub(from.0))
}

/// Closes its connection when it is dropped.
struct Ending(Arc<dyn Connection>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

fn greet(
    connector: &Connector,
    announced: Announcement,
    volume: &str,
    kept: &Kept,
    role: Role,
) -> Result<(Arc<dyn Connection>, Welcome), SendError> {
    let connection = connector.connect(CONNECT_TIMEOUT, GREETING_TIMEOUT)?;
    let hello = Hello {
        role,
        compression: Compression::Off,
        generation: kept.generation,
        session: kept.session,
        resume: if role == Role::Log { kept.oldest } else { Seq(0) },
        volume: volume.to_owned(),
    };
    // The first bytes over TLS may be the node's rejection of this host.
    let welcome = exchange(&*connection, &hello, announced).map_err(|error| match error {
        SendError::Io(error) => TransportError::from_io(error).into(),
        other => other,
    })?;
    connection.set_deadline(None)?;
    match welcome.status {
        Status::Accepted => Ok((connection, welcome)),
        Status::TryLater => Err(SendError::Later(welcome.message)),
        Status::Fenced => Err(SendError::Fenced(welcome.message)),
        Status::Refused => Err(SendError::Refused(welcome.message)),
    }
}

fn exchange(
    connection: &dyn Connection,
    hello: &Hello,
    announced: Announcement,
) -> Result<Welcome, SendError> {
    let mut reader = connection;
    let greeted = greeting::exchange(
        hello,
        announced,
        |bytes| connection.write_all(bytes),
        |out| reader.read_exact(out),
    );
    Ok(greeted?.0)
}

fn wait_durable(mut connection: &dyn Connection, end: Seq) -> Result<(), SendError> {
    connection.set_read_timeout(Some(SILENCE_LIMIT))?;
    let (mut position, mut payload) = (0, Vec::new());
    loop {
        let mut head = [0; HEADER_LEN_BYTES];
        connection.read_exact(&mut head)?;
        let header = FrameHeader::decode(&head);
        payload.clear();
        // The buffer grows with the received bytes, so that a wrong length cannot cause a large allocation.
        let mut rest = connection.take(u64::from(header.len_bytes));
        if rest.read_to_end(&mut payload)? as u64 != u64::from(header.len_bytes) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        header.check(position, &payload)?;
        position += 1;
        match Notice::decode(header.kind, &payload)? {
            Notice::Durable(seq) if seq >= end => return Ok(()),
            Notice::Durable(_) | Notice::Trace { .. } => {}
            // The requested pages are gone with the server's process; the node continues without them.
            Notice::NeedImage { .. } | Notice::WantImage { .. } | Notice::UnknownFile { .. } => {}
            Notice::Waiting { reason } => {
                let limit = if reason.is_empty() { Some(SILENCE_LIMIT) } else { None };
                connection.set_read_timeout(limit)?;
            }
            Notice::Fenced { generation } => {
                return Err(SendError::Fenced(format!("generation {generation} was given out meanwhile")));
            }
            Notice::Stopped { reason } => return Err(SendError::Refused(format!("it stopped: {reason}"))),
        }
    }
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
