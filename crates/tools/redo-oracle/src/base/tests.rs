use super::*;
use redoubt_page::layout::put;

const PAGE_LEN_BYTES: usize = 16384;
/// Before `full_crc32`, pages of 16 KiB.
const FLAGS: SpaceFlags = SpaceFlags(0);
const UNDO: SpaceId = SpaceId(2);

/// Page 8 of [`UNDO`] as it is in the file: encrypted, with the checksum of what is there.
fn encrypted_page(lsn: u64, contents: u8) -> Vec<u8> {
    let mut page = vec![contents; PAGE_LEN_BYTES];
    let lsn_low = (lsn as u32).to_be_bytes();
    for (at, bytes) in [
        (4, &8u32.to_be_bytes()[..]),
        (16, &lsn.to_be_bytes()),
        (26, &1u32.to_be_bytes()),
        (34, &UNDO.0.to_be_bytes()),
        (PAGE_LEN_BYTES - 4, &lsn_low),
    ] {
        put(&mut page, at, bytes);
    }
    let sum = crc32c::crc32c(&page[4..26]) ^ crc32c::crc32c(&page[38..PAGE_LEN_BYTES - 8]);
    put(&mut page, 30, &sum.to_be_bytes());
    page
}

/// Seen on a loaded machine: of a page of 16 KiB the kill left 12 KiB written. Decrypted as it was, it had the new LSN,
/// so that the replay left it alone, and 26 bytes that were never in it.
#[test]
fn an_encrypted_page_that_the_kill_tore_comes_from_the_doublewrite_area() {
    let (old, new) = (encrypted_page(5_000, 7), encrypted_page(6_000, 9));
    let mut file = vec![0; 8 * PAGE_LEN_BYTES];
    file.extend_from_slice(&new[..12_288]);
    file.extend_from_slice(&old[12_288..]);
    let mend = |file: &mut [u8], copies: &[u8]| {
        let copies = Copies { bytes: copies.to_vec(), system_flags: FLAGS };
        mend_file(file, (UNDO, FLAGS), 0, (&copies, Lsn(7_000)));
    };
    let torn = file.clone();
    mend(&mut file, &encrypted_page(8_000, 1));
    assert!(file == torn, "that copy is newer than the redo");
    mend(&mut file, &new);
    assert!(file[8 * PAGE_LEN_BYTES..] == new);
    let mut whole = [vec![0; 8 * PAGE_LEN_BYTES], old.clone()].concat();
    mend(&mut whole, &new);
    assert!(whole[8 * PAGE_LEN_BYTES..] == old, "a whole page stays: redo brings it up to date");
}
