use super::*;

const VOLUME: &str = "0123456789abcdef0123456789abcdef";

fn file() -> Vec<u8> {
    let mut bytes = head(VOLUME, 64).unwrap();
    bytes.resize(HEAD_LEN_BYTES + 64, 0);
    bytes
}

#[test]
fn a_new_file_says_whose_it_is() {
    let contents = read(&file()).unwrap();
    assert_eq!(contents, Contents { volume_id: VOLUME.to_owned(), area_len_bytes: 64, kept: None });
}

#[test]
fn other_versions_and_damage_are_told_apart() {
    let mut newer = file();
    newer[7] = b'2';
    assert!(matches!(read(&newer), Err(BadFile::Version(why)) if why.contains("newer")));
    for at in [0, 7, 9, 20, 49, HOLDS_WORD * 8 + 1] {
        let mut bytes = file();
        bytes[at] ^= 0x80;
        assert!(matches!(read(&bytes), Err(BadFile::Damaged(_))), "byte {at}");
    }
    for len in [0, 100, HEAD_LEN_BYTES, HEAD_LEN_BYTES + 63] {
        assert!(matches!(read(&file()[..len]), Err(BadFile::Damaged(_))), "{len} bytes");
    }
}

#[test]
fn any_words_are_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..20_000 {
        let mut bytes = file();
        let put = |bytes: &mut Vec<u8>, word: usize, value: u64| {
            bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
        };
        let small =
            |random: &mut fastrand::Rng| if random.bool() { random.u64(0..200) } else { random.u64(..) };
        let session = [small(&mut random), small(&mut random), small(&mut random)];
        for (at, value) in session.iter().enumerate() {
            put(&mut bytes, GENERATION_WORD + at, *value);
        }
        put(&mut bytes, SESSION_CRC_WORD, session_crc(session));
        put(&mut bytes, HOLDS_WORD, 1);
        for word in [END_WORD, OLDEST_WORD, DURABLE_WORD, HEAD_WORDS, HEAD_WORDS + 1] {
            put(&mut bytes, word, small(&mut random));
        }
        if let Ok(Contents { kept: Some(kept), .. }) = read(&bytes) {
            assert!(kept.sound_end <= kept.end && kept.oldest <= kept.sound_end);
        }
    }
}

#[test]
fn where_the_oldest_is_fits_in_a_word() {
    for position in [0, 1, POSITION_MASK, POSITION_MASK + 5, 1 << 60] {
        for (at_word, behind) in [(0, 0), (12_000_000, 90 << 20)] {
            let packed = pack_oldest(at_word, position);
            assert_eq!(unpack_oldest(packed, position + behind), (at_word, position));
        }
    }
}
