//! From an accepted socket to a connection whose role, volume and rights are known.
//!
//! Until then no allocation depends on the peer's input, everything has one deadline, and only a fixed number of peers
//! may be this far.

use super::admission::{Arrived, ConnectionLimits, Ender, Present, Purpose};
use super::listen::Incoming;
use super::{Node, PATIENCE_WITH_OPENING, control, log, notices, page};
use crate::error::NodeError;
use crate::server::authority::check_volume;
use crate::volume::Volume;
use redoubt_peer_credentials::{Process, peer_of};
use redoubt_transport::local::WORD;
use redoubt_transport::socket::LOST_PEER_AFTER;
use redoubt_transport::tls::{FIRST_BYTE, Rejected};
use redoubt_transport::{Connection, SocketConnection, TransportError};
use redoubt_wire::greeting::{self, ANNOUNCED, Agreement, Features, Opening};
use redoubt_wire::hello::{self, Compression, Hello, Role, Status, Welcome};
use redoubt_wire::{Seq, WireError};
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

/// A peer that was refused has this long to take the answer.
const SOFT_END: Duration = Duration::from_secs(1);

impl Node {
    /// Serves one accepted socket until it ends.
    pub(super) fn serve_socket(self: &Arc<Self>, arrived: Arrived, incoming: Incoming) {
        let socket = match incoming {
            Incoming::Tcp(stream) => SocketConnection::new(stream),
            Incoming::Local(stream) => {
                let Some(process) = peer_of(&stream).filter(|process| self.lets_in(process)) else { return };
                SocketConnection::local(stream, process)
            }
        };
        let Ok(handle) = socket.try_clone() else { return };
        let Some(present) = self.admission.enter(arrived, Ender::Socket(handle)) else { return };
        if socket.set_deadline(Some(self.admission.limits().greeting_timeout)).is_err() {
            return;
        }
        if socket.is_over_local_socket() && socket.write_all(&[WORD]).is_err() {
            return;
        }
        let Some(tls) = &self.options.tls else {
            let connection: Arc<dyn Connection> = Arc::new(socket);
            return self.serve_present(&present, &connection);
        };
        let peer = socket.peer().to_owned();
        let (accepted, not_loaded) = tls.accept(socket);
        if let Some(error) = not_loaded {
            tracing::error!(event = "credentials_rejected", %error, "changed credentials are not used; the old ones stay in use");
        }
        match accepted {
            Ok(connection) => {
                let connection: Arc<dyn Connection> = Arc::new(connection);
                self.serve_present(&present, &connection);
            }
            Err(rejected) => self.reject(&peer, *rejected),
        }
    }

    /// Whether this process may use the local socket. TCP is left to all others.
    fn lets_in(&self, process: &Process) -> bool {
        let users = self.options.local_users.as_deref().unwrap_or_default();
        let lets_in = process.uid == 0
            || process.uid == rustix::process::geteuid().as_raw()
            || (process.is_user_known() && users.contains(&process.uid));
        if !lets_in {
            let Process { id, uid } = process;
            tracing::debug!(
                "process {id} of user {uid} may not use the local socket, see --local-users; it can use TCP"
            );
        }
        lets_in
    }

    fn reject(&self, peer: &str, rejected: Rejected) {
        match rejected {
            // Port probes are no news.
            Rejected::Handshake(_, TransportError::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => {
            }
            Rejected::Handshake(socket, error) => {
                self.complain(peer, &error);
                socket.end_softly(SOFT_END);
            }
            Rejected::PlainText(socket) => {
                let message = "this node speaks TLS only; give the command or the server its certificate with --tls DIR";
                self.complain(peer, &"the client does not speak TLS");
                let _ = welcome(&socket, &refused(message.to_owned()));
                socket.end_softly(SOFT_END);
            }
            Rejected::Denied(connection, why) => {
                self.complain(peer, &why);
                let _ = welcome(&*connection, &refused(why));
                connection.end_softly(SOFT_END);
            }
        }
    }

    /// Serves one connection until it ends.
    pub fn serve_connection(self: &Arc<Self>, connection: &Arc<dyn Connection>) {
        let arrived = self.admission.arrive();
        if let Some(present) = self.admission.enter(arrived, Ender::Connection(Arc::clone(connection)))
            && connection.set_deadline(Some(self.admission.limits().greeting_timeout)).is_ok()
        {
            self.serve_present(&present, connection);
        }
    }

    fn serve_present(self: &Arc<Self>, present: &Present<'_>, connection: &Arc<dyn Connection>) {
        if let Err(error) = self.greet_and_serve(present, connection)
            && !self.listener.is_stopping()
        {
            self.complain(connection.peer(), &error);
        }
        connection.shutdown();
    }

    /// Logs the reason why a connection ended, but does not let peers fill the disk with it.
    pub(super) fn complain(&self, peer: &str, error: &dyn std::fmt::Display) {
        // Not logged with the lock: a log that blocks would block every connection.
        let next = self.complaints.lock().next();
        match next {
            Some(0) => tracing::warn!(event = "connection_closed", peer, %error, "connection closed"),
            Some(unsaid) => {
                tracing::warn!(event = "connections_closed", peer, %error, unsaid, "connection closed, and others not shown")
            }
            None => {}
        }
    }

    fn greet_and_serve(
        self: &Arc<Self>,
        present: &Present<'_>,
        connection: &Arc<dyn Connection>,
    ) -> Result<(), NodeError> {
        let stream = &**connection;
        let Some((hello, features)) = read_hello(stream)? else { return Ok(()) };
        let admitted = match hello.role {
            Role::Control => present.admit(connection, Purpose::control(stream.identity())),
            // Checked before any answer about the volume: a peer without rights to it learns nothing about it.
            _ => match check_volume(stream.identity(), &hello.volume) {
                Ok(()) => present.admit(connection, Purpose::Volume(hello.volume.clone())),
                Err(why) => {
                    self.complain(stream.peer(), &why);
                    return welcome(stream, &refused(why));
                }
            },
        };
        if let Err(why) = admitted {
            return welcome(stream, &Welcome { status: Status::TryLater, ..refused(why) });
        }
        let set_up = |error| NodeError::io("set up", "connection", error);
        stream.set_deadline(None).map_err(set_up)?;
        if hello.role != Role::Control {
            // A client of commands may read slowly, as one whose own disk hangs.
            stream.set_silence_limit(LOST_PEER_AFTER);
        }
        stream.set_write_timeout(Some(self.admission.limits().write_timeout)).map_err(set_up)?;
        if hello.role == Role::Control {
            welcome(stream, &accepted())?;
            return control::serve(self, stream);
        }
        let volume = match self.volume(&hello.volume, PATIENCE_WITH_OPENING) {
            Ok(volume) => volume,
            Err(error @ NodeError::NotNow(_)) => {
                return welcome(stream, &Welcome { status: Status::TryLater, ..refused(error.to_string()) });
            }
            Err(error) => return welcome(stream, &refused(error.to_string())),
        };
        serve_role(&volume, &hello, features, connection)
    }
}

/// Serves one connection of a server to `volume` until it ends. The volume in its Hello and the peer's identity do not
/// matter.
///
/// # Errors
/// The error that ended it; none if the peer closed it.
pub fn serve_volume(volume: &Volume, connection: &Arc<dyn Connection>) -> Result<(), NodeError> {
    let stream = &**connection;
    let Some((hello, features)) = read_hello(stream)? else { return Ok(()) };
    let write_timeout = Some(ConnectionLimits::default().write_timeout);
    let set_up = |error| NodeError::io("set up", "connection", error);
    stream.set_write_timeout(write_timeout).map_err(set_up)?;
    serve_role(volume, &hello, features, connection)
}

fn serve_role(
    volume: &Volume,
    hello: &Hello,
    features: Features,
    connection: &Arc<dyn Connection>,
) -> Result<(), NodeError> {
    let stream = &**connection;
    match hello.role {
        Role::Log => log::serve(volume, hello, stream),
        Role::Notices => notices::serve(volume, hello, features, connection),
        // Also for a volume that has stopped: the image that shows a difference may still come.
        _ => match volume.check_fence(hello) {
            Ok(()) => {
                welcome(stream, &Welcome { compression: hello.compression, ..accepted() })?;
                page::serve(volume, hello, stream)
            }
            Err(refusal) => welcome(stream, &refusal),
        },
    }
}

/// The Hello; `None`: a port probe, which sent nothing.
fn read_hello(mut stream: &dyn Connection) -> Result<Option<(Hello, Features)>, NodeError> {
    let io = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            NodeError::Refused("the peer did not say hello in time".to_owned())
        }
        _ => NodeError::io("read from", "connection", error),
    };
    let mut len = [0; 4];
    match stream.read_exact(&mut len) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    if len.starts_with(&[FIRST_BYTE, 3]) {
        let message = "this node does not speak TLS; leave --tls away, or start the node with --tls DIR";
        welcome(stream, &refused(message.to_owned()))?;
        // Unread input at the close of the connection would make the kernel drop the answer.
        let _ = stream.set_deadline(Some(SOFT_END));
        let _ = stream.read(&mut [0; 4096]);
        return Err(NodeError::Refused("the client speaks TLS, this node does not; see --tls".to_owned()));
    }
    let hello = read_message(stream, len).map_err(io)??;
    let negotiated = match greeting::receive_hello(&hello, ANNOUNCED) {
        Ok(Opening::Legacy(hello, agreement)) => Ok((hello, agreement.features)),
        Ok(Opening::Negotiates(hello)) => {
            negotiate(stream).map_err(io)?.map(|agreement| (hello, agreement.features))
        }
        Err(error) => Err(error),
    };
    match negotiated {
        Ok(greeted) => Ok(Some(greeted)),
        Err(error) => {
            welcome(stream, &refused(error.to_string()))?;
            Err(error.into())
        }
    }
}

/// Exchanges announcements with a client. Within the deadline of the greeting.
fn negotiate(mut stream: &dyn Connection) -> std::io::Result<Result<Agreement, WireError>> {
    stream.write_all(&greeting::encode_announcement(ANNOUNCED))?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let answer = read_message(stream, len)?;
    Ok(answer.and_then(|answer| greeting::receive_answer(&answer, ANNOUNCED)))
}

/// A message of a greeting, after its length has been read.
fn read_message(mut stream: &dyn Connection, len: [u8; 4]) -> std::io::Result<Result<Vec<u8>, WireError>> {
    let mut bytes = match hello::decode_len(len) {
        Ok(len_bytes) => vec![0; len_bytes],
        Err(error) => return Ok(Err(error)),
    };
    stream.read_exact(&mut bytes)?;
    Ok(Ok(bytes))
}

pub(super) fn accepted() -> Welcome {
    Welcome {
        status: Status::Accepted,
        compression: Compression::Off,
        next_seq: Seq(0),
        next_lsn: redoubt_redo::Lsn(0),
        message: String::new(),
    }
}

fn refused(message: String) -> Welcome {
    Welcome { status: Status::Refused, message, ..accepted() }
}

/// Answers a Hello.
pub(super) fn welcome(stream: &dyn Connection, welcome: &Welcome) -> Result<(), NodeError> {
    stream.write_all(&welcome.encode()).map_err(|error| NodeError::io("write to", "connection", error))
}
