use super::*;

fn split(frame: &[u8]) -> (FrameHeader, &[u8]) {
    let header = FrameHeader::decode(frame.first_chunk().unwrap());
    (header, &frame[HEADER_LEN_BYTES..])
}

#[test]
fn a_frame_survives_the_round_trip() {
    let mut out = Vec::new();
    append_frame(&mut out, 7, 99, b"payload").unwrap();
    let (header, payload) = split(&out);
    assert_eq!((header.kind, header.len_bytes, header.compressed), (7, 7, false));
    header.check(99, payload).unwrap();
}

#[test]
fn any_flipped_bit_or_wrong_position_is_found() {
    let mut frame = Vec::new();
    append_frame(&mut frame, 7, 99, b"some payload").unwrap();
    let (header, payload) = split(&frame);
    assert!(header.check(98, payload).is_err(), "a replayed frame must not pass");
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (header, payload) = split(&damaged);
        assert!(header.check(99, payload).is_err(), "bit {bit}");
    }
}

#[test]
fn compression_round_trip_and_hostile_blocks() {
    let text = b"abcabcabcabcabcabcabcabcabcabcabcabcabc".repeat(20);
    let packed = compress(&text).unwrap();
    assert!(packed.len() < text.len());
    assert_eq!(decompress(&packed).unwrap(), text);
    let mut random = fastrand::Rng::with_seed(1);
    assert!(compress(&(0..64).map(|_| random.u8(..)).collect::<Vec<_>>()).is_none());
    for _ in 0..2000 {
        let len = random.usize(0..40);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
        if len >= 4 && random.bool() {
            bytes[2] = 0;
            bytes[3] = 0;
        }
        let _ = decompress(&bytes);
    }
    let unknown = decompress(&[255, 255, 255, 255, 0]).unwrap_err().to_string();
    assert!(unknown.contains("algorithm") && unknown.contains("newer version"), "{unknown}");
    // A block of the first version, as logs hold it.
    let mut lz4 = (text.len() as u32).to_le_bytes().to_vec();
    lz4.extend(lz4_flex::block::compress(&text));
    assert_eq!(decompress(&lz4).unwrap(), text);
    // A length that is not that of the block.
    for (block, wrong) in
        [(&lz4, text.len() + 1), (&lz4, text.len() - 1), (&packed, text.len() + 1), (&packed, 5)]
    {
        let mut block = block.clone();
        block[..3].copy_from_slice(&(wrong as u32).to_le_bytes()[..3]);
        assert!(decompress(&block).is_err(), "{wrong}");
    }
    // In a thread whose own compressor is in use or gone, and in many.
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let text = text.clone();
            std::thread::spawn(move || decompress(&compress(&text).unwrap()).unwrap() == text)
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}
