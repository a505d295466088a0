//! External data representation (RFC 4506), as far as these protocols use it.
//!
//! Invariant: announced lengths never cause an allocation. A reader borrows from the request, whose length is limited.

/// The request is truncated or has an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid arguments for this procedure")]
pub struct Garbage;

/// Reads values from the front of a request.
#[derive(Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, len_bytes: usize) -> Result<&'a [u8], Garbage> {
        let (taken, rest) = self.0.split_at_checked(len_bytes).ok_or(Garbage)?;
        self.0 = rest;
        Ok(taken)
    }

    /// # Errors
    /// [`Garbage`] if the request ends early.
    pub fn u32(&mut self) -> Result<u32, Garbage> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().map_err(|_| Garbage)?))
    }

    /// # Errors
    /// As [`Reader::u32`].
    pub fn u64(&mut self) -> Result<u64, Garbage> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().map_err(|_| Garbage)?))
    }

    /// Bytes with their length in front.
    ///
    /// # Errors
    /// [`Garbage`] if there are more than `limit_bytes`, or fewer than announced.
    pub fn opaque(&mut self, limit_bytes: usize) -> Result<&'a [u8], Garbage> {
        let len_bytes = usize::try_from(self.u32()?).map_err(|_| Garbage)?;
        if len_bytes > limit_bytes {
            return Err(Garbage);
        }
        let bytes = self.take(len_bytes)?;
        self.take(len_bytes.next_multiple_of(4) - len_bytes)?;
        Ok(bytes)
    }
}

/// Encodes values.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A 32-bit number.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A 64-bit number.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u32(u32::from(value))
    }

    /// Bytes without a length; a multiple of four.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Bytes with their length in front.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Length in bytes so far.
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }

    /// All encoded bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}
