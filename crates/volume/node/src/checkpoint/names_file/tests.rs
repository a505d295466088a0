use super::*;
use redoubt_wire::stream::FileKind;
use std::path::Path;

struct Fixture {
    directory: tempfile::TempDir,
    folder: Folder,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        Self { directory, folder }
    }

    /// Writes the file and its copy.
    fn write(&self, number: u64, bytes: &[u8]) {
        for name in [name_of(number), copy_of(&name_of(number))] {
            std::fs::write(self.directory.path().join(name), bytes).unwrap();
        }
    }

    fn path(&self, number: u64) -> std::path::PathBuf {
        self.directory.path().join(name_of(number))
    }
}

/// Names of some thousand files, and their changes in ten steps.
fn steps() -> (Namespace, Vec<crate::namespace::NameChanges>, Vec<Namespace>) {
    let mut names = Namespace::default();
    for table in 0..3000 {
        names.create(&format!("d/t{table}.ibd"), FileKind::Tablespace, 0o660);
    }
    let base = names.clone();
    names.track();
    let (mut changes, mut states) = (Vec::new(), Vec::new());
    for step in 0..10 {
        names.set_len(&format!("d/t{step}.ibd"), 4096 * (step + 1));
        names.rename(&format!("d/t{}.ibd", 20 + step), &format!("d/\"\n\u{e9}{step}.ibd"));
        names.unlink(&format!("d/t{}.ibd", 40 + step));
        changes.push(names.take_changes());
        states.push(names.clone());
    }
    (base, changes, states)
}

fn reason(error: &NodeError) -> String {
    assert!(matches!(error, NodeError::Damaged { .. }), "{error}");
    error.to_string()
}

#[test]
fn at_each_end_that_a_checkpoint_may_refer_to_are_the_names_of_that_moment() {
    let fixture = Fixture::new();
    let (base, changes, states) = steps();
    let mut file = NamesFile::create(&fixture.folder, 7, &base).unwrap();
    let mut ends = vec![(file.end(), base)];
    for (changes, state) in changes.iter().zip(states) {
        // A checkpoint that was not written: the changes appended for it have no effect.
        file.append(&[NameChange::DirectoryGone("never".repeat(2000))]).unwrap();
        file.append(changes).unwrap();
        file.keep();
        ends.push((file.end(), state));
    }
    file.append(&[]).unwrap();
    assert_eq!(file.end(), ends.last().unwrap().0, "nothing changed, nothing is written");
    for (end, names) in ends {
        assert!(end.len_bytes.is_multiple_of(4096));
        let (opened, read) = NamesFile::open(&fixture.folder, end).unwrap();
        assert!(read == names, "at {end:?}");
        assert_eq!((opened.end(), opened.number()), (end, 7));
    }
}

#[test]
fn damage_before_the_end_is_found_and_what_is_past_it_is_ignored() {
    let fixture = Fixture::new();
    let (base, changes, _) = steps();
    let mut file = NamesFile::create(&fixture.folder, 1, &base).unwrap();
    file.append(&changes[0]).unwrap();
    file.keep();
    let kept = file.end();
    file.append(&changes[1]).unwrap();
    let path = fixture.path(1);
    let good = std::fs::read(&path).unwrap();
    assert!(good.len() as u64 > kept.len_bytes);
    let open = |bytes: &[u8], end| {
        // One of both does.
        fixture.write(1, &good);
        std::fs::write(&path, bytes).unwrap();
        let with_copy = NamesFile::open(&fixture.folder, kept);
        assert!(with_copy.is_ok_and(
            |(file, _)| file.is_long(u64::MAX) || bytes.starts_with(&good[..kept.len_bytes as usize])
        ));
        fixture.write(1, bytes);
        NamesFile::open(&fixture.folder, end).map(|(_, names)| names)
    };
    let names = open(&good, kept).unwrap();
    for at in (0..good.len()).step_by(397) {
        let mut bad = good.clone();
        bad[at] ^= 4;
        match open(&bad, kept) {
            Ok(read) => assert!(at as u64 >= kept.len_bytes && read == names, "byte {at}"),
            Err(error) => {
                assert!((at as u64) < kept.len_bytes, "byte {at}: {error}");
                assert!(reason(&error).contains("restore the volume from an export"), "{error}");
            }
        }
        match open(&good[..at], kept) {
            Ok(read) => assert!(at as u64 >= kept.len_bytes && read == names, "cut at {at}"),
            Err(error) => assert!(reason(&error).contains("shorter than"), "cut at {at}: {error}"),
        }
    }
    // A missing line, and an end at which the file has no line end.
    let line = good.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let next = line + good[line..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let missing = [&good[..line], &good[next..]].concat();
    let error = open(&missing, NamesEnd { len_bytes: kept.len_bytes - (next - line) as u64, ..kept });
    assert!(reason(&error.unwrap_err()).contains(&format!("the line at byte {line} is damaged")));
    let error = open(&good, NamesEnd { crc: kept.crc ^ 1, ..kept }).unwrap_err();
    assert!(reason(&error).contains("not the one that the checkpoint refers to"), "{error}");
}

#[test]
fn a_missing_file_another_number_and_a_later_format_are_named() {
    let fixture = Fixture::new();
    let file = NamesFile::create(&fixture.folder, 1, &Namespace::default()).unwrap();
    let end = file.end();
    let error = NamesFile::open(&fixture.folder, NamesEnd { number: 2, ..end }).err().unwrap();
    assert!(reason(&error).contains("names-00000002: it is missing"), "{error}");
    fixture.write(2, &std::fs::read(fixture.path(1)).unwrap());
    let error = NamesFile::open(&fixture.folder, NamesEnd { number: 2, ..end }).err().unwrap();
    assert!(reason(&error).contains("the one with number 1"), "{error}");

    let mut later = Vec::new();
    let crc = push_line(&mut later, 0, &Head { format: 2, number: 1 }).unwrap();
    fixture.write(1, &later);
    let len_bytes = later.len() as u64;
    let end = NamesEnd { number: 1, base_len_bytes: len_bytes, len_bytes, crc };
    let error = NamesFile::open(&fixture.folder, end).err().unwrap();
    assert!(reason(&error).contains("its format has version 2"), "{error}");
}

#[test]
fn it_becomes_long_when_the_changes_are_longer_than_all_names() {
    let fixture = Fixture::new();
    let (base, changes, _) = steps();
    let mut file = NamesFile::create(&fixture.folder, 1, &base).unwrap();
    let base_len_bytes = file.end().base_len_bytes;
    while file.end().len_bytes <= 2 * base_len_bytes {
        assert!(!file.is_long(0), "{:?}", file.end());
        file.append(&changes[0]).unwrap();
        file.keep();
    }
    assert!(file.is_long(0) && file.is_long(base_len_bytes) && !file.is_long(2 * base_len_bytes));
}

#[test]
fn only_other_names_files_are_removed() {
    let fixture = Fixture::new();
    let kept = ["names-00000002", "names-00000002.copy", "names-other", "checkpoint", "volume"];
    for name in kept.iter().chain(&["names-00000001", "names-0000000a", "names-00000001.copy"]) {
        std::fs::write(fixture.directory.path().join(name), "").unwrap();
    }
    remove_others(&fixture.folder, Some(2)).unwrap();
    let list = |directory: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let mut kept = kept;
    kept.sort_unstable();
    assert_eq!(list(fixture.directory.path()), kept);
}
