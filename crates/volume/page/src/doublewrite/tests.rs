//! A hand-made area; the tests against a real server read a real TRX_SYS page.

use super::*;
use crate::layout::{put, set_page_lsn};
use crate::{finalize, layout};

const SYSTEM: SpaceFlags = SpaceFlags(0x15);

fn trx_sys_page() -> Vec<u8> {
    let mut page = vec![0; 16384];
    for repeat in [0, 12] {
        let header = 16384 - 200 + repeat;
        put(&mut page, header + 10, &MAGIC.to_be_bytes());
        put(&mut page, header + 14, &64u32.to_be_bytes());
        put(&mut page, header + 18, &128u32.to_be_bytes());
    }
    page
}

#[test]
fn locates_the_area() {
    let area = locate(&trx_sys_page(), SYSTEM).unwrap().unwrap();
    assert_eq!(area, DoublewriteArea { block_1_page_no: 64, block_2_page_no: 128, block_size_pages: 64 });
    assert!(!area.contains(63) && area.contains(64) && area.contains(191) && !area.contains(192));
    assert_eq!(locate(&[0; 16384], SYSTEM), Ok(None));
    let mut damaged = trx_sys_page();
    damaged[16384 - 200 + 17] ^= 1;
    assert_eq!(locate(&damaged, SYSTEM), Err(DoublewriteError::Damaged));
    assert!(matches!(locate(&[0; 100], SYSTEM), Err(DoublewriteError::Size { .. })));
}

fn copy(id: PageId, lsn: u64, flags: SpaceFlags, mark: u8) -> Vec<u8> {
    let mut page = vec![0; flags.physical_page_size_bytes()];
    put(&mut page, layout::FIL_PAGE_OFFSET, &id.page_no.0.to_be_bytes());
    put(&mut page, layout::FIL_PAGE_SPACE_ID, &id.space.0.to_be_bytes());
    set_page_lsn(&mut page, Lsn(lsn));
    page[200] = mark;
    finalize(&mut page, flags).unwrap();
    page.resize(16384, 0);
    page
}

#[test]
fn finds_the_newest_sound_copy() {
    let id = PageId::new(3, 4);
    let zip = SpaceFlags(0x29);
    let mut torn = copy(id, 400, SYSTEM, 4);
    torn[9000] ^= 1;
    let blocks = [
        copy(PageId::new(3, 5), 900, SYSTEM, 9),
        copy(id, 100, SYSTEM, 1),
        vec![0; 16384],
        copy(id, 300, SYSTEM, 3),
        copy(id, 200, SYSTEM, 2),
        torn,
        copy(PageId::new(8, 1), 50, zip, 8),
    ]
    .concat();
    assert_eq!(copies(&blocks, SYSTEM).count(), 6);
    let find = |id, flags, newest| find_copy(&blocks, SYSTEM, id, flags, Lsn(newest)).map(|page| page[200]);
    assert_eq!(find(id, SYSTEM, u64::MAX), Some(3));
    assert_eq!(find(id, SYSTEM, 250), Some(2));
    assert_eq!(find(PageId::new(3, 6), SYSTEM, u64::MAX), None);
    assert_eq!(find(PageId::new(8, 1), zip, u64::MAX), Some(8));
    let found = find_copy(&blocks, SYSTEM, PageId::new(8, 1), zip, Lsn(60)).unwrap();
    assert_eq!(found.len(), 8192);
}
