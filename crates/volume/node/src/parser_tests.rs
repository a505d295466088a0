use super::*;
use crate::encoder::MtrWriter;
use crate::home::Folder;
use crate::index::TableState;
use redoubt_redo::{Family, PageReset};
use redoubt_wire::Seq;
use redoubt_wire::frame::append_frame;
use redoubt_wire::stream::SystemFile;

const LSN: Lsn = Lsn(12_288);

struct Fixture {
    _directory: tempfile::TempDir,
    index: LogIndex,
    names: RwLock<Namespace>,
    plain: PlainStore,
    at: Point,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = Point { seq: Seq(0), lsn: LSN };
        Self {
            index: LogIndex::new(at),
            names: RwLock::default(),
            plain: PlainStore::new(Folder::open(directory.path()).unwrap()),
            at,
            _directory: directory,
        }
    }

    fn chunk(&mut self, frame: &StreamFrame<'_>) -> Arc<Chunk> {
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        let mut wire = Vec::new();
        append_frame(&mut wire, frame.kind(), self.at.seq.0, &payload).unwrap();
        let start = self.at;
        if frame.is_logged() {
            self.at.seq.0 += wire.len() as u64;
        }
        if matches!(frame, StreamFrame::Redo(_)) {
            self.at.lsn = self.at.lsn.advance(payload.len() as u64);
        }
        Arc::new(Chunk {
            kind: frame.kind(),
            logged: frame.is_logged(),
            start,
            end: self.at,
            wire,
            raw: None,
        })
    }

    /// Follows the redo of an import that consists of these records about files: kind, tablespace, payload.
    fn import(&mut self, records: &[(u8, u32, &[u8])]) {
        let redo = records.iter().flat_map(|(kind, space, payload)| {
            let mut mtr = MtrWriter::new();
            mtr.file(*kind, *space, payload);
            mtr.finish(1)
        });
        let redo: Vec<u8> = redo.collect();
        let mut resets = redoubt_redo::LastResets::default();
        walk_mtrs(Family::MariaDb, &redo, LSN, &mut resets).unwrap();
        self.index.leave_out(resets);
        let chunk = self.chunk(&StreamFrame::Redo(&redo));
        Parser::new(&self.index, &self.names, &self.plain).handle(&chunk).unwrap();
    }

    fn key(&self, space: u32, page_no: u32) -> PageKey {
        PageKey::new(self.names.read().known_object_of_space(SpaceId(space)).unwrap(), page_no)
    }
}

fn create_space(space: u32, path: &str) -> Vec<u8> {
    let mut mtr = MtrWriter::new();
    mtr.file(0x80, space, format!("./{path}").as_bytes());
    mtr.init((space, 0)).write_absolute((space, 0), 54, &0x15u32.to_be_bytes());
    mtr.finish(0)
}

#[test]
fn runs_are_routed_by_page_in_stream_order_with_their_lsns() {
    let mut fixture = Fixture::new();
    let create =
        fixture.chunk(&StreamFrame::Create { path: b"d/t.ibd", kind: FileKind::Tablespace, mode: 0o660 });
    let mut redo = create_space(5, "d/t.ibd");
    let first = redo.len() as u64;
    let mut mtr = MtrWriter::new();
    mtr.write((5, 3), 100, b"a").write((5, 4), 100, b"b").write((5, 3), 200, b"c");
    redo.extend(mtr.finish(1));
    let total = redo.len() as u64;
    let chunk = fixture.chunk(&StreamFrame::Redo(&redo));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    parser.handle(&create).unwrap();
    let outcome = parser.handle(&chunk).unwrap();
    assert_eq!((outcome.mtrs, outcome.runs), (2, 4));
    assert_eq!(fixture.index.sizes(), (3, 4, 1));
    let table = fixture.index.open_table();
    let chain = table.chain(fixture.key(5, 3));
    let expected = (LSN.advance(first), LSN.advance(total));
    assert_eq!(chain.iter().map(|entry| (entry.start_lsn, entry.end_lsn)).collect::<Vec<_>>(), [expected; 2]);
    let texts: Vec<_> = chain
        .iter()
        .map(|entry| match entry.body {
            Body::Run { chunk, offset, len, reset: None } => {
                let chunks = table.chunks();
                *crate::index::table::resolve(&chunks, chunk, offset, len).unwrap().last().unwrap()
            }
            _ => panic!("{entry:?}"),
        })
        .collect();
    assert_eq!(texts, b"ac");
    assert!(matches!(table.chain(fixture.key(5, 0))[0].body, Body::Run { reset: Some(PageReset::Init), .. }));
    let names = fixture.names.read();
    let (_, entry) = names.file_at("d/t.ibd").unwrap();
    assert_eq!(names.object(ObjectId(entry.object.unwrap())).unwrap().flags, Some(0x15));
}

#[test]
fn a_space_that_dies_and_comes_again_in_one_frame_goes_to_its_new_object() {
    let mut fixture = Fixture::new();
    let mut redo = create_space(5, "d/t.ibd");
    redo.extend(create_space(6, "d/other.ibd"));
    let mut again = MtrWriter::new();
    again.write((6, 3), 100, b"x").write((5, 3), 100, b"x");
    redo.extend(again.finish(1));
    let mut drop_it = MtrWriter::new();
    drop_it.file(0x90, 5, b"./d/t.ibd");
    redo.extend(drop_it.finish(1));
    redo.extend(create_space(5, "d/t.ibd"));
    let mut after = MtrWriter::new();
    after.write((6, 3), 200, b"y").write((5, 3), 200, b"y");
    redo.extend(after.finish(1));
    let chunk = fixture.chunk(&StreamFrame::Redo(&redo));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    parser.handle(&chunk).unwrap();
    let died = parser.take_died();
    assert_eq!(died.len(), 1);
    let (new, other) = (fixture.key(5, 3), fixture.key(6, 3));
    assert_ne!(new.object(), died[0].0);
    let table = fixture.index.open_table();
    assert_eq!((table.chain(new).len(), table.chain(other).len()), (1, 2));
    assert_eq!(table.chain(PageKey::new(died[0].0, 3)).len(), 1);
}

#[test]
fn a_frame_that_is_not_whole_mini_transactions_stops_the_parser_and_says_where() {
    let mut good = MtrWriter::new();
    good.write((5, 3), 100, b"a");
    let good = good.finish(1);
    let mut damaged = good.clone();
    damaged[4] ^= 1;
    let cut = [good.clone(), good[..good.len() - 1].to_vec()].concat();
    let padded = [good.clone(), vec![0]].concat();
    for (bytes, at) in
        [(damaged, LSN), (cut, LSN.advance(good.len() as u64)), (padded, LSN.advance(good.len() as u64))]
    {
        let mut fixture = Fixture::new();
        let chunk = fixture.chunk(&StreamFrame::Redo(&bytes));
        let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
        let error = parser.handle(&chunk).err().unwrap();
        assert!(matches!(error, NodeError::Redo { lsn, .. } if lsn == at), "{error}");
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    }
}

/// The server logs the deletion of a file, then deletes it, and completes the writes that are under way meanwhile. A
/// kill may come before the file is gone from the names.
#[test]
fn an_image_between_the_record_of_a_drop_and_the_unlink_is_no_page_of_anything() {
    let mut fixture = Fixture::new();
    let create =
        fixture.chunk(&StreamFrame::Create { path: b"d/t.ibd", kind: FileKind::Tablespace, mode: 0o660 });
    let redo = fixture.chunk(&StreamFrame::Redo(&create_space(5, "d/t.ibd")));
    let mut drop_it = MtrWriter::new();
    drop_it.file(0x90, 5, b"./d/t.ibd");
    let dropped = fixture.chunk(&StreamFrame::Redo(&drop_it.finish(1)));
    let page = vec![1; 16384];
    let image = fixture.chunk(&StreamFrame::Image {
        path: b"d/t.ibd",
        page_no: 363,
        page: &page,
        is_recovered: false,
    });
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    for chunk in [&create, &redo, &dropped, &image] {
        parser.handle(chunk).unwrap();
    }
    assert_eq!(fixture.names.read().objects().count(), 0);
    assert!(fixture.names.read().file_at("d/t.ibd").is_some());
}

#[test]
fn a_dropped_and_a_trimmed_tablespace_get_new_objects_and_the_old_ones_die_with_their_table() {
    let mut fixture = Fixture::new();
    let first = fixture.chunk(&StreamFrame::Redo(&create_space(5, "d/t.ibd")));
    let mut drop_it = MtrWriter::new();
    drop_it.file(0x90, 5, b"./d/t.ibd");
    let dropped = fixture.chunk(&StreamFrame::Redo(&drop_it.finish(1)));
    let mut undo = MtrWriter::new();
    undo.init((1, 0)).write_absolute((1, 0), 54, &0x15u32.to_be_bytes());
    let undo = fixture.chunk(&StreamFrame::Redo(&undo.finish(1)));
    let mut trim = MtrWriter::new();
    trim.trim((1, 640));
    let trimmed = fixture.chunk(&StreamFrame::Redo(&trim.finish(1)));
    let end = fixture.at;
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    parser.handle(&first).unwrap();
    let old = fixture.key(5, 0).object();
    parser.handle(&dropped).unwrap();
    parser.handle(&undo).unwrap();
    let old_undo = fixture.key(1, 0).object();
    parser.handle(&trimmed).unwrap();
    assert!(fixture.names.read().known_object_of_space(SpaceId(5)).is_none());
    assert_ne!(fixture.key(1, 0).object(), old_undo);
    let died: Vec<_> = parser.take_died().into_iter().map(|(object, _)| object).collect();
    assert_eq!(died, [old, old_undo]);
    assert_eq!(parser.take_died().len(), 0);
    let table = fixture.index.open_table();
    parser.close_table(end);
    assert_eq!(table.state(), TableState::Closed);
    let closed = table.end().unwrap();
    assert_eq!((closed.point, closed.dead), (end, vec![old, old_undo]));
    let mut followed = Namespace::default();
    followed.apply(&*closed.names);
    assert!(followed == *fixture.names.read());
    // A table without name changes has no end.
    parser.close_table(end);
    assert!(fixture.index.open_table().end().is_none());
}

#[test]
fn verify_frames_and_images_find_their_tablespace_or_are_nobodys() {
    let mut fixture = Fixture::new();
    let frames = [
        StreamFrame::Create { path: b"d/t.ibd", kind: FileKind::Tablespace, mode: 0o660 },
        StreamFrame::Redo(&create_space(5, "d/t.ibd")),
        StreamFrame::Verify(Verify { path: b"d/t.ibd", page_no: 3, lsn: Lsn(9), digest: 7 }),
        StreamFrame::Verify(Verify { path: b"d/other.ibd", page_no: 3, lsn: Lsn(9), digest: 7 }),
        StreamFrame::VerifyOrHeal(Verify { path: b"d/t.ibd", page_no: 3, lsn: Lsn(10), digest: 8 }),
        StreamFrame::Image { path: b"d/t.ibd", page_no: 3, page: &[1; 16_384], is_recovered: false },
        StreamFrame::Image { path: b"d/other.ibd", page_no: 3, page: &[1; 16_384], is_recovered: false },
    ]
    .map(|frame| fixture.chunk(&frame));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    let verifies: u64 = frames.iter().map(|chunk| parser.handle(chunk).unwrap().verifies).sum();
    assert_eq!(verifies, 2);
    let chain = fixture.index.open_table().chain(fixture.key(5, 3));
    assert!(matches!(
        chain[..],
        [
            Entry { start_lsn: Lsn(9), body: Body::Verify { digest: 7, heals: false }, .. },
            Entry { start_lsn: Lsn(10), body: Body::Verify { digest: 8, heals: true }, .. },
            Entry { body: Body::Image { len: 16_384, .. }, .. }
        ]
    ));
    assert_eq!(fixture.index.sizes().0, 2);
}

#[test]
fn scrub_frames_find_their_pages_or_are_nobodys() {
    let mut fixture = Fixture::new();
    let frames = [
        StreamFrame::Create { path: b"d/t.ibd", kind: FileKind::Tablespace, mode: 0o660 },
        StreamFrame::Redo(&create_space(5, "d/t.ibd")),
        StreamFrame::Scrub { path: b"d/t.ibd", page_no: 3, pages: 2, lsn: Lsn(9) },
        StreamFrame::Scrub { path: b"d/other.ibd", page_no: 3, pages: 2, lsn: Lsn(9) },
        // Past the last page that a tablespace can have.
        StreamFrame::Scrub { path: b"d/t.ibd", page_no: u32::MAX, pages: 2, lsn: Lsn(9) },
    ]
    .map(|frame| fixture.chunk(&frame));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    frames.iter().for_each(|chunk| drop(parser.handle(chunk).unwrap()));
    for page_no in [3, 4] {
        let chain = fixture.index.open_table().chain(fixture.key(5, page_no));
        assert!(matches!(chain[..], [Entry { end_lsn: Lsn(9), body: Body::Scrub, .. }]), "{chain:?}");
    }
    // And page 0, by its redo.
    assert_eq!(fixture.index.sizes().0, 3);
}

#[test]
fn impossible_flags_and_page_numbers_stop_the_parser() {
    let mut fixture = Fixture::new();
    let mut mtr = MtrWriter::new();
    mtr.init((5, 0)).write_absolute((5, 0), 54, &[0xff; 4]);
    let chunk = fixture.chunk(&StreamFrame::Redo(&mtr.finish(1)));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    let error = parser.handle(&chunk).err().unwrap();
    assert!(error.to_string().contains("0xffffffff"), "{error}");
    assert_eq!(page_in_tablespace(7, 1 << 20, 16_384), Some(71));
    assert_eq!(page_in_tablespace(u32::MAX, 16_384, 16_384), None);
    assert_eq!(page_in_tablespace(7, u64::MAX, 1), None);
    assert_eq!(page_in_tablespace(7, 0, 0), None);
}

#[test]
fn a_long_chain_is_reported_each_time_it_grows_by_the_cap() {
    let mut fixture = Fixture::new();
    let create = fixture.chunk(&StreamFrame::Redo(&create_space(5, "d/t.ibd")));
    let mut redo = Vec::new();
    for _ in 0..2 * CHAIN_CAP + 1 {
        let mut mtr = MtrWriter::new();
        mtr.write((5, 3), 100, b"a");
        redo.extend(mtr.finish(1));
    }
    let chunk = fixture.chunk(&StreamFrame::Redo(&redo));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    parser.handle(&create).unwrap();
    assert_eq!(parser.handle(&chunk).unwrap().long_chains, [fixture.key(5, 3); 2]);
}

/// The server writes to a file that was copied into its data directory; the volume has no such file.
#[test]
fn a_write_to_a_file_that_the_volume_does_not_have_is_reported_once_and_makes_no_file() {
    let mut fixture = Fixture::new();
    let write = |path| StreamFrame::Write { path, offset_bytes: 5, data: b"late" };
    let frames = [write(b"d/copied.frm"), write(b"d/copied.frm"), write(b"d/other.frm")];
    let chunks = frames.map(|frame| fixture.chunk(&frame));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    let reported: Vec<_> = chunks.iter().map(|chunk| parser.handle(chunk).unwrap().unknown_file).collect();
    assert_eq!(reported, [Some("d/copied.frm".to_owned()), None, Some("d/other.frm".to_owned())]);
    assert_eq!(fixture.names.read().files().count(), 0);
    // A tablespace is no plain file: the server mixes them up.
    let create = StreamFrame::Create { path: b"d/t.ibd", kind: FileKind::Tablespace, mode: 0o660 };
    let (create, write) = (fixture.chunk(&create), fixture.chunk(&write(b"d/t.ibd")));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    parser.handle(&create).unwrap();
    assert!(parser.handle(&write).err().unwrap().to_string().contains("it is a tablespace"));
}

/// An image that is to heal page 0 is only checked when it is used.
#[test]
fn unsound_image_of_page_0_does_not_change_known_flags() {
    let format = Format { family: Family::MariaDb, flags: 0x15 };
    let page = |page_no: u32, flags: u32| {
        let mut page = vec![0; format.physical_page_size_bytes()];
        layout::set_page_id(&mut page, PageId::new(5, page_no));
        page[54..58].copy_from_slice(&flags.to_be_bytes());
        page[200] = 1;
        Format { family: Family::MariaDb, flags }.finalize(&mut page).unwrap();
        page
    };
    let mut torn = page(0, 0x15 | 1 << 5);
    torn[5000] ^= 1;
    let mut garbage = page(0, 0x15);
    garbage[54..58].fill(0xff);
    let sound = page(0, 0x15 | 1 << 5);
    for (image, expected) in
        [(torn, 0x15), (garbage, 0x15), (page(3, 0x15 | 1 << 5), 0x15), (sound, 0x15 | 1 << 5)]
    {
        let mut fixture = Fixture::new();
        let frames = [
            StreamFrame::Create { path: b"d/t.ibd", kind: FileKind::Tablespace, mode: 0o660 },
            StreamFrame::Redo(&create_space(5, "d/t.ibd")),
            StreamFrame::Image { path: b"d/t.ibd", page_no: 0, page: &image, is_recovered: false },
        ]
        .map(|frame| fixture.chunk(&frame));
        let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
        frames.iter().for_each(|chunk| drop(parser.handle(chunk).unwrap()));
        let names = fixture.names.read();
        let object = names.known_object_of_space(SpaceId(5)).unwrap();
        assert_eq!(names.object(object).unwrap().flags, Some(expected));
    }
}

#[test]
fn trim_pages_that_no_server_writes_is_refused() {
    for (space, pages, flags, why) in [
        (3, 64, 0x15, Some("instead of 640")),
        (3, 640, 0x15, None),
        // 4 KiB pages, and 64 KiB pages.
        (3, 640, 0x13, None),
        (3, 2560, 0x13, Some("instead of 640")),
        (3, 640, 0x17, None),
    ] {
        let mut fixture = Fixture::new();
        let mut create = MtrWriter::new();
        create.init((space, 0)).write_absolute((space, 0), 54, &u32::to_be_bytes(flags));
        let mut trim = MtrWriter::new();
        trim.trim((space, pages));
        let chunks = [create, trim].map(|mtr| fixture.chunk(&StreamFrame::Redo(&mtr.finish(1))));
        let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
        parser.handle(&chunks[0]).unwrap();
        let object = fixture.key(space, 0).object();
        match (parser.handle(&chunks[1]).err(), why) {
            (None, None) => assert_ne!(fixture.key(space, 0).object(), object),
            (Some(error), Some(why)) => assert!(error.to_string().contains(why), "{error}"),
            (error, why) => panic!("{space} {pages} {flags:#x}: {error:?}, expected {why:?}"),
        }
    }
}

/// Objects that a file of 768 pages cuts, after these frames about a system tablespace of 1024.
fn cut_after(frames: &[StreamFrame<'_>]) -> Vec<ObjectId> {
    let mut fixture = Fixture::new();
    let path: &[u8] = b"ibdata1";
    let mut create = MtrWriter::new();
    create.init((0, 0)).write_absolute((0, 0), 54, &0x15u32.to_be_bytes()).init((0, 900));
    let create = create.finish(1);
    let begin = [
        StreamFrame::SystemFiles(vec![SystemFile { path: path.to_vec(), len_bytes: 12 << 20 }]),
        StreamFrame::Create { path, kind: FileKind::Tablespace, mode: 0o660 },
        StreamFrame::SetLen { path, len_bytes: 768 << 14 },
        StreamFrame::SetLen { path, len_bytes: 1024 << 14 },
        StreamFrame::Redo(&create),
    ];
    let begin: Vec<_> = begin.iter().map(|frame| fixture.chunk(frame)).collect();
    let frames: Vec<_> = frames.iter().map(|frame| fixture.chunk(frame)).collect();
    let end = fixture.at;
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    let mut ends = [&begin, &frames].into_iter().map(|chunks| {
        chunks.iter().for_each(|chunk| _ = parser.handle(chunk).unwrap());
        let table = fixture.index.open_table();
        parser.close_table(end);
        table.end().unwrap()
    });
    assert_eq!(ends.next().unwrap().cut, [], "longer files are not cut");
    let last = ends.next().unwrap();
    assert_eq!(last.dead, []);
    let names = fixture.names.read();
    let object = names.known_object_of_space(SpaceId(0)).unwrap();
    assert!(last.cut.iter().all(|cut| *cut == object));
    last.cut
}

#[test]
fn a_system_tablespace_is_cut_where_trim_pages_said_unless_it_was_used_again() {
    let redo = |write: &dyn Fn(&mut MtrWriter)| {
        let mut mtr = MtrWriter::new();
        write(&mut mtr);
        mtr.finish(1)
    };
    let trim = redo(&|mtr| _ = mtr.write((0, 0), 48, &768u32.to_be_bytes()).trim((0, 768)));
    let past = redo(&|mtr| _ = mtr.init((0, 768)));
    let before = redo(&|mtr| _ = mtr.init((0, 767)).init((3, 900)));
    let set_len = |pages: u64| StreamFrame::SetLen { path: b"ibdata1", len_bytes: pages << 14 };
    let redo = |bytes| StreamFrame::Redo(bytes);
    let page = [7; 16384];
    let image = |page_no| StreamFrame::Image { path: b"ibdata1", page_no, page: &page, is_recovered: false };
    for (frames, is_cut, what) in [
        (vec![redo(&trim), set_len(768)], true, "by the server"),
        (vec![redo(&trim), redo(&before), image(767), set_len(768)], true, "pages before the end"),
        (vec![redo(&trim), set_len(768), set_len(2048), redo(&past), set_len(768)], true, "once"),
        (vec![set_len(768)], false, "nothing said so"),
        (vec![redo(&trim), set_len(1000)], false, "another length"),
        (vec![redo(&trim), redo(&past), set_len(768)], false, "a recovery, after it was used again"),
        (vec![redo(&trim), image(768), set_len(768)], false, "used again as an image"),
    ] {
        assert_eq!(cut_after(&frames).len(), usize::from(is_cut), "{what}");
    }
}

#[test]
fn what_an_import_found_to_be_void_does_not_get_into_the_index() {
    let mut fixture = Fixture::new();
    let mut mtrs = [MtrWriter::new(), MtrWriter::new(), MtrWriter::new()];
    mtrs[0].init((5, 0)).write_absolute((5, 0), 54, &0x15u32.to_be_bytes());
    mtrs[0].write((5, 3), 100, b"a").write((5, 4), 100, b"a").write((6, 3), 100, b"a");
    mtrs[1].free((5, 3)).init((5, 0));
    mtrs[2].file(0x90, 6, b"./d/gone.ibd");
    let redo: Vec<u8> = mtrs.iter().flat_map(|mtr| mtr.finish(1)).collect();
    let mut resets = redoubt_redo::LastResets::default();
    walk_mtrs(Family::MariaDb, &redo, LSN, &mut resets).unwrap();
    fixture.index.leave_out(resets);
    let first_len = mtrs[0].finish(1).len();
    let chunks = [&redo[..first_len], &redo[first_len..]].map(|redo| fixture.chunk(&StreamFrame::Redo(redo)));
    let mut parser = Parser::new(&fixture.index, &fixture.names, &fixture.plain);
    let first = parser.handle(&chunks[0]).unwrap().runs;
    // Other pages may be built before page 0 starts again.
    let object = fixture.key(5, 0).object();
    assert_eq!(fixture.names.read().object(object).unwrap().flags, Some(0x15));
    let second = parser.handle(&chunks[1]).unwrap().runs;
    let table = fixture.index.open_table();
    let entries = |space, page| table.chain(fixture.key(space, page)).len();
    assert_eq!([entries(5, 3), entries(5, 4), entries(5, 0)], [0, 1, 1]);
    assert_eq!((first, second, table.pages()), (1, 1, 2));
}

/// After a kill in the middle of ALTER TABLE: the name was another tablespace's, and page 0 of the new one was never
/// written.
#[test]
fn the_file_of_an_import_is_of_the_tablespace_that_had_its_name_last() {
    let mut fixture = Fixture::new();
    for path in ["d/t.ibd", "d/alter.ibd"] {
        let (file, _) = fixture.names.write().create(path, FileKind::Tablespace, 0o660);
        fixture.names.write().object_of_file(file).unwrap();
    }
    fixture.names.write().bind_space("d/t.ibd", SpaceId(5));
    fixture.import(&[
        (0xb0, 5, b"./d/alter.ibd"),
        (0xa0, 5, b"./d/alter.ibd\0./d/t.ibd"),
        (0x80, 6, b"./d/alter.ibd"),
    ]);
    let names = fixture.names.read();
    let object = |path: &str| names.file_at(path).unwrap().1.object;
    let of_space = |space| names.known_object_of_space(SpaceId(space)).map(|object| object.0);
    assert_eq!((object("d/t.ibd"), object("d/alter.ibd")), (of_space(5), of_space(6)));
    assert!(of_space(5).is_some() && of_space(6).is_some() && of_space(5) != of_space(6));
}

/// After a kill in the middle of TRUNCATE TABLE: the tablespace has given its name to a file that is still empty. The
/// server removes that file and gives the name back.
#[test]
fn a_new_file_under_the_old_name_of_a_tablespace_is_none_of_it_in_an_import() {
    let mut fixture = Fixture::new();
    for path in ["d/t.ibd", "d/old.ibd", "d/u.ibd"] {
        fixture.names.write().create(path, FileKind::Tablespace, 0o660);
    }
    // The second rename was logged and not done.
    let redo = [
        (0xb0, 5, &b"./d/t.ibd"[..]),
        (0xb0, 6, b"./d/u.ibd"),
        (0xa0, 5, b"./d/t.ibd\0./d/old.ibd"),
        (0xa0, 6, b"./d/u.ibd\0./d/old2.ibd"),
    ];
    fixture.import(&redo);
    let holder = |path: &str| fixture.names.read().file_at(path).unwrap().1.object;
    let of_space = |space| fixture.names.read().known_object_of_space(SpaceId(space)).map(|object| object.0);
    assert!(of_space(5).is_some() && of_space(6).is_some());
    assert_eq!((holder("d/old.ibd"), holder("d/u.ibd")), (of_space(5), of_space(6)));
    assert_ne!(holder("d/t.ibd"), of_space(5));
    let effects = fixture.names.write().unlink("d/t.ibd");
    assert!(effects.is_empty(), "{effects:?}");
    fixture.names.write().rename("d/old.ibd", "d/t.ibd");
    assert_eq!(holder("d/t.ibd"), of_space(5));
}

/// The rename back was logged and not done. Page 0 names each file's tablespace.
#[test]
fn what_is_in_a_file_says_more_of_an_import_than_its_name() {
    let mut fixture = Fixture::new();
    for path in ["d/t.ibd", "d/old.ibd"] {
        let (file, _) = fixture.names.write().create(path, FileKind::Tablespace, 0o660);
        fixture.names.write().object_of_file(file).unwrap();
    }
    fixture.names.write().bind_space("d/old.ibd", SpaceId(5));
    fixture.import(&[
        (0xb0, 5, b"./d/t.ibd"),
        (0xa0, 5, b"./d/t.ibd\0./d/old.ibd"),
        (0x80, 6, b"./d/t.ibd"),
        (0xa0, 5, b"./d/old.ibd\0./d/t.ibd"),
    ]);
    let of_space = |space| fixture.names.read().known_object_of_space(SpaceId(space)).map(|object| object.0);
    let holder = |path: &str| fixture.names.read().file_at(path).unwrap().1.object;
    assert_eq!(holder("d/old.ibd"), of_space(5));
    assert!(of_space(5).is_some() && holder("d/t.ibd") != of_space(5));
}

/// The file was put back after DISCARD TABLESPACE, or an IMPORT TABLESPACE was killed before its checkpoint.
#[test]
fn the_file_of_an_import_stays_although_its_redo_ends_the_tablespace() {
    let mut fixture = Fixture::new();
    let (file, _) = fixture.names.write().create("d/t.ibd", FileKind::Tablespace, 0o660);
    let object = fixture.names.write().object_of_file(file).unwrap();
    fixture.names.write().bind_space("d/t.ibd", SpaceId(5));
    let mut mtrs = [MtrWriter::new(), MtrWriter::new(), MtrWriter::new()];
    mtrs[0].write((5, 3), 100, b"a");
    mtrs[1].file(0x90, 5, b"./d/t.ibd").file(0x90, 6, b"./d/gone.ibd");
    mtrs[2].file(0xb0, 5, b"./d/t.ibd").write((5, 4), 100, b"a");
    let redo: Vec<u8> = mtrs.iter().flat_map(|mtr| mtr.finish(1)).collect();
    let mut resets = redoubt_redo::LastResets::default();
    walk_mtrs(Family::MariaDb, &redo, LSN, &mut resets).unwrap();
    fixture.index.leave_out(resets);
    let chunk = fixture.chunk(&StreamFrame::Redo(&redo));
    Parser::new(&fixture.index, &fixture.names, &fixture.plain).handle(&chunk).unwrap();
    let entries = |page| fixture.index.open_table().chain(fixture.key(5, page)).len();
    assert_eq!([entries(3), entries(4)], [0, 1], "only what comes after the end counts");
    let names = fixture.names.read();
    assert_eq!(names.file_at("d/t.ibd").unwrap().1.object, Some(object.0));
    assert_eq!(names.known_object_of_space(SpaceId(5)), Some(object));
    assert_eq!(names.known_object_of_space(SpaceId(6)), None);
}
