use super::*;
use redoubt_page::SpaceFlags;
use redoubt_redo::{PageNo, SpaceId};

const ID: PageId = PageId { space: SpaceId(5), page_no: PageNo(3) };

/// A page of this family with its own checksum, and LSN 900.
fn page(family: Family) -> (Format, Vec<u8>) {
    let flags = SpaceFlags(0x15);
    let format = match family {
        Family::MariaDb => Format::of_mariadb(flags),
        Family::MySql => Format { family, flags: 0x4021 },
    };
    let mut page = vec![0; format.physical_page_size_bytes()];
    page[4..8].copy_from_slice(&ID.page_no.0.to_be_bytes());
    page[34..38].copy_from_slice(&ID.space.0.to_be_bytes());
    page[200] = 1;
    assert!(layout::set_page_lsn(&mut page, Lsn(900)));
    format.finalize(&mut page).unwrap();
    (format, page)
}

#[test]
fn image_is_sound_at_the_lsn_of_the_comparison_not_below() {
    let (format, page) = page(Family::MariaDb);
    assert_eq!(check_image(&page, ID, format, Some(Lsn(900))), Ok(()));
    let fault = check_image(&page, ID, format, Some(Lsn(901))).unwrap_err();
    assert!(fault.contains("900") && fault.contains("901"), "{fault}");
}

#[test]
fn image_of_another_page_or_with_a_flipped_byte_is_refused() {
    for family in [Family::MariaDb, Family::MySql] {
        let (format, mut page) = page(family);
        assert_eq!(check_image(&page, ID, format, None), Ok(()), "{family}");
        let other = PageId { page_no: PageNo(4), ..ID };
        assert!(check_image(&page, other, format, None).unwrap_err().contains("names page"), "{family}");
        page[5000] ^= 1;
        assert!(check_image(&page, ID, format, None).is_err(), "{family}");
    }
}

/// MySQL gives a page that it fills without redo the LSN of the oldest page that is not written yet.
#[test]
fn mysql_image_without_redo_counts_by_its_place_in_the_stream() {
    let difference = Difference { page_lsn: 1000, stream_lsn: 1100 };
    for (family, is_recovered, is_sound) in
        [(Family::MySql, false, true), (Family::MySql, true, false), (Family::MariaDb, false, false)]
    {
        let (format, page) = page(family);
        let len = page.len() as u32;
        let point = crate::mark::Point::default();
        let chunk =
            Chunk { kind: 1, logged: true, start: point, end: point, wire: Vec::new(), raw: Some(page) };
        let body = Body::Image { chunk: 0, offset: 0, len, is_recovered };
        let entry = Entry { start_lsn: Lsn(1200), end_lsn: Lsn(1200), body };
        let checked = check(&entry, &[Arc::new(chunk)], ID, format, difference);
        assert_eq!(checked.is_ok(), is_sound, "{family} {is_recovered}: {checked:?}");
    }
}
