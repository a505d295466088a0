use super::*;

#[test]
fn each_byte_counts_or_does_not() {
    for page_type in [17855u16, TYPE_RTREE] {
        let mut page: Vec<u8> = (0..4096).map(|at| at as u8).collect();
        page[24..26].copy_from_slice(&page_type.to_be_bytes());
        assert_eq!(first_difference(&page, &page), None);
        for at in 0..4096 {
            let mut other = page.clone();
            other[at] ^= 0x80;
            let counts = match at {
                0..4 | 16..24 | 4088.. => false,
                26..34 => page_type == TYPE_RTREE,
                _ => true,
            };
            let difference = first_difference(&page, &other);
            assert_eq!(difference.map(|difference| difference.offset), counts.then_some(at));
            assert_eq!(digest(&page) != digest(&other), counts, "{at}");
            let is_hashed = !matches!(at, 0..4 | 16..24 | 4088..);
            assert_eq!(content_hash(&page) != content_hash(&other), is_hashed, "{at}");
        }
    }
}

#[test]
fn lengths_differ() {
    let difference = first_difference(&[0; 100], &[0; 50]).unwrap();
    assert_eq!(difference, Difference { offset: 50, first: Some(0), second: None });
    let _ = digest(&[]);
    let _ = content_hash(&[]);
}

#[test]
fn a_page_that_was_only_allocated_is_written_with_another_type() {
    let page = |kind: u16| {
        let mut page = vec![0; 16384];
        crate::layout::put(&mut page, FIL_PAGE_TYPE, &kind.to_be_bytes());
        page
    };
    assert_eq!(digest(&page(0)), digest(&page(13)));
    assert_eq!(first_difference(&page(0), &page(13)), None);
    assert_ne!(digest(&page(0)), digest(&page(2)));
    assert_eq!(
        first_difference(&page(13), &page(2)).map(|difference| difference.offset),
        Some(FIL_PAGE_TYPE + 1)
    );
}

#[test]
fn all_of_a_page_compressed_image_counts() {
    let mut image = vec![7; 4096];
    crate::layout::put(&mut image, FIL_PAGE_TYPE, &14_u16.to_be_bytes());
    let mut other = image.clone();
    other[4095] ^= 1;
    assert_ne!(content_hash(&image), content_hash(&other));
}
