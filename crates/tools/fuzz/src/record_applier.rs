//! Any run of records on any page: applied or refused, never a panic, an endless loop or a change of the
//! page's length.
//!
//! Input: format, kind of page, number of patches, patches of 3 bytes (offset, value), the page's bytes if the kind has
//! bit 7 (a real server's page, for the corpus), records.

use redoubt_page::{ApplyError, Change, SpaceFlags, apply_changes, apply_run, digest, finalize, verify};
use redoubt_redo::mariadb::PageRun;
use redoubt_redo::{Lsn, PageId};

/// Page sizes 4, 16 and 64 KiB, ROW_FORMAT=COMPRESSED 1 KiB, older format; then the other sizes.
pub const FORMATS: [SpaceFlags; 8] = [
    SpaceFlags(0x13),
    SpaceFlags(0x15),
    SpaceFlags(0x17),
    SpaceFlags(0x23),
    SpaceFlags(0),
    SpaceFlags(0x14),
    SpaceFlags(0x16),
    SpaceFlags(0x25),
];

/// A run that makes an empty page: INIT_PAGE, then an EXTENDED record with this subtype.
fn make_page(id: PageId, flags: SpaceFlags, subtype: u8) -> Vec<u8> {
    let mut page = vec![0; flags.physical_page_size_bytes()];
    if let (space @ 0..128, page_no @ 3..128) = (id.space.0, id.page_no.0) {
        let run = [0x12, space as u8, page_no as u8, 0xa1, subtype];
        let _ = apply_run(&mut page, id, flags, &run);
    }
    page
}

/// The page, if one is given, and the rest of the input.
fn rest_of_page(kind: u8, flags: SpaceFlags, bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    if kind & 0x80 == 0 {
        return Some((None, bytes));
    }
    let (page, run) = bytes.split_at_checked(flags.physical_page_size_bytes())?;
    Some((Some(page), run))
}

/// The target. Panics on a finding.
pub fn run(input: &[u8]) {
    let [format, subtype, n_patches, rest @ ..] = input else { return };
    let flags = FORMATS[usize::from(*format) % FORMATS.len()];
    let Some((patches, run)) = rest.split_at_checked(usize::from(*n_patches % 16) * 3) else { return };
    let (given, run) = match rest_of_page(*subtype, flags, run) {
        Some(split) => split,
        None => return,
    };
    let Ok(records) = PageRun::new(run) else { return };
    let id = records.page();
    let mut page = given.map_or_else(|| make_page(id, flags, subtype % 3), <[u8]>::to_vec);
    for patch in patches.chunks_exact(3) {
        let offset = usize::from(u16::from_be_bytes([patch[0], patch[1]]));
        if let Some(byte) = page.get_mut(offset) {
            *byte = patch[2];
        }
    }
    let size = page.len();
    let mut other = page.clone();
    let result = apply_run(&mut page, id, flags, run);
    assert_eq!(page.len(), size);
    let change = Change { start_lsn: Lsn(u64::MAX - 9), end_lsn: Lsn(u64::MAX), run };
    let chained = apply_changes(&mut other, id, flags, true, [change]);
    // The chain decides which records may follow FREE_PAGE.
    let is_refused_by_the_chain = matches!(chained, Err(ApplyError::ChangeOfFreePage { .. }));
    if result.is_ok() && !is_refused_by_the_chain {
        let outcome = chained.expect("what applies as a run applies as a chain");
        if outcome.applied == 1 {
            other[16..24].copy_from_slice(&page[16..24]);
            assert_eq!(digest(&page, flags), digest(&other, flags));
        }
        finalize(&mut page, flags).expect("the size is right");
        if page[24] & 0x80 == 0 || !flags.is_full_crc32() {
            verify(&page, flags).expect("a finalized page is valid");
        }
    }
}
