//! Page-compressed images (`COMPRESSION='zlib'` or `'lz4'`): recognising and decompressing them.
//!
//! Not to be confused with ROW_FORMAT=COMPRESSED. A page-compressed image exists only in the file; redo addresses the
//! page it was made from. The server frees the rest of its place in the file, which reads as zeros.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 38 | file header of the page, but for its type and bytes 26..34 |
//! | 24 | 2 | page type: 14 |
//! | 26 | 1 | version of this layout: 1 or 2 |
//! | 27 | 1 | algorithm: 1 zlib, 2 lz4 |
//! | 28 | 2 | type of the page |
//! | 30 | 2 | length of the page without its file header |
//! | 32 | 2 | length of the payload |
//! | 38 | | payload: the page from its byte 38 on |
//!
//! Source: `os_file_compress_page` in `os/os0file.cc`, `Compression::deserialize` in `os/file.cc`. After decompressing,
//! the server leaves bytes 26..34 as they are in the image, and so does this.
//!
//! Invariant: the decompressed page has exactly the logical page size, or there is an error.

use flate2::{Decompress, FlushDecompress, Status};

use super::checksum::TYPE_PAGE_COMPRESSED;
use super::flags::Flags;
use crate::layout::{FIL_PAGE_DATA, FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_TYPE, get_u16, page_type, put};

pub use crate::compressed::PageCompressionError;

const VERSION: usize = FIL_PAGE_FILE_FLUSH_LSN;
const ALGORITHM: usize = VERSION + 1;
const ORIGINAL_TYPE: usize = ALGORITHM + 1;
const ORIGINAL_BYTES: usize = ORIGINAL_TYPE + 2;
const PAYLOAD_BYTES: usize = ORIGINAL_BYTES + 2;
const ALGORITHM_ZLIB: u8 = 1;
const ALGORITHM_LZ4: u8 = 2;
/// Page types of images that are compressed and encrypted, or encrypted.
const ENCRYPTED_TYPES: std::ops::RangeInclusive<u16> = 15..=17;

/// Whether the image of a page is page-compressed.
pub fn is_page_compressed_image(page: &[u8]) -> bool {
    page_type(page) == Some(TYPE_PAGE_COMPRESSED)
}

/// Decompress a page-compressed image. `Ok(None)`: the image is not compressed.
///
/// The result is the page as redo addresses it, with the checksum it had when it was compressed: run [`super::verify`]
/// on it.
///
/// # Errors
/// An algorithm other than zlib and lz4, an encrypted image, or damage.
pub fn decompress(page: &[u8], flags: Flags) -> Result<Option<Vec<u8>>, PageCompressionError> {
    match page_type(page) {
        Some(TYPE_PAGE_COMPRESSED) => {}
        Some(kind) if ENCRYPTED_TYPES.contains(&kind) => return Err(PageCompressionError::Encrypted),
        _ => return Ok(None),
    }
    let damaged = |what| PageCompressionError::Header { what };
    let byte = |offset: usize| page.get(offset).copied().ok_or(damaged("it is too short"));
    let number = |offset: usize| get_u16(page, offset).map(usize::from).ok_or(damaged("it is too short"));
    if !matches!(byte(VERSION)?, 1 | 2) {
        return Err(damaged("its version is not 1 or 2"));
    }
    let expected_bytes = flags.logical_page_size_bytes();
    if number(ORIGINAL_BYTES)? + FIL_PAGE_DATA != expected_bytes {
        return Err(damaged("the page it was made from was not as long as the pages of its tablespace"));
    }
    let payload = page
        .get(FIL_PAGE_DATA..)
        .and_then(|tail| tail.get(..number(PAYLOAD_BYTES).ok()?))
        .filter(|payload| !payload.is_empty())
        .ok_or(damaged("its length lies outside the page"))?;
    let header = page.get(..FIL_PAGE_DATA).ok_or(damaged("it is too short"))?;
    let mut whole = vec![0; expected_bytes];
    put(&mut whole, 0, header);
    let body = whole.get_mut(FIL_PAGE_DATA..).unwrap_or_default();
    let (algorithm, is_whole) = match byte(ALGORITHM)? {
        ALGORITHM_ZLIB => ("zlib", inflate(payload, body)),
        ALGORITHM_LZ4 => ("lz4", unpack_lz4(payload, body)),
        _ => return Err(damaged("its compression algorithm is unknown")),
    };
    if !is_whole {
        return Err(PageCompressionError::Payload { algorithm, expected_bytes });
    }
    put(&mut whole, FIL_PAGE_TYPE, page.get(ORIGINAL_TYPE..ORIGINAL_TYPE + 2).unwrap_or_default());
    Ok(Some(whole))
}

fn unpack_lz4(payload: &[u8], out: &mut [u8]) -> bool {
    lz4_flex::block::decompress_into(payload, out).is_ok_and(|len_bytes| len_bytes == out.len())
}

/// Inflate a zlib stream that fills `out`.
fn inflate(payload: &[u8], out: &mut [u8]) -> bool {
    let mut zlib = Decompress::new(true);
    let status = zlib.decompress(payload, out, FlushDecompress::Finish);
    matches!(status, Ok(Status::StreamEnd)) && zlib.total_out() == out.len() as u64
}

#[cfg(test)]
mod tests;
