//! Images made as the server makes them, and damaged ones. The tests against a real server cover the
//! server's own images.

use flate2::{Compress, Compression, FlushCompress};

use super::*;
use crate::layout::put;

const PAGE_BYTES: usize = 16384;

fn page() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut page: Vec<u8> =
        (0..PAGE_BYTES).map(|index| if index < 3000 { random.u8(..) } else { 7 }).collect();
    put(&mut page, crate::layout::FIL_PAGE_TYPE, &17855u16.to_be_bytes());
    page
}

fn zlib(page: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_BYTES * 2);
    let mut state = Compress::new(Compression::new(6), true);
    state.compress_vec(page, &mut out, FlushCompress::Finish).unwrap();
    out
}

/// `full_crc32` image with zlib (no exact length) or lz4 (exact length before the checksum).
fn full_crc32_image(page: &[u8], payload: &[u8], exact: bool) -> Vec<u8> {
    let used = 26 + payload.len();
    let stored = (used + usize::from(exact) + 4 + 255) & !255;
    let mut image = page[..26].to_vec();
    image[24] = 0x80;
    image[25] = (stored >> 8) as u8;
    image.extend_from_slice(payload);
    image.resize(stored, 0);
    if exact {
        image[stored - 5] = (used + 5) as u8;
    }
    let sum = crc32c::crc32c(&image[..stored - 4]);
    image[stored - 4..].copy_from_slice(&sum.to_be_bytes());
    image.resize(PAGE_BYTES, 0);
    image
}

fn older_image(page: &[u8], algorithm: u64, payload: &[u8]) -> Vec<u8> {
    let mut image = page[..38].to_vec();
    put(&mut image, 0, &NO_CHECKSUM_MAGIC.to_be_bytes());
    put(&mut image, 24, &TYPE_PAGE_COMPRESSED.to_be_bytes());
    put(&mut image, 26, &algorithm.to_be_bytes());
    image.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    image.extend_from_slice(payload);
    image.resize(PAGE_BYTES, 0);
    image
}

#[test]
fn zlib_and_lz4_images_of_both_formats() {
    let page = page();
    let (zlib, lz4) = (zlib(&page), lz4_flex::block::compress(&page));
    for (flags, image) in [
        (SpaceFlags(0x35), full_crc32_image(&page, &zlib, false)),
        (SpaceFlags(0x55), full_crc32_image(&page, &lz4, true)),
        (SpaceFlags(1 << 16), older_image(&page, 1, &zlib)),
        (SpaceFlags(1 << 16), older_image(&page, 2, &lz4)),
    ] {
        flags.check().unwrap();
        assert!(is_page_compressed_image(&image, flags));
        crate::verify(&image, flags).unwrap();
        assert!(decompress(&image, flags).unwrap().as_deref() == Some(&page[..]), "{flags}");
        assert_eq!(decompress(&page, flags), Ok(None));
    }
}

#[test]
fn exact_length_that_is_a_multiple_of_256() {
    let page = page();
    let mut payload = lz4_flex::block::compress(&page);
    // Any length must survive the rounding; lz4 needs it to the byte.
    for _ in 0..300 {
        payload.push(0);
        let image = full_crc32_image(&page, &payload, true);
        assert_eq!(full_crc32_payload(&image, 2).unwrap().len(), payload.len());
    }
}

#[test]
fn other_algorithms_are_named() {
    let page = page();
    for (algorithm, name) in [(3, "lzo"), (4, "lzma"), (5, "bzip2"), (6, "snappy")] {
        let image = full_crc32_image(&page, &[1; 900], false);
        let error = decompress(&image, SpaceFlags(0x15 | algorithm << 5)).expect_err("not supported");
        assert!(error.to_string().contains(&format!("innodb_compression_algorithm={name}")), "{error}");
    }
}

#[test]
fn unknown_algorithms_are_recognised_in_images_and_flags() {
    let page = page();
    for algorithm in 1..=6 {
        let is_known = algorithm <= 2;
        let (flags, older) = (SpaceFlags(0x15 | algorithm << 5), SpaceFlags(1 << 16));
        let image = full_crc32_image(&page, &[1; 900], false);
        assert_eq!(has_known_algorithm(&image, flags), is_known, "{algorithm}");
        let image = older_image(&page, u64::from(algorithm), &[1; 900]);
        assert_eq!(has_known_algorithm(&image, older), is_known, "{algorithm}");
        assert!(has_known_algorithm(&page, flags) && has_known_algorithm(&page, older), "not compressed");
        assert_eq!(crate::Format::of_mariadb(flags).names_unknown_algorithm(), !is_known, "{algorithm}");
        assert!(!crate::Format::of_mariadb(older).names_unknown_algorithm());
    }
}

#[test]
fn damaged_images_end_in_errors() {
    let page = page();
    let images = [
        (SpaceFlags(0x35), full_crc32_image(&page, &zlib(&page), false)),
        (SpaceFlags(0x55), full_crc32_image(&page, &lz4_flex::block::compress(&page), true)),
        (SpaceFlags(1 << 16), older_image(&page, 1, &zlib(&page))),
    ];
    let mut errors = 0;
    for seed in 0..600 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (flags, image) = &images[random.usize(0..3)];
        let mut image = image.clone();
        for _ in 0..random.usize(1..20) {
            let at = random.usize(24..3000);
            image[at] = random.u8(..);
        }
        match decompress(&image, *flags) {
            Ok(Some(out)) => assert_eq!(out.len(), PAGE_BYTES),
            Ok(None) => {}
            Err(_) => errors += 1,
        }
        let cut = random.usize(0..60);
        let _ = decompress(&image[..cut], *flags);
    }
    assert!(errors > 100, "{errors}");
}

#[test]
fn encrypted_image_is_refused() {
    let mut image = older_image(&page(), 1, &[1; 100]);
    put(&mut image, 24, &TYPE_PAGE_COMPRESSED_ENCRYPTED.to_be_bytes());
    assert_eq!(decompress(&image, SpaceFlags(1 << 16)), Err(PageCompressionError::Encrypted));
}

/// Padded as it is in a file.
fn padded(image: Vec<u8>) -> Vec<u8> {
    let mut image = image;
    image.resize(PAGE_BYTES, 0);
    image
}

#[test]
fn a_compressed_page_is_the_servers_image_of_it() {
    let mut page = page();
    put(&mut page, crate::layout::FIL_PAGE_OFFSET, &5u32.to_be_bytes());
    let (zlib, lz4) = (zlib(&page), lz4_flex::block::compress(&page));
    for (flags, image) in [
        (SpaceFlags(0x35), full_crc32_image(&page, &zlib, false)),
        (SpaceFlags(0x55), full_crc32_image(&page, &lz4, true)),
        (SpaceFlags(1 << 16), older_image(&page, 1, &zlib)),
    ] {
        assert_eq!(padded(compress(&page, flags).unwrap()), image, "{flags}");
    }
}

#[test]
fn every_page_that_is_compressed_comes_back() {
    let formats = [0x33, 0x34, 0x35, 0x36, 0x37, 0x53, 0x55, 0x57, 0x1_0021, 0x1_0000];
    let (mut made, mut stored_as_is) = (0, 0);
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let flags = SpaceFlags(formats[random.usize(..formats.len())]);
        flags.check().unwrap();
        let mut page = vec![0; flags.logical_page_size_bytes()];
        let filled = random.usize(..=page.len());
        random.fill(&mut page[..filled]);
        put(&mut page, 4, &random.u32(1..).to_be_bytes());
        // Of neither kind of image.
        put(&mut page, crate::layout::FIL_PAGE_TYPE, &17855u16.to_be_bytes());
        crate::finalize(&mut page, flags).unwrap();
        let Some(mut image) = compress(&page, flags) else {
            stored_as_is += 1;
            continue;
        };
        assert!(image.len() < page.len());
        image.resize(page.len(), 0);
        crate::verify(&image, flags).unwrap();
        assert!(decompress(&image, flags).unwrap().as_deref() == Some(&page[..]), "seed {seed}, {flags}");
        // An image is not packed again.
        assert_eq!(compress(&image, flags), None);
        made += 1;
    }
    assert!(made > 200 && stored_as_is > 5, "{made} {stored_as_is}");
}

#[test]
fn what_the_server_stores_as_it_is_is_not_compressed() {
    let mut page = vec![7; PAGE_BYTES];
    put(&mut page, crate::layout::FIL_PAGE_TYPE, &17855u16.to_be_bytes());
    for (flags, why) in [(0x15, "no page compression"), (0x75, "lzo"), (0x34, "another page size")] {
        assert_eq!(compress(&page, SpaceFlags(flags)), None, "{why}");
    }
    assert!(compress(&page, SpaceFlags(0x35)).is_some());
    put(&mut page, crate::layout::FIL_PAGE_OFFSET, &[0; 4]);
    assert_eq!(compress(&page, SpaceFlags(0x35)), None, "page 0");
    assert_eq!(compress(&[0; PAGE_BYTES], SpaceFlags(0x35)), None, "never written");
    assert_eq!(compress(&[1; 20], SpaceFlags(0x35)), None, "no page");
}
