use super::*;
use crate::encoder::MtrWriter;
use crate::mark::Point;
use redoubt_page::layout::{page_lsn, set_page_lsn};
use redoubt_page::{SpaceFlags, finalize};
use redoubt_wire::Seq;
use redoubt_wire::stream::StreamFrame;

const FLAGS: SpaceFlags = SpaceFlags(0x15);
const FORMAT: Format = Format::of_mariadb(FLAGS);
const ID: PageId = PageId::new(5, 7);
const PAGE: (u32, u32) = (5, 7);
const LEN: usize = 16_384;
const START: Lsn = Lsn(1000);

const KEY: PageKey = PageKey::new(redoubt_pagestore::ObjectId(3), 7);

fn damaged(page_id: PageId) -> DamagedImage {
    DamagedImage { key: KEY, page_id, format: FORMAT, fault: "damaged".to_owned() }
}

/// Frames of a log that starts at [`START`].
struct Log {
    histories: Histories,
    lsn: Lsn,
}

impl Log {
    fn new() -> Self {
        Self { histories: Histories::new(&[damaged(ID)]), lsn: START }
    }

    /// `at`: the page that is found at the path of the frame.
    fn frame(&mut self, frame: &StreamFrame<'_>, lsn_bytes: u64, at: Option<PageKey>) -> &mut Self {
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        let start = Point { seq: Seq(1), lsn: self.lsn };
        self.lsn = self.lsn.advance(lsn_bytes);
        let end = Point { seq: Seq(1), lsn: self.lsn };
        let chunk =
            Chunk { kind: frame.kind(), logged: true, start, end, wire: Vec::new(), raw: Some(payload) };
        self.histories.frame(&chunk, &|_, _| at).unwrap();
        self
    }

    fn mtr(&mut self, mtr: &MtrWriter) -> &mut Self {
        let bytes = mtr.finish(1);
        self.frame(&StreamFrame::Redo(&bytes), bytes.len() as u64, None)
    }

    fn change(&mut self, value: u8) -> &mut Self {
        let mut mtr = MtrWriter::new();
        mtr.write(PAGE, 100, &[value]);
        self.mtr(&mtr)
    }

    fn image(&mut self, page: &[u8], at: Option<PageKey>) -> &mut Self {
        self.frame(&StreamFrame::Image { path: b"d/t.ibd", page_no: 7, page, is_recovered: false }, 0, at)
    }

    fn rename(&mut self, from: &str, to: &str) -> &mut Self {
        let frame = StreamFrame::Rename { from: from.as_bytes(), to: to.as_bytes() };
        self.frame(&frame, 0, None)
    }

    /// LSN and the byte that changes, of the page that is built.
    fn rebuild(self, retained: &[RetainedImage]) -> Result<(Lsn, u8), String> {
        let (page, _) = self.histories.into_pages().remove(0).rebuild(retained, None, START)?;
        assert!(redoubt_page::verify(&page, FLAGS).is_ok());
        Ok((page_lsn(&page).unwrap(), page[100]))
    }
}

fn image(lsn: u64, value: u8) -> Vec<u8> {
    let mut page = vec![0; LEN];
    page[4..8].copy_from_slice(&7_u32.to_be_bytes());
    page[34..38].copy_from_slice(&5_u32.to_be_bytes());
    page[100] = value;
    set_page_lsn(&mut page, Lsn(lsn));
    finalize(&mut page, FLAGS).unwrap();
    page
}

fn retained(lsn: u64, value: u8, is_newest: bool) -> RetainedImage {
    RetainedImage { page: image(lsn, value), is_newest }
}

fn init() -> MtrWriter {
    let mut mtr = MtrWriter::new();
    mtr.init(PAGE).write(PAGE, 100, &[9]);
    mtr
}

#[test]
fn the_newest_image_is_taken_whatever_the_log_says() {
    let mut log = Log::new();
    log.change(1).image(&image(1, 1), None);
    assert_eq!(log.rebuild(&[retained(5, 4, true)]), Ok((Lsn(5), 4)));
}

#[test]
fn an_older_image_needs_all_redo_since() {
    let with_changes = || {
        let mut log = Log::new();
        log.change(1).change(2);
        log
    };
    let end = with_changes().lsn;
    assert_eq!(with_changes().rebuild(&[retained(START.0, 4, false)]), Ok((end, 2)));
    let error = with_changes().rebuild(&[retained(START.0 - 1, 4, false)]).unwrap_err();
    assert!(error.contains("from LSN 1000 on"), "{error}");
    // Redo that the image has already is not applied again.
    let mut log = Log::new();
    log.change(1);
    let lsn = log.lsn;
    assert_eq!(log.rebuild(&[retained(lsn.0, 4, false)]), Ok((lsn, 4)));
    // A damaged image does not count.
    let mut torn = retained(START.0 + 1, 4, false);
    torn.page[9000] ^= 1;
    let older = retained(START.0, 5, false);
    assert_eq!(with_changes().rebuild(&[torn, older]), Ok((end, 2)));
}

#[test]
fn redo_that_starts_the_page_anew_needs_no_image() {
    let mut log = Log::new();
    log.change(1).mtr(&init()).change(2);
    let end = log.lsn;
    assert_eq!(log.rebuild(&[]), Ok((end, 2)));
    // So does the creation of its tablespace, cutting it, and freeing the page.
    let mut create = MtrWriter::new();
    create.file(0x80, 5, b"./d/t.ibd");
    let mut trim = MtrWriter::new();
    trim.trim((5, 3));
    let mut free = MtrWriter::new();
    free.free((5, 7));
    for anew in [create, trim, free] {
        let mut log = Log::new();
        log.change(1).mtr(&anew);
        let (page, _) = log.histories.into_pages().remove(0).rebuild(&[], None, START).unwrap();
        assert!(page.iter().all(|byte| *byte == 0));
    }
    // Of another tablespace: nothing.
    let mut other = MtrWriter::new();
    other.file(0x80, 6, b"./d/u.ibd").init((6, 7)).init((5, 8));
    let mut log = Log::new();
    log.mtr(&other).change(1);
    assert!(log.rebuild(&[]).is_err());
}

#[test]
fn a_cut_of_the_system_tablespace_starts_the_pages_anew_that_it_cuts_off() {
    for (first_cut_off, is_anew) in [(7, true), (8, false)] {
        let page = PageId::new(0, 7);
        let mut log = Log { histories: Histories::new(&[damaged(page)]), lsn: START };
        let mut change = MtrWriter::new();
        change.write((0, 7), 100, &[1]).trim((0, first_cut_off));
        log.mtr(&change);
        assert_eq!(
            log.histories.into_pages().remove(0).rebuild(&[], None, START).is_ok(),
            is_anew,
            "cut from page {first_cut_off} on"
        );
    }
}

#[test]
fn image_in_the_stream_starts_its_page_anew_in_any_file() {
    let mut other = image(START.0 + 5, 9);
    other[37] = 6;
    for (found, at) in
        [(&image(START.0 + 5, 3), None), (&image(START.0 + 5, 3), Some(KEY)), (&other, Some(KEY))]
    {
        let mut log = Log::new();
        log.mtr(&init()).change(9).image(found, at).rename("d/t.ibd", "d/u.ibd");
        let expected = if *found == other { 9 } else { 3 };
        assert_eq!(log.rebuild(&[]).map(|(_, value)| value), Ok(expected), "{at:?}");
    }
    let mut log = Log::new();
    log.image(&image(1, 1)[..100], Some(KEY));
    assert!(log.rebuild(&[]).unwrap_err().contains("damaged"));
}

#[test]
fn image_of_zeros_is_that_of_its_path_unless_that_was_renamed() {
    let with_zeros = |at| {
        let mut log = Log::new();
        log.mtr(&init()).image(&[0; LEN], at).change(4);
        log
    };
    for at in [Some(KEY), None] {
        let end = with_zeros(at).lsn;
        assert_eq!(with_zeros(at).rebuild(&[]), Ok((end, 4)), "{at:?}");
        for (from, to) in [("d/t.ibd", "d/u.ibd"), ("d", "e")] {
            let mut log = with_zeros(at);
            log.rename(from, to);
            assert!(log.rebuild(&[]).unwrap_err().contains("renamed"), "{at:?}, {from}");
        }
        let mut log = with_zeros(at);
        log.rename("d/t", "d/t2");
        assert_eq!(log.rebuild(&[]), Ok((end, 4)), "{at:?}");
    }
}

#[test]
fn page_of_a_deleted_file_begins_with_what_comes_after_that() {
    let mut delete = MtrWriter::new();
    delete.file(0x90, 5, b"./d/t.ibd");
    let deleted = || {
        let mut log = Log::new();
        log.mtr(&init()).mtr(&delete);
        log
    };
    for stored in [vec![0; LEN], image(1, 1)] {
        assert!(bring_up(deleted(), &stored).unwrap_err().contains("deletion"));
    }
    assert!(deleted().rebuild(&[]).unwrap_err().contains("deletion"));
    let mut imported = deleted();
    imported.image(&image(1, 3), None).change(4);
    let end = imported.lsn;
    assert_eq!(bring_up(imported, &image(1, 1)), Ok(Some((end, 4))));
}

/// Verdict on a stored page; of one that is rebuilt, its LSN and the byte that changes.
fn examine(log: Log, stored: &[u8], retained: &[RetainedImage]) -> Result<(Lsn, u8), Examined> {
    match log.histories.into_pages().remove(0).examine(stored, retained, START) {
        Examined::Rebuilt(page) => {
            assert!(redoubt_page::verify(&page, FLAGS).is_ok());
            Ok((page_lsn(&page).unwrap(), page[100]))
        }
        other => Err(other),
    }
}

fn two_changes() -> Log {
    let mut log = Log::new();
    log.change(1).change(2);
    log
}

#[test]
fn page_with_all_changes_is_not_outdated() {
    let end = two_changes().lsn;
    assert_eq!(examine(two_changes(), &image(end.0, 2), &[]), Err(Examined::Unproven));
    let newest = retained(end.0, 2, true);
    assert_eq!(examine(two_changes(), &image(end.0, 2), &[newest]), Err(Examined::Unproven));
    assert_eq!(examine(Log::new(), &image(7, 2), &[]), Err(Examined::Unproven));
    // Freed, it has no content that could be missing.
    let mut log = Log::new();
    let mut free = MtrWriter::new();
    free.free(PAGE);
    log.change(1).mtr(&free);
    assert_eq!(examine(log, &image(7, 2), &[]), Err(Examined::Unproven));
}

#[test]
fn outdated_page_is_rebuilt_from_itself_and_the_log() {
    let end = two_changes().lsn;
    assert_eq!(examine(two_changes(), &image(START.0, 0), &[]), Ok((end, 2)));
    let mut log = Log::new();
    log.change(1);
    let first = log.lsn;
    assert_eq!(examine(two_changes(), &image(first.0, 1), &[]), Ok((end, 2)));
}

#[test]
fn outdated_page_from_before_the_log_needs_another_base() {
    let end = two_changes().lsn;
    let old = image(START.0 - 1, 0);
    let lost = examine(two_changes(), &old, &[]).unwrap_err();
    assert!(
        matches!(&lost, Examined::Lost { lsn: START, reason } if reason.contains("LSN 1000")),
        "{lost:?}"
    );
    assert_eq!(examine(two_changes(), &old, &[retained(START.0, 4, false)]), Ok((end, 2)));
    // A page of zeros was never written, or lost.
    let mut log = Log::new();
    log.mtr(&init()).change(2);
    let end = log.lsn;
    assert_eq!(examine(log, &vec![0; LEN], &[]), Ok((end, 2)));
}

#[test]
fn newest_image_of_the_journal_proves_an_outdated_page() {
    assert_eq!(examine(Log::new(), &image(7, 2), &[retained(8, 3, true)]), Ok((Lsn(8), 3)));
    assert_eq!(examine(Log::new(), &image(8, 3), &[retained(7, 2, true)]), Err(Examined::Unproven));
}

#[test]
fn doubtful_log_proves_no_outdated_page() {
    let old = image(START.0, 0);
    let mut log = two_changes();
    log.image(&[0; LEN], None).rename("d/t.ibd", "d/u.ibd");
    assert_eq!(examine(log, &old, &[]), Err(Examined::Unproven));
    let mut log = two_changes();
    let mut delete = MtrWriter::new();
    delete.file(0x90, 5, b"./d/t.ibd");
    log.mtr(&delete);
    assert_eq!(examine(log, &old, &[]), Err(Examined::Unproven));
}

/// A page of a lost journal, from what its file has; of a page that changes, its LSN and the byte.
fn bring_up(log: Log, stored: &[u8]) -> Result<Option<(Lsn, u8)>, String> {
    let page = log.histories.into_pages().remove(0).bring_up(stored)?;
    Ok(page.map(|page| {
        assert!(redoubt_page::verify(&page, FLAGS).is_ok());
        (page_lsn(&page).unwrap(), page[100])
    }))
}

#[test]
fn page_of_a_lost_journal_gets_what_its_file_lacks() {
    let end = two_changes().lsn;
    // Also of a file that has not been written since long before the log begins: the log has the changes after that.
    for lsn in [1, START.0, START.0 + 1] {
        assert_eq!(bring_up(two_changes(), &image(lsn, 0)), Ok(Some((end, 2))), "{lsn}");
    }
    assert_eq!(bring_up(two_changes(), &image(end.0, 2)), Ok(None));
    assert_eq!(bring_up(Log::new(), &image(1, 1)), Ok(None));
}

#[test]
fn page_of_a_lost_journal_without_a_base_is_lost() {
    let mut torn = image(1, 0);
    torn[5000] ^= 1;
    for stored in [torn, vec![0; LEN]] {
        let why = bring_up(two_changes(), &stored).unwrap_err();
        assert!(why.contains("does not initialise it"), "{why}");
        let mut log = Log::new();
        log.mtr(&init()).change(4);
        let end = log.lsn;
        assert_eq!(bring_up(log, &stored), Ok(Some((end, 4))));
    }
    let mut renamed = two_changes();
    renamed.image(&[0; LEN], None).rename("d/t.ibd", "d/u.ibd");
    assert!(bring_up(renamed, &image(1, 0)).unwrap_err().contains("renamed"));
}

#[test]
fn page_of_a_lost_journal_is_scrubbed_again() {
    let scrubbed = |lsn: Lsn| {
        let mut log = two_changes();
        let frame = StreamFrame::Scrub { path: b"d/t.ibd", page_no: 7, pages: 1, lsn };
        log.frame(&frame, 0, Some(KEY));
        log
    };
    let end = two_changes().lsn;
    assert_eq!(bring_up(scrubbed(end), &image(1, 1)), Ok(Some((end, 0))));
    // The frame meant another file, or an image came after it.
    let mut renamed = scrubbed(end);
    renamed.rename("d/t.ibd", "d/u.ibd");
    assert_eq!(bring_up(renamed, &image(1, 1)), Ok(Some((end, 2))));
    let mut imaged = scrubbed(end);
    imaged.image(&image(1, 3), None);
    assert_eq!(bring_up(imaged, &image(1, 1)).map(|page| page.map(|(_, value)| value)), Ok(Some(3)));
    // It is in use again.
    let mut only = Log::new();
    let frame = StreamFrame::Scrub { path: b"d/t.ibd", page_no: 7, pages: 1, lsn: end };
    only.frame(&frame, 0, Some(KEY));
    assert_eq!(bring_up(only, &[0; LEN]), Ok(None), "it never had content");
    assert_eq!(bring_up(scrubbed(START), &image(1, 1)), Ok(Some((end, 2))));
}

#[test]
fn page_in_its_file_is_a_base_if_the_log_has_the_rest() {
    let end = two_changes().lsn;
    let rebuild = |stored: &[u8]| {
        two_changes().histories.into_pages().remove(0).rebuild(&[retained(1, 1, false)], Some(stored), START)
    };
    let (page, _) = rebuild(&image(1, 0)).unwrap();
    assert_eq!((page_lsn(&page), page[100]), (Some(end), 2));
    let mut torn = image(1, 0);
    torn[5000] ^= 1;
    assert!(rebuild(&torn).is_err());
    assert!(rebuild(&[0; LEN]).is_err());
}
