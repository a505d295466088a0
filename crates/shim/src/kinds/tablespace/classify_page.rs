//! What a page image says about itself. Pure.

use super::{Info, page_id};
use redoubt_page::layout::{
    FIL_PAGE_CHECKSUM, FIL_PAGE_FILE_FLUSH_LSN, FIL_PAGE_OFFSET, FIL_PAGE_SPACE_ID,
    TYPE_FULL_CRC32_COMPRESSED, TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, TYPE_RTREE, get_u32,
    page_lsn, page_type,
};
use redoubt_redo::{Lsn, PageId, SpaceId};

/// Facts about a page that the server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFacts {
    /// Its identity; `None` if the image names another page than the one at its place.
    pub id: Option<PageId>,
    /// Its page LSN.
    pub lsn: Lsn,
    /// It is all zero.
    pub is_zero: bool,
    /// It carries an encryption key version.
    pub is_encrypted: bool,
}

/// Facts about the image `page` written as page `page_no` of a file; `None`: it is too short for a page header.
pub fn facts(page: &[u8], info: Info, page_no: u32) -> Option<PageFacts> {
    let is_full_crc32 = info.flags.is_some_and(|flags| flags.is_full_crc32());
    let kind = page_type(page)?;
    let is_compressed = if is_full_crc32 {
        kind & TYPE_FULL_CRC32_COMPRESSED != 0
    } else {
        matches!(kind, TYPE_PAGE_COMPRESSED | TYPE_PAGE_COMPRESSED_ENCRYPTED)
    };
    Some(PageFacts {
        id: identity(page, info, page_no, is_compressed),
        lsn: page_lsn(page)?,
        is_zero: page.iter().all(|byte| *byte == 0),
        is_encrypted: is_encrypted(page, info, kind, is_compressed),
    })
}

/// A page-compressed image has no tablespace id; the file's is used.
fn identity(page: &[u8], info: Info, page_no: u32, is_compressed: bool) -> Option<PageId> {
    let named = if is_compressed { None } else { get_u32(page, FIL_PAGE_SPACE_ID).map(SpaceId) };
    let space = match (named, info.space) {
        (Some(named), Some(known)) if named != known => return None,
        (named, known) => known.or(named)?,
    };
    let id = page_id(space, info, page_no);
    (get_u32(page, FIL_PAGE_OFFSET)? == id.page_no.0).then_some(id)
}

fn is_encrypted(page: &[u8], info: Info, kind: u16, is_compressed: bool) -> bool {
    let Some(flags) = info.flags else { return kind == TYPE_PAGE_COMPRESSED_ENCRYPTED };
    if flags.is_full_crc32() {
        return get_u32(page, FIL_PAGE_CHECKSUM).is_some_and(|key_version| key_version != 0);
    }
    if kind == TYPE_PAGE_COMPRESSED_ENCRYPTED {
        return true;
    }
    // Bytes 26..30 hold something else on these pages.
    let is_system = info.space == Some(SpaceId(0));
    let has_key_version =
        !is_compressed && !is_system && kind != TYPE_RTREE && !flags.is_row_format_compressed();
    has_key_version && get_u32(page, FIL_PAGE_FILE_FLUSH_LSN).is_some_and(|key_version| key_version != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_page::SpaceFlags;
    use redoubt_page::layout::put;

    const PLAIN: SpaceFlags = SpaceFlags(0x15);

    fn page(space: u32, page_no: u32, lsn: u64, kind: u16) -> Vec<u8> {
        let mut page = vec![0; 16384];
        put(&mut page, 4, &page_no.to_be_bytes());
        put(&mut page, 16, &lsn.to_be_bytes());
        put(&mut page, 24, &kind.to_be_bytes());
        put(&mut page, 34, &space.to_be_bytes());
        page
    }

    /// Of a whole page.
    fn facts(page: &[u8], info: Info, page_no: u32) -> PageFacts {
        super::facts(page, info, page_no).unwrap()
    }

    fn info(space: Option<u32>, flags: SpaceFlags) -> Info {
        Info { space: space.map(SpaceId), flags: Some(flags), ..Info::default() }
    }

    #[test]
    fn ordinary_page_has_its_identity() {
        let facts = facts(&page(7, 3, 1000, 17855), info(Some(7), PLAIN), 3);
        assert_eq!(facts.id, Some(PageId::new(7, 3)));
        assert_eq!(facts.lsn, Lsn(1000));
        assert!(!facts.is_zero && !facts.is_encrypted);
    }

    #[test]
    fn page_at_another_place_has_none() {
        assert_eq!(facts(&page(7, 3, 1000, 17855), info(Some(7), PLAIN), 4).id, None);
        assert_eq!(facts(&page(8, 3, 1000, 17855), info(Some(7), PLAIN), 3).id, None);
    }

    #[test]
    fn unknown_space_is_taken_from_the_page() {
        assert_eq!(facts(&page(9, 3, 1, 2), info(None, PLAIN), 3).id, Some(PageId::new(9, 3)));
    }

    #[test]
    fn second_system_file_counts_on() {
        let info = Info { first_page_no: 640, ..info(Some(0), PLAIN) };
        assert_eq!(facts(&page(0, 642, 1, 2), info, 2).id, Some(PageId::new(0, 642)));
    }

    #[test]
    fn page_compressed_image_takes_the_space_of_the_file() {
        let zlib = SpaceFlags(0x35);
        let image = page(0xdead_beef, 5, 77, 0x8004);
        assert_eq!(facts(&image, info(Some(7), zlib), 5).id, Some(PageId::new(7, 5)));
        assert_eq!(facts(&image, info(None, zlib), 5).id, None);
    }

    #[test]
    fn key_version_means_encrypted() {
        let mut image = page(7, 3, 1000, 17855);
        put(&mut image, 0, &1u32.to_be_bytes());
        assert!(facts(&image, info(Some(7), PLAIN), 3).is_encrypted);
        let mut image = page(7, 3, 1000, 17855);
        put(&mut image, 26, &1u32.to_be_bytes());
        assert!(facts(&image, info(Some(7), SpaceFlags(0x21)), 3).is_encrypted);
    }

    #[test]
    fn bytes_without_room_for_a_header_are_no_page() {
        assert_eq!(super::facts(&[0; 20], info(Some(7), PLAIN), 3), None);
    }
}
