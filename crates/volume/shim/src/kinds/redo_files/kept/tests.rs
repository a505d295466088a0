use super::*;
use std::os::unix::ffi::OsStrExt;

const BLOCK: usize = 512;

fn read(kept: &Kept, blocks: Range<u64>) -> (usize, Vec<u8>) {
    let mut buffer = vec![0xee; (blocks.end - blocks.start) as usize * BLOCK];
    let left = kept.read(&mut buffer, blocks.start * BLOCK as u64).unwrap();
    (left / BLOCK, buffer.iter().step_by(BLOCK).copied().collect())
}

#[test]
fn what_was_written_is_read_back_and_nothing_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = directory.path().as_os_str().as_bytes();
    let mut kept = Kept::default();
    kept.on_header(1024);
    assert_eq!(read(&kept, 4..6), (2, vec![0xee; 2]));
    let write = |kept: &mut Kept, block: u64, fill: &[u8]| {
        let bytes: Vec<u8> = fill.iter().flat_map(|byte| [*byte; BLOCK]).collect();
        kept.on_write(datadir, &bytes, block * BLOCK as u64).unwrap();
    };
    write(&mut kept, 7, &[1]);
    // The last block again, and more.
    write(&mut kept, 7, &[2, 3]);
    write(&mut kept, 9, &[4]);
    assert_eq!(read(&kept, 4..6), (2, vec![0xee; 2]));
    assert_eq!(read(&kept, 5..11), (2, vec![0xee, 0xee, 2, 3, 4, 0]));
    assert_eq!(read(&kept, 8..9), (0, vec![3]));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    // The same header once more: the file is full.
    kept.on_header(1024);
    assert_eq!(read(&kept, 7..8), (0, vec![2]));
    // The file is used again for another part of the log, which begins at its start.
    kept.on_header(99 * 1024);
    assert_eq!(read(&kept, 7..8), (1, vec![0xee]));
    write(&mut kept, 4, &[9]);
    assert_eq!(read(&kept, 4..8), (0, vec![9, 0, 0, 0]));
    // A gap before this write: earlier content of the copy is no longer valid.
    write(&mut kept, 6, &[8]);
    assert_eq!(read(&kept, 4..7), (2, vec![0xee, 0xee, 8]));
    // Nowhere to keep it.
    let gone = directory.path().join("gone");
    kept.on_write(gone.as_os_str().as_bytes(), &[7; BLOCK], 99 * BLOCK as u64).unwrap_err();
    assert_eq!(read(&kept, 6..7), (1, vec![0xee]));
}
