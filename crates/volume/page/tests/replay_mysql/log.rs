//! The redo of a data directory as one piece, read by the plainest means: a test of the applier, not of who reads
//! files.

use std::fs;
use std::path::Path;

use redoubt_redo::mysql::{position, walk_mtrs};
use redoubt_redo::{Lsn, Mtr};

const BLOCK: usize = 512;
const HEADER: usize = 2048;

/// The payload of the log blocks from a position on.
pub struct Log {
    pub start: Lsn,
    pub bytes: Vec<u8>,
}

fn number(bytes: &[u8], offset: usize) -> u64 {
    u64::from_be_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

fn files(log_dir: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(log_dir).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_str().unwrap().ends_with("_tmp") {
            let bytes = fs::read(path).unwrap();
            files.push((number(&bytes, 8), bytes));
        }
    }
    files.sort_by_key(|(start, _)| *start);
    files
}

/// The newest checkpoint.
pub fn checkpoint(data_dir: &Path) -> u64 {
    let slots = |(_, bytes): &(u64, Vec<u8>)| [512, 1536].map(|slot| number(bytes, slot + 8));
    files(&data_dir.join("#innodb_redo")).iter().flat_map(slots).max().unwrap()
}

impl Log {
    /// Read the log from a checkpoint on to its end.
    pub fn read(data_dir: &Path, checkpoint: u64) -> Self {
        let start = position::from_server_lsn(checkpoint);
        assert_eq!(position::server_lsn(start), checkpoint);
        let mut bytes = Vec::new();
        let mut next = checkpoint / 512 * 512;
        'files: for (start_lsn, file) in files(&data_dir.join("log")) {
            if next < start_lsn || next >= start_lsn + (file.len() - HEADER) as u64 {
                continue;
            }
            let at = HEADER + (next - start_lsn) as usize;
            for block in file[at..].chunks_exact(BLOCK) {
                let number = u32::from_be_bytes(block[..4].try_into().unwrap());
                let len = usize::from(u16::from_be_bytes(block[4..6].try_into().unwrap()));
                if u64::from(number) != 1 + next / 512 % (1 << 30) || len < 12 {
                    break 'files;
                }
                let from = if bytes.is_empty() { (checkpoint % 512) as usize } else { 12 };
                bytes.extend_from_slice(block.get(from..len.min(508)).unwrap_or_default());
                if len < BLOCK {
                    break 'files;
                }
                next += 512;
            }
        }
        Self { start, bytes }
    }

    /// Reports its mini-transactions. The last one may have been cut off by a kill.
    pub fn walk(&self, visit: &mut impl FnMut(&Mtr<'_, '_>)) {
        let walked = walk_mtrs(&self.bytes, self.start, visit).unwrap();
        assert!(self.bytes.len() - walked.len_bytes < 1 << 20, "{walked:?} of {} bytes", self.bytes.len());
    }
}
