//! Little-endian numbers; texts and byte strings with a length prefix.
//!
//! Bytes are read with [`redoubt_codec::Reader`]: every count is compared with the number of remaining bytes.

use redoubt_codec::{Truncated, leb128};

/// Reason why bytes are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BytesError {
    /// Too few bytes.
    #[error("truncated at byte {at}")]
    Short {
        /// Position of the end.
        at: usize,
    },
    /// There are bytes after the end.
    #[error("has extra bytes after byte {at}")]
    Long {
        /// Position of the end.
        at: usize,
    },
    /// A value without a meaning.
    #[error("has an unknown tag at byte {at}")]
    Unknown {
        /// Position of the value.
        at: usize,
    },
    /// Invalid text.
    #[error("has invalid UTF-8 before byte {at}")]
    NoText {
        /// Position after the text.
        at: usize,
    },
}

/// Reads from the front.
#[derive(Debug)]
pub struct Reader<'a>(redoubt_codec::Reader<'a>);

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(redoubt_codec::Reader::new(bytes))
    }

    const fn short(&self, _: Truncated) -> BytesError {
        BytesError::Short { at: self.0.len_bytes() }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// Too few bytes are left.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], BytesError> {
        self.0.bytes(count as u64, "bytes").map_err(|error| self.short(error))
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BytesError> {
        self.0.array("array").map_err(|error| self.short(error))
    }

    /// The next byte.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn u8(&mut self) -> Result<u8, BytesError> {
        Ok(self.array::<1>()?[0])
    }

    /// The next four bytes as a number.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32, BytesError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes as a number.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64, BytesError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next number in [`leb128`] format.
    ///
    /// # Errors
    /// The number is truncated, or not in its shortest form.
    pub fn number(&mut self) -> Result<u64, BytesError> {
        self.0.leb128("number").map_err(|error| match error {
            redoubt_codec::NumberError::Truncated(error) => self.short(error),
            redoubt_codec::NumberError::NotCanonical { at_byte, .. } => BytesError::Unknown { at: at_byte },
        })
    }

    /// Bytes with a length prefix of four bytes.
    ///
    /// # Errors
    /// As for [`Reader::take`].
    pub fn bytes(&mut self) -> Result<&'a [u8], BytesError> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    /// A text with a length prefix.
    ///
    /// # Errors
    /// As for [`Reader::take`], or invalid UTF-8.
    pub fn text(&mut self) -> Result<String, BytesError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| BytesError::NoText { at: self.0.at_byte() })
    }

    /// The error for an unknown value that was read last.
    pub const fn unknown(&self) -> BytesError {
        BytesError::Unknown { at: self.0.at_byte().saturating_sub(1) }
    }

    /// The remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        self.0.take_rest()
    }

    /// Checks that no bytes are left.
    ///
    /// # Errors
    /// There are bytes left.
    pub const fn end(&self) -> Result<(), BytesError> {
        if self.0.left_bytes() == 0 { Ok(()) } else { Err(BytesError::Long { at: self.0.at_byte() }) }
    }
}

/// Appends bytes with a length prefix. They are shorter than 4 GiB.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a number in [`leb128`] format.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    leb128::put(number, |byte| out.push(byte));
}
