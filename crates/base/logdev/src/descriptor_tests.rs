//! Logs of a process that has no descriptor left.

use std::path::Path;
use std::sync::Arc;

use redoubt_storage::{BudgetDir, ErrorKind, FileBudget, RealDir, StorageDir};
use redoubt_test_support::NoDescriptors;

use crate::block::{BlockLogDevice, BlockLogOptions};
use crate::segments::SegmentOptions;
use crate::{FileLogDevice, LogDevice, LogDeviceError, Seq};

redoubt_test_support::children!(file_log_without_descriptors, block_log_without_descriptors);

const SEGMENT_BYTES: usize = 16_384;
/// Reaches into another segment.
const LONG: usize = SEGMENT_BYTES + 4096;

fn segments() -> SegmentOptions {
    SegmentOptions {
        segment_len_bytes: SEGMENT_BYTES as u64,
        prepare_in_background: false,
        ..SegmentOptions::default()
    }
}

/// The log, and all bytes that it has taken.
struct Written {
    log: Box<dyn LogDevice>,
    bytes: Vec<u8>,
}

impl Written {
    fn append(&mut self, len: usize) -> Result<(), LogDeviceError> {
        let record = vec![self.bytes.len() as u8; len];
        let end = self.log.append(&record)?;
        self.bytes.extend_from_slice(&record);
        assert_eq!(end, Seq(self.bytes.len() as u64));
        Ok(())
    }

    /// Within the active segment.
    fn append_some(&mut self) {
        self.append(100).unwrap();
        assert_eq!(self.log.sync().unwrap(), self.log.end());
    }

    fn check(&self) {
        let start = self.log.start().0 as usize;
        let mut read = vec![0; self.bytes.len() - start];
        self.log.read_at(self.log.start(), &mut read).unwrap();
        assert!(read == self.bytes[start..]);
    }
}

fn is_retry<T>(result: Result<T, LogDeviceError>) {
    match result {
        Err(error @ LogDeviceError::NoDescriptors { .. }) => assert_eq!(error.kind(), ErrorKind::Retry),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it needs a descriptor"),
    }
}

/// A lack of descriptors, before there are spares and afterwards: commits go on in the active segment, other calls may be
/// repeated, and nothing is lost.
fn outlast_lacks(open: impl Fn(Arc<dyn StorageDir>, &Path) -> Box<dyn LogDevice>) {
    let place = tempfile::tempdir().unwrap();
    let budget = FileBudget::new(1000);
    let dir = || BudgetDir::new(Arc::new(RealDir::open(place.path()).unwrap()), &budget);
    let mut written = Written { log: open(Arc::new(dir()), place.path()), bytes: Vec::new() };
    for round in 0..2 {
        written.append(2 * LONG).unwrap();
        written.append_some();
        if round == 1 {
            // Makes spares.
            written.log.discard_before(written.log.end()).unwrap();
        }
        let lack = NoDescriptors::begin();
        written.append_some();
        // Fills the segment. The first time, there is no spare for the next one. A failure closes all idle files.
        match written.append(LONG) {
            Ok(()) => assert_eq!(round, 1),
            failed => is_retry(failed),
        }
        written.append_some();
        if round == 0 {
            is_retry(written.log.read_at(written.log.start(), &mut [0; 10]));
            is_retry(written.log.discard_before(written.log.end()));
            written.append_some();
        }
        drop(lack);
        written.append(LONG).unwrap();
        written.append_some();
        written.check();
        // Makes spares, and removes the segments beyond these.
        written.log.discard_before(written.log.end()).unwrap();
        written.check();
    }
    let Written { log, bytes } = written;
    drop(log);
    let written = Written { log: open(Arc::new(dir()), place.path()), bytes };
    written.check();
}

fn file_log_without_descriptors() {
    outlast_lacks(|dir, _| Box::new(FileLogDevice::open_on(dir, segments()).unwrap()));
}

fn block_log_without_descriptors() {
    let options = BlockLogOptions { segments: segments(), ..BlockLogOptions::default() };
    outlast_lacks(|dir, path| Box::new(BlockLogDevice::open_in(dir, path, options.clone()).unwrap()));
}

#[test]
fn file_log_outlasts_a_lack_of_descriptors() {
    let status = redoubt_test_support::child::command("file_log_without_descriptors").status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn block_log_outlasts_a_lack_of_descriptors() {
    let status = redoubt_test_support::child::command("block_log_without_descriptors").status().unwrap();
    assert!(status.success(), "{status}");
}
