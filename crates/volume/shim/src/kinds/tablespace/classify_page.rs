//! Properties of a page image, as the image itself shows them. Pure.

use super::{Info, page_id};
use redoubt_page::encryption::{hides_space_id, key_version};
use redoubt_page::format::page_lsn;
use redoubt_page::layout::{
    FIL_PAGE_OFFSET, FIL_PAGE_SPACE_ID, TYPE_FULL_CRC32_COMPRESSED, TYPE_PAGE_COMPRESSED,
    TYPE_PAGE_COMPRESSED_ENCRYPTED, get_u32, page_type,
};
use redoubt_page::{Format, mysql};
use redoubt_redo::{Family, Lsn, PageId, SpaceId};

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
pub fn facts(family: Family, page: &[u8], info: Info, page_no: u32) -> Option<PageFacts> {
    match family {
        Family::MariaDb => facts_of_mariadb(page, info, page_no),
        Family::MySql => Some(PageFacts {
            // Page-compressed and encrypted images keep their header.
            id: identity(page, info, page_no, false),
            lsn: page_lsn(family, page)?,
            is_zero: page.iter().all(|byte| *byte == 0),
            is_encrypted: mysql::is_encrypted_image(page),
        }),
    }
}

fn facts_of_mariadb(page: &[u8], info: Info, page_no: u32) -> Option<PageFacts> {
    let flags = info.format.and_then(Format::as_mariadb);
    let is_full_crc32 = flags.is_some_and(|flags| flags.is_full_crc32());
    let kind = page_type(page)?;
    let is_compressed = if is_full_crc32 {
        kind & TYPE_FULL_CRC32_COMPRESSED != 0
    } else {
        matches!(kind, TYPE_PAGE_COMPRESSED | TYPE_PAGE_COMPRESSED_ENCRYPTED)
    };
    let is_encrypted = is_encrypted(page, info, page_no, kind);
    let hides_space = is_compressed || (is_encrypted && flags.is_some_and(hides_space_id));
    Some(PageFacts {
        id: identity(page, info, page_no, hides_space),
        lsn: page_lsn(Family::MariaDb, page)?,
        is_zero: page.iter().all(|byte| *byte == 0),
        is_encrypted,
    })
}

/// A page-compressed or encrypted image has no tablespace id that could be read; the file's is used.
fn identity(page: &[u8], info: Info, page_no: u32, hides_space: bool) -> Option<PageId> {
    let named = if hides_space { info.space_of_page0 } else { get_u32(page, FIL_PAGE_SPACE_ID).map(SpaceId) };
    let space = match (named, info.space) {
        (Some(named), Some(known)) if named != known => return None,
        (named, known) => known.or(named)?,
    };
    let id = page_id(space, info, page_no);
    (get_u32(page, FIL_PAGE_OFFSET)? == id.page_no.0).then_some(id)
}

fn is_encrypted(page: &[u8], info: Info, page_no: u32, kind: u16) -> bool {
    let Some(flags) = info.format.and_then(Format::as_mariadb) else {
        return kind == TYPE_PAGE_COMPRESSED_ENCRYPTED;
    };
    // No tablespace but the system's has a page that another rule holds for because of its id.
    let space = info.space.unwrap_or(SpaceId(u32::MAX));
    key_version(page, page_id(space, info, page_no), flags) != 0
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
        super::facts(Family::MariaDb, page, info, page_no).unwrap()
    }

    fn info(space: Option<u32>, flags: SpaceFlags) -> Info {
        Info { space: space.map(SpaceId), format: Some(Format::of_mariadb(flags)), ..Info::default() }
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
        for flags in [0x21, 0x29, 0x10021] {
            assert!(facts(&image, info(Some(7), SpaceFlags(flags)), 3).is_encrypted, "{flags:#x}");
        }
        let mut image = page(0, 3, 1000, 17855);
        put(&mut image, 26, &1u32.to_be_bytes());
        assert!(facts(&image, info(Some(0), SpaceFlags(0)), 3).is_encrypted);
        put(&mut image, 4, &5u32.to_be_bytes());
        assert!(!facts(&image, info(Some(0), SpaceFlags(0)), 5).is_encrypted, "TRX_SYS");
    }

    #[test]
    fn an_encrypted_page_that_hides_its_space_takes_that_of_the_file() {
        let mut image = page(0xdead_beef, 5, 77, 17855);
        put(&mut image, 0, &1u32.to_be_bytes());
        assert_eq!(facts(&image, info(Some(7), PLAIN), 5).id, Some(PageId::new(7, 5)));
        assert_eq!(facts(&image, info(None, PLAIN), 5).id, None);
        let new = Info { space_of_page0: Some(SpaceId(8)), ..info(None, PLAIN) };
        assert_eq!(facts(&image, new, 5).id, Some(PageId::new(8, 5)));
        let mut image = page(7, 5, 77, 17855);
        put(&mut image, 26, &1u32.to_be_bytes());
        assert_eq!(facts(&image, info(Some(7), SpaceFlags(0x29)), 5).id, Some(PageId::new(7, 5)));
    }

    #[test]
    fn bytes_without_room_for_a_header_are_no_page() {
        assert_eq!(super::facts(Family::MariaDb, &[0; 20], info(Some(7), PLAIN), 3), None);
    }
}
