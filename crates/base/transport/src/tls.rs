//! TLS 1.3 over TCP or a local socket, with certificates on both sides.
//!
//! rustls does no I/O here: it converts bytes to records and back under a lock that is never held during a wait for
//! the peer. One thread waits in `recv` with only `incoming` locked, another in `send` with only `outgoing` locked.
//!
//! Lock order: `incoming` or `outgoing`, then `session`. `outgoing` is held from the creation of records until they
//! are sent, because their order is part of the protocol.
//!
//! Sessions are not resumed, and no data is sent before the peer is authenticated. The end of the underlying
//! connection is the end of the stream. Every message of the wire protocol contains its length, so its parser detects
//! truncation.

use crate::connection::{Connection, Delay, Written};
use crate::error::TransportError;
use crate::identity::Identity;
use crate::socket::SocketConnection;
use redoubt_locks::{IgnorePoison, IgnorePoisonIfFree};
use rustls::AlertDescription;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

mod explain;
mod member;
mod settings;

pub use member::MemberTls;
pub use settings::{ClientTls, Rejected, ServerTls, check_processor};

/// Maximum number of bytes read from the socket at once.
const INCOMING_LEN_BYTES: usize = 64 << 10;
/// Maximum number of bytes encrypted at once.
const OUTGOING_LEN_BYTES: usize = 64 << 10;
/// First byte of every TLS connection.
pub const FIRST_BYTE: u8 = 0x16;

/// A TLS connection with an authenticated peer.
pub struct TlsConnection {
    socket: SocketConnection,
    session: Mutex<rustls::Connection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Vec<u8>>,
    identity: Identity,
    peer_certificate_expires_s: Option<i64>,
}

/// Bytes from the socket that the session has not consumed yet.
struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    fn new() -> Self {
        Self { bytes: vec![0; INCOMING_LEN_BYTES], start: 0, end: 0 }
    }

    /// Waits for bytes. Returns `false` if the peer closed the connection.
    fn fill(&mut self, socket: &SocketConnection) -> Result<bool> {
        self.start = 0;
        self.end = socket.read(&mut self.bytes)?;
        Ok(self.end > 0)
    }

    /// Passes bytes to the session.
    fn feed(&mut self, session: &mut rustls::Connection) -> std::result::Result<(), rustls::Error> {
        let mut rest = self.bytes.get(self.start..self.end).unwrap_or_default();
        let before = rest.len();
        // A read from memory does not fail. The session has space, because its plain text is consumed before.
        let taken = session.read_tls(&mut rest).unwrap_or(0);
        self.start += before - rest.len();
        if taken == 0 {
            self.start = self.end;
        }
        session.process_new_packets().map(drop)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

/// Takes the records that the session has to send.
fn take_records(session: &mut rustls::Connection, out: &mut Vec<u8>) -> Result<()> {
    while session.wants_write() {
        session.write_tls(out)?;
    }
    Ok(())
}

impl TlsConnection {
    /// Authenticates both sides. The caller sets a deadline before.
    fn handshake(
        socket: SocketConnection,
        mut session: rustls::Connection,
    ) -> std::result::Result<Self, Box<(SocketConnection, TransportError)>> {
        let mut incoming = Incoming::new();
        let mut outgoing = Vec::new();
        match shake_hands(&socket, &mut session, &mut incoming, &mut outgoing) {
            Ok(()) => Ok(Self {
                socket,
                session: Mutex::new(session),
                incoming: Mutex::new(incoming),
                outgoing: Mutex::new(outgoing),
                identity: Identity::Unproven,
                peer_certificate_expires_s: None,
            }),
            Err(error) => Err(Box::new((socket, error))),
        }
    }

    /// The peer's own certificate.
    fn peer_certificate(&self) -> Option<Vec<u8>> {
        lock(&self.session).peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    /// Returns the error that ended the session. Sends an alert to the peer, if that is possible without waiting.
    fn broken(&self, error: &rustls::Error) -> Error {
        if let Ok(mut outgoing) = self.outgoing.try_lock() {
            outgoing.clear();
            let taken = take_records(&mut lock(&self.session), &mut outgoing);
            if taken.is_ok() {
                let _ = self.socket.write_all(&outgoing);
            }
        }
        TransportError::Trust(explain::explain(error)).into_io()
    }

    /// Encrypts plain text into records.
    fn encrypt(&self, mut text: &[u8], records: &mut Vec<u8>) -> Result<()> {
        let mut session = lock(&self.session);
        while !text.is_empty() {
            let taken = session.writer().write(text)?;
            text = text.get(taken..).unwrap_or_default();
            take_records(&mut session, records)?;
            if taken == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Closes the connection so that the peer still receives the last written bytes; see
    /// [`SocketConnection::end_softly`].
    pub fn end_softly(&self, within: Duration) {
        self.socket.end_softly(within);
    }
}

fn shake_hands(
    socket: &SocketConnection,
    session: &mut rustls::Connection,
    incoming: &mut Incoming,
    outgoing: &mut Vec<u8>,
) -> std::result::Result<(), TransportError> {
    loop {
        outgoing.clear();
        take_records(session, outgoing)?;
        socket.write_all(outgoing)?;
        if !session.is_handshaking() {
            return Ok(());
        }
        if incoming.start == incoming.end && !incoming.fill(socket)? {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the other side closed the connection").into());
        }
        if let Err(error) = incoming.feed(session) {
            outgoing.clear();
            take_records(session, outgoing)?;
            let _ = socket.write_all(outgoing);
            return Err(TransportError::Trust(explain::explain(&error)));
        }
    }
}

impl Connection for TlsConnection {
    fn read(&self, out: &mut [u8]) -> Result<usize> {
        let mut incoming = lock(&self.incoming);
        loop {
            let mut session = lock(&self.session);
            loop {
                match session.reader().read(out) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    result => return result,
                }
                if incoming.start == incoming.end {
                    break;
                }
                if let Err(error) = incoming.feed(&mut session) {
                    drop(session);
                    return Err(self.broken(&error));
                }
            }
            drop(session);
            if !incoming.fill(&self.socket)? {
                return Ok(0);
            }
        }
    }

    fn write_all(&self, bytes: &[u8]) -> Result<()> {
        let mut outgoing = lock(&self.outgoing);
        // Bytes that an earlier write held back are sent first, even if there are no others.
        if bytes.is_empty() {
            return self.socket.write_all(&[]);
        }
        for piece in bytes.chunks(OUTGOING_LEN_BYTES) {
            outgoing.clear();
            self.encrypt(piece, &mut outgoing)?;
            self.socket.write_all(&outgoing)?;
        }
        Ok(())
    }

    fn write_now(&self, bytes: &[u8]) -> Result<Written> {
        let Some(mut outgoing) = self.outgoing.try_lock().ignore_poison_if_free() else {
            return Ok(Written::Not);
        };
        outgoing.clear();
        for piece in bytes.chunks(OUTGOING_LEN_BYTES) {
            self.encrypt(piece, &mut outgoing)?;
        }
        // Created records have to be sent: no other thread writes to the socket while `outgoing` is locked.
        let written = self.socket.write_now(&outgoing)?;
        outgoing.shrink_to(2 * OUTGOING_LEN_BYTES);
        match written {
            Written::Not => Err(ErrorKind::Other.into()),
            other => Ok(other),
        }
    }

    fn shutdown(&self) {
        self.socket.shutdown();
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.socket.set_write_timeout(timeout)
    }

    fn set_silence_limit(&self, limit: Duration) {
        self.socket.set_silence_limit(limit);
    }

    fn set_deadline(&self, within: Option<Duration>) -> Result<()> {
        self.socket.set_deadline(within)
    }

    fn peer(&self) -> &str {
        self.socket.peer()
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn peer_certificate_expires_s(&self) -> Option<i64> {
        self.peer_certificate_expires_s
    }

    fn is_over_local_socket(&self) -> bool {
        self.socket.is_over_local_socket()
    }

    fn crosses_network(&self) -> bool {
        self.socket.crosses_network()
    }

    fn delay(&self) -> Option<Delay> {
        self.socket.delay()
    }
}

impl std::fmt::Debug for TlsConnection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "TLS connection with {} ({})", self.peer(), self.identity)
    }
}
