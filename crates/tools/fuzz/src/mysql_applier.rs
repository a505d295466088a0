//! Any run of MySQL's records on any page: applied or refused, never a panic, an endless loop or a change of the page's
//! length. And any bytes as a page of MySQL: checked, unpacked, finished, compared.
//!
//! Input: format, flag (bit 7: the page's bytes come after the patches; else the page is zero, or an empty index page
//! of either row format), number of patches, patches of 3 bytes (offset, value), the page, records.

use redoubt_page::mysql::{
    Applied, Flags, RunOutcome, Scratch, apply_changes, apply_run, decompress, digest, finalize,
    first_difference, flags_of_page0, is_page_compressed_image, verify,
};
use redoubt_page::{Change, page_is_never_written};
use redoubt_redo::mysql::{Body, Record, RecordReader};
use redoubt_redo::{Lsn, PageId};

/// Page sizes 4, 16 and 64 KiB, and ROW_FORMAT=COMPRESSED with 1 KiB; then other flags of 4 KiB.
pub const FORMATS: [Flags; 6] =
    [Flags(0x40e1), Flags(0), Flags(0x41e1), Flags(0x40e3), Flags(0xc0), Flags(0x48e1)];

/// Any bytes as a page.
fn page_bytes(page: &[u8], flags: Flags) {
    let _ = (flags_of_page0(page), verify(page, flags), digest(page));
    assert_eq!(first_difference(page, page), None);
    if let Ok(Some(whole)) = decompress(page, flags) {
        assert_eq!(whole.len(), flags.logical_page_size_bytes());
    }
    let mut whole = page.to_vec();
    finalize(&mut whole, flags).expect("the size is right");
    assert_eq!((digest(&whole), first_difference(&whole, page)), (digest(page), None));
    let is_encrypted = (15..=17).contains(&u16::from_be_bytes([page[24], page[25]]));
    if !is_page_compressed_image(&whole) && (!is_encrypted || flags.is_row_format_compressed()) {
        verify(&whole, flags).expect("a finished page is valid");
    }
}

/// The page that records for `id` are applied to, and the records.
fn page_and_run(kind: u8, flags: Flags, id: Option<PageId>, bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let size = flags.physical_page_size_bytes();
    if kind & 0x80 != 0 {
        let (page, run) = bytes.split_at_checked(size)?;
        return Some((page.to_vec(), run));
    }
    let mut page = vec![0; size];
    if let (create @ (19 | 37), Some(PageId { space, page_no })) = ([0, 19, 37][usize::from(kind % 3)], id)
        && let (space @ 0..128, page_no @ 0..128) = (space.0 as u8, page_no.0 as u8)
    {
        let run = [59, space, page_no, create, space, page_no];
        let _ = apply_run(&mut page, id?, flags, &run, &mut Scratch::default());
    }
    Some((page, bytes))
}

/// The page that the first record names.
fn first_page(run: &[u8]) -> Option<PageId> {
    RecordReader::new(run).next()?.ok().map(|record| record.page).filter(|id| *id != Record::NO_PAGE)
}

fn has_init(run: &[u8]) -> bool {
    RecordReader::new(run).flatten().any(|record| matches!(record.body, Body::InitFilePage))
}

/// The target. Panics on a finding.
pub fn run(input: &[u8]) {
    let [format, kind, n_patches, rest @ ..] = input else { return };
    let flags = FORMATS[usize::from(*format) % FORMATS.len()];
    let Some((patches, rest)) = rest.split_at_checked(usize::from(*n_patches % 16) * 3) else { return };
    let Some((mut page, run)) = page_and_run(*kind, flags, first_page(rest), rest) else { return };
    for patch in patches.chunks_exact(3) {
        let offset = usize::from(u16::from_be_bytes([patch[0], patch[1]]));
        if let Some(byte) = page.get_mut(offset) {
            *byte = patch[2];
        }
    }
    page_bytes(&page, flags);
    let Some(id) = first_page(run) else { return };
    let (size, before) = (page.len(), page.clone());
    let mut other = page.clone();
    let mut scratch = Scratch::default();
    let result = apply_run(&mut page, id, flags, run, &mut scratch);
    assert_eq!(page.len(), size);
    let change = Change { start_lsn: Lsn(u64::MAX / 512 * 496 - 9), end_lsn: Lsn(u64::MAX / 512 * 496), run };
    let chained = apply_changes(&mut other, id, flags, true, [change], &mut scratch);
    match result {
        // A chain ignores records before an INIT_FILE_PAGE2, so they need not fit.
        Err(_) => {}
        Ok(RunOutcome { needs_image: Some(kind), .. }) => {
            if flags.is_row_format_compressed() {
                assert_eq!(page, before, "a page that is not applied to stays");
            }
            // A chain also decodes the records that follow, begins with the last INIT_FILE_PAGE2, and skips changes
            // that a page with a high LSN already contains.
            let is_applied = matches!(chained, Ok(Applied::UpToDate(outcome)) if outcome.applied == 1);
            assert!(!is_applied || has_init(run), "{kind} is not applied");
        }
        Ok(RunOutcome { .. }) => {
            let Ok(Applied::UpToDate(outcome)) = chained else {
                panic!("what applies as a run applies as a chain: {chained:?}")
            };
            if outcome.applied == 1 {
                assert_eq!(first_difference(&page, &other), None);
                assert_eq!(digest(&page), digest(&other));
            }
            page_bytes(&page, flags);
            assert!(page_is_never_written(&page) || finalize(&mut page, flags).is_ok());
        }
    }
}
