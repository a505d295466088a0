//! Arbitrary records as NFS client calls on a made-up volume: each is answered within the protocol's limits, or is no
//! call.
//!
//! Input: records, each with its length in two bytes, little-endian; the last one ends with the input.

use std::sync::Arc;
use std::time::Duration;

use redoubt_readers::nfs::Limits;
use redoubt_readers::nfs::exports::{Exports, Listed, Volumes};
use redoubt_readers::nfs::program::{Program, READ_LIMIT_BYTES};
use redoubt_readers::nfs::rpc::REQUEST_LIMIT_BYTES;
use redoubt_readers::nfs::server::answer;
use redoubt_readers::{Contents, LogFollower, ViewError, ViewSource};
use redoubt_wire::control::{EntryKind, VolumeEntry};
use redoubt_wire::view::ViewFile;

/// Random id of the volume, as handles in the corpus have it.
const VOLUME_ID: u128 = 7;
/// Name of the volume.
const VOLUME: &str = "shop";
/// Path, number and length; a directory has no number.
const FILES: [(&str, u32, usize); 3] = [("shop", 0, 0), ("shop/t.ibd", 1, 40_000), ("ibdata1", 6, 300_000)];
/// The longest answer is one of READ, with its head.
const ANSWER_LIMIT_BYTES: usize = READ_LIMIT_BYTES as usize + 256;

struct Source {
    is_moment: bool,
}

fn entry((path, number, len_bytes): (&str, u32, usize)) -> VolumeEntry {
    let kind = if number == 0 { EntryKind::Directory } else { EntryKind::Plain };
    VolumeEntry { path: path.to_owned(), kind, mode: 0o640, len_bytes: len_bytes as u64, checksum: None }
}

impl ViewSource for Source {
    fn stat(&self, path: &str) -> Result<Option<ViewFile>, ViewError> {
        let found = FILES.into_iter().find(|(name, ..)| *name == path);
        Ok(found.map(|file| ViewFile { file: file.1, entry: entry(file) }))
    }

    fn names(&self) -> Result<Vec<VolumeEntry>, ViewError> {
        Ok(FILES.map(entry).to_vec())
    }

    fn read(&self, file: u32, offset_bytes: u64, len_bytes: u32) -> Result<Option<Contents>, ViewError> {
        let Some((.., all)) = FILES.into_iter().find(|(_, number, _)| *number == file) else {
            return Ok(None);
        };
        let from = usize::try_from(offset_bytes).unwrap_or(usize::MAX).min(all);
        let to = from.saturating_add(len_bytes as usize).min(all);
        Ok(Some(Contents { bytes: vec![7; to - from], len_bytes: all as u64 }))
    }

    fn follow(&self) -> Result<Box<dyn LogFollower>, ViewError> {
        Err(ViewError::Failed("no log".to_owned()))
    }

    fn scratch_file(&self) -> std::io::Result<std::fs::File> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn is_moment(&self) -> bool {
        self.is_moment
    }
}

struct Node;

impl Volumes for Node {
    fn list(&self) -> Vec<Listed> {
        vec![Listed { name: VOLUME.to_owned(), volume_id: VOLUME_ID }]
    }

    fn is_opening(&self) -> bool {
        false
    }

    fn has_unusable(&self) -> bool {
        false
    }

    fn open(&self, name: &str, is_moment: bool) -> Result<(u128, Arc<dyn ViewSource>), ViewError> {
        if name != VOLUME {
            return Err(ViewError::Ended("no such volume".to_owned()));
        }
        Ok((VOLUME_ID, Arc::new(Source { is_moment })))
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let limits = Limits { moment_idle: Duration::from_secs(60) };
    let program = Program { exports: Arc::new(Exports::new(Arc::new(Node), limits)), owner: (1, 2) };
    let mut rest = data;
    while let Some((len_bytes, following)) = rest.split_first_chunk() {
        let len_bytes = usize::from(u16::from_le_bytes(*len_bytes)).min(following.len());
        let (record, following) = following.split_at(len_bytes);
        assert!(record.len() <= REQUEST_LIMIT_BYTES);
        if let Some(answer) = answer(&program, record, || ()) {
            let mark = u32::from_be_bytes(*answer.first_chunk().unwrap());
            assert_eq!(mark, 1 << 31 | (answer.len() - 4) as u32, "the mark is the record's");
            assert_eq!(answer.get(4..8), record.get(..4), "it answers this call");
            assert!(answer.len().is_multiple_of(4) && answer.len() <= ANSWER_LIMIT_BYTES, "{}", answer.len());
        }
        rest = following;
    }
}
