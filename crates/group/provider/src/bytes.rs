//! Numbers, texts and byte strings in little-endian order, each with its length before it.
//!
//! Bytes are read with [`redoubt_codec::Reader`]: every count is compared with what is left.

use redoubt_codec::{Truncated, leb128};

/// What is wrong with bytes that should be something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BytesError {
    /// They end too early.
    #[error("truncated at byte {at}")]
    Short {
        /// Where.
        at: usize,
    },
    /// They go on.
    #[error("has extra bytes after byte {at}")]
    Long {
        /// Where.
        at: usize,
    },
    /// A value that means nothing.
    #[error("has an unknown tag at byte {at}")]
    Unknown {
        /// Where.
        at: usize,
    },
    /// No text.
    #[error("has invalid UTF-8 before byte {at}")]
    NoText {
        /// Where.
        at: usize,
    },
}

/// Reads from the front.
#[derive(Debug)]
pub struct Reader<'a>(redoubt_codec::Reader<'a>);

impl<'a> Reader<'a> {
    /// All of these.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(redoubt_codec::Reader::new(bytes))
    }

    const fn short(&self, _: Truncated) -> BytesError {
        BytesError::Short { at: self.0.len_bytes() }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// There are not so many.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], BytesError> {
        self.0.bytes(count as u64, "bytes").map_err(|error| self.short(error))
    }

    /// An array.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BytesError> {
        self.0.array("array").map_err(|error| self.short(error))
    }

    /// A byte.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u8(&mut self) -> Result<u8, BytesError> {
        Ok(self.array::<1>()?[0])
    }

    /// Four bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32, BytesError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64, BytesError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of [`leb128`].
    ///
    /// # Errors
    /// It is cut off, or not in its shortest form.
    pub fn number(&mut self) -> Result<u64, BytesError> {
        self.0.leb128("number").map_err(|error| match error {
            redoubt_codec::NumberError::Truncated(error) => self.short(error),
            redoubt_codec::NumberError::NotCanonical { at_byte, .. } => BytesError::Unknown { at: at_byte },
        })
    }

    /// Bytes with their length in four bytes before them.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn bytes(&mut self) -> Result<&'a [u8], BytesError> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    /// A text with its length before it.
    ///
    /// # Errors
    /// As [`Reader::take`], or it is none.
    pub fn text(&mut self) -> Result<String, BytesError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| BytesError::NoText { at: self.0.at_byte() })
    }

    /// A value that is not known, the last that was read.
    pub const fn unknown(&self) -> BytesError {
        BytesError::Unknown { at: self.0.at_byte().saturating_sub(1) }
    }

    /// What is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.0.take_rest()
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// There is something.
    pub const fn end(&self) -> Result<(), BytesError> {
        if self.0.left_bytes() == 0 { Ok(()) } else { Err(BytesError::Long { at: self.0.at_byte() }) }
    }
}

/// Appends bytes with their length before them. They are shorter than 4 GiB.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a number of [`leb128`].
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    leb128::put(number, |byte| out.push(byte));
}
