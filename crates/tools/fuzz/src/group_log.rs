//! Any bytes as the log of a group's member: its head, and frames with records, checkpoints, states and indexes. The
//! log is opened or refused, never a panic. An open log can be read to its end, or to a reported defect.
//!
//! Checked besides: what an index leads to is what was asked for, in order; and a log that was read to its end takes a
//! checkpoint and another record, and has just these when it is opened again.
//!
//! Input: three bytes, of which frame the head says that it is the checkpoint, the state, the last index (0xff: there is
//! none; 0xfe: a place within a frame); then frames: kind (1 byte), length (2 bytes, little-endian), content. Kinds with
//! a checksum get the right one.

use redoubt_consensus::record::Record;
use redoubt_consensus::types::Slot;
use redoubt_group::store::{Found, Store};
use redoubt_logdev::{FileLogDevice, LogDevice, SegmentOptions};
use redoubt_storage::StorageDir;
use redoubt_storage::sim::SimDisk;
use std::sync::Arc;

/// More of them take as long as many inputs.
const MAX_FRAMES: usize = 64;
const MAX_ENTRIES: usize = 1000;
/// The first kind with a checksum.
const CHECKED: u8 = 4;

fn segments() -> SegmentOptions {
    SegmentOptions {
        segment_len_bytes: 64 << 10,
        spare_segments: 0,
        prepare_in_background: false,
        held: Default::default(),
    }
}

/// The frames, and where each begins.
fn frames(mut data: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let (mut log, mut places) = (Vec::new(), Vec::new());
    while let [kind, low, high, rest @ ..] = data {
        if places.len() == MAX_FRAMES {
            break;
        }
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (content, after) = rest.split_at(len);
        places.push(log.len() as u64);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&[*kind]), content).to_le_bytes();
        let crc = if *kind < CHECKED { &[][..] } else { &crc[..] };
        log.extend_from_slice(&((1 + crc.len() + len) as u32).to_le_bytes());
        log.push(*kind);
        log.extend_from_slice(crc);
        log.extend_from_slice(content);
        data = after;
    }
    (log, places)
}

fn head(choices: [u8; 3], places: &[u64]) -> Vec<u8> {
    let mut head = b"RDTGSTOR".to_vec();
    head.extend_from_slice(&3_u32.to_le_bytes());
    head.extend_from_slice(&[1; 16 + 8]);
    for choice in choices {
        let place = match (choice, places) {
            (0xff, _) | (_, []) => u64::MAX,
            (0xfe, _) => places[places.len() / 2] + 1,
            (choice, _) => places[usize::from(choice) % places.len()],
        };
        head.extend_from_slice(&place.to_le_bytes());
    }
    head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
    head
}

fn disk(data: &[u8]) -> Option<SimDisk> {
    let (choices, rest) = data.split_first_chunk()?;
    let (log, places) = frames(rest);
    let disk = SimDisk::new(1);
    let device = FileLogDevice::open_on(Arc::new(disk.clone()), segments()).unwrap();
    if !log.is_empty() {
        device.append(&log).unwrap();
        device.sync().unwrap();
    }
    let file = StorageDir::create(&disk, "head").unwrap();
    file.write_at(0, &head(*choices, &places)).unwrap();
    Some(disk)
}

fn open(disk: &SimDisk) -> Option<(Store, Found)> {
    Store::open_on(Arc::new(disk.clone()), segments()).ok().map(|found| found.expect("there is a head"))
}

/// All that the archive says that it has.
fn read(store: &Store) {
    let archive = store.archive();
    let (mut from, mut count) = (archive.readable(), 0);
    while count < MAX_ENTRIES {
        let Ok(Some(entries)) = archive.read(from, 10, 1 << 10) else { return };
        let Some((last, _)) = entries.last() else { return };
        assert!(entries.len() <= 10);
        assert!(entries.iter().all(|(slot, _)| *slot >= from));
        assert!(entries.is_sorted_by(|(slot, _), (other, _)| slot < other), "out of order");
        if last.0 == u64::MAX {
            return;
        }
        count += entries.len();
        from = last.next();
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some(disk) = disk(data) else { return };
    let Some((mut store, found)) = open(&disk) else { return };
    let looked: Result<Vec<Record>, _> = store.look().collect();
    let records: Result<Vec<Record>, _> = store.records().collect();
    read(&store);
    let (Ok(looked), Ok(records)) = (looked, records) else { return };
    assert_eq!(looked, records);
    let Some(first) = records.first().cloned() else { return };
    let slot = store.archive().readable().max(Slot(1 << 60));
    if slot.0 > 1 << 61 || !store.begin_checkpoint(slot, || vec![first.clone()]).unwrap() {
        return;
    }
    store.end_checkpoint(slot, &found.replica).unwrap();
    store.append(&first).unwrap();
    store.device().sync().unwrap();
    drop(store);
    let (store, again) = open(&disk).expect("what was written by a store is opened");
    assert_eq!(again.replica, found.replica);
    let records: Vec<Record> = store.records().map(Result::unwrap).collect();
    assert_eq!(records, [first.clone(), first]);
    read(&store);
}
