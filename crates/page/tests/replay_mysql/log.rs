//! The redo of a data directory as one piece, and the mini-transactions in it.

use std::fs;
use std::ops::Range;
use std::path::Path;

use redoubt_page::mysql::RecordKind;
use redoubt_redo::mysql::{Body, Record, RecordReader, position};
use redoubt_redo::{Lsn, PageId, SpaceId};

const BLOCK: usize = 512;
const HEADER: usize = 2048;

/// The payload of the log blocks from a position on.
pub struct Log {
    pub start: Lsn,
    pub bytes: Vec<u8>,
}

/// Records of one page that follow each other in a mini-transaction.
pub struct Run {
    pub page: PageId,
    pub bytes: Range<usize>,
}

/// A mini-transaction.
pub struct Group {
    pub start: Lsn,
    pub end: Lsn,
    pub runs: Vec<Run>,
    pub kinds: Vec<RecordKind>,
    /// Indexes that were built without redo: tablespace and id.
    pub built: Vec<(SpaceId, u64)>,
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

    /// Its mini-transactions.
    pub fn groups(&self) -> Vec<Group> {
        let (mut groups, mut at) = (Vec::new(), 0);
        while at < self.bytes.len() {
            let Some((group, end)) = self.group(at) else { break };
            groups.push(group);
            at = end;
        }
        assert!(self.bytes.len() - at < 1 << 20, "the log is read to {at} of {}", self.bytes.len());
        groups
    }

    fn group(&self, start: usize) -> Option<(Group, usize)> {
        let lsn = |at: usize| self.start.advance(at as u64);
        let mut group = Group {
            start: lsn(start),
            end: lsn(start),
            runs: Vec::new(),
            kinds: Vec::new(),
            built: Vec::new(),
        };
        let mut at = start;
        loop {
            let first = *self.bytes.get(at)?;
            let is_end = first == 31;
            let len = if is_end { 1 } else { self.record(at, &mut group)? };
            at += len;
            if is_end || first & 0x80 != 0 || first == 32 {
                group.end = lsn(at);
                return Some((group, at));
            }
        }
    }

    fn record(&self, at: usize, group: &mut Group) -> Option<usize> {
        let mut reader = RecordReader::new(&self.bytes[at..]);
        let record = match reader.next()? {
            Ok(record) => record,
            Err(error) => {
                assert!(self.bytes.len() - at < 1 << 20, "record at {at}: {error}");
                return None;
            }
        };
        let len = reader.offset_in_bytes();
        group.kinds.push(RecordKind::of(&record.body));
        let is_change = !matches!(
            record.body,
            Body::IndexLoad { .. }
                | Body::DynamicMetadata(_)
                | Body::File(_)
                | Body::FileCreate { .. }
                | Body::Dummy
        );
        if let Record { page, body: Body::IndexLoad { index_id } } = record {
            group.built.push((page.space, index_id));
        }
        if is_change {
            match group.runs.last_mut() {
                Some(run) if run.page == record.page && run.bytes.end == at => run.bytes.end = at + len,
                _ => group.runs.push(Run { page: record.page, bytes: at..at + len }),
            }
        }
        Some(len)
    }
}
