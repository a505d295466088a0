//! The node's own small files: the checkpoint with all names, the identity, and the quarantine. They are read or refused, never a
//! panic. A file that is written again after reading reads the same, and a names file that was read accepts further
//! frames.
//!
//! Input: a byte of flags (1: the identity; 2: the whole file is given, checksums included; 4: the names file, with a
//! checkpoint that refers to all of it), then the content.

use std::path::Path;
use std::sync::OnceLock;

use redoubt_node::checkpoint::twice::copy_of;
use redoubt_node::checkpoint::{CheckpointFiles, NodeCheckpoint, Positions};
use redoubt_node::home::Folder;
use redoubt_node::quarantine::Contents;
use redoubt_node::volume::Identity;
use redoubt_wire::stream::FileKind;

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIRECTORY.get_or_init(|| tempfile::Builder::new().prefix("redoubt-fuzz-").tempdir().unwrap()).path()
}

fn with_checksum(content: &[u8]) -> Vec<u8> {
    [format!("{:08x}\n", crc32c::crc32c(content)).as_bytes(), content].concat()
}

/// A names file of these lines, and the checksum of the last.
fn names_file(content: &[u8], is_whole: bool) -> (Vec<u8>, u32) {
    let mut crc = 0;
    let mut file = Vec::new();
    for line in content.split(|byte| *byte == b'\n') {
        if is_whole {
            let stored = line.get(..8).and_then(|hex| std::str::from_utf8(hex).ok());
            crc = stored.and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(crc);
        } else {
            crc = crc32c::crc32c_append(crc, line);
            file.extend_from_slice(format!("{crc:08x} ").as_bytes());
            file.extend_from_slice(line);
            file.push(b'\n');
        }
    }
    (if is_whole { content.to_vec() } else { file }, crc)
}

fn put_names(directory: &Path, content: &[u8], is_whole: bool) {
    let (file, crc) = names_file(content, is_whole);
    put(directory, "names-00000001", &file);
    let (len, base_len) = (file.len(), file.len() / 2);
    let names = format!(r#"{{"number":1,"base_len_bytes":{base_len},"len_bytes":{len},"crc":{crc}}}"#);
    let checkpoint = format!(
        r#"{{"format":2,"applied_seq":9,"applied_lsn":9,"log_start_seq":3,"log_start_lsn":3,"names":{names}}}"#
    );
    put(directory, "checkpoint", &with_checksum(checkpoint.as_bytes()));
}

/// Writes a file and its copy.
fn put(directory: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(directory.join(name), bytes).unwrap();
    std::fs::write(directory.join(copy_of(name)), bytes).unwrap();
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&flags, content)) = data.split_first() else { return };
    let is_whole = flags & 2 != 0;
    if let Ok(quarantine) = Contents::decode(content) {
        assert_eq!(Contents::decode(&quarantine.encode().unwrap()).unwrap(), quarantine);
    }
    let file = if is_whole { content.to_vec() } else { with_checksum(content) };
    let directory = directory();
    let folder = Folder::open(directory).unwrap();
    if flags & 1 != 0 {
        put(directory, "volume", &file);
        let Ok(identity) = Identity::read(&folder) else { return };
        identity.write(&folder).unwrap();
        let again = Identity::read(&folder).expect("what was written can be read");
        assert_eq!((again.volume_id, again.generation), (identity.volume_id, identity.generation));
        return;
    }
    if flags & 4 == 0 {
        put(directory, "checkpoint", &file);
    } else {
        put_names(directory, content, is_whole);
    }
    let Ok((mut files, checkpoint)) = CheckpointFiles::open(&folder) else { return };
    let NodeCheckpoint { applied, log_start, cover, .. } = checkpoint;
    let positions = Positions { applied, log_start, cover };
    files.write(positions, &[], 0, || checkpoint.names.clone()).unwrap();
    let (_, again) = CheckpointFiles::open(&folder).expect("what was written can be read");
    assert_eq!((again.applied, again.log_start, again.cover), (applied, log_start, cover));
    assert!(again.names.all().eq(checkpoint.names.all()));
    let mut names = (*again.names).clone();
    names.track();
    let paths: Vec<String> = names.files().map(|(_, entry)| entry.path.clone()).take(4).collect();
    for path in &paths {
        let _ = names.rename(path, "d/other");
        let _ = names.create(path, FileKind::Tablespace, 0o660);
        let _ = names.bind_space(path, redoubt_redo::SpaceId(7));
        let _ = names.set_len(path, 1 << 20);
        let _ = names.unlink(path);
    }
    let changes = names.take_changes();
    files.write(positions, &changes, u64::MAX, || unreachable!("the log is short")).unwrap();
    let (_, followed) = CheckpointFiles::open(&folder).expect("what was appended can be read");
    assert!(followed.names.all().eq(names.all()));
}
