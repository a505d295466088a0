use super::*;
use crate::layout::put;

#[test]
fn words_that_servers_write_are_understood() {
    for (word, logical, physical) in [
        (0x01a1, 32768, 32768),
        (0, 16384, 16384),
        (0x4021, 16384, 16384),
        (0x40e1, 4096, 4096),
        (0x41e1, 65536, 65536),
        (0x0161, 16384, 16384),
        (0x4027, 16384, 4096),
        (0x4029, 16384, 8192),
        (0x4821, 16384, 16384),
        (0x4421, 16384, 16384),
        (0x1021, 16384, 16384),
    ] {
        let flags = Flags(word);
        assert_eq!(flags.logical_page_size_bytes(), logical, "{flags}");
        assert_eq!(flags.physical_page_size_bytes(), physical, "{flags}");
        assert_eq!(flags.check().is_ok(), logical != 0, "{flags}");
    }
    assert!(Flags(0x4821).is_shared() && Flags(0x1021).is_temporary() && Flags(0x4021).has_sdi());
    assert_eq!(Flags(0x40e1).extent_size_pages(), 256);
    assert_eq!(Flags(0).extent_size_pages(), 64);
}

#[test]
fn other_words_are_refused() {
    for (word, what) in [
        (0x8021u32, "unknown bits"),
        (1, "bits 0 and 5"),
        (0x20, "bits 0 and 5"),
        (0x1e1 | 1 << 9, "page size"),
        (0x02d, "COMPRESSED"),
        (0x008, "COMPRESSED"),
        (0x0c21 | 1 << 11, "DATA DIRECTORY"),
        (0x0e9 | 1 << 1, "COMPRESSED"),
        (0x3021, "temporary and encrypted"),
    ] {
        let error = Flags(word).check().unwrap_err().to_string();
        assert!(error.contains(what), "{word:#x}: {error}");
    }
    assert_eq!(Flags(0x6021).check(), Err(FlagsError::Encrypted { flags: Flags(0x6021) }));
    // Every value has an answer.
    for word in (0..u32::MAX).step_by(65_537).chain(0..=0xffff) {
        let flags = Flags(word);
        let sizes = (flags.logical_page_size_bytes(), flags.physical_page_size_bytes());
        assert!(flags.check().is_err() || sizes.0 >= sizes.1 && sizes.1 >= 1024, "{word:#x}");
    }
}

#[test]
fn flags_are_read_from_page_0() {
    let mut page0 = vec![0; 58];
    put(&mut page0, FSP_SPACE_FLAGS, &0x4021u32.to_be_bytes());
    assert_eq!(flags_of_page0(&page0), Ok(Flags(0x4021)));
    assert_eq!(flags_of_page0(&page0[..57]), Err(FlagsError::TooShort { len_bytes: 57 }));
    put(&mut page0, FSP_SPACE_FLAGS, &[0xff; 4]);
    assert!(flags_of_page0(&page0).is_err());
}
