//! Numbers, flags, bytes and lists. The layout is in the module above.
//!
//! Invariant: all bytes before [`Reader::offset`] were read in their only encoding.

use super::CodecError;
use redoubt_codec::{NumberError, Truncated, leb128};
use std::sync::Arc;

/// A value with an encoding.
pub(super) trait Coded: Sized {
    /// Minimum length of an encoding, in bytes. Never 0: a list of items without bytes could have any length.
    const MIN_LEN_BYTES: usize;

    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);

    /// Decodes a value at the reader's position.
    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError>;
}

/// Appends several fields in their order.
macro_rules! put {
    ($out:ident: $($field:expr),*) => {{
        $( $crate::codec::bytes::Coded::put($field, $out); )*
    }};
}
pub(super) use put;

/// Bytes and a read position: [`redoubt_codec::Reader`] with the errors of this codec.
pub(super) struct Reader<'b> {
    fields: redoubt_codec::Reader<'b>,
    /// Name of the current field, for errors.
    what: &'static str,
}

impl<'b> Reader<'b> {
    /// Decodes one value from all of `bytes`.
    pub(super) fn whole<T: Coded>(bytes: &'b [u8], what: &'static str) -> Result<T, CodecError> {
        let mut reader = Self { fields: redoubt_codec::Reader::new(bytes), what };
        let whole = T::take(&mut reader)?;
        match reader.fields.left_bytes() {
            0 => Ok(whole),
            count => Err(CodecError::Trailing { offset: reader.offset(), count }),
        }
    }

    /// The next field. Errors name it `what`, unless it has parts with names of their own.
    pub(super) fn field<T: Coded>(&mut self, what: &'static str) -> Result<T, CodecError> {
        self.what = what;
        T::take(self)
    }

    /// The read position.
    pub(super) const fn offset(&self) -> usize {
        self.fields.at_byte()
    }

    const fn truncated(&self, error: Truncated) -> CodecError {
        CodecError::Truncated { what: error.what, offset: self.fields.len_bytes() }
    }

    fn byte(&mut self) -> Result<u8, CodecError> {
        self.fields.u8(self.what).map_err(|error| self.truncated(error))
    }

    /// Reads the tag of a `what`. The caller passes an unknown tag to [`Reader::unknown`].
    pub(super) fn tag(&mut self, what: &'static str) -> Result<u8, CodecError> {
        self.what = what;
        self.byte()
    }

    /// The error for an unknown tag that was just read.
    pub(super) const fn unknown(&self, tag: u8) -> CodecError {
        CodecError::UnknownTag { what: self.what, tag, offset: self.offset() - 1 }
    }

    fn number(&mut self) -> Result<u64, CodecError> {
        self.fields.leb128(self.what).map_err(|error| match error {
            NumberError::Truncated(error) => self.truncated(error),
            NumberError::NotCanonical { what, at_byte } => CodecError::BadNumber { what, offset: at_byte },
        })
    }

    /// Reads a number of items that have at least `min_len_bytes` each.
    fn count(&mut self, min_len_bytes: usize) -> Result<usize, CodecError> {
        let offset = self.offset();
        let count = self.number()?;
        let left = self.fields.left_bytes();
        match usize::try_from(count) {
            Ok(fitting) if fitting <= left / min_len_bytes => Ok(fitting),
            _ => Err(CodecError::TooMany { what: self.what, count, left, offset }),
        }
    }
}

impl Coded for u64 {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        leb128::put(*self, |byte| out.push(byte));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        reader.number()
    }
}

impl Coded for usize {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let offset = reader.offset();
        let number = reader.number()?;
        Self::try_from(number).map_err(|_| CodecError::BadNumber { what: reader.what, offset })
    }
}

impl Coded for bool {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let offset = reader.offset();
        match reader.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(CodecError::NoFlag { what: reader.what, value, offset }),
        }
    }
}

impl Coded for Arc<[u8]> {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend_from_slice(self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let len = reader.count(1)?;
        let bytes = reader.fields.bytes(len as u64, reader.what).map_err(|error| reader.truncated(error))?;
        Ok(Self::from(bytes))
    }
}

impl<T: Coded> Coded for Option<T> {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(if bool::take(reader)? { Some(T::take(reader)?) } else { None })
    }
}

impl<T: Coded> Coded for Vec<T> {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for item in self {
            item.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let what = reader.what;
        let count = reader.count(T::MIN_LEN_BYTES)?;
        let mut items = Self::with_capacity(count);
        for _ in 0..count {
            items.push(reader.field(what)?);
        }
        Ok(items)
    }
}
