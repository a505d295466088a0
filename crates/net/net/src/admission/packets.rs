//! Packet boundaries of the client's protocol in a byte stream: three bytes of length, one with a number, the content.
//!
//! Invariant: for any bytes, the returned pieces are the bytes that were fed, in their order.

const HEADER_LEN_BYTES: u8 = 4;
/// Content length of a packet that the next one continues.
const FULL_LEN_BYTES: u32 = 0xff_ffff;

/// Next element of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A header is complete.
    Begin {
        /// The packet's number.
        number: u8,
        /// Length of its content.
        len_bytes: u32,
        /// It continues its predecessor's content.
        continues: bool,
    },
    /// Content of the packet.
    Content(&'a [u8]),
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    header: u32,
    header_len_bytes: u8,
    left_bytes: u32,
    continues: bool,
}

impl Packets {
    /// No byte of the next packet was consumed.
    pub fn is_at_start(&self) -> bool {
        self.header_len_bytes == 0 && self.left_bytes == 0
    }

    /// The next packet continues the last one.
    pub fn goes_on(&self) -> bool {
        self.continues
    }

    /// Takes the next piece off the bytes. `None`: there is none.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Piece<'a>> {
        if self.left_bytes > 0 {
            let len = bytes.len().min(self.left_bytes as usize);
            let (content, rest) = bytes.split_at_checked(len).filter(|(content, _)| !content.is_empty())?;
            *bytes = rest;
            self.left_bytes -= len as u32;
            return Some(Piece::Content(content));
        }
        while self.header_len_bytes < HEADER_LEN_BYTES {
            let (byte, rest) = bytes.split_first()?;
            *bytes = rest;
            self.header |= u32::from(*byte) << (8 * self.header_len_bytes);
            self.header_len_bytes += 1;
        }
        let [.., number] = self.header.to_le_bytes();
        let len_bytes = self.header & FULL_LEN_BYTES;
        let continues = std::mem::replace(&mut self.continues, len_bytes == FULL_LEN_BYTES);
        (self.header, self.header_len_bytes, self.left_bytes) = (0, 0, len_bytes);
        Some(Piece::Begin { number, len_bytes, continues })
    }
}

#[cfg(test)]
mod tests;
