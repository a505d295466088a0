//! File handles: bytes that identify a file at any time, also after a restart of the node.
//!
//! ```text
//! 1  format
//! 16 volume's random id
//! 8  moment; 0: the volume as it is now
//! 8  digest of the path
//! 8  the file's number in the volume, counted from 1; 0: a directory
//! ```
//!
//! A path that leads to another file by now is not the one that was meant: the number tells. A moment ends with the
//! node, and another one has another number.

use crate::xdr::Garbage;

const FORMAT: u8 = 1;
const LEN_BYTES: usize = 41;
/// Longest that the protocol has.
pub const LIMIT_BYTES: usize = 64;

/// Number of a path: a digest that is the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathNumber(pub u64);

impl PathNumber {
    /// Of a path relative to the volume; the root's is empty.
    ///
    /// 63 bits, and more than 2: clients take it as a file number and, in lists, as a signed position.
    pub fn of(path: &str) -> Self {
        // FNV-1a, then mixed, so that similar names differ in their upper bits too.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in path.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
        Self((hash >> 1).max(3))
    }
}

/// Which volume, and which moment of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExportKey {
    /// The volume's random id.
    pub volume_id: u128,
    /// 0: as it is now.
    pub moment: u64,
}

/// A file handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Of which export.
    pub export: ExportKey,
    /// Its path.
    pub path: PathNumber,
    /// Its number in the volume, counted from 1; 0: a directory.
    pub file: u64,
}

impl Handle {
    /// As bytes.
    pub fn encode(&self) -> [u8; LEN_BYTES] {
        let mut out = [0; LEN_BYTES];
        let mut rest = &mut out[..];
        let parts: [&[u8]; 5] = [
            &[FORMAT],
            &self.export.volume_id.to_be_bytes(),
            &self.export.moment.to_be_bytes(),
            &self.path.0.to_be_bytes(),
            &self.file.to_be_bytes(),
        ];
        for part in parts {
            let (place, left) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = left;
        }
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`Garbage`]: they are not from here.
    pub fn decode(bytes: &[u8]) -> Result<Self, Garbage> {
        let (format, rest) = bytes.split_first_chunk::<1>().ok_or(Garbage)?;
        let (volume_id, rest) = rest.split_first_chunk().ok_or(Garbage)?;
        let (moment, rest) = rest.split_first_chunk().ok_or(Garbage)?;
        let (path, rest) = rest.split_first_chunk().ok_or(Garbage)?;
        let file = rest.try_into().map_err(|_| Garbage)?;
        if *format != [FORMAT] {
            return Err(Garbage);
        }
        Ok(Self {
            export: ExportKey {
                volume_id: u128::from_be_bytes(*volume_id),
                moment: u64::from_be_bytes(*moment),
            },
            path: PathNumber(u64::from_be_bytes(*path)),
            file: u64::from_be_bytes(file),
        })
    }
}
