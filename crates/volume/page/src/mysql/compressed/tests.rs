use super::*;
use flate2::{Compress, Compression, FlushCompress};

const FLAGS: Flags = Flags(0);

fn page() -> Vec<u8> {
    let mut page: Vec<u8> = (0..16384).map(|at| (at / 64) as u8).collect();
    put(&mut page, FIL_PAGE_TYPE, &17855u16.to_be_bytes());
    page
}

/// As the server makes it.
fn packed(page: &[u8], algorithm: u8) -> Vec<u8> {
    let body = &page[FIL_PAGE_DATA..];
    let payload = if algorithm == ALGORITHM_ZLIB {
        let mut out = Vec::with_capacity(page.len());
        Compress::new(Compression::new(6), true).compress_vec(body, &mut out, FlushCompress::Finish).unwrap();
        out
    } else {
        lz4_flex::block::compress(body)
    };
    let mut image = page[..FIL_PAGE_DATA].to_vec();
    put(&mut image, FIL_PAGE_TYPE, &TYPE_PAGE_COMPRESSED.to_be_bytes());
    put(&mut image, VERSION, &[2, algorithm]);
    put(&mut image, ORIGINAL_TYPE, &page[24..26]);
    put(&mut image, ORIGINAL_BYTES, &(body.len() as u16).to_be_bytes());
    put(&mut image, PAYLOAD_BYTES, &(payload.len() as u16).to_be_bytes());
    image.extend(payload);
    assert!(image.len() < page.len());
    image.resize(page.len(), 0);
    image
}

#[test]
fn an_image_gives_the_page() {
    let page = page();
    assert_eq!(decompress(&page, FLAGS), Ok(None));
    for algorithm in [ALGORITHM_ZLIB, ALGORITHM_LZ4] {
        let image = packed(&page, algorithm);
        assert!(is_page_compressed_image(&image));
        let mut whole = decompress(&image, FLAGS).unwrap().unwrap();
        assert_eq!(whole[26..34], image[26..34]);
        whole[26..34].copy_from_slice(&page[26..34]);
        assert_eq!(whole, page);
    }
}

#[test]
fn damage_is_told() {
    let page = page();
    for algorithm in [ALGORITHM_ZLIB, ALGORITHM_LZ4] {
        let image = packed(&page, algorithm);
        for (at, value) in [
            (VERSION, 0),
            (VERSION, 3),
            (ALGORITHM, 9),
            (ORIGINAL_BYTES, 0),
            (PAYLOAD_BYTES, 0xff),
            (45, 0xff),
        ] {
            let mut wrong = image.clone();
            wrong[at] = value;
            assert!(decompress(&wrong, FLAGS).is_err(), "{algorithm} {at}");
        }
        for len in [26, 38, 39, 200] {
            assert!(decompress(&image[..len], FLAGS).is_err());
        }
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut wrong = image.clone();
            wrong[random.usize(26..300)] = random.u8(..);
            if let Ok(Some(whole)) = decompress(&wrong, FLAGS) {
                assert_eq!(whole.len(), 16384);
            }
        }
    }
    let mut encrypted = page;
    put(&mut encrypted, FIL_PAGE_TYPE, &16u16.to_be_bytes());
    assert_eq!(decompress(&encrypted, FLAGS), Err(PageCompressionError::Encrypted));
}
