use super::*;

fn entry(path: &str, kind: EntryKind) -> VolumeEntry {
    VolumeEntry { kind, path: path.to_owned(), len_bytes: 1, mode: 0o660, checksum: None }
}

#[test]
fn only_numbered_plain_files_with_an_index_are_considered() {
    let plain = [
        "bin.index",
        "bin.000001",
        "bin.1000002",
        "other.000001",
        "d/r.000003",
        "d/r.index",
        "bin.00001",
        "bin.00000x",
    ];
    let mut entries: Vec<_> = plain.iter().map(|path| entry(path, EntryKind::Plain)).collect();
    entries.push(entry("bin.000009", EntryKind::Tablespace));
    let found: Vec<_> = indexed(&entries).into_iter().collect();
    assert_eq!(found, ["bin.000001", "bin.1000002", "d/r.000003"]);
}

#[test]
fn files_before_the_first_of_their_index_are_purged() {
    let missing =
        BTreeSet::from(["bin.000001", "bin.000002", "bin.000003", "d/r.000001", "d/r.000004", "x.000001"]);
    let index_of = |base: &str| match base {
        "bin" => Some("./bin.000003\n./bin.000004\n".to_owned()),
        // Edited by hand, and out of order.
        "d/r" => Some("/elsewhere/d/r.000009\n/elsewhere/d/r.000002\n".to_owned()),
        _ => None,
    };
    let found: Vec<_> = purged(&missing, index_of).into_iter().collect();
    assert_eq!(found, ["bin.000001", "bin.000002", "d/r.000001"]);
}

#[test]
fn unclear_index_purges_nothing() {
    let missing = BTreeSet::from(["bin.000001"]);
    for text in
        ["", "\n", "nonsense", "./other.000009\n", "./bin.000009\nnonsense\n", "./bin.000001\n./bin.000002\n"]
    {
        assert!(purged(&missing, |_| Some(text.to_owned())).is_empty(), "{text:?}");
    }
}
