//! Where things are on an InnoDB page: named offsets, and accessors for the file header.
//!
//! All integers on a page are big-endian. The accessors take any byte slice and answer `None` (or do nothing
//! and answer `false`) where the slice is too short, so that they are safe on input of unknown origin.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | checksum; key version in `full_crc32` files |
//! | 4 | 4 | page number |
//! | 8, 12 | 4, 4 | previous and next page of the same index level |
//! | 16 | 8 | LSN: end of the last mini-transaction that changed the page |
//! | 24 | 2 | page type |
//! | 26 | 8 | depends on the format |
//! | 34 | 4 | tablespace id |
//! | 38 | | payload, up to the trailer of 8 bytes |

use redoubt_redo::{Lsn, PageId};

/// Checksum (or encryption key version).
pub const FIL_PAGE_CHECKSUM: usize = 0;
/// Page number.
pub const FIL_PAGE_OFFSET: usize = 4;
/// Previous page of the level.
pub const FIL_PAGE_PREV: usize = 8;
/// Page LSN.
pub const FIL_PAGE_LSN: usize = 16;
/// Page type.
pub const FIL_PAGE_TYPE: usize = 24;
/// 8 bytes whose meaning depends on the format.
pub const FIL_PAGE_FILE_FLUSH_LSN: usize = 26;
/// Tablespace id.
pub const FIL_PAGE_SPACE_ID: usize = 34;
/// First byte after the file header.
pub const FIL_PAGE_DATA: usize = 38;
/// Length of the trailer of uncompressed pages, in bytes.
pub const FIL_PAGE_TRAILER_BYTES: usize = 8;

/// Page 0: number of pages of the tablespace.
pub const FSP_SIZE: usize = 46;
/// Page 0: tablespace flags.
pub const FSP_SPACE_FLAGS: usize = 54;

/// Page type: B-tree node.
pub const TYPE_INDEX: u16 = 17855;
/// Page type: R-tree node.
pub const TYPE_RTREE: u16 = 17854;
/// Page type: root of an index with instantly added or dropped columns.
pub const TYPE_INSTANT: u16 = 18;
/// Page type: undo log.
pub const TYPE_UNDO_LOG: u16 = 2;
/// Page type: page 0 of a tablespace.
pub const TYPE_FSP_HDR: u16 = 8;
/// Page type: page-compressed image in files older than `full_crc32`.
pub const TYPE_PAGE_COMPRESSED: u16 = 34354;
/// Page type: page-compressed and encrypted image in files older than `full_crc32`.
pub const TYPE_PAGE_COMPRESSED_ENCRYPTED: u16 = 37401;
/// Bit in the page type that marks a page-compressed image in `full_crc32` files.
pub const TYPE_FULL_CRC32_COMPRESSED: u16 = 0x8000;

/// Index page header: number of directory slots.
pub const PAGE_N_DIR_SLOTS: usize = 38;
/// Index page header: end of the used heap.
pub const PAGE_HEAP_TOP: usize = 40;
/// Index page header: records in the heap; bit 15 is set unless ROW_FORMAT=REDUNDANT.
pub const PAGE_N_HEAP: usize = 42;
/// Index page header: first record of the free list.
pub const PAGE_FREE: usize = 44;
/// Index page header: bytes in deleted records.
pub const PAGE_GARBAGE: usize = 46;
/// Index page header: last inserted record.
pub const PAGE_LAST_INSERT: usize = 48;
/// Index page header: low three bits, direction of the last inserts.
pub const PAGE_DIRECTION_B: usize = 51;
/// Index page header: number of consecutive inserts in that direction.
pub const PAGE_N_DIRECTION: usize = 52;
/// Index page header: number of user records.
pub const PAGE_N_RECS: usize = 54;
/// Index page header: level in the tree, 0 for a leaf.
pub const PAGE_LEVEL: usize = 64;
/// First byte of the infimum and supremum records.
pub const PAGE_DATA: usize = 94;
/// Bytes at the end of a page after the page directory.
pub const PAGE_DIR: usize = 8;
/// Bytes per directory slot.
pub const PAGE_DIR_SLOT_BYTES: usize = 2;

/// Undo page header: type of the undo log.
pub const TRX_UNDO_PAGE_TYPE: usize = 38;
/// Undo page header: start of the undo records of the newest log.
pub const TRX_UNDO_PAGE_START: usize = 40;
/// Undo page header: first free byte.
pub const TRX_UNDO_PAGE_FREE: usize = 42;
/// Undo page header: list node.
pub const TRX_UNDO_PAGE_NODE: usize = 44;
/// First byte after the undo page header; the segment header follows.
pub const TRX_UNDO_SEG_HDR: usize = 56;
/// First byte after the undo segment header.
pub const TRX_UNDO_SEG_HDR_END: usize = 86;

/// Two bytes at `offset`, or `None` past the end.
#[inline]
pub fn get_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u16::from_be_bytes(*chunk))
}

/// Four bytes at `offset`, or `None` past the end.
#[inline]
pub fn get_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u32::from_be_bytes(*chunk))
}

/// Eight bytes at `offset`, or `None` past the end.
#[inline]
pub fn get_u64(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u64::from_be_bytes(*chunk))
}

/// Copy `source` to `offset`; `false`, and no change, if it does not fit.
#[inline]
pub fn put(bytes: &mut [u8], offset: usize, source: &[u8]) -> bool {
    match bytes.get_mut(offset..).and_then(|tail| tail.get_mut(..source.len())) {
        Some(target) => {
            target.copy_from_slice(source);
            true
        }
        None => false,
    }
}

/// Leaves nothing of a freed page but its identity and that it is as new as `lsn`, so that no older redo is applied to
/// it. A page that was never written stays so.
pub fn scrub(page: &mut [u8], lsn: Lsn) {
    let (page_no, space) = (get_u32(page, FIL_PAGE_OFFSET), get_u32(page, FIL_PAGE_SPACE_ID));
    if page.iter().all(|byte| *byte == 0) {
        return;
    }
    page.fill(0);
    put(page, FIL_PAGE_OFFSET, &page_no.unwrap_or_default().to_be_bytes());
    put(page, FIL_PAGE_SPACE_ID, &space.unwrap_or_default().to_be_bytes());
    set_page_lsn(page, lsn);
}

/// Identity written on the page; `None` if the slice holds no file header.
pub fn page_id(page: &[u8]) -> Option<PageId> {
    Some(PageId::new(get_u32(page, FIL_PAGE_SPACE_ID)?, get_u32(page, FIL_PAGE_OFFSET)?))
}

/// Writes the identity of a page.
pub fn set_page_id(page: &mut [u8], page_id: PageId) {
    put(page, FIL_PAGE_OFFSET, &page_id.page_no.0.to_be_bytes());
    put(page, FIL_PAGE_SPACE_ID, &page_id.space.0.to_be_bytes());
}

/// Page LSN; `None` if the slice holds no file header.
pub fn page_lsn(page: &[u8]) -> Option<Lsn> {
    get_u64(page, FIL_PAGE_LSN).map(Lsn)
}

/// Page type; `None` if the slice holds no file header.
pub fn page_type(page: &[u8]) -> Option<u16> {
    get_u16(page, FIL_PAGE_TYPE)
}

/// Write the page LSN; `false` if the slice holds no file header.
pub fn set_page_lsn(page: &mut [u8], lsn: Lsn) -> bool {
    put(page, FIL_PAGE_LSN, &lsn.0.to_be_bytes())
}

/// Size of the tablespace in pages, from its page 0.
pub fn space_size_pages(page0: &[u8]) -> Option<u32> {
    get_u32(page0, FSP_SIZE)
}
