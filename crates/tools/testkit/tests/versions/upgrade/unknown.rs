//! Files of versions that do not exist yet: the node starts, refuses the volume, names file, versions and the way
//! out, and changes nothing; when the file is as it was, the volume opens.

use std::path::{Path, PathBuf};

use redoubt_testkit::command::{Outcome, PATIENCE};

use super::fixture::Fixture;

/// A file of a volume, made to say that it is of another version.
struct Newer {
    fixture: &'static str,
    /// Its name; a prefix for a segment of the log.
    name: &'static str,
    /// Directory in the volume.
    directory: &'static str,
    change: fn(&mut Vec<u8>),
    found: u32,
    known: u32,
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_crc(bytes: &mut [u8], at: usize) {
    let crc = crc32c::crc32c(&bytes[..at]);
    put(bytes, at, crc);
}

/// A checksum line and JSON. The new version has a field that we do not know, and lacks one that we do.
fn json<const NEW: u32>(bytes: &mut Vec<u8>) {
    let text = String::from_utf8(bytes[9..].to_vec()).unwrap();
    let text = text.replacen("\"format\":1", &format!("\"format\":{NEW},\"more\":true"), 1).replacen(
        "_lsn\"",
        "_position\"",
        1,
    );
    *bytes = format!("{:08x}\n{text}", crc32c::crc32c(text.as_bytes())).into_bytes();
}

const FILES: [Newer; 6] = [
    Newer { fixture: "page-journal", directory: "", name: "volume", change: json::<3>, found: 3, known: 2 },
    Newer {
        fixture: "first-slice",
        directory: "",
        name: "checkpoint",
        change: json::<3>,
        found: 3,
        known: 2,
    },
    Newer {
        fixture: "log-devices-block",
        directory: "log",
        name: "log-",
        change: |bytes| {
            put(bytes, 8, 3);
            put_crc(bytes, 48);
        },
        found: 3,
        known: 2,
    },
    Newer {
        fixture: "page-journal",
        directory: "pages",
        name: "pages.journal",
        change: |bytes| {
            for block in bytes.chunks_exact_mut(4096).take(2) {
                put(block, 8, 7);
                put_crc(block, 64);
            }
        },
        found: 7,
        known: 2,
    },
    Newer {
        fixture: "page-journal",
        directory: "pages",
        name: "pages.identity",
        change: |bytes| {
            put(bytes, 8, 2);
            put_crc(bytes, 24);
        },
        found: 2,
        known: 1,
    },
    Newer {
        fixture: "first-slice",
        directory: "pages",
        name: "pages.journal",
        change: |bytes| put(bytes, 8, 4),
        found: 4,
        known: 1,
    },
];

fn file(newer: &Newer, volume: &Path) -> PathBuf {
    let directory = volume.join(newer.directory);
    let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(newer.name);
    let mut found: Vec<_> = entries.filter(is_it).collect();
    found.sort();
    found.remove(0)
}

fn require_refusal(newer: &Newer) {
    let (mut original, mut changed) = (Vec::new(), Vec::new());
    let mut fixture = Fixture::unpack_and(newer.fixture, |volume| {
        let path = file(newer, volume);
        original = std::fs::read(&path).unwrap();
        changed.clone_from(&original);
        (newer.change)(&mut changed);
        std::fs::write(&path, &changed).unwrap();
    });
    let address = fixture.node.address().to_string();
    let show = |fixture: &Fixture| {
        let args = ["volume", "show", "v", "--node", &address];
        let outcome = Outcome::of(fixture.node.redoubt_bin(), args, PATIENCE).unwrap();
        format!("{}{}", outcome.stdout, outcome.stderr)
    };
    let said = show(&fixture);
    let versions = [format!("version {}", newer.found), format!("up to {}", newer.known)];
    for part in [newer.name, &versions[0], &versions[1], "newer Redoubt", "use that version", "export"] {
        assert!(said.contains(part), "{}: `{part}` is not in: {said}", newer.name);
    }
    fixture.node.stop().unwrap();
    let path = file(newer, &fixture.node.data().join("volumes/v"));
    assert!(std::fs::read(&path).unwrap() == changed, "{} was changed by who does not know it", newer.name);
    std::fs::write(&path, &original).unwrap();
    fixture.node.start().unwrap();
    assert!(show(&fixture).contains("state           ready"), "{}: {}", newer.name, show(&fixture));
}

#[test]
fn files_of_unknown_versions_are_refused_with_the_way_out_and_left_as_they_are() {
    FILES.iter().for_each(require_refusal);
}
