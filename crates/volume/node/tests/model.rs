//! Seeded model test: parser, log index, apply, construct and early building against a plain replay in memory.
//!
//! The model applies every mini-transaction to its page at once. The node's parts get the same stream, with random
//! table boundaries, applies, early building, and readers that looked at D long ago. They also crash, even in the
//! middle of applying a table; then the stream is parsed again from A with other boundaries. Every page read must equal
//! the model's page at that point, byte for byte.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../redo/tests/support/encoder.rs"]
mod encoder;

use encoder::MtrWriter;
use redoubt_node::apply::apply_tables;
use redoubt_node::construct::{Builder, PageTarget, StoredPages, VerifyCase, compact_chain, construct};
use redoubt_node::figures::Worker;
use redoubt_node::home::Folder;
use redoubt_node::index::{Body, Entry, LogIndex, PageKey, Table};
use redoubt_node::log_buffer::Chunk;
use redoubt_node::mark::Point;
use redoubt_node::namespace::Namespace;
use redoubt_node::parser::Parser;
use redoubt_node::plain::PlainStore;
use redoubt_page::{
    Change, Format, SpaceFlags, apply_changes, digest, finalize, layout, page_is_never_written,
};
use redoubt_pagestore::{FilePageStore, FilePageStoreOptions, PageStore};
use redoubt_redo::mariadb::{SequenceRule, walk_mtrs};
use redoubt_redo::{Lsn, Mtr, PageId, PageReset, SpaceId};
use redoubt_sync::RwLock;
use redoubt_wire::Seq;
use redoubt_wire::frame::append_frame;
use redoubt_wire::stream::{FileKind, StreamFrame, Verify};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SPACE: u32 = 5;
const FLAGS: SpaceFlags = SpaceFlags(0x15);
const FORMAT: Format = Format::of_mariadb(FLAGS);
const PAGE_BYTES: usize = 16_384;
const PAGES: u32 = 8;

/// A page after a change.
struct Version {
    /// LSN of the stream there.
    lsn: Lsn,
    /// Start of the frame that made it.
    seq: Seq,
    page: Vec<u8>,
}

/// The stream and its meaning.
struct Model {
    random: fastrand::Rng,
    chunks: Vec<Arc<Chunk>>,
    end: Point,
    /// Each page after each change.
    versions: HashMap<u32, Vec<Version>>,
    created: bool,
    /// D; a crash does not take it back.
    durable: Lsn,
}

impl Model {
    fn new(seed: u64) -> Self {
        let end = Point { seq: Seq(0), lsn: Lsn(12_288) };
        let random = fastrand::Rng::with_seed(seed);
        let mut model = Self {
            random,
            chunks: Vec::new(),
            end,
            versions: HashMap::new(),
            created: false,
            durable: end.lsn,
        };
        model.push(&StreamFrame::Create { path: b"d/t.ibd", kind: FileKind::Tablespace, mode: 0o660 });
        model
    }

    fn push(&mut self, frame: &StreamFrame<'_>) {
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        let mut wire = Vec::new();
        append_frame(&mut wire, frame.kind(), self.end.seq.0, &payload).unwrap();
        let start = self.end;
        if frame.is_logged() {
            self.end.seq.0 += wire.len() as u64;
        }
        if matches!(frame, StreamFrame::Redo(_)) {
            self.end.lsn = self.end.lsn.advance(payload.len() as u64);
        }
        let logged = frame.is_logged();
        self.chunks.push(Arc::new(Chunk {
            kind: frame.kind(),
            logged,
            start,
            end: self.end,
            wire,
            raw: None,
        }));
    }

    fn page(&self, page_no: u32) -> Vec<u8> {
        self.versions
            .get(&page_no)
            .map_or_else(|| vec![0; PAGE_BYTES], |pages| pages.last().unwrap().page.clone())
    }

    fn random_page(&mut self) -> u32 {
        match self.random.u32(..PAGES) {
            // One page gets most changes.
            0..3 => 3,
            page => page,
        }
    }

    fn random_mtr(&mut self) -> MtrWriter {
        let mut mtr = MtrWriter::new();
        if !std::mem::replace(&mut self.created, true) {
            mtr.file(0x80, SPACE, b"./d/t.ibd");
            mtr.init((SPACE, 0)).write_absolute((SPACE, 0), 34, &SPACE.to_be_bytes());
            mtr.write_absolute((SPACE, 0), 54, &FLAGS.0.to_be_bytes());
            return mtr;
        }
        for _ in 0..self.random.usize(1..=6) {
            let page_no = self.random_page();
            let page = (SPACE, page_no);
            let offset = self.random.u32(100..16_000);
            if page_no > 0 && self.random.u8(..) < 20 {
                mtr.init(page);
            }
            match self.random.u8(..3) {
                0 => {
                    let data: Vec<u8> = (0..self.random.usize(1..60)).map(|_| self.random.u8(..)).collect();
                    mtr.write_absolute(page, offset, &data);
                }
                1 => {
                    mtr.write_absolute(page, offset, b"set");
                    mtr.memset(page, 20, self.random.u32(1..200), &[self.random.u8(..)]);
                }
                _ => {
                    mtr.write_absolute(page, offset.max(300), b"move");
                    mtr.memmove(page, 20, self.random.u32(1..90), -200);
                }
            }
        }
        mtr
    }

    fn append(&mut self) {
        match self.random.u8(..100) {
            0..8 if self.created => self.append_verify(),
            8..12 if self.created => self.append_image(),
            _ => self.append_redo(),
        }
    }

    fn append_redo(&mut self) {
        let mut redo = Vec::new();
        for _ in 0..self.random.usize(1..6) {
            redo.extend(self.random_mtr().finish(1));
        }
        let Point { seq, lsn: start } = self.end;
        let versions = &mut self.versions;
        let mut visit =
            |mtr: &Mtr<'_, '_>| {
                let mut pages: Vec<u32> = mtr.runs.iter().map(|run| run.page.page_no.0).collect();
                pages.sort_unstable();
                pages.dedup();
                for page_no in pages {
                    let pages = versions.entry(page_no).or_default();
                    let mut page =
                        pages.last().map_or_else(|| vec![0; PAGE_BYTES], |version| version.page.clone());
                    let changes = mtr.runs.iter().filter(|run| run.page.page_no.0 == page_no).map(|run| {
                        Change { start_lsn: mtr.start_lsn, end_lsn: mtr.end_lsn, run: mtr.run_bytes(run) }
                    });
                    apply_changes(&mut page, PageId::new(SPACE, page_no), FLAGS, true, changes).unwrap();
                    pages.push(Version { lsn: mtr.end_lsn, seq, page });
                }
            };
        walk_mtrs(&redo, start, SequenceRule::Any, &mut visit).unwrap();
        self.push(&StreamFrame::Redo(&redo));
    }

    fn append_verify(&mut self) {
        let page_no = self.random_page();
        let page = self.page(page_no);
        let Some(lsn) = layout::page_lsn(&page).filter(|lsn| *lsn > Lsn(0)) else { return };
        let digest = digest(&page, FLAGS);
        self.push(&StreamFrame::Verify(Verify { path: b"d/t.ibd", page_no, lsn, digest }));
    }

    fn append_image(&mut self) {
        let page_no = self.random.u32(1..PAGES);
        let mut page = self.page(page_no);
        page[1000] = page[1000].wrapping_add(1);
        assert!(layout::set_page_lsn(&mut page, self.end.lsn));
        finalize(&mut page, FLAGS).unwrap();
        let Point { seq, lsn } = self.end;
        self.push(&StreamFrame::Image { path: b"d/t.ibd", page_no, page: &page, is_recovered: false });
        self.versions.entry(page_no).or_default().push(Version { lsn, seq, page });
    }
}

/// The node's parts, as after a start at `applied`.
struct Parts<'d> {
    store: &'d FilePageStore,
    index: LogIndex,
    names: RwLock<Namespace>,
    plain: PlainStore,
    /// Names as of A.
    applied_names: Arc<Namespace>,
    applied: Point,
    parsed: Point,
    /// Number of the next chunk to parse.
    next: usize,
}

fn identity(key: PageKey) -> PageId {
    PageId::new(SPACE, key.page_no())
}

fn plain_store(directory: &Path) -> PlainStore {
    let path = directory.join("plain");
    std::fs::create_dir_all(&path).unwrap();
    PlainStore::new(Folder::open(&path).unwrap())
}

impl<'d> Parts<'d> {
    fn start(
        store: &'d FilePageStore,
        directory: &Path,
        names: Arc<Namespace>,
        applied: Point,
        model: &Model,
    ) -> Self {
        let next = model.chunks.partition_point(|chunk| chunk.start.seq < applied.seq);
        Self {
            store,
            index: LogIndex::new(applied),
            names: RwLock::new((*names).clone()),
            plain: plain_store(directory),
            applied_names: names,
            applied,
            parsed: applied,
            next,
        }
    }
}

/// Counts of a run.
#[derive(Default, Debug)]
struct Counts {
    reads: u64,
    stale_readers: u64,
    applies: u64,
    tables_together: u64,
    compactions: u64,
    crashes: u64,
    torn_applies: u64,
    verified: AtomicU64,
    not_comparable: AtomicU64,
}

fn check_verify(counts: &Counts, builder: &Builder, case: &VerifyCase<'_>) -> Result<(), String> {
    let ours = layout::page_lsn(case.page).unwrap();
    if ours > case.lsn {
        counts.not_comparable.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    assert_eq!((ours, digest(case.page, FLAGS)), (case.lsn, case.digest), "page {}", builder.page_id);
    counts.verified.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn apply(parts: &Parts<'_>, tables: &[Arc<Table>], counts: &Counts) {
    let describe = |key: PageKey| Some((identity(key), Some(FORMAT)));
    let on_verify =
        |builder: &Builder, _: PageKey, case: VerifyCase<'_>| check_verify(counts, builder, &case);
    let applied = apply_tables(
        StoredPages::without_rescue(parts.store),
        tables,
        &Worker::several(2),
        &describe,
        &on_verify,
        &|_| {},
    )
    .unwrap();
    assert!(applied.damage.is_empty(), "{:?}", applied.damage);
}

fn short(chain: &[Entry]) -> String {
    let one = |entry: &Entry| {
        let body = match &entry.body {
            Body::Run { reset: None, .. } => "",
            Body::Run { reset: Some(PageReset::Init), .. } => "init ",
            Body::Run { reset: Some(PageReset::Free), .. } => "free ",
            Body::Image { .. } => "image ",
            Body::Built(_) => "built ",
            Body::Scrub => "scrub ",
            Body::Verify { .. } => "verify ",
        };
        format!("{body}{}..{}", entry.start_lsn, entry.end_lsn)
    };
    chain.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// All images, and redo up to this LSN.
fn up_to(lsn: Lsn) -> Point {
    Point { seq: Seq(u64::MAX), lsn }
}

/// Reads a page with a limit that a reader took when D was at most `limit`, while it is now `durable`.
fn check_read(
    parts: &Parts<'_>,
    model: &Model,
    page_no: u32,
    (limit, parsed, durable): (Lsn, Point, Lsn),
    counts: &mut Counts,
) {
    let names = parts.names.read();
    let Some(object) = names.known_object_of_space(SpaceId(SPACE)) else { return };
    let key = PageKey::new(object, page_no);
    let page = construct(
        StoredPages::without_rescue(parts.store),
        &parts.index,
        key,
        identity(key),
        FORMAT,
        Some(up_to(limit)),
    )
    .unwrap();
    counts.reads += 1;
    let none = Vec::new();
    let versions = model.versions.get(&page_no).unwrap_or(&none);
    let oldest = versions.iter().rposition(|version| version.lsn <= limit && version.seq < parsed.seq);
    let newest = versions.iter().rposition(|version| version.lsn <= durable);
    let Some(newest) = newest else {
        assert!(page_is_never_written(&page), "page {page_no} has no version yet");
        return;
    };
    let is = |version: &Version| {
        let mut expected = version.page.clone();
        finalize(&mut expected, FLAGS).unwrap();
        expected == page
    };
    counts.stale_readers += u64::from(limit < durable);
    let allowed = &versions[oldest.unwrap_or(0)..=newest];
    let found = allowed.iter().any(is) || (oldest.is_none() && page_is_never_written(&page));
    let chains: Vec<_> = parts.index.tables_of(key).iter().map(|table| short(&table.chain(key))).collect();
    let allowed: Vec<_> = allowed.iter().map(|version| version.lsn).collect();
    assert!(
        found,
        "page {page_no} read at limit {limit} (D {durable}, A at the start {:?}) is of LSN {:?}; allowed {allowed:?}; \
         chains {chains:#?}",
        parts.applied,
        layout::page_lsn(&page)
    );
}

fn compact(parts: &Parts<'_>, model: &mut Model, durable: Lsn, counts: &mut Counts) {
    let page_no = model.random_page();
    let Some(object) = parts.names.read().known_object_of_space(SpaceId(SPACE)) else { return };
    let key = PageKey::new(object, page_no);
    let tables = parts.index.tables_of(key);
    if tables.is_empty() {
        return;
    }
    let table = &tables[model.random.usize(..tables.len())];
    let mut on_verify = |builder: &Builder, case: VerifyCase<'_>| check_verify(counts, builder, &case);
    let target = PageTarget { key, page_id: identity(key), format: FORMAT };
    compact_chain(
        StoredPages::without_rescue(parts.store),
        &parts.index,
        table,
        target,
        up_to(durable),
        &mut on_verify,
    )
    .unwrap();
    counts.compactions += 1;
}

/// One life of the parts, from a start to a crash.
#[expect(clippy::too_many_lines, reason = "one choice per kind of step")]
fn live(parts: &mut Parts<'_>, model: &mut Model, steps: usize, counts: &mut Counts) {
    let mut durable = model.durable;
    let mut old_limits = vec![parts.applied.lsn];
    let mut step = 0;
    // The parser borrows the parts it fills; everything else works beside it on shared references.
    let shared: &Parts<'_> = parts;
    let mut parser = Parser::new(&shared.index, &shared.names, &shared.plain);
    let (mut next, mut parsed, mut applied) = (shared.next, shared.parsed, shared.applied);
    let mut applied_names = Arc::clone(&shared.applied_names);
    while step < steps || next < model.chunks.len() {
        step += 1;
        match model.random.u8(..100) {
            0..40 => {
                if step < steps {
                    model.append();
                }
                if let Some(chunk) = model.chunks.get(next) {
                    // Verify frames are not sent again after a crash.
                    parser.handle(chunk).unwrap();
                    if chunk.logged {
                        parsed = chunk.end;
                    }
                    if chunk.kind == 4 {
                        // Images count at once; see the model's versions.
                        durable = durable.max(parsed.lsn);
                    }
                    next += 1;
                }
            }
            40..48 => {
                parser.close_table(parsed);
            }
            48..55 => {
                let mut tables = shared.index.closed_tables();
                tables.truncate(model.random.usize(1..4));
                let ends: Vec<_> = tables.iter().filter_map(|table| table.end()).collect();
                let Some(last) = ends.last() else { continue };
                durable = durable.max(last.point.lsn);
                apply(shared, &tables, counts);
                counts.applies += 1;
                counts.tables_together += u64::from(tables.len() > 1);
                if model.random.u8(..100) < 85 {
                    for (table, end) in tables.iter().zip(&ends) {
                        shared.index.remove_applied(table);
                        applied = end.point;
                        Arc::make_mut(&mut applied_names).apply(&*end.names);
                    }
                } else {
                    counts.torn_applies += 1;
                }
            }
            55..62 => compact(shared, model, durable.min(parsed.lsn), counts),
            62..70 => {
                let boundary = model.random.u64(durable.0..=parsed.lsn.0.max(durable.0));
                durable = model
                    .versions
                    .values()
                    .flatten()
                    .map(|version| version.lsn)
                    .filter(|lsn| *lsn <= Lsn(boundary))
                    .max()
                    .map_or(durable, |lsn| lsn.max(durable));
                old_limits.push(durable.min(parsed.lsn));
            }
            _ => {
                let page_no = model.random_page();
                let stale = old_limits[model.random.usize(..old_limits.len())];
                let limit =
                    if model.random.bool() { stale.max(applied.lsn) } else { durable.min(parsed.lsn) };
                check_read(shared, model, page_no, (limit, parsed, durable), counts);
            }
        }
    }
    for page_no in 0..PAGES {
        check_read(shared, model, page_no, (parsed.lsn, parsed, parsed.lsn), counts);
    }
    drop(parser);
    model.durable = durable.max(parsed.lsn);
    parts.applied = applied;
    parts.applied_names = applied_names;
}

fn run(seed: u64, counts: &mut Counts) {
    let directory =
        tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap();
    let pages = directory.path().join("pages");
    std::fs::create_dir(&pages).unwrap();
    let mut model = Model::new(seed);
    let mut applied = Point { seq: Seq(0), lsn: Lsn(12_288) };
    let mut names = Arc::new(Namespace::default());
    for _ in 0..4 {
        let options =
            FilePageStoreOptions { journal_len_bytes: 256 << 10, ..FilePageStoreOptions::default() };
        let store = FilePageStore::open(&pages, None, options).unwrap();
        for object in store.objects().unwrap() {
            if names.object(object).is_none() {
                store.remove(object).unwrap();
            }
        }
        // Unlogged frames are lost in a crash.
        let lost = model.chunks.partition_point(|chunk| chunk.start.seq < applied.seq);
        let mut kept = model.chunks.split_off(lost);
        kept.retain(|chunk| chunk.logged);
        model.chunks.extend(kept);
        let mut parts = Parts::start(&store, directory.path(), Arc::clone(&names), applied, &model);
        let steps = model.random.usize(50..400);
        live(&mut parts, &mut model, steps, counts);
        (applied, names) = (parts.applied, parts.applied_names);
        counts.crashes += 1;
    }
}

#[test]
fn pages_are_the_models_whatever_is_applied_built_or_lost_in_between() {
    let mut counts = Counts::default();
    for seed in 0..60 {
        println!("seed {seed}");
        run(seed, &mut counts);
    }
    println!("{counts:?}");
    assert!(
        counts.stale_readers > 500 && counts.torn_applies > 50 && counts.compactions > 1000,
        "{counts:?}"
    );
    assert!(counts.verified.into_inner() > 500);
}
