//! Page-compressed images (`PAGE_COMPRESSED=1`): recognising, decompressing and making them.
//!
//! Not to be confused with ROW_FORMAT=COMPRESSED, whose compressed image is what redo addresses. A
//! page-compressed image exists only in the file; redo addresses the page it was made from.
//!
//! | file format | mark | length | algorithm | payload |
//! |---|---|---|---|---|
//! | `full_crc32` | bit 15 of the page type | low 15 bits of the type, times 256 | tablespace flags | from 26 |
//! | older | page type 34354, checksum 0xDEADBEEF | 2 bytes at 38 | 8 bytes at 26 | from 40 |
//!
//! The payload is the whole page. Invariants: the decompressed page has exactly the logical page size, or there is an
//! error; an image that [`compress`] makes decompresses to the page it was made from.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use thiserror::Error;

use crate::checksum::{NO_CHECKSUM_MAGIC, full_crc32_compressed_len_bytes};
use crate::flags::{PageCompression, SpaceFlags};
use crate::layout::{
    FIL_PAGE_CHECKSUM, FIL_PAGE_DATA, FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_OFFSET, FIL_PAGE_TYPE,
    TYPE_FULL_CRC32_COMPRESSED, TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, get_u16, get_u32,
    get_u64, page_type, put,
};

/// Payload of an older image begins after its 2-byte length.
const OLDER_HEADER_BYTES: usize = FIL_PAGE_DATA + 2;
/// Lengths of `full_crc32` images are multiples of this.
const LENGTH_UNIT_BYTES: usize = 256;
/// The server's default of `innodb_compression_level`. The file does not record its level.
const ZLIB_LEVEL: u32 = 6;
const ALGORITHM_ZLIB: u8 = 1;
const ALGORITHM_LZ4: u8 = 2;

/// Why a page-compressed image cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PageCompressionError {
    /// The algorithm is not supported here.
    #[error(
        "the page is compressed with innodb_compression_algorithm={name}, which is not supported; set it to \
         zlib or lz4 and rebuild the table (ALTER TABLE ... FORCE)"
    )]
    Algorithm {
        /// The server's name of the algorithm.
        name: &'static str,
    },
    /// The image is encrypted as well.
    #[error("the page is encrypted; encrypted tablespaces cannot be read outside the server")]
    Encrypted,
    /// The image's header is impossible.
    #[error("the page-compressed image is damaged: {what}")]
    Header {
        /// The mismatch.
        what: &'static str,
    },
    /// The payload does not decompress to a page.
    #[error(
        "the {algorithm} payload of the page-compressed image does not decompress to {expected_bytes} bytes; the page is damaged"
    )]
    Payload {
        /// The algorithm.
        algorithm: &'static str,
        /// Length of a page.
        expected_bytes: usize,
    },
}

/// Whether the image of a page of this tablespace is page-compressed.
pub fn is_page_compressed_image(page: &[u8], flags: SpaceFlags) -> bool {
    match flags.page_compression() {
        PageCompression::None => false,
        PageCompression::Algorithm(_) => full_crc32_compressed_len_bytes(page).is_some(),
        PageCompression::PerPage => {
            matches!(page_type(page), Some(TYPE_PAGE_COMPRESSED | TYPE_PAGE_COMPRESSED_ENCRYPTED))
        }
    }
}

/// Whether [`decompress`] has the algorithm of this image. True for an image that is not compressed.
pub fn has_known_algorithm(page: &[u8], flags: SpaceFlags) -> bool {
    if !is_page_compressed_image(page, flags) {
        return true;
    }
    match flags.page_compression() {
        PageCompression::Algorithm(algorithm) => is_known(u64::from(algorithm)),
        _ => get_u64(page, FIL_PAGE_FILE_FLUSH_LSN).is_some_and(is_known),
    }
}

/// Whether [`decompress`] has this algorithm.
pub(crate) fn is_known(algorithm: u64) -> bool {
    [ALGORITHM_ZLIB, ALGORITHM_LZ4].map(u64::from).contains(&algorithm)
}

/// Decompress a page-compressed image. `Ok(None)`: the image is not compressed.
///
/// The result is the page as redo addresses it. Its checksum and trailer are those of no format in
/// particular: run [`crate::finalize`] before handing it to a server. Run [`crate::verify`] on the image first.
///
/// # Errors
/// An algorithm other than zlib and lz4, an encrypted image, or damage.
pub fn decompress(page: &[u8], flags: SpaceFlags) -> Result<Option<Vec<u8>>, PageCompressionError> {
    if !is_page_compressed_image(page, flags) {
        return Ok(None);
    }
    let (algorithm, payload) = match flags.page_compression() {
        PageCompression::Algorithm(algorithm) => (u64::from(algorithm), full_crc32_payload(page, algorithm)?),
        _ => older_payload(page)?,
    };
    let expected_bytes = flags.logical_page_size_bytes();
    let failed = |algorithm| PageCompressionError::Payload { algorithm, expected_bytes };
    match algorithm {
        1 => inflate(payload, expected_bytes).ok_or(failed("zlib")).map(Some),
        2 => {
            let mut out = vec![0; expected_bytes];
            match lz4_flex::block::decompress_into(payload, &mut out) {
                Ok(len_bytes) if len_bytes == expected_bytes => Ok(Some(out)),
                _ => Err(failed("lz4")),
            }
        }
        3 => Err(PageCompressionError::Algorithm { name: "lzo" }),
        4 => Err(PageCompressionError::Algorithm { name: "lzma" }),
        5 => Err(PageCompressionError::Algorithm { name: "bzip2" }),
        6 => Err(PageCompressionError::Algorithm { name: "snappy" }),
        _ => Err(PageCompressionError::Header { what: "its compression algorithm is unknown" }),
    }
}

fn full_crc32_payload(page: &[u8], algorithm: u8) -> Result<&[u8], PageCompressionError> {
    const DAMAGED: PageCompressionError =
        PageCompressionError::Header { what: "its length lies outside the page" };
    let stored =
        full_crc32_compressed_len_bytes(page).filter(|len_bytes| *len_bytes < page.len()).ok_or(DAMAGED)?;
    let end = if needs_exact_length(algorithm) {
        let low = page.get(stored.wrapping_sub(5)).copied().ok_or(DAMAGED)?;
        let exact = if low == 0 { stored } else { stored + usize::from(low) - 256 };
        exact.saturating_sub(5)
    } else {
        stored
    };
    page.get(FIL_PAGE_FILE_FLUSH_LSN..end).ok_or(DAMAGED)
}

/// lz4, lzo and snappy need the exact length: its low byte is stored before the checksum.
const fn needs_exact_length(algorithm: u8) -> bool {
    matches!(algorithm, 2 | 3 | 6)
}

fn older_payload(page: &[u8]) -> Result<(u64, &[u8]), PageCompressionError> {
    let damaged = |what| PageCompressionError::Header { what };
    if page_type(page) == Some(TYPE_PAGE_COMPRESSED_ENCRYPTED) {
        return Err(PageCompressionError::Encrypted);
    }
    if get_u32(page, FIL_PAGE_CHECKSUM) != Some(NO_CHECKSUM_MAGIC) {
        return Err(damaged("it does not carry the mark 0xdeadbeef in place of a checksum"));
    }
    let algorithm = get_u64(page, FIL_PAGE_FILE_FLUSH_LSN).ok_or(damaged("it is too short"))?;
    let len_bytes = usize::from(get_u16(page, FIL_PAGE_DATA).ok_or(damaged("it is too short"))?);
    let payload = page
        .get(OLDER_HEADER_BYTES..)
        .and_then(|tail| tail.get(..len_bytes))
        .filter(|payload| !payload.is_empty())
        .ok_or(damaged("its length lies outside the page"))?;
    Ok((algorithm, payload))
}

/// Inflate a zlib stream that may be followed by padding.
fn inflate(payload: &[u8], expected_bytes: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; expected_bytes];
    let mut zlib = Decompress::new(true);
    let status = zlib.decompress(payload, &mut out, FlushDecompress::Finish).ok()?;
    (status == Status::StreamEnd && zlib.total_out() == expected_bytes as u64).then_some(out)
}

/// The page-compressed image that the server would write of a page of this tablespace, without the zeros that follow
/// it up to the end of the page. `None`: the page is stored as it is, because the tablespace is not page-compressed or
/// its algorithm is not known here, because it is page 0 or all zero, or because compression makes it no shorter.
///
/// The page must be as [`crate::finalize`] leaves it. A tablespace whose pages name their algorithm themselves gets
/// zlib, which every server can read.
pub fn compress(page: &[u8], flags: SpaceFlags) -> Option<Vec<u8>> {
    let is_page_0 = get_u32(page, FIL_PAGE_OFFSET)? == 0;
    if page.len() != flags.logical_page_size_bytes() || is_page_0 || is_page_compressed_image(page, flags) {
        return None;
    }
    match flags.page_compression() {
        PageCompression::Algorithm(algorithm) => full_crc32_image(page, algorithm),
        PageCompression::PerPage => older_image(page),
        PageCompression::None => None,
    }
}

fn full_crc32_image(page: &[u8], algorithm: u8) -> Option<Vec<u8>> {
    let payload = match algorithm {
        ALGORITHM_ZLIB => deflate(page)?,
        ALGORITHM_LZ4 => lz4_flex::block::compress(page),
        _ => return None,
    };
    let used = FIL_PAGE_FILE_FLUSH_LSN + payload.len();
    let has_exact_length = needs_exact_length(algorithm);
    let stored = (used + usize::from(has_exact_length) + 4).next_multiple_of(LENGTH_UNIT_BYTES);
    if stored >= page.len() {
        return None;
    }
    let kind = TYPE_FULL_CRC32_COMPRESSED | u16::try_from(stored / LENGTH_UNIT_BYTES).ok()?;
    let mut image = page.get(..FIL_PAGE_FILE_FLUSH_LSN)?.to_vec();
    put(&mut image, FIL_PAGE_TYPE, &kind.to_be_bytes());
    image.extend_from_slice(&payload);
    image.resize(stored, 0);
    if has_exact_length {
        let [low, ..] = (used + 5).to_le_bytes();
        put(&mut image, stored - 5, &[low]);
    }
    let sum = crc32c::crc32c(image.get(..stored - 4)?);
    put(&mut image, stored - 4, &sum.to_be_bytes());
    Some(image)
}

fn older_image(page: &[u8]) -> Option<Vec<u8>> {
    let payload = deflate(page)?;
    if OLDER_HEADER_BYTES + payload.len() >= page.len() {
        return None;
    }
    let mut image = page.get(..FIL_PAGE_DATA)?.to_vec();
    put(&mut image, FIL_PAGE_CHECKSUM, &NO_CHECKSUM_MAGIC.to_be_bytes());
    put(&mut image, FIL_PAGE_TYPE, &TYPE_PAGE_COMPRESSED.to_be_bytes());
    put(&mut image, FIL_PAGE_FILE_FLUSH_LSN, &u64::from(ALGORITHM_ZLIB).to_be_bytes());
    image.extend_from_slice(&u16::try_from(payload.len()).ok()?.to_be_bytes());
    image.extend_from_slice(&payload);
    Some(image)
}

/// A zlib stream that is shorter than the page; `None`: it would not be.
fn deflate(page: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(page.len());
    let mut zlib = Compress::new(Compression::new(ZLIB_LEVEL), true);
    let status = zlib.compress_vec(page, &mut out, FlushCompress::Finish).ok()?;
    (status == Status::StreamEnd).then_some(out)
}

#[cfg(test)]
mod tests;
