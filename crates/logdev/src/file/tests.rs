//! Tests on real files. Those on a simulated disk are in `crash_tests`.

use super::*;

fn options() -> FileLogOptions {
    FileLogOptions { segment_len_bytes: 16384, ..FileLogOptions::default() }
}

fn read_all(log: &FileLogDevice) -> Vec<u8> {
    let mut bytes = vec![0; (log.end().0 - log.start().0) as usize];
    log.read_at(log.start(), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_reopened_log_holds_what_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..4_u8 {
        let log = FileLogDevice::open(dir.path(), options()).unwrap();
        assert_eq!(read_all(&log), expected);
        for len in [1_usize, 7, 500, 4096, 12_240, 12_256, 40_000, 0] {
            let record: Vec<u8> = (0..len).map(|n| (n as u8) ^ round).collect();
            expected.extend_from_slice(&record);
            assert_eq!(log.append(&record).unwrap(), Seq(expected.len() as u64));
        }
        assert_eq!(log.sync().unwrap(), log.end());
        assert_eq!(read_all(&log), expected);
    }
}
