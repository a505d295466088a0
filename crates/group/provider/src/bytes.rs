//! Numbers, texts and byte strings in little-endian order, each with its length before it.
//!
//! A reader never reads past its end and never takes a length for granted: every count is held against what is left.

/// What is wrong with bytes that should be something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BytesError {
    /// They end too early.
    #[error("ends at byte {at}, in the middle of something")]
    Short {
        /// Where.
        at: usize,
    },
    /// They go on.
    #[error("goes on after byte {at}, where it should end")]
    Long {
        /// Where.
        at: usize,
    },
    /// A value that means nothing.
    #[error("byte {at} is nothing that is known")]
    Unknown {
        /// Where.
        at: usize,
    },
    /// No text.
    #[error("the text that ends at byte {at} is not UTF-8")]
    NoText {
        /// Where.
        at: usize,
    },
}

/// Reads from the front.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// All of these.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// There are not so many.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], BytesError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        let taken = taken.ok_or(BytesError::Short { at: self.bytes.len() })?;
        self.at += count;
        Ok(taken)
    }

    /// An array.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BytesError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
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
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| BytesError::NoText { at: self.at })
    }

    /// A value that is not known, the last that was read.
    pub const fn unknown(&self) -> BytesError {
        BytesError::Unknown { at: self.at.saturating_sub(1) }
    }

    /// What is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// There is something.
    pub const fn end(&self) -> Result<(), BytesError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(BytesError::Long { at: self.at }) }
    }
}

/// Appends bytes with their length before them. They are shorter than 4 GiB.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
