//! The small files of a page store, and the journal of its first version: opened, or refused with an error; never a
//! panic, never a page that was not written as a whole.
//!
//! Input: a byte of flags (1: do not mend checksums; 2: `pages.identity` instead of the journal; 4: no identity file,
//! as the first version had none), then the file's first bytes. The rest of the journal is that of a good one.

use std::sync::{Arc, OnceLock};

use redoubt_pagestore::{
    FilePageStore, FilePageStoreOptions, ObjectId, PageProtection, PageStore, PageWrite,
};
use redoubt_storage::StorageDir;
use redoubt_storage::sim::SimDisk;

const JOURNAL: &str = "pages.journal";
const IDENTITY: &str = "pages.identity";
const PAGE: usize = 4096;

fn options() -> FilePageStoreOptions {
    FilePageStoreOptions {
        protection: Some(PageProtection::Journal),
        journal_len_bytes: 128 << 10,
        max_open_files: 4,
    }
}

/// A journal as the first version wrote it: one batch of two pages.
pub fn legacy_journal() -> Vec<u8> {
    let images = [vec![0xa1; PAGE], vec![0xa2; PAGE]];
    let mut out = b"RDBTPGJ1".to_vec();
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&2u32.to_le_bytes());
    out.extend_from_slice(&7u64.to_le_bytes());
    out.extend_from_slice(&(2 * PAGE as u64).to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    for (page_no, image) in images.iter().enumerate() {
        for field in [1, page_no as u32, PAGE as u32, crc32c::crc32c(image)] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }
    mend_legacy(&mut out, 2);
    out.resize(PAGE, 0);
    out.extend(images.concat());
    out
}

fn mend_legacy(bytes: &mut [u8], count: usize) {
    let end = (40 + count.saturating_mul(16)).min(bytes.len());
    if bytes.len() < 40 {
        return;
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..32]), &bytes[40..end]);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
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
    } else {
        let mut content = legacy_journal();
        content.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        if flags & 1 == 0 {
            let count = u32::from_le_bytes(content[12..16].try_into().unwrap());
            mend_legacy(&mut content, count as usize);
        }
        if flags & 4 != 0 {
            let _ = disk.remove(IDENTITY);
        }
        replace(&disk, JOURNAL, &content);
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
