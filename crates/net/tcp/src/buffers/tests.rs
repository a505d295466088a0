use super::*;
use std::collections::BTreeMap;

/// Random writes and reads. The bytes read equal the bytes written, in order, and all chunks return to the pool.
#[test]
fn early_bytes_are_put_in_order() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pool = Pool::new(1 << 20);
        let mut buffer = ReceiveBuffer::default();
        let mut known = BTreeMap::new();
        let (mut next, mut read) = (0u64, 0u64);
        for _ in 0..300 {
            if rng.u32(..4) > 0 {
                let offset = if rng.bool() { 0 } else { rng.u32(..20_000) };
                let len = rng.u64(1..3000);
                let data: Vec<u8> =
                    (0..len).map(|at| ((next + u64::from(offset) + at) % 251) as u8).collect();
                let more = buffer.insert(&mut pool, offset, &data);
                if let Some(more) = more {
                    known.extend((0..len).map(|at| (next + u64::from(offset) + at, ())));
                    let before = next;
                    while known.remove(&next).is_some() {
                        next += 1;
                    }
                    assert_eq!(u64::from(more), next - before, "seed {seed}");
                    known = known.split_off(&next);
                }
            } else {
                let mut out = vec![0; rng.usize(..9000)];
                let count = buffer.read(&mut pool, &mut out);
                assert!(out[..count].iter().zip(read..).all(|(byte, at)| *byte == (at % 251) as u8));
                read += count as u64;
            }
            assert_eq!(u64::from(buffer.readable()), next - read);
            assert_eq!(buffer.has_gap(), !known.is_empty());
            assert_eq!(buffer.chunks() * CHUNK_LEN_BYTES, pool.used_len_bytes());
        }
        buffer.clear(&mut pool);
        assert_eq!((pool.used_len_bytes(), buffer.memory_len_bytes() < 200), (0, true));
    }
}

#[test]
fn bytes_to_send_stay_until_they_are_acknowledged() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pool = Pool::new(64 << 10);
        let mut buffer = SendBuffer::default();
        let mut model = std::collections::VecDeque::new();
        for _ in 0..300 {
            if rng.bool() {
                let data: Vec<u8> = (0..rng.usize(..6000)).map(|_| rng.u8(..)).collect();
                let count = buffer.push(&mut pool, &data, 30_000);
                assert!(
                    count == data.len()
                        || buffer.len() == 30_000
                        || pool.sendable_len_bytes(buffer.chunks()) == 0
                );
                model.extend(&data[..count]);
            } else {
                let count = rng.u32(..=buffer.len());
                buffer.advance(&mut pool, count);
                model.drain(..count as usize);
            }
            let offset = rng.usize(..=model.len());
            let mut out = vec![0; rng.usize(..=model.len() - offset)];
            buffer.copy(offset as u32, &mut out);
            assert!(out.iter().eq(model.range(offset..offset + out.len())), "seed {seed}");
        }
        buffer.clear(&mut pool);
        assert_eq!(pool.used_len_bytes(), 0);
    }
}

#[test]
fn no_use_takes_all() {
    let new = || Pool::new(16 * CHUNK_LEN_BYTES);
    let take = |pool: &mut Pool, purpose, chunks| std::iter::from_fn(|| pool.take(purpose, chunks)).count();
    let mut pool = new();
    let all = [Use::Early, Use::InOrder, Use::Send].map(|purpose| take(&mut pool, purpose, 0));
    assert_eq!(all, [8, 4, 4]);
    let mut pool = new();
    assert_eq!([Use::Send, Use::InOrder].map(|purpose| take(&mut pool, purpose, 0)), [12, 4]);
    for purpose in [Use::Send, Use::InOrder] {
        let mut pool = new();
        assert_eq!([FEW_CHUNKS, FEW_CHUNKS - 1].map(|chunks| take(&mut pool, purpose, chunks)), [10, 2]);
    }
}

#[test]
fn what_can_be_sent_is_what_there_is_room_for() {
    for chunks in [0, 3, FEW_CHUNKS, 20] {
        for used in 0..=16 {
            let mut pool = Pool::new(16 * CHUNK_LEN_BYTES);
            (0..used).for_each(|_| drop(pool.take(Use::Send, 0)));
            let sendable = pool.sendable_len_bytes(chunks) / CHUNK_LEN_BYTES;
            let taken = (chunks..).map_while(|chunks| pool.take(Use::Send, chunks)).count();
            assert_eq!(sendable, taken, "{chunks} {used}");
        }
    }
}
