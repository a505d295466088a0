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

/// Frames of a log that starts at [`START`].
struct Log {
    histories: Histories,
    lsn: Lsn,
}

impl Log {
    fn new() -> Self {
        Self { histories: Histories::new([(ID, FORMAT)]), lsn: START }
    }

    fn frame(&mut self, frame: &StreamFrame<'_>, lsn_bytes: u64, owner: ImageOwner) -> &mut Self {
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        let start = Point { seq: Seq(1), lsn: self.lsn };
        self.lsn = self.lsn.advance(lsn_bytes);
        let end = Point { seq: Seq(1), lsn: self.lsn };
        let chunk =
            Chunk { kind: frame.kind(), logged: true, start, end, wire: Vec::new(), raw: Some(payload) };
        self.histories.frame(&chunk, &|_, _, _| owner).unwrap();
        self
    }

    fn mtr(&mut self, mtr: &MtrWriter) -> &mut Self {
        let bytes = mtr.finish(1);
        self.frame(&StreamFrame::Redo(&bytes), bytes.len() as u64, ImageOwner::Other)
    }

    fn change(&mut self, value: u8) -> &mut Self {
        let mut mtr = MtrWriter::new();
        mtr.write(PAGE, 100, &[value]);
        self.mtr(&mtr)
    }

    fn image(&mut self, page: &[u8], owner: ImageOwner) -> &mut Self {
        self.frame(&StreamFrame::Image { path: b"d/t.ibd", page_no: 7, page, is_recovered: false }, 0, owner)
    }

    fn rename(&mut self) -> &mut Self {
        self.frame(&StreamFrame::Rename { from: b"d/t.ibd", to: b"d/u.ibd" }, 0, ImageOwner::Other)
    }

    /// LSN and the byte that changes, of the page that is built.
    fn rebuild(self, retained: &[RetainedImage]) -> Result<(Lsn, u8), String> {
        let (page, _) = self.histories.into_pages().remove(0).rebuild(retained, START)?;
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
    log.change(1).image(&image(1, 1), ImageOwner::Unknown);
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
        let (page, _) = log.histories.into_pages().remove(0).rebuild(&[], START).unwrap();
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
        let mut log = Log { histories: Histories::new([(page, FORMAT)]), lsn: START };
        let mut change = MtrWriter::new();
        change.write((0, 7), 100, &[1]).trim((0, first_cut_off));
        log.mtr(&change);
        assert_eq!(
            log.histories.into_pages().remove(0).rebuild(&[], START).is_ok(),
            is_anew,
            "cut from page {first_cut_off} on"
        );
    }
}

#[test]
fn an_image_of_the_stream_starts_it_anew_if_it_is_known_whose_it_is() {
    let with_image = |owner| {
        let mut log = Log::new();
        log.mtr(&init()).image(&image(START.0 + 5, 3), owner).change(4);
        log
    };
    let end = with_image(ImageOwner::Ours).lsn;
    assert_eq!(with_image(ImageOwner::Ours).rebuild(&[]), Ok((end, 4)));
    assert_eq!(with_image(ImageOwner::Other).rebuild(&[]), Ok((end, 4)));
    assert!(with_image(ImageOwner::Unknown).rebuild(&[]).unwrap_err().contains("which is gone"));
    for owner in [ImageOwner::Ours, ImageOwner::Other] {
        let mut log = with_image(owner);
        log.rename();
        assert!(log.rebuild(&[]).unwrap_err().contains("renamed"));
    }
    let mut log = Log::new();
    log.image(&[1; 100], ImageOwner::Ours);
    assert!(log.rebuild(&[]).unwrap_err().contains("damaged"));
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
    log.image(&image(1, 1), ImageOwner::Unknown);
    assert_eq!(examine(log, &old, &[]), Err(Examined::Unproven));
    let mut log = two_changes();
    let mut delete = MtrWriter::new();
    delete.file(0x90, 5, b"./d/t.ibd");
    log.mtr(&delete);
    assert_eq!(examine(log, &old, &[]), Err(Examined::Unproven));
}
