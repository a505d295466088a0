use super::*;

#[test]
fn flags_zero_is_the_16_kib_old_format() {
    let flags = SpaceFlags(0);
    flags.check().unwrap();
    assert!(!flags.is_full_crc32());
    assert_eq!(flags.physical_page_size_bytes(), 16384);
    assert_eq!(flags.logical_page_size_bytes(), 16384);
    assert_eq!(flags.page_compression(), PageCompression::None);
}

#[test]
fn full_crc32_flags_of_each_page_size() {
    for (flags, size) in [(0x13, 4096), (0x14, 8192), (0x15, 16384), (0x16, 32768), (0x17, 65536)] {
        let flags = SpaceFlags(flags);
        flags.check().unwrap();
        assert!(flags.is_full_crc32());
        assert_eq!(flags.physical_page_size_bytes(), size);
    }
    let zlib = SpaceFlags(0x35);
    zlib.check().unwrap();
    assert_eq!(zlib.page_compression(), PageCompression::Algorithm(1));
}

#[test]
fn row_format_compressed_sizes() {
    for (zip_shift, size) in [(1, 1024), (2, 2048), (3, 4096), (4, 8192), (5, 16384)] {
        let flags = SpaceFlags(0x21 | zip_shift << 1);
        flags.check().unwrap_or_else(|error| panic!("{error}"));
        assert!(flags.is_row_format_compressed());
        assert_eq!(flags.physical_page_size_bytes(), size);
        assert_eq!(flags.logical_page_size_bytes(), 16384);
    }
}

#[test]
fn impossible_flags_are_refused_with_a_reason() {
    for flags in [
        0x12,
        0x18,
        0x1f,
        0x15 | 7 << 5,
        0x15 | 1 << 8,
        0x20,
        1 << 17,
        1 << 11,
        1 << 6,
        5 << 6,
        8 << 6,
        0x2d | 3 << 6,
        0x02,
        u32::MAX,
    ] {
        let error = SpaceFlags(flags).check().expect_err("must be refused");
        assert!(error.to_string().contains("invalid"), "{error}");
    }
}

#[test]
fn sizes_never_panic_for_any_low_bits() {
    for flags in 0..1 << 18 {
        let flags = SpaceFlags(flags);
        if flags.check().is_ok() {
            assert!(flags.physical_page_size_bytes().is_power_of_two(), "{flags}");
            assert!(flags.physical_page_size_bytes() <= flags.logical_page_size_bytes(), "{flags}");
        }
    }
}

#[test]
fn page0_too_short() {
    assert_eq!(flags_of_page0(&[0; 57]), Err(FlagsError::TooShort { len_bytes: 57 }));
    assert_eq!(flags_of_page0(&[0; 58]), Ok(SpaceFlags(0)));
}
