//! Flags of tablespaces, learnt from pages that the node builds.

use super::*;
use crate::home::Folder;
use crate::options::NodeOptions;
use redoubt_pagestore::{PageStore, PageStoreError, PageStoreInfo, PageStoreStats, PageWrite, RetainedImage};
use redoubt_redo::SpaceId;
use redoubt_wire::stream::{FileKind, SystemFile};

/// A store whose pages cannot be read without a panic.
struct Panicking;

impl PageStore for Panicking {
    fn create(&self, _: ObjectId) -> Result<(), PageStoreError> {
        unreachable!()
    }

    fn remove_all(&self, _: &[ObjectId]) -> Result<(), PageStoreError> {
        unreachable!()
    }

    fn objects(&self) -> Result<Vec<ObjectId>, PageStoreError> {
        unreachable!()
    }

    fn read_page(&self, _: ObjectId, _: u32, _: &mut [u8]) -> Result<bool, PageStoreError> {
        panic!("a defect")
    }

    fn read_raw(&self, _: ObjectId, _: u64, _: &mut [u8]) -> Result<usize, PageStoreError> {
        unreachable!()
    }

    fn write_batch(&self, _: &[PageWrite<'_>]) -> Result<(), PageStoreError> {
        unreachable!()
    }

    fn seal(&self) -> Result<(), PageStoreError> {
        unreachable!()
    }

    fn write_raw(&self, _: ObjectId, _: u64, _: &[u8]) -> Result<(), PageStoreError> {
        unreachable!()
    }

    fn sync_object(&self, _: ObjectId) -> Result<(), PageStoreError> {
        unreachable!()
    }

    fn set_len(&self, _: ObjectId, _: u64) -> Result<(), PageStoreError> {
        unreachable!()
    }

    fn len_bytes(&self, _: ObjectId) -> Result<u64, PageStoreError> {
        unreachable!()
    }

    fn retained_images(&self, _: ObjectId, _: u32, _: u32) -> Result<Vec<RetainedImage>, PageStoreError> {
        unreachable!()
    }

    fn info(&self) -> PageStoreInfo {
        unreachable!()
    }

    fn stats(&self) -> PageStoreStats {
        unreachable!()
    }
}

#[test]
fn panic_over_page_0_concerns_its_tablespace_only() {
    let directory = tempfile::tempdir().unwrap();
    let own = || Folder::open(directory.path()).unwrap();
    let options = NodeOptions::new(directory.path().to_owned(), "127.0.0.1:0".to_owned());
    let context = Arc::new(Context::new("v", own(), &options));
    let mut names = Namespace::default();
    let object = names.object_of_space(SpaceId(5));
    let indexing = Indexing::new(&context, Point::default(), names);
    let plain = PlainStore::new(own());
    let mut parser = Parser::new(&indexing.index, &indexing.names, &plain);
    let pages = StoredPages::without_rescue(&Panicking);
    indexing.learn_flags(&mut parser, PageKey::new(object, 0), Lsn(20), pages).unwrap();
    assert_eq!(indexing.names.read().object(object).unwrap().flags, None);
}

#[test]
fn image_is_requested_of_the_file_that_has_the_page() {
    let mut names = Namespace::default();
    let files = [("ibdata1", 4 * 16384), ("ibdata2", 0)]
        .map(|(path, len_bytes)| SystemFile { path: path.as_bytes().to_vec(), len_bytes });
    names.set_system_files(&files).unwrap();
    for path in ["ibdata1", "ibdata2", "d/t.ibd"] {
        names.create(path, FileKind::Tablespace, 0o660);
    }
    let system = names.object_of_space(SpaceId(0));
    assert_eq!(request_for(&names, PageKey::new(system, 3)), None, "its format is not known");
    names.set_flags(system, 0x15);
    for (page_no, path, expected) in [(3, "ibdata1", 3), (4, "ibdata2", 0), (9, "ibdata2", 5)] {
        let request = Notice::WantImage { path: path.as_bytes().to_vec(), page_no: expected };
        assert_eq!(request_for(&names, PageKey::new(system, page_no)), Some(request));
    }
    // Compressed with lzma.
    names.set_flags(system, 0x15 | 4 << 5);
    assert_eq!(request_for(&names, PageKey::new(system, 3)), None);
    let without_file = names.object_of_space(SpaceId(7));
    names.set_flags(without_file, 0x15);
    assert_eq!(request_for(&names, PageKey::new(without_file, 3)), None);
}
