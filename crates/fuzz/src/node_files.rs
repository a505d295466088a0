//! The node's own small files: the checkpoint with all names, and the identity. Read or refused, never a panic; what is read
//! and written again reads the same; and names that were read take further frames.
//!
//! Input: a byte of flags (1: the identity; 2: the whole file is given, checksum line included), then the content.

use std::path::Path;
use std::sync::OnceLock;

use redoubt_node::checkpoint::Checkpoint;
use redoubt_node::home::Folder;
use redoubt_node::volume::Identity;
use redoubt_wire::stream::FileKind;

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIRECTORY.get_or_init(|| tempfile::Builder::new().prefix("redoubt-fuzz-").tempdir().unwrap()).path()
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&flags, content)) = data.split_first() else { return };
    let mut file = Vec::new();
    if flags & 2 == 0 {
        file = format!("{:08x}\n", crc32c::crc32c(content)).into_bytes();
    }
    file.extend_from_slice(content);
    let directory = directory();
    let folder = Folder::open(directory).unwrap();
    if flags & 1 != 0 {
        std::fs::write(directory.join("volume"), &file).unwrap();
        let Ok(identity) = Identity::read(&folder) else { return };
        identity.write(&folder).unwrap();
        let again = Identity::read(&folder).expect("what was written can be read");
        assert_eq!((again.volume_id, again.generation), (identity.volume_id, identity.generation));
        return;
    }
    std::fs::write(directory.join("checkpoint"), &file).unwrap();
    let Ok(checkpoint) = Checkpoint::read(&folder) else { return };
    checkpoint.write(&folder).unwrap();
    let again = Checkpoint::read(&folder).expect("what was written can be read");
    assert_eq!((again.applied, again.log_start), (checkpoint.applied, checkpoint.log_start));
    assert_eq!(again.names, checkpoint.names);
    let mut names = (*again.names).clone();
    let paths: Vec<String> = names.files().map(|(_, entry)| entry.path.clone()).take(4).collect();
    for path in &paths {
        let _ = names.rename(path, "d/other");
        let _ = names.create(path, FileKind::Tablespace, 0o660);
        let _ = names.bind_space(path, redoubt_redo::SpaceId(7));
        let _ = names.set_len(path, 1 << 20);
        let _ = names.unlink(path);
    }
}
