//! A page journal with arbitrary changes: the store opens it, or refuses it with an error; never a panic, never a page
//! that was not written as a whole.
//!
//! Input: patches, each an offset in 8-byte steps (2 bytes), a length (1 byte), and that many bytes. Afterwards the
//! checksums of headers and superblocks are made right, unless the first byte is odd, so that what they protect is
//! reached.

use std::sync::{Arc, OnceLock};

use redoubt_pagestore::{
    FilePageStore, FilePageStoreOptions, ObjectId, PageProtection, PageStore, PageWrite,
};
use redoubt_storage::sim::SimDisk;

const JOURNAL: &str = "pages.journal";
const PAGE: usize = 4096;
const BLOCK: usize = 4096;

fn options(protection: PageProtection) -> FilePageStoreOptions {
    FilePageStoreOptions {
        protection: Some(protection),
        journal_len_bytes: 128 << 10,
        max_open_files: 4,
        ..FilePageStoreOptions::default()
    }
}

fn image(version: u8) -> Vec<u8> {
    vec![version; PAGE]
}

/// A disk with a store whose journal has gone round more than once.
fn disk() -> &'static SimDisk {
    static DISK: OnceLock<SimDisk> = OnceLock::new();
    DISK.get_or_init(|| {
        let disk = SimDisk::new(1);
        let store =
            FilePageStore::open_on(Arc::new(disk.clone()), None, options(PageProtection::Journal)).unwrap();
        for object in [1, 2] {
            store.create(ObjectId(object)).unwrap();
        }
        for version in 1..12 {
            let page = image(version);
            let writes: Vec<_> = (0..5)
                .map(|page_no| PageWrite {
                    object: ObjectId(1 + u32::from(version) % 2),
                    page_no,
                    page: &page,
                })
                .collect();
            store.write_batch(&writes).unwrap();
        }
        store.seal().unwrap();
        drop(store);
        disk
    })
}

fn put(block: &mut [u8], at: usize, crc: u32) {
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn mend(content: &mut [u8]) {
    for block in content.chunks_exact_mut(BLOCK) {
        if block.starts_with(b"RDBTPGJ2") {
            put(block, 64, crc32c::crc32c(&block[..64]));
        } else if block.starts_with(b"RDBTPGG2") {
            put(block, 8, crc32c::crc32c(&block[12..]));
        }
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&first, mut patches)) = data.split_first() else { return };
    let disk = disk().copy();
    // The simulated disk is in memory, and a page number may be anything.
    disk.set_capacity_bytes(Some(64 << 20));
    disk.damage(JOURNAL, 0, |content| {
        while let [low, high, len, rest @ ..] = patches {
            let (bytes, after) = rest.split_at(rest.len().min(usize::from(*len)));
            let at = usize::from(u16::from_le_bytes([*low, *high])) * 8 % content.len();
            let end = content.len().min(at + bytes.len());
            content[at..end].copy_from_slice(&bytes[..end - at]);
            patches = after;
        }
        if first & 1 == 0 {
            mend(content);
        }
    });
    let protection = if first & 2 == 0 { PageProtection::Journal } else { PageProtection::Doublewrite };
    let Ok(store) = FilePageStore::open_on(Arc::new(disk), None, options(protection)) else { return };
    for object in [1, 2] {
        for page_no in 0..5 {
            let mut page = image(0);
            let _ = store.read_page(ObjectId(object), page_no, &mut page);
            let _ = store.retained_images(ObjectId(object), page_no, PAGE as u32);
        }
        let page = image(99);
        let _ = store.write_batch(&[PageWrite { object: ObjectId(object), page_no: 1, page: &page }]);
    }
}
