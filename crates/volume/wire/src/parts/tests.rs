use super::*;

/// Writes of text that repeats, some packed and some not, by seed.
fn writes(seed: u64) -> Vec<(Vec<u8>, bool)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let row: Vec<u8> = (0..400).map(|_| random.u8(..)).collect();
    let mut write = |_| {
        let mut bytes = vec![random.u8(..)];
        for _ in 0..random.usize(..40) {
            bytes.extend_from_slice(&row[random.usize(..200)..]);
        }
        (bytes, random.bool())
    };
    (0..60).map(&mut write).collect()
}

/// Unpacks all, with pieces of input and output of these lengths at most.
fn unpack(
    reader: &mut PartReader,
    mut input: &[u8],
    piece: usize,
    room: usize,
) -> Result<Vec<u8>, WireError> {
    let (mut all, mut out, mut has_more) = (Vec::new(), vec![0; room], false);
    while !input.is_empty() || has_more {
        let step = reader.unpack(&input[..input.len().min(piece)], &mut out)?;
        input = &input[step.taken_bytes..];
        has_more = step.given_bytes == room;
        all.extend_from_slice(&out[..step.given_bytes]);
    }
    Ok(all)
}

#[test]
fn each_part_can_be_read_as_soon_as_it_is_sent_packed_or_not() {
    for (seed, piece, room) in
        [(1, usize::MAX, 1 << 20), (2, 1, 7), (3, 1000, 64 << 10), (4, 17, 1), (5, 3, 4096)]
    {
        let (mut writer, mut reader) = (PartWriter::default(), PartReader::default());
        for (bytes, pack) in writes(seed) {
            let mut wire = Vec::new();
            writer.append(&bytes, pack, &mut wire).unwrap();
            assert!(pack || wire.len() == bytes.len() + HEADER_LEN_BYTES);
            assert!(unpack(&mut reader, &wire, piece, room).unwrap() == bytes, "seed {seed}");
        }
    }
}

#[test]
fn many_parts_can_come_together() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut writer, mut reader) = (PartWriter::default(), PartReader::default());
        let (mut wire, mut raw) = (Vec::new(), Vec::new());
        for (bytes, pack) in writes(seed) {
            writer.append(&bytes, pack, &mut wire).unwrap();
            raw.extend_from_slice(&bytes);
        }
        let (piece, room) = (random.usize(1..5000), random.usize(1..5000));
        assert!(unpack(&mut reader, &wire, piece, room).unwrap() == raw, "seed {seed}");
    }
}

#[test]
fn packed_parts_refer_to_those_before_over_others_between() {
    let mut random = fastrand::Rng::with_seed(1);
    let row: Vec<u8> = (0..8000).map(|_| random.u8(..)).collect();
    let other: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
    let (mut writer, mut reader) = (PartWriter::default(), PartReader::default());
    for (bytes, pack, most) in
        [(&row, true, 8100), (&other, false, 100_004), (&row, true, 200), (&other, false, 100_004)]
    {
        let mut wire = Vec::new();
        writer.append(bytes, pack, &mut wire).unwrap();
        assert!(wire.len() <= most, "{} bytes", wire.len());
        assert!(&unpack(&mut reader, &wire, usize::MAX, 1 << 20).unwrap() == bytes);
    }
}

#[test]
fn no_history_is_kept_for_what_is_never_packed() {
    let (mut writer, mut reader) = (PartWriter::default(), PartReader::default());
    let mut wire = Vec::new();
    writer.append(b"some", false, &mut wire).unwrap();
    assert_eq!(wire, b"\x04\0\0\0some");
    assert_eq!(unpack(&mut reader, &wire, 100, 100).unwrap(), b"some");
    assert!(writer.compressor.is_none() && reader.decompressor.is_none());
}

#[test]
fn what_is_no_part_is_refused() {
    let of = |bytes: &[u8]| unpack(&mut PartReader::default(), bytes, 100, 100);
    for bytes in [&[0, 0, 0, 0][..], &[0, 0, 0, 0x80], &[4, 0, 0, 0x80, 1, 2, 3, 4]] {
        assert!(matches!(of(bytes), Err(WireError::Invalid { .. })), "{bytes:?}");
    }
    // The reader waits for the rest of an incomplete part.
    assert_eq!(of(&[9, 0, 0]).unwrap(), b"");
    assert_eq!(of(&[9, 0, 0, 0, 1, 2]).unwrap(), [1, 2]);
}
