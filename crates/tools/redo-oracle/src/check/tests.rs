//! Tests of the bytes after a cut.

use super::*;

/// Mini-transactions that say where the checkpoint is: the shortest whole ones there are.
fn redo(count: u64) -> Redo {
    let mut bytes = Vec::new();
    for number in 0..count {
        let mut mtr = vec![0xfa, 0, 0];
        mtr.extend_from_slice(&(1000 + number).to_be_bytes());
        let checksum = crc32c::crc32c(&mtr);
        mtr.push(1);
        mtr.extend_from_slice(&checksum.to_be_bytes());
        bytes.extend_from_slice(&mtr);
    }
    Redo::from_bytes(bytes, Lsn(50_000)).unwrap()
}

fn end_with(redo: &Redo, cut: Lsn, tail: &Tail) -> Lsn {
    let mut bytes = redo.bytes_until(cut).to_vec();
    match tail {
        Tail::Zeros => bytes.extend_from_slice(&[0; 4096]),
        Tail::Bytes(tail) => bytes.extend_from_slice(tail),
    }
    let mut end = redo.start_lsn;
    let _ = walk_mtrs(&bytes, end, SequenceRule::Any, &mut |mtr: &Mtr<'_, '_>| end = mtr.end_lsn);
    end
}

#[test]
fn no_tail_goes_on_with_the_log() {
    // Long enough for tails that are redo of another place, of which many begin with a whole mini-transaction.
    let redo = redo(600);
    let mut would_go_on = 0;
    for (number, mtr) in redo.mtrs.iter().enumerate().skip(1) {
        for lsn in [mtr.end_lsn, Lsn(mtr.end_lsn.0 - 1)] {
            for garbage_seed in [None, Some(number as u64)] {
                let cut = Cut { lsn, garbage_seed, small_pool: false, last_call_done: true };
                let end = redo.boundary_before(lsn);
                assert_eq!(end_with(&redo, lsn, &tail(&redo, cut)), end, "{cut:?}");
                let drawn = garbage_seed.map_or(Tail::Zeros, |seed| Tail::Bytes(garbage(&redo.bytes, seed)));
                would_go_on += u32::from(end_with(&redo, lsn, &drawn) != end);
            }
        }
    }
    assert!(would_go_on > 5, "{would_go_on} of the first draws would have gone on: the test shows nothing");
}
