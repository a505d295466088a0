//! Files of which the drive has lost blocks.

use super::*;
use redoubt_storage::StorageDir;
use redoubt_storage::sim::SimDisk;

const NAME: &str = "file";
const BLOCKS: usize = 3 * LOST_BLOCKS_MAX;
const LEN: usize = BLOCKS * BLOCK_LEN;

/// Reads a file of ones without these blocks.
fn read_without(lost: impl Iterator<Item = usize>) -> Result<Content, LogDeviceError> {
    let disk = SimDisk::new(1);
    let file = disk.create(NAME).unwrap();
    file.write_at(0, &[1; LEN]).unwrap();
    file.sync_all().unwrap();
    for block in lost {
        disk.lose(NAME, block * BLOCK_LEN..(block + 1) * BLOCK_LEN);
    }
    read_content(&*file, NAME, LEN)
}

fn whole_blocks(content: &Content) -> Vec<usize> {
    let blocks = content.bytes.chunks(BLOCK_LEN).enumerate();
    blocks.filter(|(_, block)| block.iter().all(|byte| *byte == 1)).map(|(number, _)| number).collect()
}

#[test]
fn lost_blocks_are_zeros_up_to_the_limit() {
    let whole = read_without(0..0).unwrap();
    assert_eq!((whole_blocks(&whole).len(), whole.lost_behind(0)), (BLOCKS, None));
    let most = read_without(1..=LOST_BLOCKS_MAX).unwrap();
    assert_eq!(whole_blocks(&most).len(), BLOCKS - LOST_BLOCKS_MAX);
    let last = LOST_BLOCKS_MAX * BLOCK_LEN;
    assert_eq!((most.lost_behind(0), most.lost_behind(last + BLOCK_LEN)), (Some(last), None));
}

#[test]
fn bytes_behind_too_many_lost_blocks_are_not_read() {
    let more = read_without(1..=LOST_BLOCKS_MAX + 1).unwrap();
    assert_eq!(whole_blocks(&more), [0]);
    assert!(more.lost_behind(LEN - 1).is_some());
}

#[test]
fn drive_that_reads_nothing_has_lost_nothing_for_certain() {
    for blocks in [LOST_BLOCKS_MAX + 1, BLOCKS] {
        assert!(matches!(read_without(0..blocks), Err(LogDeviceError::Io { .. })), "{blocks}");
    }
}
