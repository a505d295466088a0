//! The protocol's own compression: packets within frames of seven bytes of header (length, number, length without
//! compression, which is 0 where a frame is not compressed) and content, each by itself compressed with zlib or, by
//! MySQL, with zstd.
//!
//! All bytes that the server sends and reads in this way are decompressed a second time, piece by piece as they pass.
//! Memory for that is allocated only from the beginning of a compressed frame to its end.
//!
//! Invariant: a frame that does not fit (its number, its content) marks the connection as lost.

use super::protocol::{Boundary, Tracker};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// Length of the header that the server asks for.
pub const HEADER_LEN_BYTES: usize = 7;
const ZSTD_BEGIN: u8 = 0x28;
/// No frame holds more than 16 MiB.
const ZSTD_WINDOW_LOG: u32 = 24;
/// Decompressed bytes per step.
const PIECE_LEN_BYTES: usize = 4096;

/// Decoder of a frame's content.
enum Content {
    Plain,
    /// No byte of the content was received.
    Unknown,
    Zlib(Box<Decompress>),
    Zstd(Box<Decoder<'static>>),
}

/// A frame did not fit.
struct Unfit;

/// One direction of a connection.
struct Frames {
    header: [u8; HEADER_LEN_BYTES],
    header_len_bytes: usize,
    left_bytes: usize,
    /// Uncompressed length of the rest of the frame.
    plain_left_bytes: usize,
    content: Content,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            header: [0; HEADER_LEN_BYTES],
            header_len_bytes: 0,
            left_bytes: 0,
            plain_left_bytes: 0,
            content: Content::Plain,
        }
    }
}

fn length(bytes: &[u8]) -> usize {
    bytes.iter().take(3).rev().fold(0, |len, byte| len << 8 | usize::from(*byte))
}

fn decoder(first: u8) -> Result<Content, Unfit> {
    if first != ZSTD_BEGIN {
        return Ok(Content::Zlib(Box::new(Decompress::new(true))));
    }
    let mut decoder = Decoder::new().map_err(|_| Unfit)?;
    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).map_err(|_| Unfit)?;
    Ok(Content::Zstd(Box::new(decoder)))
}

/// Decompresses a part of `from` and returns the numbers of bytes read and written.
fn step(content: &mut Content, from: &[u8], to: &mut [u8]) -> Result<(usize, usize), Unfit> {
    match content {
        Content::Plain | Content::Unknown => Err(Unfit),
        Content::Zlib(decoder) => {
            let before = (decoder.total_in(), decoder.total_out());
            match decoder.decompress(from, to, FlushDecompress::None) {
                Ok(Status::Ok | Status::StreamEnd | Status::BufError) => {
                    Ok(((decoder.total_in() - before.0) as usize, (decoder.total_out() - before.1) as usize))
                }
                Err(_) => Err(Unfit),
            }
        }
        Content::Zstd(decoder) => {
            let (mut from, mut to) = (InBuffer::around(from), OutBuffer::around(to));
            decoder.run(&mut from, &mut to).map_err(|_| Unfit)?;
            Ok((from.pos(), to.pos()))
        }
    }
}

impl Frames {
    fn is_at_start(&self) -> bool {
        self.header_len_bytes == 0 && self.left_bytes == 0
    }

    /// Takes the header off the bytes. `Some`: it is complete, with this number.
    fn begin(&mut self, bytes: &mut &[u8]) -> Option<u8> {
        while let Some(place) = self.header.get_mut(self.header_len_bytes) {
            let (byte, rest) = bytes.split_first()?;
            *place = *byte;
            *bytes = rest;
            self.header_len_bytes += 1;
        }
        let [_, _, _, number, plain_len @ ..] = self.header;
        (self.header_len_bytes, self.left_bytes) = (0, length(&self.header));
        self.plain_left_bytes = length(&plain_len);
        let is_plain = self.plain_left_bytes == 0;
        self.content = if is_plain { Content::Plain } else { Content::Unknown };
        Some(number)
    }

    /// Takes content of the frame off the bytes, and passes it on decompressed.
    fn next(&mut self, bytes: &mut &[u8], mut take: impl FnMut(&[u8])) -> Result<(), Unfit> {
        let len = bytes.len().min(self.left_bytes);
        let Some((mut piece, rest)) = bytes.split_at_checked(len) else { return Err(Unfit) };
        *bytes = rest;
        self.left_bytes -= len;
        if let (Content::Unknown, Some(first)) = (&self.content, piece.first()) {
            self.content = decoder(*first)?;
        }
        if matches!(self.content, Content::Plain) {
            take(piece);
            return Ok(());
        }
        let mut space = [0u8; PIECE_LEN_BYTES];
        loop {
            let (read, written) = step(&mut self.content, piece, &mut space)?;
            self.plain_left_bytes = self.plain_left_bytes.checked_sub(written).ok_or(Unfit)?;
            take(space.get(..written).unwrap_or_default());
            piece = piece.get(read..).unwrap_or_default();
            if read == 0 && written == 0 || piece.is_empty() && written < space.len() {
                break;
            }
        }
        if self.left_bytes == 0 {
            self.content = Content::Plain;
            if self.plain_left_bytes != 0 || !piece.is_empty() {
                return Err(Unfit);
            }
        }
        Ok(())
    }
}

/// Both directions of a connection.
#[derive(Default)]
pub struct Compression {
    input: Frames,
    output: Frames,
    /// Number of the last frame of either direction.
    number: u8,
    /// The frame whose header is being read is the first of a command.
    expects_command: bool,
}

impl Compression {
    /// Neither direction is within a frame.
    pub fn is_at_start(&self) -> bool {
        self.input.is_at_start() && self.output.is_at_start()
    }

    /// The server has sent this.
    pub fn sent(&mut self, tracker: &mut Tracker, mut bytes: &[u8]) {
        while !bytes.is_empty() && !tracker.lost() {
            if self.output.left_bytes == 0 {
                let Some(number) = self.output.begin(&mut bytes) else { return };
                let is_expected = number == self.number.wrapping_add(1) && self.input.is_at_start();
                if !is_expected || self.output.left_bytes == 0 {
                    return tracker.lose();
                }
                self.number = number;
            } else if self.output.next(&mut bytes, |plain| tracker.sent(plain)).is_err() {
                tracker.lose();
            }
        }
    }

    /// The server has read this.
    pub fn received(&mut self, tracker: &mut Tracker, mut bytes: &[u8]) {
        while !bytes.is_empty() && !tracker.lost() {
            if self.input.left_bytes == 0 {
                if self.input.is_at_start() {
                    self.expects_command = self.output.is_at_start() && tracker.boundary() != Boundary::None;
                }
                let Some(number) = self.input.begin(&mut bytes) else { return };
                let expected = if self.expects_command { 0 } else { self.number.wrapping_add(1) };
                if number != expected || self.input.left_bytes == 0 {
                    return tracker.lose();
                }
                self.number = number;
            } else if self.input.next(&mut bytes, |plain| tracker.received(plain)).is_err() {
                tracker.lose();
            }
        }
    }
}

/// The beginning of a frame's content, decompressed, as far as it was received.
pub fn look<'a>(frame: &'a [u8], space: &'a mut [u8]) -> Option<&'a [u8]> {
    let (header, content) = frame.split_at_checked(HEADER_LEN_BYTES)?;
    if header.iter().skip(4).all(|byte| *byte == 0) {
        return Some(content);
    }
    let content = content.get(..length(header).min(content.len()))?;
    let (_, written) = step(&mut decoder(*content.first()?).ok()?, content, space).ok()?;
    space.get(..written)
}

#[cfg(test)]
mod tests;
