//! Every form, at both of its ends, and invalid numbers.

use super::*;

/// Numbers at the ends of every form, with the bytes the server writes.
const KNOWN: &[(u32, &[u8])] = &[
    (0, &[0]),
    (0x7f, &[0x7f]),
    (0x80, &[0x80, 0x80]),
    (0x3fff, &[0xbf, 0xff]),
    (0x4000, &[0xc0, 0x40, 0]),
    (0x1f_ffff, &[0xdf, 0xff, 0xff]),
    (0x20_0000, &[0xe0, 0x20, 0, 0]),
    (0xfff_ffff, &[0xef, 0xff, 0xff, 0xff]),
    (0x1000_0000, &[0xf0, 0x10, 0, 0, 0]),
    (0xfeff_ffff, &[0xf0, 0xfe, 0xff, 0xff, 0xff]),
    (0xff00_0000, &[0xfe, 0, 0, 0]),
    (0xfffd_ffff, &[0xfe, 0xfd, 0xff, 0xff]),
    (0xfffe_0000, &[0xfc, 0, 0]),
    (0xffff_fbff, &[0xfd, 0xfb, 0xff]),
    (0xffff_fc00, &[0xf8, 0]),
    (0xffff_ffff, &[0xfb, 0xff]),
];

#[test]
fn c32_is_written_and_read_in_every_form() {
    for &(value, bytes) in KNOWN {
        let mut out = Vec::new();
        encode_c32(value, &mut out);
        assert_eq!(out, bytes, "{value:#x}");
        assert_eq!(decode_c32(&out), Ok((value, bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(decode_c32(&bytes[..cut]), Err(VarintError::Incomplete), "{value:#x} cut at {cut}");
        }
        out.extend([0xaa; 3]);
        assert_eq!(decode_c32(&out), Ok((value, bytes.len())));
    }
}

#[test]
fn forms_that_are_too_long_are_no_numbers() {
    let bad: &[&[u8]] = &[
        &[0x80, 0x7f],
        &[0xc0, 0x3f, 0xff],
        &[0xe0, 0x1f, 0xff, 0xff],
        &[0xf0, 0x0f, 0xff, 0xff, 0xff],
        &[0xfe, 0xfe, 0, 0],
        &[0xfd, 0xfc, 0],
        &[0xf1, 1, 2, 3, 4],
        &[0xf7, 1, 2, 3, 4],
        &[0xff, 1, 2, 3, 4],
    ];
    for bytes in bad {
        assert_eq!(decode_c32(bytes), Err(VarintError::Invalid), "{bytes:x?}");
    }
    // Before there were short forms.
    assert_eq!(decode_c32(&[0xf0, 0xff, 0xff, 0xff, 0xff]), Ok((u32::MAX, 5)));
}

#[test]
fn random_numbers_are_read_as_written() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..200_000 {
        let value = rng.u64(..) >> rng.u32(0..64);
        let mut out = Vec::new();
        encode_c32(value as u32, &mut out);
        assert_eq!(decode_c32(&out), Ok((value as u32, out.len())));
        out.clear();
        encode_c32(!(value as u32), &mut out);
        assert_eq!(decode_c32(&out), Ok((!(value as u32), out.len())));
        out.clear();
        encode_c64(value, &mut out);
        assert_eq!(decode_c64(&out), Ok((value, out.len())));
        assert_eq!(decode_c64(&out[..out.len() - 1]), Err(VarintError::Incomplete));
        out.clear();
        encode_m64(value, &mut out);
        assert_eq!(decode_m64(&out), Ok((value, out.len())));
        assert_eq!(decode_m64(&out[..out.len() - 1]), Err(VarintError::Incomplete));
    }
    assert_eq!(decode_m64(&[0xff, 0, 0]), Err(VarintError::Invalid));
}
