//! The identity file of a page store and the superblocks of its journal: opened, or refused with an error; never a
//! panic, never a page that was not written as a whole.
//!
//! Input: a byte of flags (1: keep wrong checksums; 2: `pages.identity` instead of the journal; 4: no identity file),
//! then the file's first bytes. The rest of the journal is that of a good one.

use std::sync::{Arc, OnceLock};

use redoubt_pagestore::{
    FilePageStore, FilePageStoreOptions, ObjectId, PageProtection, PageStore, PageWrite,
};
use redoubt_storage::StorageDir;
use redoubt_storage::sim::SimDisk;

const JOURNAL: &str = "pages.journal";
const IDENTITY: &str = "pages.identity";
const IDENTITY_COPY: &str = "pages.identity.copy";
const PAGE: usize = 4096;
const BLOCK: usize = 4096;
const CRC_AT: usize = 64;
const SUPERBLOCK_LEN: usize = 68;

fn options() -> FilePageStoreOptions {
    FilePageStoreOptions {
        protection: Some(PageProtection::Journal),
        journal_len_bytes: 128 << 10,
        max_open_files: 4,
        ..FilePageStoreOptions::default()
    }
}

/// How the journal of [`disk`] begins: the first superblock.
pub fn journal_start() -> Vec<u8> {
    let mut start = vec![0; SUPERBLOCK_LEN];
    disk().open(JOURNAL).unwrap().read_at(0, &mut start).unwrap();
    start
}

/// A store with two objects, as the present version leaves it.
fn disk() -> &'static SimDisk {
    static DISK: OnceLock<SimDisk> = OnceLock::new();
    DISK.get_or_init(|| {
        let disk = SimDisk::new(3);
        let store = FilePageStore::open_on(Arc::new(disk.clone()), None, options()).unwrap();
        for object in [1, 2] {
            store.create(ObjectId(object)).unwrap();
            let page = vec![0x11; PAGE];
            let writes = (0..4).map(|page_no| PageWrite { object: ObjectId(object), page_no, page: &page });
            store.write_batch(&writes.collect::<Vec<_>>()).unwrap();
        }
        drop(store);
        disk
    })
}

fn replace(disk: &SimDisk, name: &str, content: &[u8]) {
    let _ = disk.remove(name);
    let file = disk.create(name).unwrap();
    file.write_at(0, content).unwrap();
    file.sync_all().unwrap();
    disk.sync().unwrap();
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&flags, bytes)) = data.split_first() else { return };
    let disk = disk().copy();
    disk.set_capacity_bytes(Some(64 << 20));
    if flags & 2 != 0 {
        let mut content = bytes.get(..64.min(bytes.len())).unwrap_or_default().to_vec();
        if flags & 1 == 0 && content.len() >= 28 {
            let crc = crc32c::crc32c(&content[..24]);
            content[24..28].copy_from_slice(&crc.to_le_bytes());
        }
        replace(&disk, IDENTITY, &content);
        replace(&disk, IDENTITY_COPY, &content);
    } else {
        disk.damage(JOURNAL, 0, |content| {
            content.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            if flags & 1 == 0 {
                for block in content.chunks_exact_mut(BLOCK).take(2) {
                    let crc = crc32c::crc32c(&block[..CRC_AT]);
                    block[CRC_AT..SUPERBLOCK_LEN].copy_from_slice(&crc.to_le_bytes());
                }
            }
        });
        if flags & 4 != 0 {
            let _ = (disk.remove(IDENTITY), disk.remove(IDENTITY_COPY));
        }
    }
    let Ok(store) = FilePageStore::open_on(Arc::new(disk), None, options()) else { return };
    for object in [1, 2] {
        for page_no in 0..4 {
            let mut page = vec![0; PAGE];
            if store.read_page(ObjectId(object), page_no, &mut page).is_ok() {
                assert!(page.iter().all(|byte| *byte == page[0]), "a page that nobody wrote");
            }
        }
    }
}
