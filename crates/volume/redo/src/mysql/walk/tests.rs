//! Streams of known mini-transactions, cut and changed.

use super::*;
use crate::mysql::test_encoder::{group, random_group, record};
use crate::types::{PageId, SpaceId};

/// A mini-transaction as it was reported: start, end, records' length, runs, notes, index loads.
type Seen = (u64, u64, usize, Vec<RunRef>, usize, Vec<IndexLoad>);

fn walk(bytes: &[u8]) -> (Vec<Seen>, Result<Walked, StreamError>) {
    let mut seen = Vec::new();
    let walked = walk_mtrs(bytes, Lsn(1000), &mut |mtr: &Mtr<'_, '_>| {
        assert_eq!(mtr.bytes, &bytes[mtr.offset_in_bytes..mtr.offset_in_bytes + mtr.bytes.len()]);
        seen.push((
            mtr.start_lsn.0,
            mtr.end_lsn.0,
            mtr.records.len(),
            mtr.runs.to_vec(),
            mtr.files.len(),
            mtr.index_loads.to_vec(),
        ));
    });
    (seen, walked)
}

#[test]
fn random_streams_are_walked_to_their_end_and_to_any_cut() {
    let mut rng = fastrand::Rng::with_seed(21);
    for _ in 0..300 {
        let groups: Vec<_> = (0..rng.usize(1..20)).map(|_| random_group(&mut rng)).collect();
        let stream = groups.concat();
        let (seen, walked) = walk(&stream);
        let walked = walked.unwrap();
        assert_eq!((walked.len_bytes, walked.stop), (stream.len(), WalkStop::AllConsumed));
        let lengths: Vec<_> = seen.iter().map(|mtr| (mtr.1 - mtr.0) as usize).collect();
        assert_eq!(lengths, groups.iter().map(Vec::len).collect::<Vec<_>>());
        for (mtr, bytes) in seen.iter().zip(&groups) {
            assert_eq!(mtr.2, bytes.len() - usize::from(bytes[0] & 0x80 == 0));
        }
        let cut = rng.usize(0..stream.len());
        let (part, walked) = walk(&stream[..cut]);
        let walked = walked.unwrap();
        assert_eq!(part[..], seen[..part.len()]);
        let whole: usize = lengths
            .iter()
            .scan(0, |end, len| {
                *end += len;
                Some(*end)
            })
            .take_while(|&end| end <= cut)
            .last()
            .unwrap_or(0);
        assert_eq!(walked.len_bytes, whole);
    }
}

#[test]
fn the_end_of_a_mini_transaction_is_found_in_pieces() {
    let mut rng = fastrand::Rng::with_seed(22);
    for _ in 0..2000 {
        let bytes = random_group(&mut rng);
        let mut known = 0;
        let mut len = 0;
        while len < bytes.len() {
            match mtr_end(&bytes[..len], known).unwrap() {
                MtrEnd::After(at) => {
                    assert!(at >= known && at <= len);
                    known = at;
                }
                MtrEnd::At(_) => panic!("{len} of {} bytes", bytes.len()),
            }
            len += rng.usize(1..40);
        }
        assert_eq!(mtr_end(&bytes, known), Ok(MtrEnd::At(bytes.len())));
        assert_eq!(mtr_end(&[&bytes[..], &[1, 2]].concat(), 0), Ok(MtrEnd::At(bytes.len())));
    }
}

/// The bytes that are known are not looked at again: a mini-transaction of many pieces would take quadratic time.
#[test]
fn known_bytes_of_a_mini_transaction_are_not_walked_again() {
    let bytes =
        group(&[record(2, 5, 3, &[0, 60, 1]), record(2, 5, 4, &[0, 60, 2]), record(2, 5, 5, &[0, 60, 3])]);
    let MtrEnd::After(known) = mtr_end(&bytes[..bytes.len() - 2], 0).unwrap() else {
        panic!("it has an end")
    };
    assert!(known > 0);
    let mut poisoned = bytes.clone();
    poisoned[..known].fill(0xff);
    assert!(mtr_end(&poisoned, 0).is_err(), "walked from its beginning, it is not valid");
    assert_eq!(mtr_end(&poisoned, known), Ok(MtrEnd::At(bytes.len())));
    // Nor when more bytes do not complete it.
    for len in known..bytes.len() {
        assert_eq!(mtr_end(&poisoned[..len], known), mtr_end(&bytes[..len], 0), "{len} bytes");
    }
}

#[test]
fn runs_are_of_one_page_and_notes_apart() {
    let init = record(59, 5, 0, &[]);
    let flags = record(4, 5, 0, &[0, 54, 0xc0, 0x40, 0x21]);
    let other = record(2, 5, 3, &[0, 60, 1]);
    let root = record(61, 5, 4, &[0, 0, 0, 0, 0, 0, 0, 9]);
    let extend = record(65, 5, 0, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0]);
    let size = record(4, 5, 0, &[0, 46, 7]);
    let bytes =
        group(&[size.clone(), init.clone(), flags.clone(), other.clone(), root, extend, size.clone()]);
    let (seen, walked) = walk(&bytes);
    assert_eq!(walked.unwrap().stop, WalkStop::AllConsumed);
    let (_, _, _, runs, files, loads) = &seen[0];
    assert_eq!((runs.len(), *files), (3, 1));
    assert_eq!(loads[..], [IndexLoad { root: PageId::new(5, 4), index_id: 9 }]);
    assert_eq!(runs[0].len_bytes, size.len() + init.len() + flags.len());
    assert_eq!(runs[0].last_init_offset, Some(size.len()));
    assert_eq!(runs[0].space_flags, SpaceFlagsChange::Set(0x4021));
    assert_eq!((runs[1].page, runs[1].len_bytes), (PageId::new(5, 3), other.len()));
    assert_eq!(runs[2].space_flags, SpaceFlagsChange::Unchanged);
    // A record between two records of a page ends its run.
    let note = record(35, 5, 0, b"\0\x0a./a/b.ibd\0");
    let (seen, _) = walk(&group(&[size.clone(), note, size]));
    assert_eq!(seen[0].3.len(), 2);
}

#[test]
fn flags_are_known_when_all_of_their_bytes_are() {
    let change = |rest: &[&[u8]]| {
        let records: Vec<_> = rest.iter().map(|rest| record(rest[0], 9, 0, &rest[1..])).collect();
        walk(&group(&records)).0[0].3[0].space_flags
    };
    assert_eq!(
        change(&[&[30, 0, 50, 0, 9, 1, 2, 3, 4, 0xa, 0xb, 0xc, 0xd, 9]]),
        SpaceFlagsChange::Set(0x0a0b_0c0d)
    );
    assert_eq!(change(&[&[2, 0, 56, 7]]), SpaceFlagsChange::Unknown);
    assert_eq!(change(&[&[2, 0, 56, 7], &[2, 0, 54, 6]]), SpaceFlagsChange::Set(0x0006_0007));
    assert_eq!(change(&[&[4, 0, 58, 7]]), SpaceFlagsChange::Unchanged);
    assert_eq!(change(&[&[8, 0, 48, 7, 0, 0, 0, 0]]), SpaceFlagsChange::Unknown);
    assert_eq!(change(&[&[59]]), SpaceFlagsChange::Set(0));
}

#[test]
fn what_cannot_be_in_a_mini_transaction_is_refused() {
    let write = record(2, 5, 3, &[0, 60, 1]);
    let single = group(std::slice::from_ref(&write));
    for bad in [
        [&write[..], &single].concat(),
        [&[32][..], &single].concat(),
        vec![31],
        vec![0x9f],
        vec![0xa0],
        vec![0],
        [&single[..], &[31]].concat(),
    ] {
        assert!(walk(&bad).1.is_err(), "{bad:x?}");
        let start = if bad.starts_with(&single) { single.len() } else { 0 };
        assert!(mtr_end(&bad[start..], 0).is_err(), "{bad:x?}");
    }
    let (seen, walked) = walk(&[&single[..], &[9]].concat());
    assert_eq!(seen.len(), 1);
    let error = walked.unwrap_err();
    assert_eq!(error.mtr_lsn, Lsn(1000 + single.len() as u64));
    assert!(matches!(error.error, RedoError::BadByte { offset, .. } if offset == single.len()));
}

#[test]
fn filler_is_one_mini_transaction_without_runs() {
    let mut bytes = vec![32; 100];
    assert_eq!(walk(&bytes).1.unwrap().stop, WalkStop::Incomplete);
    assert_eq!(mtr_end(&bytes, 0), Ok(MtrEnd::After(100)));
    bytes.push(31);
    let (seen, _) = walk(&bytes);
    assert_eq!((seen.len(), seen[0].1, seen[0].2), (1, 1101, 100));
    assert_eq!(mtr_end(&bytes, 0), Ok(MtrEnd::At(101)));
}

#[test]
fn a_mini_transaction_that_is_too_long_is_told() {
    let write = record(30, 5, 3, &[&[0, 60, 0x3f, 0xff][..], &[0; 0x3fff]].concat());
    let bytes: Vec<u8> = write.iter().copied().cycle().take(MTR_SIZE_MAX_BYTES + 50_000).collect();
    let (seen, walked) = walk(&bytes);
    assert!(seen.is_empty() && matches!(walked.unwrap_err().error, RedoError::MtrTooLong { .. }));
    assert!(matches!(mtr_end(&bytes, 0), Err(RedoError::MtrTooLong { .. })));
    assert_eq!(walk(&bytes[..MTR_SIZE_MAX_BYTES - 100]).1.unwrap().stop, WalkStop::Incomplete);
}

#[test]
fn changed_streams_never_panic() {
    let mut rng = fastrand::Rng::with_seed(23);
    for _ in 0..3000 {
        let mut stream: Vec<u8> = (0..rng.usize(1..10)).flat_map(|_| random_group(&mut rng)).collect();
        for _ in 0..rng.u8(1..5) {
            let at = rng.usize(0..stream.len());
            stream[at] = rng.u8(..);
        }
        let (seen, walked) = walk(&stream);
        let end = walked.map_or_else(|error| error.mtr_lsn, |walked| walked.end_lsn);
        assert_eq!(seen.last().map_or(1000, |mtr| mtr.1), end.0);
        for mtr in &seen {
            let mut at = 0;
            for run in &mtr.3 {
                assert!(run.offset_in_bytes >= at);
                at = run.offset_in_bytes + run.len_bytes;
            }
        }
    }
    assert_eq!(SpaceId(0), PageId::new(0, 0).space);
}
