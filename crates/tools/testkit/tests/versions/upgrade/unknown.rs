//! Files of versions that do not exist yet, and of builds before 0.1.0: the node starts, refuses the volume, names
//! file, versions and the way out, and changes nothing. When the file is as it was, the volume opens.

use std::path::{Path, PathBuf};

use redoubt_harness::command::{Outcome, PATIENCE};

use super::fixture::Fixture;

/// The volume whose files are changed.
const FIXTURE: &str = "0.1.0";

/// A file of a volume, changed to another format version.
struct Other {
    /// Its name; a prefix for a segment of the log.
    name: &'static str,
    /// Directory in the volume.
    directory: &'static str,
    change: fn(&mut Vec<u8>),
    /// Parts of the refusal that must be there.
    said: &'static [&'static str],
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_crc(bytes: &mut [u8], at: usize) {
    let crc = crc32c::crc32c(&bytes[..at]);
    put(bytes, at, crc);
}

/// A checksum line and JSON. The new version has a field that we do not know, and lacks one that we do.
fn json<const OLD: u32, const NEW: u32>(bytes: &mut Vec<u8>) {
    let text = String::from_utf8(bytes[9..].to_vec()).unwrap();
    let (old, new) = (format!("\"format\":{OLD}"), format!("\"format\":{NEW},\"more\":true"));
    assert!(text.contains(&old), "{text}");
    let text = text.replacen(&old, &new, 1).replacen("_lsn\"", "_position\"", 1);
    *bytes = format!("{:08x}\n{text}", crc32c::crc32c(text.as_bytes())).into_bytes();
}

fn superblocks(bytes: &mut [u8], change: impl Fn(&mut [u8])) {
    for block in bytes.chunks_exact_mut(4096).take(2) {
        change(block);
        put_crc(block, 64);
    }
}

const FILES: [Other; 7] = [
    Other {
        directory: "",
        name: "volume",
        change: json::<1, 4>,
        said: &["version 4", "up to 3", "newer Redoubt", "use that version"],
    },
    Other {
        directory: "",
        name: "checkpoint",
        change: json::<2, 3>,
        said: &["version 3", "up to 2", "newer Redoubt", "use that version"],
    },
    Other {
        directory: "",
        name: "checkpoint",
        change: json::<2, 1>,
        said: &["version 1", "knows version 2", "a build before Redoubt 0.1.0", "import the export here"],
    },
    Other {
        directory: "log",
        name: "log-",
        change: |bytes| {
            put(bytes, 8, 3);
            put_crc(bytes, 48);
        },
        said: &["version 3", "up to 2", "newer Redoubt", "use that version"],
    },
    Other {
        directory: "pages",
        name: "pages.journal",
        change: |bytes| superblocks(bytes, |block| put(block, 8, 7)),
        said: &["version 7", "up to 2", "newer Redoubt", "use that version"],
    },
    Other {
        directory: "pages",
        name: "pages.journal",
        change: |bytes| {
            bytes[..8192].fill(0);
            bytes[..12].copy_from_slice(b"RDBTPGJ1\x01\0\0\0");
        },
        said: &["version 1", "knows version 2", "a build before Redoubt 0.1.0", "import the export here"],
    },
    Other {
        directory: "pages",
        name: "pages.identity",
        change: |bytes| {
            put(bytes, 8, 3);
            put_crc(bytes, 24);
        },
        said: &["version 3", "up to 2", "newer Redoubt", "use that version"],
    },
];

fn file(other: &Other, volume: &Path) -> PathBuf {
    let directory = volume.join(other.directory);
    let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(other.name);
    let mut found: Vec<_> = entries.filter(is_it).collect();
    found.sort();
    found.remove(0)
}

fn require_refusal(other: &Other) {
    let (mut original, mut changed) = (Vec::new(), Vec::new());
    let mut fixture = Fixture::unpack_and(FIXTURE, |volume| {
        let path = file(other, volume);
        original = std::fs::read(&path).unwrap();
        changed.clone_from(&original);
        (other.change)(&mut changed);
        std::fs::write(&path, &changed).unwrap();
    });
    let address = fixture.node.address().to_string();
    let show = |fixture: &Fixture| {
        let args = ["volume", "show", "v", "--node", &address];
        let outcome = Outcome::of(fixture.node.redoubt_bin(), args, PATIENCE).unwrap();
        format!("{}{}", outcome.stdout, outcome.stderr)
    };
    let said = show(&fixture);
    for part in [other.name, "export"].iter().chain(other.said) {
        assert!(said.contains(part), "{}: `{part}` is not in: {said}", other.name);
    }
    fixture.node.stop().unwrap();
    let path = file(other, &fixture.node.data().join("volumes/v"));
    assert!(std::fs::read(&path).unwrap() == changed, "{} was changed although it was refused", other.name);
    std::fs::write(&path, &original).unwrap();
    fixture.node.start().unwrap();
    assert!(show(&fixture).contains("state           ready"), "{}: {}", other.name, show(&fixture));
}

#[test]
fn files_of_unknown_versions_are_refused_and_left_alone() {
    FILES.iter().for_each(require_refusal);
}
