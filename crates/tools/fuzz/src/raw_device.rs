//! A raw device with arbitrary changes to its start: opened and listed, or refused with an error; never a panic.
//!
//! Input: patches, each an offset in 16-byte steps (2 bytes), a length (1 byte), and that many bytes. Afterwards the
//! checksums are made right, unless the first byte is odd.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use redoubt_storage::raw_device::{RawDevice, RawFormatOptions};

const LEN: u64 = 4 << 20;
/// The part of the device that holds the fixed blocks and a table of few files.
const START: usize = 1 << 20;
const SECTOR: usize = 512;
const CRC_AT: usize = 12;

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("redoubt-fuzz-raw-device-{}", std::process::id()))
}

/// The start of a device with some files on it.
fn start() -> &'static [u8] {
    static START_OF_DEVICE: OnceLock<Vec<u8>> = OnceLock::new();
    START_OF_DEVICE.get_or_init(|| {
        let file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(path());
        file.as_ref().unwrap().set_len(LEN).unwrap();
        RawDevice::format(&path(), RawFormatOptions { force: true, chunk_len_bytes: 64 << 10 }).unwrap();
        let device = RawDevice::open(&path()).unwrap();
        for name in ["log-1", "pages-1"] {
            let dir = device.dir(name).unwrap();
            for file in ["a", "b", "c"] {
                dir.create(file).unwrap().write_at(0, &[7; 100_000]).unwrap();
            }
            dir.sync().unwrap();
        }
        drop(device);
        let mut start = vec![0; START];
        file.unwrap().read_exact_at(&mut start, 0).unwrap();
        start
    })
}

/// Headers have the CRC of all their other bytes; a snapshot's header, of its table as well.
fn mend(content: &mut [u8]) {
    for at in (0..content.len() - SECTOR).step_by(4096) {
        if content[at..].starts_with(b"REDOUBTS") {
            let (header, table) = content[at..].split_at_mut(4096);
            let len = u64::from_le_bytes(header[32..40].try_into().unwrap()).min(table.len() as u64);
            let crc = u64::from(crc32c::crc32c(&table[..len as usize]));
            header[40..48].copy_from_slice(&crc.to_le_bytes());
        }
        if content[at..].starts_with(b"REDOUBT") {
            let header = &mut content[at..at + SECTOR];
            header[CRC_AT..CRC_AT + 4].fill(0);
            let crc = crc32c::crc32c(header);
            header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&first, mut patches)) = data.split_first() else { return };
    let mut content = start().to_vec();
    while let [low, high, len, rest @ ..] = patches {
        let (bytes, after) = rest.split_at(rest.len().min(usize::from(*len)));
        let at = usize::from(u16::from_le_bytes([*low, *high])) * 16 % content.len();
        let end = content.len().min(at + bytes.len());
        content[at..end].copy_from_slice(&bytes[..end - at]);
        patches = after;
    }
    if first & 1 == 0 {
        mend(&mut content);
    }
    let file = std::fs::File::options().write(true).open(path()).unwrap();
    file.write_all_at(&content, 0).unwrap();
    drop(file);
    let Ok(device) = RawDevice::open(&path()) else { return };
    for name in device.dirs() {
        let Ok(dir) = device.dir(&name) else { continue };
        for file in dir.list().unwrap_or_default() {
            if let Ok(file) = dir.open(&file) {
                let _ = file.read_at(0, &mut [0; 4096]);
                let _ = file.write_at(70_000, &[1; 5000]);
            }
        }
        let _ = dir.sync();
    }
}
