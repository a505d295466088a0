//! Remote procedure calls (RFC 5531) over a byte stream: records, the head of a call, the head of an answer.
//!
//! Invariant: a record is never longer than [`REQUEST_LIMIT_BYTES`], whatever its marks announce; a longer one closes
//! the connection before it is read.

use crate::nfs::xdr::{Garbage, Reader, Writer};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest request. A client has no reason for more than a write of [`crate::nfs::program::WRITE_LIMIT_BYTES`], which is
/// refused.
pub const REQUEST_LIMIT_BYTES: usize = 80 << 10;
/// Time without a request after which a connection is closed; clients reconnect.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Time within which a request must be complete, from its first byte on.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const LAST_FRAGMENT: u32 = 1 << 31;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const VERSION: u32 = 2;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
const AUTH_TOOWEAK: u32 = 5;
/// No credentials.
pub const AUTH_NONE: u32 = 0;
/// User and group as sent by the client; not trusted, not needed.
pub const AUTH_SYS: u32 = 1;
const CREDENTIALS_LIMIT_BYTES: usize = 400;

/// Status of a call (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The result follows.
    Success,
    /// No such program here.
    NoProgram,
    /// Another version of the program; only this one exists.
    OtherVersion(u32),
    /// No such procedure in the program.
    NoProcedure,
    /// Invalid arguments.
    Garbage,
}

/// The head of a call.
pub struct Call<'a> {
    /// Transaction id.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure.
    pub procedure: u32,
    /// The arguments.
    pub arguments: Reader<'a>,
}

/// Kind of a record.
pub enum Record<'a> {
    /// A call to be answered.
    Call(Call<'a>),
    /// A rejected call with its answer.
    Denied(Vec<u8>),
}

/// Decodes a record.
///
/// # Errors
/// [`Garbage`]: the record is no call.
pub fn decode(record: &[u8]) -> Result<Record<'_>, Garbage> {
    let mut reader = Reader::new(record);
    let xid = reader.u32()?;
    if reader.u32()? != CALL {
        return Err(Garbage);
    }
    if reader.u32()? != VERSION {
        return Ok(Record::Denied(denied(xid, &[RPC_MISMATCH, VERSION, VERSION])));
    }
    let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let flavor = reader.u32()?;
    reader.opaque(CREDENTIALS_LIMIT_BYTES)?;
    let _verifier_flavor = reader.u32()?;
    reader.opaque(CREDENTIALS_LIMIT_BYTES)?;
    if !matches!(flavor, AUTH_NONE | AUTH_SYS) {
        return Ok(Record::Denied(denied(xid, &[AUTH_ERROR, AUTH_TOOWEAK])));
    }
    Ok(Record::Call(Call { xid, program, version, procedure, arguments: reader }))
}

fn denied(xid: u32, why: &[u32]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u32(0).u32(xid).u32(REPLY).u32(DENIED);
    for value in why {
        writer.u32(*value);
    }
    marked(writer)
}

/// Begins an answer: room for the record's mark, then the head.
pub fn answer(xid: u32, taken: Taken) -> Writer {
    let mut writer = Writer::default();
    writer.u32(0).u32(xid).u32(REPLY).u32(ACCEPTED).u32(AUTH_NONE).u32(0);
    match taken {
        Taken::Success => writer.u32(0),
        Taken::NoProgram => writer.u32(1),
        Taken::OtherVersion(version) => writer.u32(2).u32(version).u32(version),
        Taken::NoProcedure => writer.u32(3),
        Taken::Garbage => writer.u32(4),
    };
    writer
}

/// Completes the record with its mark.
pub fn marked(writer: Writer) -> Vec<u8> {
    let mut bytes = writer.finish();
    let len = u32::try_from(bytes.len().saturating_sub(4)).unwrap_or(0);
    if let Some(mark) = bytes.first_chunk_mut() {
        *mark = (LAST_FRAGMENT | len).to_be_bytes();
    }
    bytes
}

/// Reads the next record; `None`: the peer has closed the connection, or was silent for [`IDLE_TIMEOUT`].
///
/// # Errors
/// The error of the system; [`ErrorKind::InvalidData`] for a record that is too long, [`ErrorKind::TimedOut`] for an
/// incomplete one.
pub fn read_record(stream: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut record = Vec::new();
    let mut deadline = None;
    loop {
        let mut mark = [0; 4];
        if !fill(stream, &mut mark, &mut deadline)? {
            return Ok(None);
        }
        let mark = u32::from_be_bytes(mark);
        let from = record.len();
        let end = usize::try_from(mark & !LAST_FRAGMENT).ok().and_then(|len| from.checked_add(len));
        let Some(end) = end.filter(|end| *end <= REQUEST_LIMIT_BYTES) else {
            return Err(ErrorKind::InvalidData.into());
        };
        record.resize(end, 0);
        if !fill(stream, &mut record[from..], &mut deadline)? {
            return Ok(None);
        }
        if mark & LAST_FRAGMENT != 0 {
            return Ok(Some(record));
        }
    }
}

/// Fills all of `wanted`. The deadline begins with the first byte. `false`: no more bytes arrive.
fn fill(
    stream: &mut TcpStream,
    mut wanted: &mut [u8],
    deadline: &mut Option<Instant>,
) -> std::io::Result<bool> {
    while !wanted.is_empty() {
        let left = match *deadline {
            None => IDLE_TIMEOUT,
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        };
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(wanted) {
            Ok(0) => return Ok(false),
            Ok(len) => {
                deadline.get_or_insert_with(|| Instant::now() + REQUEST_TIMEOUT);
                wanted = &mut wanted[len..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return if deadline.is_none() { Ok(false) } else { Err(ErrorKind::TimedOut.into()) };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Sends an answer.
///
/// # Errors
/// The error of the system, also when the peer reads nothing.
pub fn write_record(stream: &mut TcpStream, record: &[u8]) -> std::io::Result<()> {
    stream.write_all(record)
}
