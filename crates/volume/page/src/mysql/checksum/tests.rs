use super::*;
use crate::layout::{FIL_PAGE_TYPE, get_u32};

fn page(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn a_finished_page_is_valid_and_a_changed_one_is_not() {
    for flags in [Flags(0), Flags(0x40e1), Flags(0x41e1), Flags(0x4027)] {
        let size = flags.physical_page_size_bytes();
        let mut page = page(size);
        put(&mut page, FIL_PAGE_TYPE, &17855u16.to_be_bytes());
        assert!(verify(&page, flags).is_err());
        finalize(&mut page, flags).unwrap();
        verify(&page, flags).unwrap();
        for at in [0, 5, 24, 40, size - 9, size - 1] {
            let mut wrong = page.clone();
            wrong[at] ^= 4;
            assert!(verify(&wrong, flags).is_err(), "{flags} {at}");
        }
        // The fields of page compression and R-trees there are in no checksum.
        let mut other = page.clone();
        other[27] ^= 1;
        verify(&other, flags).unwrap();
        assert!(matches!(finalize(&mut page[..512], flags), Err(ChecksumError::Size { .. })));
    }
}

#[test]
fn no_checksum_and_no_content_are_accepted() {
    let flags = Flags(0);
    let mut none = page(16384);
    put(&mut none, FIL_PAGE_TYPE, &17855u16.to_be_bytes());
    finalize(&mut none, flags).unwrap();
    for at in [0, 16376] {
        put(&mut none, at, &shared::NO_CHECKSUM_MAGIC.to_be_bytes());
    }
    verify(&none, flags).unwrap();
    let mut zero = vec![0; 16384];
    finalize(&mut zero, flags).unwrap();
    verify(&zero, flags).unwrap();
    assert_eq!(get_u32(&zero, 0), Some(0));
}

#[test]
fn encrypted_pages_are_told() {
    let mut page = page(16384);
    for kind in ENCRYPTED_TYPES {
        put(&mut page, FIL_PAGE_TYPE, &kind.to_be_bytes());
        assert_eq!(verify(&page, Flags(0)), Err(ChecksumError::Encrypted));
    }
    put(&mut page, FIL_PAGE_TYPE, &TYPE_PAGE_COMPRESSED.to_be_bytes());
    verify(&page, Flags(0)).unwrap();
    assert!(matches!(verify(&page, Flags(0x6021)), Err(ChecksumError::Flags(FlagsError::Encrypted { .. }))));
}
