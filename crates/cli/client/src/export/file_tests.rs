//! Files in a temporary directory. Against a stock server's own files: `testkit/tests/volume/page_compression.rs`.

use super::*;
use redoubt_page::layout::put;
use redoubt_page::{decompress, finalize};
use std::io::Read;

const PAGE_BYTES: usize = 16384;
const ZLIB: SpaceFlags = SpaceFlags(0x35);

fn page(page_no: u32, kind: u16, flags: SpaceFlags) -> Vec<u8> {
    let mut page = vec![7; PAGE_BYTES];
    put(&mut page, FIL_PAGE_OFFSET, &page_no.to_be_bytes());
    put(&mut page, FIL_PAGE_TYPE, &kind.to_be_bytes());
    put(&mut page, 54, &flags.0.to_be_bytes());
    finalize(&mut page, flags).unwrap();
    page
}

/// Content of a file after these pieces, its size on disk, and the note about it.
fn written(pieces: &[(u64, &[u8])], len_bytes: u64) -> (Vec<u8>, u64, Option<String>) {
    let mut file = ExportedFile::new(tempfile::tempfile().unwrap());
    for (offset, bytes) in pieces {
        file.write(*offset, bytes).unwrap();
    }
    let (file, note) = file.finish(len_bytes).unwrap();
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).unwrap();
    // Writing moved no position.
    assert_eq!(bytes.len() as u64, len_bytes);
    (bytes, file.metadata().unwrap().blocks() * BLOCK_BYTES, note)
}

/// Page 0, 63 pages that compress well, an empty one.
fn table(flags: SpaceFlags) -> Vec<u8> {
    let mut table = page(0, TYPE_FSP_HDR, flags);
    for page_no in 1..64 {
        table.extend(page(page_no, 17855, flags));
    }
    table.resize(65 * PAGE_BYTES, 0);
    table
}

#[test]
fn pages_of_a_page_compressed_table_are_compressed_and_come_back() {
    let table = table(ZLIB);
    let (first, rest) = table.split_at(16 * PAGE_BYTES);
    let (bytes, taken_bytes, note) = written(&[(0, first), (first.len() as u64, rest)], table.len() as u64);
    for (number, (page, image)) in table.chunks(PAGE_BYTES).zip(bytes.chunks(PAGE_BYTES)).enumerate() {
        match number {
            0 | 64 => assert!(page == image, "page {number} is stored as it is"),
            _ => assert_eq!(decompress(image, ZLIB).unwrap().as_deref(), Some(page), "page {number}"),
        }
    }
    // A block of 4096 bytes for each of 63 pages, page 0, and the metadata of the file system.
    assert!(taken_bytes <= 63 * 4096 + 16384 + 65536, "{taken_bytes}");
    assert_eq!(note, None);
}

#[test]
fn other_files_are_written_as_they_come() {
    let mut later_system_file = table(ZLIB);
    put(&mut later_system_file, FIL_PAGE_OFFSET, &768u32.to_be_bytes());
    let mut no_header = table(ZLIB);
    put(&mut no_header, FIL_PAGE_TYPE, &17855u16.to_be_bytes());
    for file in [table(SpaceFlags(0x15)), later_system_file, no_header, vec![5; 100], Vec::new()] {
        let (bytes, _, note) = written(&[(0, &file)], file.len() as u64);
        assert!(bytes == file);
        assert_eq!(note, None);
    }
}

#[test]
fn what_is_no_whole_page_is_written_as_it_comes() {
    let table = table(ZLIB);
    let (first, rest) = table.split_at(PAGE_BYTES + 100);
    let (bytes, ..) = written(&[(0, first), (first.len() as u64, rest)], table.len() as u64);
    assert!(bytes == table);
}

#[test]
fn room_that_was_not_saved_is_told() {
    assert!(!has_no_holes(300 << 10, 100 << 10, 900 << 10));
    assert!(has_no_holes(1000 << 10, 100 << 10, 900 << 10));
    // Nothing was to be saved.
    assert!(!has_no_holes(1 << 20, 1 << 20, 0));
}

#[test]
fn an_encrypted_table_says_that_its_pages_may_be_in_clear() {
    // Written by MariaDB 10.11 at 10428: mark, scheme 1, vector, key version 1, key 1, ENCRYPTED=YES.
    const VERSION: usize = 10428 + 24;
    let crypt = [&b"s\x0e\x0cREt\x01\x10"[..], &[9; 16], &[0, 0, 0, 1, 0, 0, 0, 1, 1]].concat();
    for (scheme, flags) in [(1, SpaceFlags(0x15)), (1, ZLIB), (0, SpaceFlags(0x15))] {
        let mut table = table(flags);
        put(&mut table, 10428, &crypt);
        put(&mut table, 10434, &[scheme]);
        finalize(&mut table[..PAGE_BYTES], flags).unwrap();
        let mut file = ExportedFile::new(tempfile::tempfile().unwrap());
        let (first, rest) = table.split_at(4 * PAGE_BYTES);
        file.write(0, first).unwrap();
        file.write(first.len() as u64, rest).unwrap();
        assert_eq!(file.is_encrypted(), scheme == 1);
        let (file, _) = file.finish(table.len() as u64).unwrap();
        let mut page0 = vec![0; PAGE_BYTES];
        file.read_exact_at(&mut page0, 0).unwrap();
        redoubt_page::verify(&page0, flags).unwrap();
        if scheme == 1 {
            assert_eq!(page0[VERSION..VERSION + 4], [0; 4]);
            put(&mut page0, VERSION, &1u32.to_be_bytes());
            finalize(&mut page0, flags).unwrap();
        }
        assert!(page0 == table[..PAGE_BYTES], "nothing else has changed");
    }
}
