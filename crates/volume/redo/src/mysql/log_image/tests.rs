//! Composed files are those that a server would have written.

use std::convert::Infallible;

use super::*;
use crate::mysql::log_file::parse_checkpoint;
use crate::mysql::test_encoder::random_group;
use crate::mysql::test_server_log::ServerLog;

const FILE_SIZE: u64 = 65_536;

fn image(log: &ServerLog, checkpoint: usize, oldest: usize) -> LogImage {
    let at = |offset: usize| Lsn(log.start_position() + offset as u64);
    LogImage {
        set_id: 7,
        creator: b"MySQL 9.7.4".to_vec(),
        first_number: log.first_file,
        start_lsn: log.start_lsn,
        file_size_bytes: log.file_size,
        checkpoint: at(checkpoint),
        oldest: at(oldest),
        end: at(log.payload.len()),
    }
}

fn groups(log: &ServerLog) -> FirstGroups {
    let mut groups = FirstGroups::default();
    let ends = [log.payload.len()];
    log.groups.iter().chain(&ends).for_each(|&at| groups.insert(Lsn(log.start_position() + at as u64)));
    groups
}

fn read(
    log: &ServerLog,
    image: &LogImage,
    groups: &FirstGroups,
    number: u64,
    offset: u64,
    len: usize,
) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    let fetch = |position: Lsn, part: &mut [u8]| -> Result<(), Infallible> {
        assert!(position >= image.oldest && position.0 + part.len() as u64 <= image.end.0);
        let at = (position.0 - log.start_position()) as usize;
        part.copy_from_slice(&log.payload[at..at + part.len()]);
        Ok(())
    };
    image.compose(number, offset, &mut buf, groups, fetch).unwrap();
    buf
}

fn log(len: usize, seed: u64) -> ServerLog {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut log = ServerLog::new(512 * 40, 3, FILE_SIZE, 8192);
    while log.payload.len() < len {
        log.append(&random_group(&mut rng));
    }
    log
}

#[test]
fn blocks_are_as_a_server_writes_them() {
    for seed in 0..10 {
        let log = log(150_000, seed);
        let image = image(&log, 70_000, 0);
        let groups = groups(&log);
        assert_eq!(image.numbers(), 3..=5);
        let end = log.payload.len();
        for block in 0..=end / 496 {
            let (number, offset) = log.place(block);
            assert_eq!(read(&log, &image, &groups, number, offset, 512), log.block(block, end), "{block}");
        }
        let (number, offset) = log.place(end / 496 + 1);
        assert_eq!(read(&log, &image, &groups, number, offset, 512), [0; 512]);
    }
}

#[test]
fn any_range_is_a_part_of_the_whole() {
    let log = log(150_000, 20);
    let image = image(&log, 70_000, 3000);
    let groups = groups(&log);
    let mut rng = fastrand::Rng::with_seed(20);
    for number in 2..8 {
        let whole = read(&log, &image, &groups, number, 0, FILE_SIZE as usize + 1000);
        assert!(whole[FILE_SIZE as usize..].iter().all(|&byte| byte == 0));
        for _ in 0..200 {
            let offset = rng.usize(0..whole.len());
            let len = rng.usize(0..(whole.len() - offset).min(5000));
            assert!(read(&log, &image, &groups, number, offset as u64, len) == whole[offset..offset + len]);
        }
    }
}

#[test]
fn headers_and_checkpoint_are_where_a_server_looks_for_them() {
    let log = log(150_000, 21);
    let image = image(&log, 70_000, 66_000);
    let groups = groups(&log);
    let mut found = Vec::new();
    for number in image.numbers() {
        let file = read(&log, &image, &groups, number, 0, FILE_SIZE as usize);
        let header = LogFileHeader::parse(file[..512].try_into().unwrap()).unwrap();
        assert_eq!(header.start_lsn, log.file_start_lsn(number));
        assert_eq!(header.flags.contains(LogFlags::FULL), number < 5);
        for slot in CheckpointSlot::ALL {
            let at = slot.offset() as usize;
            found.extend(parse_checkpoint(file[at..at + 512].try_into().unwrap()).map(|lsn| (number, lsn)));
        }
    }
    assert_eq!(found, [(4, server_lsn(image.checkpoint)); 2]);
    // Blocks before the oldest are zero, and bytes before it in its block.
    let block = 66_000 / 496;
    let (number, offset) = log.place(block - 1);
    assert_eq!(read(&log, &image, &groups, number, offset, 512), [0; 512]);
    let (number, offset) = log.place(block);
    let bytes = read(&log, &image, &groups, number, offset, 512);
    let skip = 66_000 - block * 496;
    assert!(bytes[12..12 + skip].iter().all(|&byte| byte == 0));
    assert!(bytes[12 + skip..508] == log.payload[66_000..(block + 1) * 496]);
}

#[test]
fn a_log_that_ends_with_a_block_or_a_file_has_an_empty_block_after_it() {
    for blocks in [5, 124] {
        let mut log = ServerLog::new(512 * 40, 3, FILE_SIZE, 8192);
        log.payload = vec![1; blocks * 496];
        let image = image(&log, 0, 0);
        let (number, offset) = log.place(blocks);
        assert_eq!(image.newest_number(), number);
        let bytes = read(&log, &image, &groups(&log), number, offset, 512);
        assert_eq!(bytes[4..8], [0, 12, 0, 12]);
    }
}

#[test]
fn first_groups_are_kept_by_block() {
    let mut groups = FirstGroups::default();
    assert_eq!(groups.of_block(Lsn(0)), None);
    for at in [5000, 4970, 9000, 1000, 1100] {
        groups.insert(Lsn(at));
    }
    assert_eq!(groups.of_block(Lsn(4960)), Some(Lsn(4970)));
    assert_eq!(groups.of_block(Lsn(5455)), Some(Lsn(4970)));
    assert_eq!(groups.of_block(Lsn(5456)), None);
    assert_eq!(groups.of_block(Lsn(1000)), Some(Lsn(1000)));
    groups.forget_before(Lsn(5000));
    assert_eq!(groups.of_block(Lsn(1000)), None);
    assert_eq!(groups.of_block(Lsn(4970)), Some(Lsn(4970)));
    assert_eq!(groups.of_block(Lsn(9000)), Some(Lsn(9000)));
    groups.forget_before(Lsn(1 << 40));
    assert_eq!(groups.of_block(Lsn(9000)), None);
}
