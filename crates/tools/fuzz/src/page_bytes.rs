//! Any bytes as a page of any format: checked, unpacked, finished, compared; never a panic.
//!
//! Checked besides: a finished page is valid, its packed form is valid and unpacks to it. The format that page 0 names
//! has a page size. An unpacked page has the page length. A page found among doublewrite copies is the requested one. A
//! page has no difference from itself.
//!
//! Input: number of the format, a flag (1: cut or filled to the length of a page), then the bytes.

use redoubt_page::doublewrite::{copies, find_copy, locate};
use redoubt_page::layout::{page_id, page_lsn, page_type, space_size_pages};
use redoubt_page::{
    SpaceFlags, compress, decompress, differing_ranges, digest, finalize, flags_of_page0,
    is_page_compressed_image, verify,
};
use redoubt_redo::Lsn;

/// Tablespace flags: all page sizes in both families of formats, page compression of each algorithm, and
/// ROW_FORMAT=COMPRESSED.
pub const FORMATS: [u32; 20] = [
    0x13, 0x14, 0x15, 0x16, 0x17, 0x35, 0x53, 0x55, 0x75, 0x95, 0xb5, 0xd5, 0, 0x21, 0x1_0021, 0x23, 0x25,
    0x27, 0x29, 0xe1,
];

fn page(flags: SpaceFlags, bytes: &[u8]) {
    let _ = verify(bytes, flags);
    let _ = (page_id(bytes), page_lsn(bytes), page_type(bytes), space_size_pages(bytes));
    let _ = digest(bytes, flags);
    assert_eq!(differing_ranges(bytes, bytes, flags), []);
    let mut whole = bytes.to_vec();
    if finalize(&mut whole, flags).is_ok() {
        // A page that says of itself that it is page-compressed has another checksum, which is not ours to write.
        if !is_page_compressed_image(&whole, flags) && (!flags.is_full_crc32() || whole[24] & 0x80 == 0) {
            verify(&whole, flags).expect("a finished page is valid");
        }
        assert_eq!(
            digest(&whole, flags),
            digest(bytes, flags),
            "what changes is not part of a page's content"
        );
    }
    if let Some(mut image) = compress(&whole, flags) {
        assert!(image.len() < whole.len());
        image.resize(whole.len(), 0);
        verify(&image, flags).expect("a packed page is valid");
        assert_eq!(decompress(&image, flags), Ok(Some(whole)), "packing loses nothing");
    }
    if let Ok(Some(mut unpacked)) = decompress(bytes, flags) {
        assert_eq!(unpacked.len(), flags.logical_page_size_bytes());
        let _ = finalize(&mut unpacked, flags);
    }
}

fn doublewrite(flags: SpaceFlags, bytes: &[u8]) {
    let _ = locate(bytes, flags);
    let mut trx_sys = bytes.to_vec();
    trx_sys.resize(flags.logical_page_size_bytes(), 0);
    if let Ok(Some(area)) = locate(&trx_sys, flags) {
        assert!(area.block_size_pages > 0);
        let _ = (area.contains(bytes.first().map_or(0, |byte| u32::from(*byte))), area.contains(u32::MAX));
    }
    for copy in copies(bytes, flags) {
        let Some(id) = page_id(copy) else { continue };
        if let Some(found) = find_copy(bytes, flags, id, flags, Lsn(u64::MAX)) {
            assert_eq!(page_id(found), Some(id));
            verify(found, flags).expect("only whole pages are found");
        }
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let [format, flag, bytes @ ..] = data else { return };
    let flags = SpaceFlags(FORMATS[usize::from(*format) % FORMATS.len()]);
    if let Ok(flags) = flags_of_page0(bytes) {
        assert!(flags.physical_page_size_bytes() >= 1024 && flags.logical_page_size_bytes() >= 4096);
        page(flags, bytes);
    }
    let mut bytes = bytes.to_vec();
    if flag & 1 != 0 {
        // As long as a page is, so that the input need not be.
        bytes.resize(flags.physical_page_size_bytes(), 0);
    }
    page(flags, &bytes);
    doublewrite(flags, &bytes);
}
