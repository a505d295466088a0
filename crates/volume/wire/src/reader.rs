//! Reading fields from a payload without ever reading past its end.

use crate::error::WireError;
use redoubt_codec::{NumberError, Truncated, leb128};

/// Longest path, and longest part of one, on Linux.
const PATH_LIMIT_BYTES: usize = 4095;
const NAME_LIMIT_BYTES: usize = 255;

/// Cursor over one payload: [`redoubt_codec::Reader`] with the name of the payload in errors.
pub(crate) struct Reader<'a> {
    what: &'static str,
    fields: redoubt_codec::Reader<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, payload: &'a [u8]) -> Self {
        Self { what, fields: redoubt_codec::Reader::new(payload) }
    }

    fn truncated(&self, error: Truncated) -> WireError {
        WireError::Truncated { what: self.what, len_bytes: self.fields.len_bytes(), field: error.what }
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.fields.u8(field).map_err(|error| self.truncated(error))
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        self.fields.u16(field).map_err(|error| self.truncated(error))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.fields.u32(field).map_err(|error| self.truncated(error))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.fields.u64(field).map_err(|error| self.truncated(error))
    }

    /// A number of [`put_varint`]; longer forms of it are refused.
    pub(crate) fn varint(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.fields.leb128(field).map_err(|error| match error {
            NumberError::Truncated(error) => self.truncated(error),
            NumberError::NotCanonical { .. } => {
                let why = "it is longer than it must be".to_owned();
                WireError::Invalid { what: self.what, field, why }
            }
        })
    }

    pub(crate) fn bytes(&mut self, len_bytes: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        self.fields.bytes(len_bytes as u64, field).map_err(|error| self.truncated(error))
    }

    /// A path relative to the data directory: u16 length, bytes; no NUL, not absolute, no `..`.
    pub(crate) fn path(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        let len_bytes = self.u16(field)? as usize;
        let path = self.bytes(len_bytes, field)?;
        check_path(path).map_err(|why| WireError::Invalid { what: self.what, field, why: why.to_owned() })?;
        Ok(path)
    }

    /// All remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.fields.rest()
    }

    pub(crate) fn finish(self) -> Result<(), WireError> {
        match self.fields.left_bytes() {
            0 => Ok(()),
            left => Err(WireError::Invalid {
                what: self.what,
                field: "end",
                why: format!("{left} bytes too many"),
            }),
        }
    }
}

/// The reason why a path must not be used, if any. A node must never follow a path out of its volume.
pub(crate) fn check_path(path: &[u8]) -> Result<(), &'static str> {
    if path.len() > PATH_LIMIT_BYTES
        || path.split(|byte| *byte == b'/').any(|part| part.len() > NAME_LIMIT_BYTES)
    {
        return Err("path is longer than a file system takes (4095 bytes, 255 for each part)");
    }
    check_path_inside(path)
}

/// The reason why a path leads, or may lead, out of the directory that it is relative to. The file need not exist.
pub(crate) fn check_path_inside(path: &[u8]) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("empty path");
    }
    if path.starts_with(b"/") {
        return Err("path is absolute; it must be relative to the data directory");
    }
    if path.contains(&0) {
        return Err("path contains a NUL byte");
    }
    if path.split(|byte| *byte == b'/').any(|part| part == b".." || part == b"." || part.is_empty()) {
        return Err("path has an empty, '.' or '..' part; it must be normalised");
    }
    Ok(())
}

/// Appends a number of [`leb128`].
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    leb128::put(value, |byte| out.push(byte));
}

pub(crate) fn put_path(out: &mut Vec<u8>, path: &[u8]) {
    // Linux limits a path to 4095 bytes, so u16 always holds it; a longer one is cut and then refused by the reader.
    let len_bytes = u16::try_from(path.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len_bytes.to_le_bytes());
    out.extend_from_slice(&path[..len_bytes as usize]);
}
