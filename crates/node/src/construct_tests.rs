use super::*;
use crate::mark::Point;
use redoubt_page::layout::{page_lsn, set_page_lsn};
use redoubt_page::{digest, verify};
use redoubt_pagestore::{FilePageStore, FilePageStoreOptions, ObjectId, PageWrite};
use redoubt_wire::Seq;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const ID: PageId = PageId::new(5, 7);
const LEN: usize = 16_384;

/// Chunk whose payload is these bytes.
fn chunk(payload: Vec<u8>) -> Arc<Chunk> {
    let (start, end) = (Point::default(), Point { seq: Seq(1), lsn: Lsn(1) });
    Arc::new(Chunk { kind: 1, logged: true, start, end, wire: Vec::new(), raw: Some(payload) })
}

/// WRITE of one byte at offset 100 of page 5:7, optionally after INIT_PAGE.
fn run(init: bool, value: u8) -> Vec<u8> {
    if init { vec![0x12, 5, 7, 0xb2, 76, value] } else { vec![0x34, 5, 7, 100, value] }
}

struct Chain {
    chunks: Vec<Arc<Chunk>>,
    entries: Vec<Entry>,
}

impl Chain {
    fn new() -> Self {
        Self { chunks: Vec::new(), entries: Vec::new() }
    }

    fn add(&mut self, start: u64, end: u64, body: Body) -> &mut Self {
        self.entries.push(Entry { start_lsn: Lsn(start), end_lsn: Lsn(end), body });
        self
    }

    fn bytes(&mut self, payload: Vec<u8>) -> (u32, u32) {
        let len = payload.len() as u32;
        self.chunks.push(chunk(payload));
        (self.chunks.len() as u32 - 1, len)
    }

    fn run(&mut self, start: u64, end: u64, init: bool, value: u8) -> &mut Self {
        let (chunk, len) = self.bytes(run(init, value));
        self.add(start, end, Body::Run { chunk, offset: 0, len, init })
    }

    fn image(&mut self, lsn: u64, page: Vec<u8>) -> &mut Self {
        let (chunk, len) = self.bytes(page);
        self.add(lsn, lsn, Body::Image { chunk, offset: 0, len })
    }

    fn apply(&self, builder: &mut Builder, limit: Option<u64>) -> Result<usize, NodeError> {
        builder.apply_entries(&self.chunks, &self.entries, limit.map(Lsn), None)
    }
}

fn page(lsn: u64, value: u8) -> Vec<u8> {
    let mut page = vec![0; LEN];
    page[4..8].copy_from_slice(&7u32.to_be_bytes());
    page[100] = value;
    assert!(set_page_lsn(&mut page, Lsn(lsn)));
    finalize(&mut page, FLAGS).unwrap();
    page
}

fn state(builder: &Builder) -> (u64, u8) {
    (page_lsn(&builder.page).unwrap().0, builder.page[100])
}

#[test]
fn entries_up_to_the_limit_are_applied_and_none_after_it() {
    let mut chain = Chain::new();
    chain.run(10, 20, true, 1).run(20, 30, false, 2).run(30, 40, false, 3);
    for (limit, within, expected) in
        [(Some(9), 0, (0, 0)), (Some(20), 1, (20, 1)), (Some(39), 2, (30, 2)), (None, 3, (40, 3))]
    {
        let mut builder = Builder::empty(ID, FLAGS);
        assert_eq!(chain.apply(&mut builder, limit).unwrap(), within);
        assert_eq!(state(&builder), expected, "limit {limit:?}");
    }
}

#[test]
fn an_image_replaces_what_was_there_and_redo_goes_on_from_it() {
    let mut chain = Chain::new();
    chain.run(10, 20, true, 1).image(20, page(20, 9)).run(30, 40, false, 3);
    let mut builder = Builder::empty(ID, FLAGS);
    chain.apply(&mut builder, Some(39)).unwrap();
    assert_eq!(state(&builder), (20, 9));
    chain.apply(&mut builder, None).unwrap();
    assert_eq!(state(&builder), (40, 3));
    verify(&builder.finish().unwrap(), FLAGS).unwrap();
}

#[test]
fn init_page_resets_an_older_and_a_newer_base() {
    let mut chain = Chain::new();
    chain.run(10, 20, false, 1).run(20, 30, true, 2).run(30, 40, false, 3);
    for base in [page(15, 8), page(99, 8)] {
        let mut builder = Builder { page: base, ..Builder::empty(ID, FLAGS) };
        chain.apply(&mut builder, None).unwrap();
        assert_eq!(state(&builder), (40, 3));
    }
    // Without it, a newer base holds all of this already.
    let mut chain = Chain::new();
    chain.run(10, 20, false, 1).run(20, 30, false, 2);
    let mut builder = Builder { page: page(99, 8), ..Builder::empty(ID, FLAGS) };
    chain.apply(&mut builder, None).unwrap();
    assert_eq!(state(&builder), (99, 8));
}

#[test]
fn a_built_page_is_used_even_by_a_reader_whose_limit_is_older() {
    let mut chain = Chain::new();
    chain.add(30, 30, Body::Built(Arc::from(page(30, 7)))).run(30, 40, false, 3);
    let mut builder = Builder::empty(ID, FLAGS);
    assert_eq!(chain.apply(&mut builder, Some(25)).unwrap(), 1);
    assert_eq!(state(&builder), (30, 7));
}

#[test]
fn verify_entries_see_the_page_at_their_place() {
    let mut chain = Chain::new();
    chain.run(10, 20, true, 1).add(20, 20, Body::Verify { digest: 77 }).run(20, 30, true, 2);
    let mut seen = Vec::new();
    let mut on_verify = |builder: &Builder, case: VerifyCase<'_>| {
        seen.push((case.lsn, case.digest, page_lsn(case.page).unwrap(), digest(case.page, builder.flags)));
    };
    let mut builder = Builder::empty(ID, FLAGS);
    builder.apply_entries(&chain.chunks, &chain.entries, None, Some(&mut on_verify)).unwrap();
    let mut expected = Builder::empty(ID, FLAGS);
    chain.apply(&mut expected, Some(20)).unwrap();
    assert_eq!(seen, [(Lsn(20), 77, Lsn(20), digest(&expected.page, FLAGS))]);
    assert_eq!(state(&builder), (30, 2));
}

#[test]
fn what_cannot_be_applied_is_an_error_that_names_the_page() {
    let mut chain = Chain::new();
    chain.image(20, vec![1; 100]);
    let error = chain.apply(&mut Builder::empty(ID, FLAGS), None).unwrap_err();
    assert!(error.to_string().contains("image has 100 bytes"), "{error}");
    let mut chain = Chain::new();
    let (chunk, len) = chain.bytes(vec![0xff; 5]);
    chain.add(10, 20, Body::Run { chunk, offset: 0, len, init: false });
    let error = chain.apply(&mut Builder::empty(ID, FLAGS), None).unwrap_err();
    assert!(error.to_string().contains("page"), "{error}");
    // Bytes that are not there are an error as well, or change nothing; never a panic.
    let mut chain = Chain::new();
    chain.add(10, 20, Body::Run { chunk: 9, offset: 5, len: 7, init: false });
    let _ = chain.apply(&mut Builder::empty(ID, FLAGS), None);
}

#[test]
fn a_damaged_stored_image_is_found_before_anything_is_applied_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = FilePageStore::open(directory.path(), None, FilePageStoreOptions::default()).unwrap();
    let key = PageKey::new(ObjectId(3), 7);
    assert!(page_is_never_written(
        &Builder::from_store(StoredPages::without_rescue(&store), key, ID, FLAGS).unwrap().page
    ));
    store.create(ObjectId(3)).unwrap();
    let mut bad = page(20, 1);
    bad[5000] ^= 1;
    store.write_batch(&[PageWrite { object: ObjectId(3), page_no: 7, page: &bad }]).unwrap();
    let error = Builder::from_store(StoredPages::without_rescue(&store), key, ID, FLAGS).err().unwrap();
    assert!(error.to_string().contains("stored image is damaged"), "{error}");
}
