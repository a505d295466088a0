//! Checksums of servers before `crc32`: what `innodb_checksum_algorithm=innodb`, the default before MariaDB 10.2 and
//! MySQL 5.7, gave the pages of a table. A page without a later change keeps it, and servers of today read it
//! (unless the strict variants are set), but never write it.
//!
//! | page | checksum | where |
//! |---|---|---|
//! | as redo addresses it | fold of 4..26 plus fold of 38..size-8; fold of 0..26, the former in place | 0; size-8 |
//! | ROW_FORMAT=COMPRESSED | Adler-32 of 4..16, then 24..26, then 34..size, from a start of 0 | 0 |
//!
//! Sources: `ut_fold_binary`, `buf_calc_page_new_checksum`, `buf_calc_page_old_checksum` and `page_zip_calc_checksum`
//! of MySQL 5.5; `pages_with_the_checksums_of_old_servers_move_in` (testkit) compares them with a server.

use std::ops::Range;

use crate::layout::{
    FIL_PAGE_DATA, FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_LSN, FIL_PAGE_OFFSET, FIL_PAGE_SPACE_ID,
    FIL_PAGE_TRAILER_BYTES, FIL_PAGE_TYPE, get_u32,
};

const FOLD_MASK_BEFORE_SHIFT: u32 = 1_653_893_711;
const FOLD_MASK_AFTER_SHIFT: u32 = 1_463_735_687;
/// The largest prime below 2^16.
const ADLER_MODULUS: u32 = 65_521;

fn bytes_of(page: &[u8], range: Range<usize>) -> &[u8] {
    page.get(range).unwrap_or_default()
}

fn fold(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |fold: u32, &byte| {
        let byte = u32::from(byte);
        let shifted = ((fold ^ byte ^ FOLD_MASK_BEFORE_SHIFT) << 8).wrapping_add(fold);
        (shifted ^ FOLD_MASK_AFTER_SHIFT).wrapping_add(byte)
    })
}

/// Whether a page that is not ROW_FORMAT=COMPRESSED, of a file that is not `full_crc32`, has both old checksums.
pub(super) fn is_valid(page: &[u8]) -> bool {
    let trailer = page.len().saturating_sub(FIL_PAGE_TRAILER_BYTES);
    let sum = fold(bytes_of(page, FIL_PAGE_OFFSET..FIL_PAGE_FILE_FLUSH_LSN))
        .wrapping_add(fold(bytes_of(page, FIL_PAGE_DATA..trailer)));
    get_u32(page, 0) == Some(sum)
        && get_u32(page, trailer) == Some(fold(bytes_of(page, 0..FIL_PAGE_FILE_FLUSH_LSN)))
}

/// The same of a page that is ROW_FORMAT=COMPRESSED.
pub(super) fn is_row_format_compressed_valid(page: &[u8]) -> bool {
    let parts =
        [FIL_PAGE_OFFSET..FIL_PAGE_LSN, FIL_PAGE_TYPE..FIL_PAGE_TYPE + 2, FIL_PAGE_SPACE_ID..page.len()];
    let (mut low, mut high) = (0, 0);
    for &byte in parts.into_iter().flat_map(|part| bytes_of(page, part)) {
        low = (low + u32::from(byte)) % ADLER_MODULUS;
        high = (high + low) % ADLER_MODULUS;
    }
    get_u32(page, 0) == Some(high << 16 | low)
}
