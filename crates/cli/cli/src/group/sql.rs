//! A minimal client of MariaDB's protocol: it can log in and read the rows of a statement as text, which is enough
//! for the state of a group.
//!
//! Not the client library of the tools: it brings prepared statements, connection pools and the names of all domains
//! in Unicode into a command that sends two SHOW statements. Accounts may use `mysql_native_password` or `unix_socket`;
//! the connection is not encrypted, and the scramble does not reveal the password to a reader of the connection.
//!
//! Layout of a packet: length in 3 bytes (little-endian), sequence number in 1 byte, payload. A payload of the greatest
//! length would continue in the next packet; no answer to these statements is near it, so it is an error.

use super::dial::{DialError, Dialer, Socket, time_up_to};
use sha1::{Digest, Sha1};
use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

const PROTOCOL_VERSION: u8 = 10;
const MAX_PAYLOAD_LEN: usize = (1 << 24) - 1;
const NATIVE_PASSWORD: &[u8] = b"mysql_native_password";
const SCRAMBLE_LEN: usize = 20;
/// CLIENT_LONG_PASSWORD, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH.
const CAPABILITIES: u32 = 1 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19;
/// utf8mb4_general_ci.
const COLLATION: u8 = 45;
const COM_QUERY: u8 = 3;
/// First bytes of payloads.
const OK: u8 = 0x00;
const MORE_DATA: u8 = 0x01;
const LOCAL_FILE: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
/// A payload that starts with [`END`] and is longer is a row.
const MAX_END_LEN: usize = 8;
/// Bounds of an answer, against a server that sends without end. `SHOW STATUS` of a group has two columns, some hundred
/// rows and, with 16 members, some 10 KiB.
const MAX_COLUMNS: usize = 16;
const MAX_ROWS: usize = 4096;
const MAX_ANSWER_BYTES: usize = 1 << 20;
const _: () = assert!(MAX_ANSWER_BYTES < MAX_PAYLOAD_LEN, "an answer fits into one packet");
/// A cell of a row without a value.
const NULL_CELL: u8 = 0xfb;

/// Reason why a server did not answer a statement.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// No connection, or it broke.
    #[error("cannot {action}: {source}")]
    Io {
        /// The attempted step.
        action: &'static str,
        /// Reason of the failure.
        source: std::io::Error,
    },
    /// The look-up of the host name is not finished at the deadline.
    #[error("the look-up of its name is not finished yet")]
    NameIsLate,
    /// The server refuses.
    #[error("ERROR {code}{state}: {message}")]
    Server {
        /// The server's number.
        code: u16,
        /// The SQL state in parentheses, if there is one.
        state: String,
        /// The server's words.
        message: String,
    },
    /// The account uses another method.
    #[error(
        "the account needs the authentication plugin {0}; use one with mysql_native_password or unix_socket"
    )]
    Plugin(String),
    /// The other side does not use this protocol.
    #[error("the answer is not that of a MariaDB server: {0}")]
    Protocol(&'static str),
}

impl SqlError {
    /// The deadline passed before an answer came.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }
}

type Result<T> = std::result::Result<T, SqlError>;

fn failed(action: &'static str) -> impl FnOnce(std::io::Error) -> SqlError {
    move |source| SqlError::Io { action, source }
}

const fn cut_short() -> SqlError {
    SqlError::Protocol("it is cut short")
}

/// A socket whose calls end at a deadline, however many there are.
struct Timed {
    socket: Socket,
    until: Instant,
}

impl Read for Timed {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let timeout = Some(time_up_to(self.until)?);
        match &mut self.socket {
            Socket::Unix(socket) => socket.set_read_timeout(timeout).and_then(|()| socket.read(out)),
            Socket::Tcp(socket) => socket.set_read_timeout(timeout).and_then(|()| socket.read(out)),
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let timeout = Some(time_up_to(self.until)?);
        match &mut self.socket {
            Socket::Unix(socket) => socket.set_write_timeout(timeout).and_then(|()| socket.write(bytes)),
            Socket::Tcp(socket) => socket.set_write_timeout(timeout).and_then(|()| socket.write(bytes)),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A connection after the login.
pub struct Connection {
    stream: Timed,
    /// Sequence number of the next packet, in either direction.
    sequence: u8,
}

impl Connection {
    /// Connects and logs in. All calls on the connection end at `until`.
    ///
    /// # Errors
    /// [`SqlError`].
    pub fn open(dialer: &mut Dialer, user: &str, password: Option<&str>, until: Instant) -> Result<Self> {
        let socket = dialer.dial(until).map_err(|error| match error {
            DialError::NameIsLate => SqlError::NameIsLate,
            DialError::Io(source) => SqlError::Io { action: "connect", source },
        })?;
        let stream = Timed { socket, until };
        let mut connection = Self { stream, sequence: 0 };
        connection.log_in(user, password.unwrap_or_default().as_bytes())?;
        Ok(connection)
    }

    /// Sets a new deadline of all calls.
    pub fn set_deadline(&mut self, until: Instant) {
        self.stream.until = until;
    }

    /// The rows of a statement as text (`NULL` for SQL NULL).
    ///
    /// # Errors
    /// [`SqlError`]. Afterwards the connection may be in the middle of an answer: it is not to be used again.
    pub fn query(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        self.sequence = 0;
        self.send(&[&[COM_QUERY], statement.as_bytes()].concat())?;
        let first = self.receive()?;
        let columns = match first.first() {
            Some(&OK) => return Ok(Vec::new()),
            Some(&LOCAL_FILE) => return Err(SqlError::Protocol("it asks for a local file")),
            _ => Reader(&first).length()?,
        };
        if !(1..=MAX_COLUMNS).contains(&columns) {
            return Err(SqlError::Protocol("it has too few or too many columns"));
        }
        // Their definitions, and the end of these.
        for _ in 0..=columns {
            self.receive()?;
        }
        let mut rows = Vec::new();
        let mut answer_bytes = 0;
        loop {
            let payload = self.receive()?;
            answer_bytes += payload.len();
            if rows.len() >= MAX_ROWS || answer_bytes > MAX_ANSWER_BYTES {
                return Err(SqlError::Protocol("it is too long"));
            }
            if payload.first() == Some(&END) && payload.len() <= MAX_END_LEN {
                return Ok(rows);
            }
            let mut cells = Reader(&payload);
            rows.push((0..columns).map(|_| cells.cell()).collect::<Result<_>>()?);
        }
    }

    fn log_in(&mut self, user: &str, password: &[u8]) -> Result<()> {
        let greeting = self.receive()?;
        let scramble = greeting_scramble(&greeting)?;
        self.send(&login(user, &native_password(password, &scramble)))?;
        let mut answer = self.receive()?;
        if answer.first() == Some(&END) {
            let mut rest = Reader(&answer);
            rest.bytes(1)?;
            let plugin = rest.until_zero();
            if plugin != NATIVE_PASSWORD {
                return Err(SqlError::Plugin(String::from_utf8_lossy(plugin).into_owned()));
            }
            let proof = native_password(password, rest.bytes(SCRAMBLE_LEN)?);
            self.send(&proof)?;
            answer = self.receive()?;
        }
        match answer.first() {
            Some(&OK) => Ok(()),
            Some(&MORE_DATA) => Err(SqlError::Protocol("it asks for more than a password")),
            _ => Err(SqlError::Protocol("it neither accepts nor refuses the account")),
        }
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        if payload.len() >= MAX_PAYLOAD_LEN {
            return Err(SqlError::Protocol("the request is too long"));
        }
        let mut packet = (payload.len() as u32).to_le_bytes();
        packet[3] = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.write_all(&[&packet, payload].concat()).map_err(failed("send to the server"))
    }

    /// The next payload; an error of the server is one here.
    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).map_err(failed("receive from the server"))?;
        let [low, middle, high, sequence] = header;
        let len = u32::from_le_bytes([low, middle, high, 0]) as usize;
        if len == MAX_PAYLOAD_LEN {
            return Err(SqlError::Protocol("it is too long"));
        }
        self.sequence = sequence.wrapping_add(1);
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload).map_err(failed("receive from the server"))?;
        if payload.first() == Some(&ERROR) { Err(server_error(&payload)) } else { Ok(payload) }
    }
}

/// Code, and after a `#` the SQL state, which a refusal before the login does not have.
fn server_error(payload: &[u8]) -> SqlError {
    let mut rest = Reader(payload);
    let Ok(&[_, low, high]) = rest.bytes(3) else { return cut_short() };
    let text = String::from_utf8_lossy(rest.0);
    let parts = text.strip_prefix('#').and_then(|text| text.split_at_checked(5));
    let (state, message) = parts.map_or_else(
        || (String::new(), text.to_string()),
        |(state, message)| (format!(" ({state})"), message.to_owned()),
    );
    SqlError::Server { code: u16::from_le_bytes([low, high]), state, message }
}

/// The random bytes that the password is mixed with. They lie in two parts of the greeting.
fn greeting_scramble(greeting: &[u8]) -> Result<[u8; SCRAMBLE_LEN]> {
    const FIRST_LEN: usize = 8;
    const AFTER_FIRST_LEN: usize = 19;
    let mut rest = Reader(greeting);
    if rest.bytes(1)? != [PROTOCOL_VERSION] {
        return Err(SqlError::Protocol("its greeting is of another version"));
    }
    rest.until_zero(); // version of the server
    rest.bytes(4)?; // number of the connection
    let first = rest.bytes(FIRST_LEN)?;
    // Zero, capabilities, collation, status, capabilities, length of both parts, reserved.
    rest.bytes(AFTER_FIRST_LEN)?;
    let second = rest.bytes(SCRAMBLE_LEN - FIRST_LEN)?;
    [first, second].concat().try_into().map_err(|_| cut_short())
}

fn login(user: &str, proof: &[u8]) -> Vec<u8> {
    let mut payload = CAPABILITIES.to_le_bytes().to_vec();
    payload.extend((MAX_PAYLOAD_LEN as u32).to_le_bytes());
    payload.push(COLLATION);
    payload.extend([0; 23]);
    payload.extend(user.as_bytes());
    payload.push(0);
    payload.push(proof.len() as u8);
    payload.extend(proof);
    payload.extend(NATIVE_PASSWORD);
    payload.push(0);
    payload
}

/// SHA1(password) xor SHA1(scramble, SHA1(SHA1(password))); nothing for no password.
fn native_password(password: &[u8], scramble: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha1::digest(password);
    let mixed = Sha1::new().chain_update(scramble).chain_update(Sha1::digest(once)).finalize();
    once.iter().zip(mixed).map(|(once, mixed)| once ^ mixed).collect()
}

/// The rest of a payload.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(cut_short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Bytes up to a zero, which is skipped, or all.
    fn until_zero(&mut self) -> &'a [u8] {
        let mut parts = self.0.splitn(2, |byte| *byte == 0);
        let taken = parts.next().unwrap_or_default();
        self.0 = parts.next().unwrap_or_default();
        taken
    }

    /// A number in 1, 3, 4 or 9 bytes.
    fn length(&mut self) -> Result<usize> {
        let len = match self.bytes(1)? {
            [0xfc] => 2,
            [0xfd] => 3,
            [0xfe] => 8,
            [NULL_CELL | 0xff] => return Err(SqlError::Protocol("a length is missing")),
            [small] => return Ok(usize::from(*small)),
            _ => return Err(cut_short()),
        };
        let mut value = [0; 8];
        value[..len].copy_from_slice(self.bytes(len)?);
        usize::try_from(u64::from_le_bytes(value)).map_err(|_| SqlError::Protocol("it is too long"))
    }

    fn cell(&mut self) -> Result<String> {
        if self.0.first() == Some(&NULL_CELL) {
            self.bytes(1)?;
            return Ok("NULL".to_owned());
        }
        let len = self.length()?;
        Ok(String::from_utf8_lossy(self.bytes(len)?).into_owned())
    }
}

#[cfg(test)]
mod tests;
