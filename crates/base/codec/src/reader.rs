//! [`Reader`]: takes fields off the front of bytes.
//!
//! Invariant: `at <= bytes.len()`. A call that fails takes nothing, except for [`Reader::leb128`].

use crate::leb128::{self, Leb128Error};

/// Bytes that end before or within a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it ends before or within {what} (byte {at_byte})")]
pub struct Truncated {
    /// Which field.
    pub what: &'static str,
    /// Where the field begins.
    pub at_byte: usize,
}

/// Bytes that are no number of [`leb128`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NumberError {
    /// They end before or within it.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// It is longer than its shortest form, or above 2^64 - 1.
    #[error("{what} is longer than it must be, or above 2^64 - 1 (byte {at_byte})")]
    NotCanonical {
        /// Which field.
        what: &'static str,
        /// Where the field begins.
        at_byte: usize,
    },
}

/// Bytes, and how far they are read. Numbers are little-endian. `what` names a field in errors.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The offset of the next field.
    pub const fn at_byte(&self) -> usize {
        self.at
    }

    /// The number of all bytes, read or not.
    pub const fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The number of bytes that are left.
    pub const fn left_bytes(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Takes all bytes that are left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest();
        self.at = self.bytes.len();
        rest
    }

    /// Checks that `len_bytes` bytes are left, and takes nothing.
    ///
    /// # Errors
    /// [`Truncated`]
    pub fn require(&self, len_bytes: u64, what: &'static str) -> Result<(), Truncated> {
        if len_bytes > self.left_bytes() as u64 { Err(self.truncated(what)) } else { Ok(()) }
    }

    /// Takes `len_bytes` bytes.
    ///
    /// # Errors
    /// [`Truncated`]
    #[inline]
    pub fn bytes(&mut self, len_bytes: u64, what: &'static str) -> Result<&'a [u8], Truncated> {
        let taken = usize::try_from(len_bytes).ok().and_then(|len| self.rest().get(..len));
        let taken = taken.ok_or_else(|| self.truncated(what))?;
        self.at += taken.len();
        Ok(taken)
    }

    /// Takes an array.
    ///
    /// # Errors
    /// [`Truncated`]
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Truncated> {
        let taken = *self.rest().first_chunk().ok_or_else(|| self.truncated(what))?;
        self.at += N;
        Ok(taken)
    }

    /// Takes one byte.
    ///
    /// # Errors
    /// [`Truncated`]
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Truncated> {
        self.array(what).map(u8::from_le_bytes)
    }

    /// Takes two bytes.
    ///
    /// # Errors
    /// [`Truncated`]
    #[inline]
    pub fn u16(&mut self, what: &'static str) -> Result<u16, Truncated> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Takes four bytes.
    ///
    /// # Errors
    /// [`Truncated`]
    #[inline]
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Truncated> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Takes eight bytes.
    ///
    /// # Errors
    /// [`Truncated`]
    #[inline]
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Truncated> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Takes eight bytes, signed.
    ///
    /// # Errors
    /// [`Truncated`]
    #[inline]
    pub fn i64(&mut self, what: &'static str) -> Result<i64, Truncated> {
        self.array(what).map(i64::from_le_bytes)
    }

    /// Takes a number of [`leb128`].
    ///
    /// # Errors
    /// [`NumberError`]. The bytes up to the one that shows the error are taken then.
    #[inline]
    pub fn leb128(&mut self, what: &'static str) -> Result<u64, NumberError> {
        let at_byte = self.at;
        let number = leb128::take(|| {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            Some(byte)
        });
        number.map_err(|error| match error {
            Leb128Error::Ended => Truncated { what, at_byte }.into(),
            Leb128Error::NotCanonical => NumberError::NotCanonical { what, at_byte },
        })
    }

    #[cold]
    const fn truncated(&self, what: &'static str) -> Truncated {
        Truncated { what, at_byte: self.at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_their_order() {
        let bytes: Vec<u8> = (1..=30).collect();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u8("a"), Ok(1));
        assert_eq!(reader.u16("b"), Ok(0x0302));
        assert_eq!(reader.u32("c"), Ok(0x0706_0504));
        assert_eq!(reader.u64("d"), Ok(0x0f0e_0d0c_0b0a_0908));
        assert_eq!(reader.i64("e"), Ok(0x1716_1514_1312_1110));
        assert_eq!((reader.at_byte(), reader.left_bytes(), reader.len_bytes()), (23, 7, 30));
        assert_eq!(reader.bytes(2, "f"), Ok(&[24, 25][..]));
        assert_eq!(reader.array("g"), Ok([26, 27]));
        assert_eq!(reader.leb128("h"), Ok(28));
        assert_eq!(reader.rest(), [29, 30]);
        assert_eq!(reader.take_rest(), [29, 30]);
        assert_eq!((reader.left_bytes(), reader.rest()), (0, &[][..]));
    }

    #[test]
    fn truncated_field_is_named_and_not_taken() {
        let mut reader = Reader::new(&[1, 2, 3]);
        reader.u8("first").unwrap();
        let error = |what| Truncated { what, at_byte: 1 };
        assert_eq!(reader.u32("number"), Err(error("number")));
        assert_eq!(reader.bytes(3, "text"), Err(error("text")));
        assert_eq!(reader.bytes(u64::MAX, "all"), Err(error("all")));
        assert_eq!(reader.require(3, "list"), Err(error("list")));
        assert_eq!(reader.require(2, "list"), Ok(()));
        assert_eq!(reader.rest(), [2, 3]);
        assert_eq!(error("number").to_string(), "it ends before or within number (byte 1)");
    }

    #[test]
    fn number_error_names_the_start_of_the_number() {
        let error = Reader::new(&[0x80, 0]).leb128("count").unwrap_err();
        assert_eq!(error, NumberError::NotCanonical { what: "count", at_byte: 0 });
        let mut reader = Reader::new(&[7, 0x80]);
        reader.u8("first").unwrap();
        assert_eq!(reader.leb128("count"), Err(Truncated { what: "count", at_byte: 1 }.into()));
    }
}
