use super::*;

const FULL_CRC32: SpaceFlags = SpaceFlags(0x15);
const CRC32: SpaceFlags = SpaceFlags(0x21);
const COMPRESSED_8K: SpaceFlags = SpaceFlags(0x29);

/// Offset and content that MariaDB 10.11 writes.
const SEEN: [(SpaceFlags, usize, usize); 4] = [
    (FULL_CRC32, 16384, 10428),
    (SpaceFlags(0x35), 16384, 10428),
    (CRC32, 16384, 10428),
    (COMPRESSED_8K, 8192, 5308),
];
const DATA: [u8; 34] = [
    0x73, 0x0e, 0x0c, 0x52, 0x45, 0x74, 0x01, 0x10, 0xb1, 0x6e, 0x22, 0xfb, 0xdb, 0xe4, 0xb9, 0xc9, 0xf7,
    0xc5, 0x11, 0x76, 0x80, 0xe9, 0x90, 0x85, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0,
];

fn page0(len_bytes: usize, at: usize) -> Vec<u8> {
    let mut page = vec![0; len_bytes];
    put(&mut page, at, &DATA);
    page
}

#[test]
fn what_the_server_wrote_is_found_and_changed_in_one_place() {
    for (flags, len_bytes, at) in SEEN {
        let mut page = page0(len_bytes, at);
        let data = CryptData {
            is_encrypted: true,
            min_key_version: 1,
            key_id: 2,
            vector: *DATA[8..].first_chunk().unwrap(),
        };
        assert_eq!(CryptData::of_page0(&page, flags), Some(data), "{flags}");
        assert!(set_not_all_encrypted(&mut page, flags));
        assert_eq!(CryptData::of_page0(&page, flags), Some(CryptData { min_key_version: 0, ..data }));
        put(&mut page, at + 27, &[1]);
        assert_eq!(page, page0(len_bytes, at), "{flags}");
    }
}

#[test]
fn nothing_is_found_elsewhere() {
    for (flags, len_bytes, at) in SEEN {
        for page in [
            vec![0; len_bytes],
            page0(len_bytes, at + 1),
            page0(len_bytes, at)[..at + 20].to_vec(),
            Vec::new(),
        ] {
            let mut changed = page.clone();
            assert_eq!(CryptData::of_page0(&page, flags), None);
            assert!(!set_not_all_encrypted(&mut changed, flags));
            assert_eq!(changed, page);
        }
        // Scheme 0: it was encrypted once.
        let mut page = page0(len_bytes, at);
        put(&mut page, at + 6, &[0]);
        assert_eq!(CryptData::of_page0(&page, flags).map(|data| data.is_encrypted), Some(false));
        assert!(!set_not_all_encrypted(&mut page, flags));
    }
    assert_eq!(CryptData::of_page0(&[0; 16384], SpaceFlags(0x3c0)), None);
}

#[test]
fn the_key_version_is_where_the_format_has_it() {
    let with = |at: usize, kind: u16| {
        let mut page = vec![0; 8192];
        put(&mut page, at, &3u32.to_be_bytes());
        put(&mut page, 24, &kind.to_be_bytes());
        page
    };
    let (leaf, root) = (PageId::new(7, 4), PageId::new(7, 0));
    for flags in [CRC32, COMPRESSED_8K] {
        assert_eq!(key_version(&with(26, 17855), leaf, flags), 3);
        assert_eq!(key_version(&with(0, 17855), leaf, flags), 0, "a checksum");
        assert_eq!(key_version(&with(26, TYPE_RTREE), leaf, flags), 0, "a split sequence number");
    }
    assert_eq!(key_version(&with(0, TYPE_RTREE), leaf, FULL_CRC32), 3);
    assert_eq!(key_version(&with(26, 17855), leaf, FULL_CRC32), 0, "an LSN or what is encrypted");
    for id in [root, PageId::new(0, 5)] {
        assert_eq!(key_version(&with(26, 8), id, CRC32), 0);
        assert_eq!(key_version(&with(0, 8), id, FULL_CRC32), 0);
    }
    assert_eq!(key_version(&[], leaf, CRC32), 0);
}
