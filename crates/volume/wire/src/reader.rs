//! Reading fields from a payload without ever reading past its end.

use crate::error::WireError;

/// Longest path, and longest part of one, on Linux.
const PATH_LIMIT_BYTES: usize = 4095;
const NAME_LIMIT_BYTES: usize = 255;

/// Cursor over one payload. All numbers are little-endian.
pub(crate) struct Reader<'a> {
    what: &'static str,
    len_bytes: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, payload: &'a [u8]) -> Self {
        Self { what, len_bytes: payload.len(), rest: payload }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated {
            what: self.what,
            len_bytes: self.len_bytes,
            field,
        })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A number of [`put_varint`]; longer forms of it are refused.
    pub(crate) fn varint(&mut self, field: &'static str) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            let bits = u64::from(byte & 0x7f);
            value |= bits << shift;
            let is_short = (bits << shift) >> shift == bits && (byte != 0 || shift == 0);
            match byte & 0x80 {
                0 if is_short => return Ok(value),
                0 => break,
                _ => {}
            }
        }
        let why = "it is longer than it must be".to_owned();
        Err(WireError::Invalid { what: self.what, field, why })
    }

    pub(crate) fn bytes(&mut self, len_bytes: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        if len_bytes > self.rest.len() {
            return Err(WireError::Truncated { what: self.what, len_bytes: self.len_bytes, field });
        }
        let (head, rest) = self.rest.split_at(len_bytes);
        self.rest = rest;
        Ok(head)
    }

    /// A path relative to the data directory: u16 length, bytes; no NUL, not absolute, no `..`.
    pub(crate) fn path(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        let len_bytes = self.u16(field)? as usize;
        let path = self.bytes(len_bytes, field)?;
        check_path(path).map_err(|why| WireError::Invalid { what: self.what, field, why: why.to_owned() })?;
        Ok(path)
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(WireError::Invalid {
            what: self.what,
            field: "end",
            why: format!("{} bytes too many", self.rest.len()),
        })
    }
}

/// Why a path may not be used, if so. A node must never follow a path out of its volume.
pub(crate) fn check_path(path: &[u8]) -> Result<(), &'static str> {
    if path.len() > PATH_LIMIT_BYTES
        || path.split(|byte| *byte == b'/').any(|part| part.len() > NAME_LIMIT_BYTES)
    {
        return Err("path is longer than a file system takes (4095 bytes, 255 for each part)");
    }
    check_path_inside(path)
}

/// Why a path leads, or may lead, out of the directory that it is relative to; there may be no file of that name.
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

/// Seven bits in each byte, the lowest first; bit 7: more follow.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_path(out: &mut Vec<u8>, path: &[u8]) {
    // Linux limits a path to 4095 bytes, so u16 always holds it; a longer one is cut and then refused by the reader.
    let len_bytes = u16::try_from(path.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len_bytes.to_le_bytes());
    out.extend_from_slice(&path[..len_bytes as usize]);
}
