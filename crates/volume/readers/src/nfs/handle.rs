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
//! A path that leads to another file by now has another number, so an old handle does not match it. A moment ends with
//! the node, and a later one has another number.

use crate::nfs::xdr::Garbage;

const FORMAT: u8 = 1;
const LEN_BYTES: usize = 41;
/// Longest handle of the protocol.
pub const LIMIT_BYTES: usize = 64;

/// Number of a path: a digest, independent of process and host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathNumber(pub u64);

impl PathNumber {
    /// The number of a path relative to the volume; the root's path is empty.
    ///
    /// 63 bits, and more than 2: clients use it as a file number and, in lists, as a signed position.
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

/// Volume and moment of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExportKey {
    /// The volume's random id.
    pub volume_id: u128,
    /// Number of the moment; 0: the current state.
    pub moment: u64,
}

/// A file handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Its export.
    pub export: ExportKey,
    /// Its path.
    pub path: PathNumber,
    /// Its number in the volume, counted from 1; 0: a directory.
    pub file: u64,
}

impl Handle {
    /// Encodes the handle.
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

    /// Decodes a handle.
    ///
    /// # Errors
    /// [`Garbage`]: invalid bytes.
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
