//! Checksums of each format: made, checked, and broken bit by bit.

use super::*;
use crate::layout;

const FORMATS: [SpaceFlags; 8] = [
    SpaceFlags(0x13),
    SpaceFlags(0x15),
    SpaceFlags(0x35),
    SpaceFlags(0x17),
    SpaceFlags(0),
    SpaceFlags(0x21),
    SpaceFlags(0x23),
    SpaceFlags(0x29),
];

fn random_page(random: &mut fastrand::Rng, flags: SpaceFlags) -> Vec<u8> {
    let mut page: Vec<u8> = (0..flags.physical_page_size_bytes()).map(|_| random.u8(..)).collect();
    put(&mut page, FIL_PAGE_TYPE, &layout::TYPE_INDEX.to_be_bytes());
    page
}

#[test]
fn finalized_pages_verify_and_any_flipped_logged_bit_is_noticed() {
    let mut random = fastrand::Rng::with_seed(1);
    for flags in FORMATS {
        let mut page = random_page(&mut random, flags);
        assert!(verify(&page, flags).is_err(), "{flags}");
        finalize(&mut page, flags).unwrap();
        verify(&page, flags).unwrap_or_else(|error| panic!("{flags}: {error}"));
        for _ in 0..500 {
            let range = if random.bool() { 38..page.len() } else { 4..16 };
            let at = random.usize(range);
            let bit = 1 << random.u8(0..8);
            page[at] ^= bit;
            assert!(verify(&page, flags).is_err(), "{flags}: flip at {at}");
            page[at] ^= bit;
        }
        verify(&page, flags).unwrap();
    }
}

#[test]
fn page_never_written_is_valid_and_stays_zero() {
    for flags in FORMATS {
        let mut page = vec![0; flags.physical_page_size_bytes()];
        verify(&page, flags).unwrap();
        finalize(&mut page, flags).unwrap();
        assert!(page_is_never_written(&page));
    }
}

#[test]
fn none_checksum_is_accepted_in_older_formats_only() {
    let magic = NO_CHECKSUM_MAGIC.to_be_bytes();
    for (flags, valid) in [(SpaceFlags(0), true), (SpaceFlags(0x29), true), (SpaceFlags(0x15), false)] {
        let mut page = random_page(&mut fastrand::Rng::with_seed(2), flags);
        finalize(&mut page, flags).unwrap();
        put(&mut page, 0, &magic);
        let trailer = page.len() - 8;
        if !flags.is_row_format_compressed() {
            put(&mut page, trailer, &magic);
        }
        assert_eq!(verify(&page, flags).is_ok(), valid, "{flags}");
    }
}

#[test]
fn wrong_size_and_wrong_flags_are_refused() {
    assert!(matches!(verify(&[0; 100], SpaceFlags(0x15)), Err(ChecksumError::Size { .. })));
    assert!(matches!(finalize(&mut [0; 100], SpaceFlags(0x12)), Err(ChecksumError::Flags(_))));
}

#[test]
fn impossible_compressed_length_is_refused() {
    let flags = SpaceFlags(0x35);
    for kind in [0x8000u16, 0x8040, 0xffff] {
        let mut page = random_page(&mut fastrand::Rng::with_seed(3), flags);
        put(&mut page, FIL_PAGE_TYPE, &kind.to_be_bytes());
        assert!(matches!(verify(&page, flags), Err(ChecksumError::CompressedSize { .. })), "{kind:#x}");
    }
}

#[test]
fn digest_and_differing_ranges_see_the_same_bytes() {
    let mut random = fastrand::Rng::with_seed(4);
    for flags in FORMATS {
        let page = random_page(&mut random, flags);
        let mut finalized = page.clone();
        finalize(&mut finalized, flags).unwrap();
        assert_eq!(digest(&page, flags), digest(&finalized, flags), "{flags}");
        assert!(differing_ranges(&page, &finalized, flags).is_empty());
        let mut other = finalized.clone();
        for at in [40, 41, 42, 100] {
            other[at] ^= 1;
        }
        assert_eq!(differing_ranges(&page, &other, flags), [40..43, 100..101]);
        for at in 0..page.len() {
            let mut other = page.clone();
            other[at] ^= 1;
            let differs = !differing_ranges(&page, &other, flags).is_empty();
            assert_eq!(differs, digest(&page, flags) != digest(&other, flags), "{flags} at {at}");
            if at >= 200 && page.len() - at > 40 {
                assert!(differs);
                if at > 300 {
                    break;
                }
            }
        }
        let cut = differing_ranges(&page, &page[..500], flags);
        assert!(matches!(cut.as_slice(), [range] if *range == (500..page.len())));
    }
}

/// Key version, or split sequence number of an R-tree page.
#[test]
fn bytes_26_to_34_are_what_the_server_writes() {
    let mut random = fastrand::Rng::with_seed(5);
    let field = FIL_PAGE_FILE_FLUSH_LSN..FIL_PAGE_SPACE_ID;
    let page_compressed = SpaceFlags(0x1_0021);
    assert!(page_compressed.page_compression() != PageCompression::None && !page_compressed.is_full_crc32());
    for flags in FORMATS.into_iter().chain([page_compressed]) {
        let mut page = random_page(&mut random, flags);
        for (space, page_no) in [(0, 0), (0, 5), (0, 7), (9, 0), (9, 5), (9, 7)] {
            put(&mut page, FIL_PAGE_OFFSET, &u32::to_be_bytes(page_no));
            put(&mut page, FIL_PAGE_SPACE_ID, &u32::to_be_bytes(space));
            let mut finalized = page.clone();
            finalize(&mut finalized, flags).unwrap();
            verify(&finalized, flags).unwrap();
            let is_cleared = !flags.is_full_crc32()
                && flags != page_compressed
                && page_no != 0
                && (space, page_no) != (0, 5);
            let expected = if is_cleared { [0; 8].to_vec() } else { page[field.clone()].to_vec() };
            assert_eq!(finalized[field.clone()], expected, "{flags}, page {space}:{page_no}");
            assert_eq!(digest(&page, flags), digest(&finalized, flags), "{flags}");
        }
    }
}

/// The numbers are another program's; `pages_with_the_checksums_of_old_servers_move_in` (testkit) has the server's word
/// for the algorithms.
#[test]
fn checksums_of_old_servers_are_accepted_in_older_formats_only() {
    let body = |flags: SpaceFlags| {
        (0..flags.physical_page_size_bytes()).map(|at| (at * 7 + 3) as u8).collect::<Vec<_>>()
    };
    let rows_compressed = SpaceFlags(0x29);
    let mut page = body(rows_compressed);
    put(&mut page, 0, &0x9231_e5c3_u32.to_be_bytes());
    verify(&page, rows_compressed).unwrap();
    page[3000] ^= 1;
    assert!(verify(&page, rows_compressed).is_err());

    for (flags, is_valid) in [(SpaceFlags(0), true), (SpaceFlags(0x15), false)] {
        let mut page = body(flags);
        put(&mut page, 0, &0x695b_ae2c_u32.to_be_bytes());
        let trailer = page.len() - 8;
        put(&mut page, trailer, &0x0b32_f99d_u32.to_be_bytes());
        page.copy_within(20..24, trailer + 4);
        assert_eq!(verify(&page, flags).is_ok(), is_valid, "{flags}");
        for at in [2, 10, 3000, trailer + 1] {
            let mut damaged = page.clone();
            damaged[at] ^= 1;
            assert!(verify(&damaged, flags).is_err(), "{flags}: flip at {at}");
        }
    }
}

/// As `fil_encrypt_buf_for_non_full_checksum` leaves them: checksums of before the encryption, and that of the
/// encrypted bytes after the key version.
#[test]
fn encrypted_pages_of_older_formats_are_whole_or_torn() {
    for flags in [SpaceFlags(0), SpaceFlags(0x21), SpaceFlags(0x29)] {
        let mut page = random_page(&mut fastrand::Rng::with_seed(3), flags);
        put(&mut page, FIL_PAGE_OFFSET, &8u32.to_be_bytes());
        put(&mut page, FIL_PAGE_FILE_FLUSH_LSN, &1u32.to_be_bytes());
        let computed = if flags.is_row_format_compressed() {
            row_format_compressed_sum(&page)
        } else {
            let lsn_low = u32_at(&page, FIL_PAGE_LSN + 4).to_be_bytes();
            let trailer = page.len() - 4;
            put(&mut page, trailer, &lsn_low);
            crc32_sum(&page)
        };
        assert!(verify(&page, flags).is_err(), "{flags}");
        put(&mut page, FIL_PAGE_FILE_FLUSH_LSN + 4, &computed.to_be_bytes());
        verify(&page, flags).unwrap_or_else(|error| panic!("{flags}: {error}"));
        let torn_at = page.len() / 4 * 3;
        let mut torn = page.clone();
        torn[torn_at..].iter_mut().for_each(|byte| *byte ^= 1);
        if !flags.is_row_format_compressed() {
            let end = page.len() - 8;
            torn[end..].copy_from_slice(&page[end..]);
        }
        assert!(verify(&torn, flags).is_err(), "{flags}");
    }
}
