//! Numbers, flags, bytes and lists. The layout is in the module above.
//!
//! Invariant: `at <= bytes.len()`, and all before `at` was taken in its only form.

use super::CodecError;
use std::sync::Arc;

/// Seven bits each: 9 whole bytes and one bit of the tenth.
const MAX_NUMBER_LEN_BYTES: usize = 10;

/// What has an encoding.
pub(super) trait Coded: Sized {
    /// None is shorter, in bytes. Never 0: a list of what takes no bytes could have any length.
    const MIN_LEN_BYTES: usize;

    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes it from where the reader is.
    fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError>;
}

/// Appends the fields of something in their order.
macro_rules! put {
    ($out:ident: $($field:expr),*) => {{
        $( $crate::codec::bytes::Coded::put($field, $out); )*
    }};
}
pub(super) use put;

/// Bytes, and how far they are read.
pub(super) struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    /// What is read now, for errors.
    what: &'static str,
}

impl<'b> Reader<'b> {
    /// What all of `bytes` are.
    pub(super) fn whole<T: Coded>(bytes: &'b [u8], what: &'static str) -> Result<T, CodecError> {
        let mut reader = Self { bytes, at: 0, what };
        let whole = T::take(&mut reader)?;
        match reader.left() {
            0 => Ok(whole),
            count => Err(CodecError::Trailing { offset: reader.at, count }),
        }
    }

    /// The next field; `what` is its name in errors, as far as it has no parts of its own.
    pub(super) fn field<T: Coded>(&mut self, what: &'static str) -> Result<T, CodecError> {
        self.what = what;
        T::take(self)
    }

    /// Where it is.
    pub(super) const fn offset(&self) -> usize {
        self.at
    }

    const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    const fn truncated(&self) -> CodecError {
        CodecError::Truncated { what: self.what, offset: self.bytes.len() }
    }

    fn byte(&mut self) -> Result<u8, CodecError> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.truncated())?;
        self.at += 1;
        Ok(byte)
    }

    /// The tag of a `what`. One that is not known goes to [`Reader::unknown`].
    pub(super) fn tag(&mut self, what: &'static str) -> Result<u8, CodecError> {
        self.what = what;
        self.byte()
    }

    /// The tag that was just read is none.
    pub(super) const fn unknown(&self, tag: u8) -> CodecError {
        CodecError::UnknownTag { what: self.what, tag, offset: self.at - 1 }
    }

    fn number(&mut self) -> Result<u64, CodecError> {
        let offset = self.at;
        let mut number = 0;
        for place in 0..MAX_NUMBER_LEN_BYTES {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                let is_shortest = byte != 0 || place == 0;
                let is_below_2_to_64 = byte <= 1 || place + 1 < MAX_NUMBER_LEN_BYTES;
                if is_shortest && is_below_2_to_64 {
                    return Ok(number);
                }
                break;
            }
        }
        Err(CodecError::BadNumber { what: self.what, offset })
    }

    /// How many items of at least `min_len_bytes` follow.
    fn count(&mut self, min_len_bytes: usize) -> Result<usize, CodecError> {
        let offset = self.at;
        let count = self.number()?;
        let left = self.left();
        match usize::try_from(count) {
            Ok(fitting) if fitting <= left / min_len_bytes => Ok(fitting),
            _ => Err(CodecError::TooMany { what: self.what, count, left, offset }),
        }
    }
}

impl Coded for u64 {
    const MIN_LEN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
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
        let offset = reader.at;
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
        let offset = reader.at;
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
        let end = reader.at + len;
        let bytes = reader.bytes.get(reader.at..end).ok_or_else(|| reader.truncated())?;
        reader.at = end;
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
