use super::*;

const PAGE: PageId = PageId::new(7, 4);

/// INIT_PAGE and a write of MariaDB; INIT_FILE_PAGE2 and a write of MySQL.
fn run(family: Family) -> Vec<u8> {
    match family {
        Family::MariaDb => vec![0x12, 7, 4, 0xb4, 24, 0xab, 0xcd, 0xef],
        Family::MySql => vec![59, 7, 4, 2, 7, 4, 0, 40, 5],
    }
}

const fn of(family: Family, flags: u32) -> Format {
    Format { family, flags }
}

#[test]
fn each_family_answers_for_itself() {
    for (format, size) in [
        (of(Family::MariaDb, 0x15), 16384),
        (of(Family::MySql, 0), 16384),
        (of(Family::MySql, 0x4021), 16384),
        (of(Family::MySql, 0x40e1), 4096),
    ] {
        format.check().unwrap();
        let size = if format.flags == 0x40e1 { 512 << 3 } else { size };
        assert_eq!(format.physical_page_size_bytes(), size, "{format}");
        assert!(format.is_replayed());
        let run = run(format.family);
        let mut page = vec![0xaa; size];
        let change = Change { start_lsn: Lsn(4960), end_lsn: Lsn(4990), run: &run };
        let mut scratch = Scratch::default();
        format.apply_changes(&mut page, PAGE, false, [change], &mut scratch).unwrap();
        assert_eq!(page_lsn(format.family, &page), Some(Lsn(4990)));
        let stored = layout::get_u64(&page, layout::FIL_PAGE_LSN).unwrap();
        assert_eq!(stored, if format.family == Family::MySql { 5120 + 12 + 30 } else { 4990 });
        let before = page.clone();
        format.finalize(&mut page).unwrap();
        format.verify(&page).unwrap();
        assert_eq!(format.digest(&page), format.digest(&before));
        assert_eq!(format.differing_ranges(&page, &before), []);
        assert!(!format.is_page_compressed_image(&page));
        assert!(format.decompress(&page).unwrap().is_none());
        page[100] ^= 1;
        assert!(format.verify(&page).is_err());
        assert_eq!(format.differing_ranges(&page, &before), vec![Range { start: 100, end: 101 }]);
        // As the image is now, the change is in it.
        let after = page.clone();
        format.apply_known_changes(&mut page, PAGE, false, [change], &mut scratch).unwrap();
        assert_eq!(page, after);
    }
}

#[test]
fn the_same_word_means_different_things() {
    // Bit 14 is unknown to MariaDB; bit 4 marks full_crc32 there, and is a page size in MySQL.
    assert!(of(Family::MariaDb, 0x4021).check().is_err());
    assert!(of(Family::MySql, 0x15).check().is_err());
    let mut page0 = vec![0; 64];
    layout::put(&mut page0, layout::FSP_SPACE_FLAGS, &0x4021u32.to_be_bytes());
    let format = Format::of_page0(Family::MySql, &page0).unwrap();
    assert_eq!(format.to_string(), "MySQL tablespace flags 0x4021");
    assert!(Format::of_page0(Family::MariaDb, &page0).is_err());
    let error = of(Family::MySql, 0x6021).check().unwrap_err().to_string();
    assert!(error.contains("encrypted"), "{error}");
    assert!(!of(Family::MySql, 0x4029).is_replayed());
}

#[test]
fn an_image_has_all_changes_up_to_where_the_redo_was() {
    let image = |family| {
        let mut page = vec![0; 16384];
        layout::put(&mut page, layout::FIL_PAGE_LSN, &5000_u64.to_be_bytes());
        complete_image(family, &mut page, Lsn(9000));
        page
    };
    assert_eq!(page_lsn(Family::MySql, &image(Family::MySql)), Some(Lsn(9000)));
    assert_eq!(page_lsn(Family::MariaDb, &image(Family::MariaDb)), Some(Lsn(5000)));
    let mut newer = image(Family::MySql);
    complete_image(Family::MySql, &mut newer, Lsn(7));
    assert_eq!(page_lsn(Family::MySql, &newer), Some(Lsn(9000)));
    let mut empty = vec![0; 16384];
    complete_image(Family::MySql, &mut empty, Lsn(9000));
    assert!(empty.iter().all(|byte| *byte == 0));
}
