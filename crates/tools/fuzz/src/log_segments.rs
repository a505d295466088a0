//! The segments of a log with arbitrary changes: opened, or refused with an error. An open log can be read from its
//! start to its end, or to a reported defect; it accepts a record, and opens again with the same bytes.
//!
//! Input: a byte of flags (1: do not mend checksums), then patches:
//! which segment (1 byte), an offset in 8-byte steps (2 bytes), a length (1 byte), and that many bytes.

use std::sync::{Arc, OnceLock};

use redoubt_logdev::{FileLogDevice, LogDevice, LogDeviceError, SegmentOptions, Seq};
use redoubt_storage::sim::SimDisk;

const SEGMENT_LEN: u64 = 64 << 10;
const HEADER_LEN: usize = 4096;

fn options() -> SegmentOptions {
    SegmentOptions {
        segment_len_bytes: SEGMENT_LEN,
        spare_segments: 1,
        prepare_in_background: false,
        held: Default::default(),
    }
}

fn open(disk: &SimDisk) -> Result<FileLogDevice, LogDeviceError> {
    FileLogDevice::open_on(Arc::new(disk.clone()), options())
}

/// A log of several segments, one of them recycled, and the names of its files.
fn log() -> &'static (SimDisk, Vec<String>) {
    static LOG: OnceLock<(SimDisk, Vec<String>)> = OnceLock::new();
    LOG.get_or_init(|| {
        let disk = SimDisk::new(2);
        let device = open(&disk).unwrap();
        for n in 0..60u32 {
            let record = vec![n as u8; 1 + (n as usize * 977) % 9000];
            let end = device.append(&record).unwrap();
            if n % 7 == 0 {
                device.sync().unwrap();
            }
            if n == 30 {
                device.discard_before(Seq(end.0 / 2)).unwrap();
            }
        }
        device.sync().unwrap();
        drop(device);
        let names = redoubt_storage::StorageDir::list(&disk).unwrap();
        (disk, names)
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Makes the checksums of a segment's header and of the records it still has in a row right.
fn mend(content: &mut [u8]) {
    if content.len() < HEADER_LEN {
        return;
    }
    let crc = crc32c::crc32c(&content[..48]);
    content[48..52].copy_from_slice(&crc.to_le_bytes());
    let unit = u32_at(content, 12).filter(|unit| unit.is_power_of_two()).unwrap_or(8).clamp(8, 4096) as usize;
    let epoch: [u8; 8] = content[24..32].try_into().unwrap();
    let mut at = HEADER_LEN;
    while content.get(at..).is_some_and(|rest| rest.starts_with(&epoch)) {
        let Some(length) = u32_at(content, at + 24) else { return };
        let end = at + 32 + (length & ((1 << 28) - 1)) as usize;
        let Some(payload) = content.get(at + 32..end) else { return };
        let crc = crc32c::crc32c_append(crc32c::crc32c(&content[at..at + 28]), payload);
        content[at + 28..at + 32].copy_from_slice(&crc.to_le_bytes());
        at = end.next_multiple_of(unit);
    }
}

/// `None`: damaged, in a segment that is not looked at before it is read.
fn read_all(device: &FileLogDevice) -> Option<(Seq, Vec<u8>)> {
    let (start, end) = (device.start(), device.end());
    assert!(start <= end);
    let len = end.0 - start.0;
    assert!(len < 64 << 20, "more bytes than the files have");
    let mut bytes = vec![0; len as usize];
    match device.read_at(start, &mut bytes) {
        Ok(()) => Some((start, bytes)),
        Err(LogDeviceError::Damaged { .. } | LogDeviceError::BadSegment { .. }) => None,
        Err(error) => panic!("what was found can be read: {error}"),
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&flags, mut patches)) = data.split_first() else { return };
    let (disk, names) = log();
    let disk = disk.copy();
    disk.set_capacity_bytes(Some(8 << 20));
    let mut touched = Vec::new();
    while let [which, low, high, len, rest @ ..] = patches {
        let (bytes, after) = rest.split_at(rest.len().min(usize::from(*len)));
        let name = &names[usize::from(*which) % names.len()];
        disk.damage(name, 0, |content| {
            let at = usize::from(u16::from_le_bytes([*low, *high])) * 8 % content.len();
            let end = content.len().min(at + bytes.len());
            content[at..end].copy_from_slice(&bytes[..end - at]);
        });
        touched.push(name);
        patches = after;
    }
    if flags & 1 == 0 {
        touched.iter().for_each(|name| disk.damage(name, 0, mend));
    }
    let Ok(device) = open(&disk) else { return };
    let before = read_all(&device);
    let added = b"a record more";
    if device.append(added).is_ok() && device.sync().is_ok() {
        let expected = before.map(|(start, bytes)| (start, [&bytes[..], added].concat()));
        drop(device);
        let device = open(&disk).expect("a log that took a record opens again");
        assert!(read_all(&device) == expected, "other bytes than before");
    }
}
