//! Ends of mini-transactions, page runs, and hostile bytes.

use super::*;
use crate::mariadb::test_encoder::{MtrWriter, random_mtr};
use crate::mariadb::{PageRun, RecordReader};
use crate::mtr::PageReset;

/// FILE_CHECKPOINT(12288), the first mini-transaction of any new database.
const FIRST_MTR: [u8; 16] = [0xfa, 0, 0, 0, 0, 0, 0, 0, 0, 0x30, 0, 0x01, 0x1f, 0xec, 0x1a, 0x80];

/// Runs and file notes of one mini-transaction.
fn parts(writer: &MtrWriter) -> (Vec<RunRef>, usize) {
    let bytes = writer.finish(1);
    let mut found = (Vec::new(), 0);
    let walked = walk_mtrs(&bytes, Lsn(1000), SequenceRule::Any, &mut |mtr: &Mtr<'_, '_>| {
        found = (mtr.runs.to_vec(), mtr.files.len());
    })
    .unwrap();
    assert_eq!(walked.end_lsn, Lsn(1000 + bytes.len() as u64));
    found
}

fn count(bytes: &[u8]) -> (Result<Walked, StreamError>, usize) {
    let mut mtrs = 0;
    let walked = walk_mtrs(bytes, Lsn(12_288), SequenceRule::Any, &mut |_: &Mtr<'_, '_>| mtrs += 1);
    (walked, mtrs)
}

#[test]
fn first_mtr_of_a_new_database() {
    let step = next_mtr(&FIRST_MTR).unwrap();
    assert_eq!(step, MtrStep::Mtr { records: &FIRST_MTR[..11], end_byte: 1, total_len_bytes: 16 });
    assert_eq!(next_mtr(&[0, 9]).unwrap(), MtrStep::EndOfLog);
    assert_eq!(next_mtr(&[]).unwrap(), MtrStep::Incomplete);
}

#[test]
fn runs_follow_the_pages() {
    let (a, b) = ((7, 40), (7, 41));
    let mut writer = MtrWriter::new();
    writer.file(0xb0, 7, b"./t.ibd");
    writer.write(a, 100, &[1]).write(a, 1, &[2]); // run 0
    writer.write(b, 100, &[1]).init(b).write(b, 9, &[1]); // run 1
    writer.write(a, 100, &[1]).write_absolute(a, 90, &[1]); // run 2
    writer.free(b); // run 3
    writer.trim((3, 640)).init((3, 640)).free((3, 640)).init((3, 640)); // runs 4 and 5
    let (runs, files) = parts(&writer);
    assert_eq!(files, 1);
    let pages: Vec<_> = runs.iter().map(|run| (run.page.space.0, run.page.page_no.0)).collect();
    assert_eq!(pages, [a, b, a, b, (3, 640), (3, 640)]);
    assert_eq!(runs[1].last_init_offset, Some(5));
    assert_eq!(runs[0].last_init_offset, None);
    assert!(runs[3].contains_free && runs[3].ends_with_free);
    assert_eq!(runs[4].trim_pages, Some(640));
    assert!(runs[5].contains_free && !runs[5].ends_with_free && runs[5].trim_pages.is_none());
    let resets: Vec<_> = runs.iter().map(RunRef::reset).collect();
    let (init, free) = (Some(PageReset::Init), Some(PageReset::Free));
    assert_eq!(resets, [None, init, None, free, None, init]);
    // The runs cover the page records without a gap.
    let mut at = runs[0].offset_in_bytes;
    for run in &runs {
        assert_eq!(run.offset_in_bytes, at);
        at += run.len_bytes;
    }
    assert_eq!(at, writer.records.len());
}

#[test]
fn space_flags_are_followed_through_page_0() {
    use SpaceFlagsChange::{Set, Unchanged, Unknown};
    let page = (9, 0);
    let flags = |build: &dyn Fn(&mut MtrWriter)| {
        let mut writer = MtrWriter::new();
        build(&mut writer);
        parts(&writer).0.last().unwrap().space_flags
    };
    assert_eq!(flags(&|w| _ = w.write(page, 54, &[0, 0, 0, 0x15])), Set(0x15));
    assert_eq!(flags(&|w| _ = w.write(page, 50, &[9, 9, 9, 9, 0, 0, 0, 0x35, 7])), Set(0x35));
    assert_eq!(flags(&|w| _ = w.write(page, 46, &[0; 8])), Unchanged);
    assert_eq!(flags(&|w| _ = w.write(page, 58, &[0; 8])), Unchanged);
    assert_eq!(flags(&|w| _ = w.write(page, 57, &[0; 8])), Unknown);
    assert_eq!(flags(&|w| _ = w.init(page)), Set(0));
    assert_eq!(flags(&|w| _ = w.init(page).write(page, 33, &[0x29])), Set(0x29));
    assert_eq!(flags(&|w| _ = w.memset(page, 50, 20, &[1, 2])), Set(0x0102_0102));
    assert_eq!(flags(&|w| _ = w.init(page).memmove(page, 28, 4, 16)), Unknown);
    assert_eq!(flags(&|w| _ = w.write((9, 1), 54, &[0, 0, 0, 0x15])), Unchanged);
    // 38 + 8 + 4 written before, then 4 further.
    assert_eq!(flags(&|w| _ = w.write(page, 46, &[0; 4]).write(page, 4, &[0, 0, 0, 5])), Set(5));
}

#[test]
fn random_mtrs_are_found_again() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..2000 {
        bytes.extend(random_mtr(&mut rng).finish(rng.u8(0..2)));
        ends.push(12_288 + bytes.len() as u64);
    }
    let mut found = Vec::new();
    let walked = walk_mtrs(&bytes, Lsn(12_288), SequenceRule::Any, &mut |mtr: &Mtr<'_, '_>| {
        let at = mtr.offset_in_bytes;
        match next_mtr(&bytes[at..]) {
            Ok(MtrStep::Mtr { records, total_len_bytes, .. }) => {
                assert_eq!(records, mtr.records);
                assert_eq!(mtr.start_lsn.advance(total_len_bytes as u64), mtr.end_lsn);
            }
            other => panic!("{other:?}"),
        }
        for run in mtr.runs {
            let run_bytes = &bytes[run.offset_in_bytes..][..run.len_bytes];
            assert_eq!(PageRun::new(run_bytes).unwrap().page(), run.page);
            assert!(PageRun::new(run_bytes).unwrap().all(|record| record.is_ok()));
        }
        found.push(mtr.end_lsn.0);
    })
    .unwrap();
    assert_eq!(walked.stop, WalkStop::AllConsumed);
    assert_eq!(found, ends);
}

#[test]
fn a_cut_at_any_byte_never_reports_a_part() {
    let mut rng = fastrand::Rng::with_seed(2);
    let first = random_mtr(&mut rng).finish(1);
    for _ in 0..40 {
        let second = random_mtr(&mut rng).finish(0);
        let both = [first.as_slice(), &second].concat();
        for cut in first.len()..both.len() {
            let (walked, mtrs) = count(&both[..cut]);
            let expected = if cut == first.len() { WalkStop::AllConsumed } else { WalkStop::Incomplete };
            assert_eq!(walked.unwrap().stop, expected, "cut at {cut}");
            assert_eq!(mtrs, 1);
        }
    }
}

#[test]
fn every_bit_flip_is_noticed() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..20 {
        let good = random_mtr(&mut rng).finish(1);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (walked, mtrs) = count(&bad);
            if bit == (good.len() - 5) * 8 {
                // The sequence bit itself is not covered by the checksum.
                assert_eq!(mtrs, 1);
                continue;
            }
            assert_eq!(mtrs, 0, "bit {bit}");
            assert!(walked.is_err() || walked.unwrap().stop != WalkStop::AllConsumed);
        }
    }
}

#[test]
fn random_bytes_never_panic_and_are_never_a_mtr() {
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..20_000 {
        let len = rng.usize(0..400);
        let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        assert_eq!(count(&bytes).1, 0);
        let _ = next_mtr(&bytes);
        for record in RecordReader::new(&bytes) {
            let _ = record;
        }
    }
}

#[test]
fn an_invalid_record_with_a_right_checksum_is_an_error_with_its_place() {
    let good = MtrWriter::new().init((5, 9)).finish(1);
    let mut bad = MtrWriter::new();
    bad.records = vec![0x12, 5, 9, 0xe1, 1];
    let bad = bad.finish(1);
    let (walked, mtrs) = count(&[good.clone(), bad].concat());
    let error = walked.unwrap_err();
    assert_eq!(mtrs, 1);
    assert_eq!(error.mtr_lsn, Lsn(12_288 + good.len() as u64));
    match error.error {
        RedoError::BadByte { offset, byte: 0xe1, .. } => assert_eq!(offset, good.len() + 3),
        other => panic!("{other:?}"),
    }
    assert!(!error.error.is_unframed());
}

#[test]
fn an_endless_mtr_is_refused() {
    let mut writer = MtrWriter::new();
    while writer.records.len() <= MTR_SIZE_MAX_BYTES {
        writer.write((5, 9), 100, &[1; 1000]);
    }
    assert!(matches!(count(&writer.finish(1)).0.unwrap_err().error, RedoError::MtrTooLong { .. }));
    assert!(matches!(next_mtr(&writer.finish(1)), Err(RedoError::MtrTooLong { .. })));
}

#[test]
fn the_other_sequence_bit_is_the_end_of_the_log() {
    let geometry = LogGeometry::new(Lsn(12_288), 12_288 + 64).unwrap();
    let one = MtrWriter::new().write((5, 9), 100, &[1; 20]).finish(1);
    let zero = MtrWriter::new().write((5, 9), 100, &[1; 20]).finish(0);
    // 29 bytes of records and trailer each: end bytes on laps 0, 0, 1.
    let bytes = [one.clone(), one.clone(), zero, one].concat();
    let rule = SequenceRule::Geometry(&geometry);
    let walked = walk_mtrs(&bytes, Lsn(12_288), rule, &mut |_: &Mtr<'_, '_>| ()).unwrap();
    assert_eq!((walked.len_bytes * 4, walked.stop), (bytes.len() * 3, WalkStop::WrongSequenceBit));
}
