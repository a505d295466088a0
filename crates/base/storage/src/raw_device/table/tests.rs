//! The table by itself; with a drive below it, it is tested in `raw_device/tests.rs`.

use super::*;

fn layout() -> Layout {
    Layout::new(1, 4 << 20, 64 << 10).unwrap()
}

fn table_with_file() -> (Table, RawFileId) {
    let mut table = Table::new(&layout());
    table.open_dir("d").unwrap();
    table.create("d", "f").unwrap();
    let (id, _) = table.open("d", "f").unwrap();
    (table, id)
}

#[test]
fn a_table_comes_back() {
    let (mut table, id) = table_with_file();
    let chunks = table.take_free(2).unwrap().unwrap();
    table.install(id, &[1, 3], &chunks).unwrap();
    table.set_len(id, 200_000).unwrap();
    table.open_dir("empty").unwrap();
    let bytes = table.encode();
    let mut again = Table::decode(&bytes, &layout()).unwrap();
    assert_eq!(again.encode(), bytes);
    assert_eq!(again.unused_chunks(), u64::from(layout().chunk_count) - 2);
    assert_eq!(again.dir_names(), ["d", "empty"]);
    let (id, _) = again.open("d", "f").unwrap();
    assert_eq!(again.len(id).unwrap(), 200_000);
    let places: Vec<bool> = again.pieces(id, 0, 200_000).unwrap().iter().map(|p| p.place.is_some()).collect();
    assert_eq!(places, [false, true, false, true]);
}

#[test]
fn nonsense_is_refused_and_never_panics() {
    let (mut table, id) = table_with_file();
    table.create("d", "g").unwrap();
    let (other, _) = table.open("d", "g").unwrap();
    table.install(id, &[0], &[5]).unwrap();
    table.install(other, &[0], &[6]).unwrap();
    table.set_len(other, 1000).unwrap();
    let bytes = table.encode();
    for len in 0..bytes.len() {
        assert!(Table::decode(&bytes[..len], &layout()).is_err(), "{len}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(Table::decode(&longer, &layout()).err().unwrap().contains("after the last file"));
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut damaged = bytes.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..damaged.len());
            damaged[at] = rng.u8(..);
        }
        if let Ok(table) = Table::decode(&damaged, &layout()) {
            assert_eq!(table.encode().len(), bytes.len());
        }
    }
    let find = |number: u32| {
        let at = bytes.windows(4).rposition(|w| w == number.to_le_bytes()).unwrap();
        move |to: u32| {
            let mut changed = bytes.clone();
            changed[at..at + 4].copy_from_slice(&to.to_le_bytes());
            Table::decode(&changed, &layout()).err().unwrap_or_default()
        }
    };
    let decode_with = find(6);
    assert!(decode_with(5).contains("belongs to two files"));
    assert!(decode_with(layout().chunk_count).contains("and the device has"));
    assert_eq!(decode_with(7), "");
}

#[test]
fn chunks_come_back_only_after_a_snapshot() {
    let (mut table, id) = table_with_file();
    let all = layout().chunk_count as usize;
    let chunks = table.take_free(all).unwrap().unwrap();
    let numbers: Vec<u64> = (0..all as u64).collect();
    table.install(id, &numbers, &chunks).unwrap();
    assert_eq!(table.take_free(1).unwrap_err().kind(), io::ErrorKind::StorageFull);
    table.set_len(id, 65_537).unwrap();
    assert_eq!(table.unused_chunks(), all as u64 - 2);
    assert_eq!(table.take_free(1).unwrap(), None);
    let freed = table.take_freed();
    assert_eq!(freed.len(), all - 2);
    table.put_free(freed);
    assert_eq!(table.take_free(all - 2).unwrap().unwrap().len(), all - 2);
}

#[test]
fn an_open_file_keeps_its_chunks_when_it_loses_its_name() {
    let (mut table, id) = table_with_file();
    let chunks = table.take_free(1).unwrap().unwrap();
    table.install(id, &[0], &chunks).unwrap();
    let (_, _) = table.open("d", "f").unwrap();
    table.create("d", "g").unwrap();
    table.rename("d", "g", "f").unwrap();
    table.close(id);
    assert!(table.take_freed().is_empty());
    assert!(table.pieces(id, 0, 1).unwrap()[0].place.is_some());
    table.close(id);
    assert_eq!(table.take_freed(), chunks);
    assert_eq!(table.pieces(id, 0, 1).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_table_that_would_not_fit_its_area_is_refused() {
    let (mut table, id) = table_with_file();
    let mut made = 0_u32;
    let error = loop {
        match table.create("d", &format!("{made:0255}")) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(made > 900, "{made}");
    assert!(table.encode().len() <= layout().max_table_len());
    let error = table.set_len(id, 1 << 40).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let error = table.open_dir(&"x".repeat(255)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(table.set_len(id, u64::MAX).is_err());
    assert!(table.encode().len() <= layout().max_table_len());
}

#[test]
fn names_are_checked() {
    let mut table = Table::new(&layout());
    for name in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
        assert_eq!(table.open_dir(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
    }
    table.open_dir("d").unwrap();
    assert_eq!(table.create("d", "a/b").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(table.open_dir("d").unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(table.remove_dir("d").unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    table.close_dir("d");
    table.open_dir("d").unwrap();
}
