//! The bytes of a record, being consumed.
//!
//! Invariant: [`RedoError::Truncated`] means that the bytes end, and nothing else. A reader of a growing stream treats
//! it as "not yet". MySQL's records do not contain their length: only decoding finds the end of one.

use super::varint::{self, VarintError};
use crate::error::RedoError;

#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    /// Everything there is, so that positions count from the caller's slice.
    bytes: &'a [u8],
    /// The next byte.
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    pub(super) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    #[inline(always)]
    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Bytes consumed since `start`.
    #[inline(always)]
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn array<const LEN: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<&'a [u8; LEN], RedoError> {
        match self.rest().first_chunk() {
            Some(array) => {
                self.at += LEN;
                Ok(array)
            }
            None => Err(self.truncated(expected)),
        }
    }

    #[inline(always)]
    pub(super) fn byte(&mut self, expected: &'static str) -> Result<u8, RedoError> {
        let [byte] = *self.array(expected)?;
        Ok(byte)
    }

    #[inline(always)]
    pub(super) fn u16(&mut self, expected: &'static str) -> Result<u16, RedoError> {
        Ok(u16::from_be_bytes(*self.array(expected)?))
    }

    #[inline(always)]
    pub(super) fn u32(&mut self, expected: &'static str) -> Result<u32, RedoError> {
        Ok(u32::from_be_bytes(*self.array(expected)?))
    }

    #[inline(always)]
    pub(super) fn u64(&mut self, expected: &'static str) -> Result<u64, RedoError> {
        Ok(u64::from_be_bytes(*self.array(expected)?))
    }

    /// The next `len_bytes` bytes.
    #[inline(always)]
    pub(super) fn take(&mut self, len_bytes: usize, expected: &'static str) -> Result<&'a [u8], RedoError> {
        match self.rest().split_at_checked(len_bytes) {
            Some((taken, _)) => {
                self.at += len_bytes;
                Ok(taken)
            }
            None => Err(self.truncated(expected)),
        }
    }

    #[inline(always)]
    pub(super) fn c32(&mut self, expected: &'static str) -> Result<u32, RedoError> {
        match varint::decode_c32(self.rest()) {
            Ok((value, len_bytes)) => {
                self.at += len_bytes;
                Ok(value)
            }
            Err(error) => Err(self.no_number(error, expected)),
        }
    }

    /// A c32 of at most `max`.
    #[inline(always)]
    pub(super) fn c32_up_to(&mut self, max: u32, expected: &'static str) -> Result<u32, RedoError> {
        let at = self.at;
        let value = self.c32(expected)?;
        if value <= max { Ok(value) } else { Err(bad_number(at, u64::from(value), expected)) }
    }

    /// A c32 that is an offset or length in a page.
    #[inline(always)]
    pub(super) fn c32_in_page(&mut self, expected: &'static str) -> Result<u16, RedoError> {
        Ok(self.c32_up_to(u32::from(u16::MAX), expected)? as u16)
    }

    #[inline(always)]
    pub(super) fn c64(&mut self, expected: &'static str) -> Result<u64, RedoError> {
        match varint::decode_c64(self.rest()) {
            Ok((value, len_bytes)) => {
                self.at += len_bytes;
                Ok(value)
            }
            Err(error) => Err(self.no_number(error, expected)),
        }
    }

    pub(super) fn m64(&mut self, expected: &'static str) -> Result<u64, RedoError> {
        match varint::decode_m64(self.rest()) {
            Ok((value, len_bytes)) => {
                self.at += len_bytes;
                Ok(value)
            }
            Err(error) => Err(self.no_number(error, expected)),
        }
    }

    #[cold]
    fn no_number(&self, error: VarintError, expected: &'static str) -> RedoError {
        match (error, self.rest().first()) {
            (VarintError::Invalid, Some(&byte)) => RedoError::BadByte { offset: self.at, byte, expected },
            _ => self.truncated(expected),
        }
    }

    #[cold]
    pub(super) const fn truncated(&self, expected: &'static str) -> RedoError {
        RedoError::Truncated { offset: self.bytes.len(), expected }
    }
}

#[cold]
pub(super) const fn bad_number(offset: usize, value: u64, expected: &'static str) -> RedoError {
    RedoError::BadNumber { offset, value, expected }
}
