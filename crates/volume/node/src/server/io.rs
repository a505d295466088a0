//! Reading and writing frames on a blocking connection.

use crate::error::NodeError;
use redoubt_transport::Connection;
use redoubt_wire::compression::{Decompressor, Step};
use redoubt_wire::control::{KIND_JSON, KIND_JSON_PART, MAX_PART_LEN_BYTES, Reply};
use redoubt_wire::parts::PartReader;
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, WireError};
use std::io::{BufReader, Error, ErrorKind, Read, Write};

/// Bytes of a frame for which its length is taken at its word.
const TRUSTED_LEN_BYTES: usize = 64 << 10;
/// Bytes read ahead, so that frames which arrive together are handled together.
const BUFFER_LEN_BYTES: usize = 256 << 10;

/// Bytes of a compressed connection that are received together.
const PACKED_LEN_BYTES: usize = 64 << 10;

/// How the bytes of a connection become frames.
enum Unpacker {
    Whole(Decompressor),
    Parts(PartReader),
}

impl Unpacker {
    fn unpack(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, WireError> {
        match self {
            Self::Whole(decompressor) => decompressor.unpack(input, out),
            Self::Parts(reader) => reader.unpack(input, out),
        }
    }
}

/// Decompressed bytes of a connection that is compressed as a whole or in part. It waits for the connection only when
/// all previous bytes have been returned, so that a sender that waits for an answer gets it.
struct Unpacked<'s> {
    stream: &'s dyn Connection,
    unpacker: Unpacker,
    packed: Vec<u8>,
    /// Part of `packed` that is not decompressed yet.
    left: std::ops::Range<usize>,
    /// All room was filled the last time.
    has_more: bool,
}

impl Unpacked<'_> {
    fn receive(&mut self) -> std::io::Result<usize> {
        let len_bytes = self.stream.read(&mut self.packed)?;
        self.left = 0..len_bytes;
        Ok(len_bytes)
    }
}

impl Read for Unpacked<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if self.left.is_empty() && !self.has_more && self.receive()? == 0 {
                return Ok(0);
            }
            let input = self.packed.get(self.left.clone()).unwrap_or(&[]);
            let step = self.unpacker.unpack(input, out).map_err(Error::other)?;
            self.left.start += step.taken_bytes;
            self.has_more = step.given_bytes == out.len();
            if step.given_bytes > 0 || out.is_empty() {
                return Ok(step.given_bytes);
            }
        }
    }
}

/// Reads frames of one direction.
pub struct FrameReader<'s> {
    stream: BufReader<Box<dyn Read + 's>>,
}

impl<'s> FrameReader<'s> {
    /// Reads from `stream`.
    pub fn new(stream: &'s dyn Connection) -> Self {
        Self { stream: BufReader::with_capacity(BUFFER_LEN_BYTES, Box::new(stream)) }
    }

    /// Reads from `stream`, whose frames pass through a [`redoubt_wire::compression::Compressor`].
    ///
    /// # Errors
    /// [`NodeError::Wire`] if there is no memory for it.
    pub fn compressed(stream: &'s dyn Connection) -> Result<Self, NodeError> {
        Ok(Self::unpacking(stream, Unpacker::Whole(Decompressor::new()?)))
    }

    /// Reads from `stream`, whose frames pass through a [`redoubt_wire::parts::PartWriter`].
    pub fn in_parts(stream: &'s dyn Connection) -> Self {
        Self::unpacking(stream, Unpacker::Parts(PartReader::default()))
    }

    fn unpacking(stream: &'s dyn Connection, unpacker: Unpacker) -> Self {
        let packed = vec![0; PACKED_LEN_BYTES];
        let unpacked = Unpacked { stream, unpacker, packed, left: 0..0, has_more: false };
        Self { stream: BufReader::with_capacity(BUFFER_LEN_BYTES, Box::new(unpacked)) }
    }

    /// The next frame, header included, not yet checked. `None`: the peer closed the connection between frames, or
    /// inside one (which is then dropped; its sender still has it).
    ///
    /// # Errors
    /// [`NodeError::Io`]; [`NodeError::Wire`] if the frame is longer than `limit_bytes`.
    pub fn next(&mut self, limit_bytes: usize) -> Result<Option<Vec<u8>>, NodeError> {
        let mut header = [0; HEADER_LEN_BYTES];
        if !self.fill(&mut header)? {
            return Ok(None);
        }
        let len_bytes = FrameHeader::decode(&header).len_bytes as usize;
        if len_bytes > limit_bytes {
            return Err(NodeError::Wire(WireError::TooLong {
                what: "frame",
                len_bytes: len_bytes as u64,
                limit_bytes: limit_bytes as u64,
            }));
        }
        // Grows with what arrives: a length alone does not make this allocate.
        let mut frame = Vec::with_capacity(HEADER_LEN_BYTES + len_bytes.min(TRUSTED_LEN_BYTES));
        frame.extend_from_slice(&header);
        match (&mut self.stream).take(len_bytes as u64).read_to_end(&mut frame) {
            Ok(received) => Ok((received == len_bytes).then_some(frame)),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// The next frame has arrived already.
    pub fn has_whole_frame(&self) -> bool {
        let buffered = self.stream.buffer();
        buffered
            .first_chunk()
            .is_some_and(|header| buffered.len() as u64 >= FrameHeader::decode(header).total_len_bytes())
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<bool, NodeError> {
        match self.stream.read_exact(out) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                Ok(false)
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn failed(error: Error) -> NodeError {
    let error = match error.downcast::<WireError>() {
        Ok(refused) => return NodeError::Wire(refused),
        Err(error) => error,
    };
    let error = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::new(ErrorKind::TimedOut, "nothing came for too long")
        }
        _ => error,
    };
    NodeError::io("read from", "connection", error)
}

/// Writes frames of one direction; their position counts from 0.
pub struct FrameWriter<'s> {
    stream: &'s dyn Connection,
    position: u64,
    out: Vec<u8>,
}

impl<'s> FrameWriter<'s> {
    /// Writes to `stream`.
    pub fn new(stream: &'s dyn Connection) -> Self {
        Self { stream, position: 0, out: Vec::new() }
    }

    /// Sends one frame. `kind` may carry the compression bit.
    ///
    /// # Errors
    /// [`NodeError::Io`], [`NodeError::Wire`].
    pub fn send(&mut self, kind: u8, payload: &[u8]) -> Result<(), NodeError> {
        self.out.clear();
        redoubt_wire::frame::append_frame(&mut self.out, kind, self.position, payload)?;
        self.position += 1;
        self.stream.write_all(&self.out).map_err(|error| NodeError::io("write to", "connection", error))
    }

    /// Sends a reply on a control connection, in as many frames as it takes.
    ///
    /// # Errors
    /// [`NodeError::Io`], [`NodeError::Wire`].
    pub fn send_reply(&mut self, reply: &Reply) -> Result<(), NodeError> {
        let mut parts = Parts { writer: self, part: Vec::new(), failure: None };
        let written = serde_json::to_writer(&mut parts, reply);
        let Parts { part, failure, .. } = parts;
        if let Some(failure) = failure {
            return Err(failure);
        }
        written.map_err(|error| NodeError::io("encode", "a reply", error.into()))?;
        self.send(KIND_JSON, &part)
    }
}

/// Sends JSON while it is serialised: a long reply is never in memory as a whole.
struct Parts<'w, 's> {
    writer: &'w mut FrameWriter<'s>,
    part: Vec<u8>,
    failure: Option<NodeError>,
}

impl Write for Parts<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.part.len() == MAX_PART_LEN_BYTES {
            if let Err(failure) = self.writer.send(KIND_JSON_PART, &self.part) {
                self.failure = Some(failure);
                return Err(ErrorKind::BrokenPipe.into());
            }
            self.part.clear();
        }
        let taken = bytes.len().min(MAX_PART_LEN_BYTES - self.part.len());
        self.part.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
