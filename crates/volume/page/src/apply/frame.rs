//! Bounds-checked access to the bytes of one page while a record is applied.
//!
//! Every access answers a [`Fault`] instead of panicking, so that no record and no page content can make the
//! applier read or write outside the page.

/// A mismatch and its offset on the page. The caller adds page id and record kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Byte offset on the page.
    pub offset: usize,
    /// The mismatch.
    pub what: &'static str,
}

impl Fault {
    pub(crate) const fn new(offset: usize, what: &'static str) -> Self {
        Self { offset, what }
    }
}

/// `Ok` if `condition` holds, else a fault.
#[inline]
pub(crate) fn ensure(condition: bool, offset: usize, what: &'static str) -> Result<(), Fault> {
    if condition { Ok(()) } else { Err(Fault::new(offset, what)) }
}

const OUTSIDE: &str = "the access ends outside the page";

/// The bytes of a page.
pub(crate) struct Frame<'a>(pub &'a mut [u8]);

impl Frame<'_> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn u8(&self, offset: usize) -> Result<u8, Fault> {
        self.0.get(offset).copied().ok_or(Fault::new(offset, OUTSIDE))
    }

    #[inline]
    pub(crate) fn set_u8(&mut self, offset: usize, value: u8) -> Result<(), Fault> {
        *self.0.get_mut(offset).ok_or(Fault::new(offset, OUTSIDE))? = value;
        Ok(())
    }

    #[inline]
    pub(crate) fn u16(&self, offset: usize) -> Result<u16, Fault> {
        crate::layout::get_u16(self.0, offset).ok_or(Fault::new(offset, OUTSIDE))
    }

    /// A two-byte field as an index.
    #[inline]
    pub(crate) fn field(&self, offset: usize) -> Result<usize, Fault> {
        self.u16(offset).map(usize::from)
    }

    #[inline]
    pub(crate) fn set_u16(&mut self, offset: usize, value: u16) -> Result<(), Fault> {
        self.write(offset, &value.to_be_bytes())
    }

    /// Store the low 16 bits of `value`; page arithmetic is modulo 2^16.
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn set_field(&mut self, offset: usize, value: usize) -> Result<(), Fault> {
        self.set_u16(offset, value as u16)
    }

    #[inline]
    pub(crate) fn bytes(&self, offset: usize, len_bytes: usize) -> Result<&[u8], Fault> {
        self.0.get(offset..).and_then(|tail| tail.get(..len_bytes)).ok_or(Fault::new(offset, OUTSIDE))
    }

    #[inline]
    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        self.bytes_mut(offset, data.len())?.copy_from_slice(data);
        Ok(())
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self, offset: usize, len_bytes: usize) -> Result<&mut [u8], Fault> {
        self.0.get_mut(offset..).and_then(|tail| tail.get_mut(..len_bytes)).ok_or(Fault::new(offset, OUTSIDE))
    }

    /// Fill `[start, end)`.
    #[inline]
    pub(crate) fn fill(&mut self, start: usize, end: usize, value: u8) -> Result<(), Fault> {
        self.0.get_mut(start..end).ok_or(Fault::new(start, OUTSIDE))?.fill(value);
        Ok(())
    }

    /// Move `len_bytes` from `source` to `target`; the ranges may overlap.
    #[inline]
    pub(crate) fn move_within(
        &mut self,
        source: usize,
        target: usize,
        len_bytes: usize,
    ) -> Result<(), Fault> {
        self.bytes(source, len_bytes)?;
        self.bytes(target, len_bytes)?;
        self.0.copy_within(source..source + len_bytes, target);
        Ok(())
    }
}
