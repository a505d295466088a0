use super::*;
use redoubt_page::layout::{page_lsn, set_page_lsn};
use redoubt_page::{SpaceFlags, digest, finalize, verify};
use redoubt_pagestore::{FilePageStore, FilePageStoreOptions, ObjectId, PageWrite};
use redoubt_redo::Family;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const FORMAT: Format = Format::of_mariadb(FLAGS);
const ID: PageId = PageId::new(5, 7);
const LEN: usize = 16_384;
/// End of each chunk.
const END: Seq = Seq(1);

/// Chunk whose payload is these bytes.
fn chunk(payload: Vec<u8>) -> Arc<Chunk> {
    let (start, end) = (Point::default(), Point { seq: END, lsn: Lsn(1) });
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
        self.add(start, end, Body::Run { chunk, offset: 0, len, reset: init.then_some(PageReset::Init) })
    }

    fn image(&mut self, lsn: u64, page: Vec<u8>) -> &mut Self {
        let (chunk, len) = self.bytes(page);
        self.add(lsn, lsn, Body::Image { chunk, offset: 0, len, is_recovered: false })
    }

    fn apply(&self, builder: &mut Builder, limit: Option<u64>) -> Result<usize, NodeError> {
        let limit = limit.map(|lsn| Point { seq: END, lsn: Lsn(lsn) });
        builder.apply_entries(&self.chunks, &self.entries, limit, None)
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
    state_of(&builder.page)
}

fn state_of(page: &[u8]) -> (u64, u8) {
    (page_lsn(page).unwrap().0, page[100])
}

#[test]
fn entries_up_to_the_limit_are_applied_and_none_after_it() {
    let mut chain = Chain::new();
    chain.run(10, 20, true, 1).run(20, 30, false, 2).run(30, 40, false, 3);
    for (limit, within, expected) in
        [(Some(9), 0, (0, 0)), (Some(20), 1, (20, 1)), (Some(39), 2, (30, 2)), (None, 3, (40, 3))]
    {
        let mut builder = Builder::empty(ID, FORMAT);
        assert_eq!(chain.apply(&mut builder, limit).unwrap(), within);
        assert_eq!(state(&builder), expected, "limit {limit:?}");
    }
}

#[test]
fn an_image_replaces_what_was_there_and_redo_goes_on_from_it() {
    let mut chain = Chain::new();
    chain.run(10, 20, true, 1).image(20, page(20, 9)).run(30, 40, false, 3);
    let mut builder = Builder::empty(ID, FORMAT);
    chain.apply(&mut builder, Some(39)).unwrap();
    assert_eq!(state(&builder), (20, 9));
    chain.apply(&mut builder, None).unwrap();
    assert_eq!(state(&builder), (40, 3));
    verify(&builder.finish().unwrap(), FLAGS).unwrap();
}

/// An image that MySQL wrote after its redo up to here contains all of that redo; an image from its recovery contains
/// redo up to its own LSN.
#[test]
fn an_image_of_mysql_has_the_lsn_of_the_stream_unless_recovery_wrote_it() {
    let format = Format { family: Family::MySql, flags: 0 };
    let mut image = vec![7; LEN];
    redoubt_page::mysql::set_page_lsn(&mut image, Lsn(20));
    for (is_recovered, expected) in [(false, 50), (true, 20)] {
        let mut chain = Chain::new();
        let (chunk, len) = chain.bytes(image.clone());
        chain.add(50, 50, Body::Image { chunk, offset: 0, len, is_recovered });
        let mut builder = Builder::empty(ID, format);
        chain.apply(&mut builder, None).unwrap();
        assert_eq!(redoubt_page::format::page_lsn(format.family, &builder.page), Some(Lsn(expected)));
    }
}

#[test]
fn init_page_resets_an_older_and_a_newer_base() {
    let mut chain = Chain::new();
    chain.run(10, 20, false, 1).run(20, 30, true, 2).run(30, 40, false, 3);
    for base in [page(15, 8), page(99, 8)] {
        let mut builder = Builder { page: base, ..Builder::empty(ID, FORMAT) };
        chain.apply(&mut builder, None).unwrap();
        assert_eq!(state(&builder), (40, 3));
    }
    // Without it, a newer base holds all of this already.
    let mut chain = Chain::new();
    chain.run(10, 20, false, 1).run(20, 30, false, 2);
    let mut builder = Builder { page: page(99, 8), ..Builder::empty(ID, FORMAT) };
    chain.apply(&mut builder, None).unwrap();
    assert_eq!(state(&builder), (99, 8));
}

#[test]
fn image_above_the_limit_is_not_applied_nor_what_follows_it() {
    let mut chain = Chain::new();
    chain.run(10, 20, true, 1).image(20, page(20, 7)).run(20, 30, false, 8);
    // Redo up to an LSN may be durable, and an image at that LSN not yet.
    for (seq, lsn, within, expected) in
        [(Seq(0), 20, 1, (20, 1)), (Seq(0), 30, 1, (20, 1)), (END, 20, 2, (20, 7)), (END, 30, 3, (30, 8))]
    {
        let (mut builder, limit) = (Builder::empty(ID, FORMAT), Point { seq, lsn: Lsn(lsn) });
        let applied = builder.apply_entries(&chain.chunks, &chain.entries, Some(limit), None).unwrap();
        assert_eq!((applied, state(&builder)), (within, expected), "{limit:?}");
    }
}

#[test]
fn image_above_the_limit_does_not_hide_the_stored_page() {
    let directory = tempfile::tempdir().unwrap();
    let store = FilePageStore::open(directory.path(), None, FilePageStoreOptions::default()).unwrap();
    let (key, index) = (PageKey::new(ObjectId(3), 7), LogIndex::new(Point::default()));
    store.create(ObjectId(3)).unwrap();
    store.write_batch(&[PageWrite { object: ObjectId(3), page_no: 7, page: &page(20, 1) }]).unwrap();
    let (table, chunk) = (index.open_table(), chunk(page(20, 7)));
    let body =
        Body::Image { chunk: table.add_chunk(&chunk), offset: 0, len: LEN as u32, is_recovered: false };
    index.insert(&table, key, Entry { start_lsn: Lsn(20), end_lsn: Lsn(20), body });
    for (seq, expected) in [(Seq(0), (20, 1)), (END, (20, 7))] {
        let (pages, limit) = (StoredPages::without_rescue(&store), Point { seq, lsn: Lsn(20) });
        let target = PageTarget { key, page_id: ID, format: FORMAT };
        compact_chain(pages, &index, &table, target, limit, &mut |_, _| Ok(())).unwrap();
        let built = construct(pages, &index, key, ID, FORMAT, Some(limit)).unwrap();
        assert_eq!(state_of(&built), expected, "{limit:?}");
    }
}

#[test]
fn a_built_page_is_used_even_by_a_reader_whose_limit_is_older() {
    let mut chain = Chain::new();
    chain.add(30, 30, Body::Built(Arc::from(page(30, 7)))).run(30, 40, false, 3);
    let mut builder = Builder::empty(ID, FORMAT);
    assert_eq!(chain.apply(&mut builder, Some(25)).unwrap(), 1);
    assert_eq!(state(&builder), (30, 7));
}

#[test]
fn verify_entries_see_the_page_at_their_place() {
    let mut chain = Chain::new();
    chain.run(10, 20, true, 1).add(20, 20, Body::Verify { digest: 77, heals: false }).run(20, 30, true, 2);
    let mut seen = Vec::new();
    let mut on_verify = |builder: &Builder, case: VerifyCase<'_>| {
        seen.push((case.lsn, case.digest, page_lsn(case.page).unwrap(), builder.format.digest(case.page)));
        Ok(())
    };
    let mut builder = Builder::empty(ID, FORMAT);
    builder.apply_entries(&chain.chunks, &chain.entries, None, Some(&mut on_verify)).unwrap();
    let mut expected = Builder::empty(ID, FORMAT);
    chain.apply(&mut expected, Some(20)).unwrap();
    assert_eq!(seen, [(Lsn(20), 77, Lsn(20), digest(&expected.page, FLAGS))]);
    assert_eq!(state(&builder), (30, 2));
}

#[test]
fn what_cannot_be_applied_is_an_error_that_names_the_page() {
    let mut chain = Chain::new();
    chain.image(20, vec![1; 100]);
    let error = chain.apply(&mut Builder::empty(ID, FORMAT), None).unwrap_err();
    assert!(error.to_string().contains("image has 100 bytes"), "{error}");
    let mut chain = Chain::new();
    let (chunk, len) = chain.bytes(vec![0xff; 5]);
    chain.add(10, 20, Body::Run { chunk, offset: 0, len, reset: None });
    let error = chain.apply(&mut Builder::empty(ID, FORMAT), None).unwrap_err();
    assert!(error.to_string().contains("page"), "{error}");
    // So are bytes that are not there: they are not taken for a run or an image without effect.
    let mut chain = Chain::new();
    chain.add(10, 20, Body::Run { chunk: 9, offset: 5, len: 7, reset: None });
    let error = chain.apply(&mut Builder::empty(ID, FORMAT), None).unwrap_err();
    assert!(error.to_string().contains("bytes of the stream that are not there"), "{error}");
    let mut chain = Chain::new();
    chain.add(10, 10, Body::Image { chunk: 9, offset: 5, len: 7, is_recovered: false });
    let error = chain.apply(&mut Builder::empty(ID, FORMAT), None).unwrap_err();
    assert!(error.to_string().contains("bytes of the stream that are not there"), "{error}");
}

/// A read that was under way when the page was freed still gets its page.
#[test]
fn a_page_that_was_freed_keeps_its_content_until_init_page() {
    let mut chain = Chain::new();
    chain.run(10, 20, false, 7);
    let (free, len) = chain.bytes(vec![0x02, 5, 7]);
    chain.add(20, 30, Body::Run { chunk: free, offset: 0, len, reset: Some(PageReset::Free) });
    for (limit, expected) in [(Some(20), (20, 7)), (None, (20, 7))] {
        let mut builder = Builder { page: page(5, 8), ..Builder::empty(ID, FORMAT) };
        chain.apply(&mut builder, limit).unwrap();
        assert_eq!(state(&builder), expected);
    }
    chain.run(40, 50, true, 3);
    let mut builder = Builder::empty(ID, FORMAT);
    chain.apply(&mut builder, None).unwrap();
    assert_eq!(state(&builder), (50, 3));
}

/// A store whose page 3:7 is damaged, and an index with two tables: entries before the reset, and the reset.
fn damaged(reset: Option<PageReset>) -> (tempfile::TempDir, FilePageStore, LogIndex, PageKey) {
    let directory = tempfile::tempdir().unwrap();
    let store = FilePageStore::open(directory.path(), None, FilePageStoreOptions::default()).unwrap();
    let key = PageKey::new(ObjectId(3), 7);
    store.create(ObjectId(3)).unwrap();
    let mut bad = page(5, 1);
    bad[5000] ^= 1;
    store.write_batch(&[PageWrite { object: ObjectId(3), page_no: 7, page: &bad }]).unwrap();
    let index = LogIndex::new(Point::default());
    let bytes = |bytes: Vec<u8>| {
        let chunk = chunk(bytes);
        let number = index.open_table().add_chunk(&chunk);
        (number, chunk.payload().len() as u32)
    };
    let add = |start, end, body| {
        let entry = Entry { start_lsn: Lsn(start), end_lsn: Lsn(end), body };
        index.insert(&index.open_table(), key, entry);
    };
    let (number, len) = bytes(run(false, 1));
    add(10, 20, Body::Run { chunk: number, offset: 0, len, reset: None });
    let point = Point { seq: Seq(1), lsn: Lsn(20) };
    index.close_table(crate::index::TableEnd {
        point,
        names: Arc::default(),
        dead: Vec::new(),
        cut: Vec::new(),
    });
    let (number, len) = bytes(match reset {
        Some(PageReset::Free) => vec![0x02, 5, 7],
        _ => run(reset.is_some(), 2),
    });
    add(20, 30, Body::Run { chunk: number, offset: 0, len, reset });
    (directory, store, index, key)
}

#[test]
fn a_stored_image_that_nothing_builds_on_is_not_read() {
    let read = |reset, limit| {
        let (_directory, store, index, key) = damaged(reset);
        construct(StoredPages::without_rescue(&store), &index, key, ID, FORMAT, limit)
    };
    let built = read(Some(PageReset::Init), None).unwrap();
    verify(&built, FLAGS).unwrap();
    assert_eq!((page_lsn(&built), built[100]), (Some(Lsn(30)), 2));
    // It is needed without the reset, and by a reader that is not to see the reset.
    for (reset, limit) in [
        (None, None),
        (Some(PageReset::Init), Some(Point { seq: END, lsn: Lsn(20) })),
        (Some(PageReset::Free), None),
    ] {
        let error = read(reset, limit).unwrap_err();
        assert!(error.to_string().contains("stored image is damaged"), "{error}");
    }
}

/// The damage does not stop apply where redo starts the page again; comparisons from before that are given up.
#[test]
fn apply_goes_on_over_a_damaged_page_that_redo_starts_anew() {
    use crate::apply::apply_tables;
    use crate::figures::Worker;
    for (reset, compares, applies) in [
        (Some(PageReset::Init), false, true),
        (Some(PageReset::Init), true, true),
        (Some(PageReset::Free), false, true),
        (None, false, false),
    ] {
        let (_directory, store, index, key) = damaged(reset);
        let table = index.open_table();
        if compares {
            let reset = table.chain(key);
            let entry = Entry {
                start_lsn: Lsn(20),
                end_lsn: Lsn(20),
                body: Body::Verify { digest: 1, heals: false },
            };
            table.compact(key, 1, entry);
            index.insert(&table, key, reset[0].clone());
        }
        let describe = |_: PageKey| Some((ID, Some(FORMAT)));
        let on_verify = |_: &Builder, _: PageKey, _: VerifyCase<'_>| panic!("compared");
        let pages = StoredPages::without_rescue(&store);
        let applied = apply_tables(
            pages,
            std::slice::from_ref(&table),
            &Worker::several(1),
            &describe,
            &on_verify,
            &|_| {},
        );
        let set_aside = applied.unwrap().damage.set_aside;
        assert_eq!(set_aside.is_empty(), applies, "{reset:?} {compares}: {set_aside:?}");
        if reset == Some(PageReset::Init) {
            assert_eq!(state_of(&pages.read(key, ID, FORMAT).unwrap()), (30, 2));
        }
    }
}

#[test]
fn a_damaged_stored_image_is_found_before_anything_is_applied_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = FilePageStore::open(directory.path(), None, FilePageStoreOptions::default()).unwrap();
    let key = PageKey::new(ObjectId(3), 7);
    assert!(page_is_never_written(
        &Builder::from_store(StoredPages::without_rescue(&store), key, ID, FORMAT).unwrap().page
    ));
    store.create(ObjectId(3)).unwrap();
    let mut bad = page(20, 1);
    bad[5000] ^= 1;
    store.write_batch(&[PageWrite { object: ObjectId(3), page_no: 7, page: &bad }]).unwrap();
    let error = Builder::from_store(StoredPages::without_rescue(&store), key, ID, FORMAT).err().unwrap();
    assert!(error.to_string().contains("stored image is damaged"), "{error}");
}

impl Chain {
    fn free(&mut self, start: u64, end: u64) -> &mut Self {
        let (chunk, len) = self.bytes(vec![0x02, 5, 7]);
        self.add(start, end, Body::Run { chunk, offset: 0, len, reset: Some(PageReset::Free) })
    }

    fn scrub(&mut self, lsn: u64) -> &mut Self {
        self.add(lsn, lsn, Body::Scrub)
    }
}

#[test]
fn a_scrubbed_page_keeps_its_identity_and_nothing_else() {
    let mut chain = Chain::new();
    chain.run(10, 20, false, 7).free(20, 30).scrub(30);
    let mut builder = Builder { page: page(5, 8), ..Builder::empty(ID, FORMAT) };
    chain.apply(&mut builder, Some(29)).unwrap();
    assert_eq!(state(&builder), (20, 7), "not before it was free for the reader");
    chain.apply(&mut builder, None).unwrap();
    let scrubbed = builder.finish().unwrap();
    verify(&scrubbed, FLAGS).unwrap();
    assert_eq!(redoubt_page::layout::page_id(&scrubbed).unwrap().page_no, ID.page_no);
    assert_eq!(page_lsn(&scrubbed), Some(Lsn(30)));
    let others = (8..LEN - 8).filter(|at| !(16..24).contains(at));
    assert!(others.into_iter().all(|at| scrubbed[at] == 0));
    // A page that was never written needs nothing.
    let mut chain = Chain::new();
    chain.scrub(30);
    let mut builder = Builder::empty(ID, FORMAT);
    chain.apply(&mut builder, None).unwrap();
    assert!(page_is_never_written(&builder.finish().unwrap()));
}

#[test]
fn a_page_that_is_used_again_is_not_scrubbed() {
    let mut chain = Chain::new();
    chain.free(20, 30).run(40, 50, true, 3).scrub(30);
    let mut builder = Builder { page: page(5, 8), ..Builder::empty(ID, FORMAT) };
    chain.apply(&mut builder, None).unwrap();
    assert_eq!(state(&builder), (50, 3));
    // Applied long ago.
    let mut chain = Chain::new();
    chain.scrub(30);
    let mut builder = Builder { page: page(50, 3), ..Builder::empty(ID, FORMAT) };
    chain.apply(&mut builder, None).unwrap();
    assert_eq!(state(&builder), (50, 3));
}

/// The page as it is stored may be newer than the entries that are applied to it again after a crash.
#[test]
fn whatever_was_stored_replay_from_before_leads_to_the_same_page() {
    let mut scrubs = 0;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut chain, mut lsn, mut is_free, mut freed_at) = (Chain::new(), 10, true, Vec::new());
        for _ in 0..random.usize(2..30) {
            match random.u8(..10) {
                0..2 if !is_free => {
                    chain.free(lsn, lsn + 10);
                    freed_at.push(lsn + 10);
                    is_free = true;
                }
                // The server's zeros for any time at which the page was free, however late.
                2..5 if !freed_at.is_empty() => {
                    chain.scrub(freed_at[random.usize(..freed_at.len())]);
                    scrubs += 1;
                    continue;
                }
                _ => {
                    chain.run(lsn, lsn + 10, is_free, random.u8(..));
                    is_free = false;
                }
            }
            lsn += 10;
        }
        let built = |base: &[u8], entries: &[Entry]| {
            let mut builder = Builder { page: base.to_vec(), ..Builder::empty(ID, FORMAT) };
            builder.apply_entries(&chain.chunks, entries, None, None).unwrap();
            builder.page
        };
        let nothing = vec![0; LEN];
        let whole = built(&nothing, &chain.entries);
        for stored in 0..=chain.entries.len() {
            let base = built(&nothing, &chain.entries[..stored]);
            for from in 0..=stored {
                let replayed = built(&base, &chain.entries[from..]);
                assert!(replayed == whole, "seed {seed}: stored {stored}, from {from}");
            }
        }
    }
    assert!(scrubs > 500, "{scrubs}");
}

/// With every page write compared, too: entries before an image may fit only the former page.
#[test]
fn the_front_of_a_chain_is_built_from_the_image_in_it_and_not_from_what_comes_before() {
    let directory = tempfile::tempdir().unwrap();
    let store = FilePageStore::open(directory.path(), None, FilePageStoreOptions::default()).unwrap();
    store.create(ObjectId(3)).unwrap();
    let key = PageKey::new(ObjectId(3), 7);
    let index = LogIndex::new(Point::default());
    let table = index.open_table();
    let add = |start, end, payload: Vec<u8>, is_image: bool| {
        let chunk = chunk(payload);
        let (number, len) = (table.add_chunk(&chunk), chunk.payload().len() as u32);
        let body = if is_image {
            Body::Image { chunk: number, offset: 0, len, is_recovered: false }
        } else {
            Body::Run { chunk: number, offset: 0, len, reset: None }
        };
        index.insert(&table, key, Entry { start_lsn: Lsn(start), end_lsn: Lsn(end), body });
    };
    // DELETE_ROW_FORMAT_DYNAMIC after the infimum: an empty page has no records.
    add(10, 20, vec![0x26, 5, 7, 9, 99, 5, 4], false);
    add(20, 20, page(20, 4), true);
    add(20, 30, run(false, 9), false);
    let target = PageTarget { key, page_id: ID, format: FORMAT };
    let (pages, mut ignore) = (StoredPages::without_rescue(&store), |_: &Builder, _: VerifyCase<'_>| Ok(()));
    let limit = Point { seq: END, lsn: Lsn(30) };
    compact_chain(pages, &index, &table, target, limit, &mut ignore).unwrap();
    let built = construct(pages, &index, key, ID, FORMAT, None).unwrap();
    assert_eq!(state_of(&built), (30, 9));
}
