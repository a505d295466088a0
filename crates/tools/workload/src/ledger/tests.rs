use super::*;

#[test]
fn reads_fates_and_ignores_a_torn_last_line() {
    let entries = Entries::parse("redoubt-ledger 1 7\nI 0 1\nA 0 1\nI 1 1\nI 0 2\nA 0 2").unwrap();
    assert_eq!(entries.seed, 7);
    assert_eq!(entries.fates[&(ClientId(0), Sequence(1))], Fate::Acknowledged);
    assert_eq!(entries.fates[&(ClientId(1), Sequence(1))], Fate::Unknown);
    assert_eq!(entries.fates[&(ClientId(0), Sequence(2))], Fate::Unknown);
    assert_eq!(entries.acknowledged(), 1);
    assert_eq!(entries.last_sequence(ClientId(0)), Sequence(2));
    assert_eq!(entries.last_sequence(ClientId(5)), Sequence(0));
}

#[test]
fn refuses_a_file_that_is_not_a_ledger() {
    assert!(Entries::parse("").is_err());
    assert!(Entries::parse("redoubt-ledger 2 7\n").is_err());
    assert!(Entries::parse("redoubt-ledger 1 7\nX 0 1\n").is_err());
    assert!(Entries::parse("redoubt-ledger 1 7\nA 0 1 2\n").is_err());
    assert!(Entries::parse("redoubt-ledger 1 7\nA 0\n").is_err());
}

#[test]
fn a_reopened_file_goes_on_after_its_last_whole_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    std::fs::write(&path, "redoubt-ledger 1 9\nI 0 1\nA 0 1\nI 0 ").unwrap();
    let (mut file, entries) = open(&path, 1).unwrap();
    assert_eq!(entries.seed, 9);
    file.write_all(b"I 0 2\n").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, "redoubt-ledger 1 9\nI 0 1\nA 0 1\nI 0 2\n");
}

#[test]
fn ledgers_of_different_clients_are_read_as_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let first = file("first", "redoubt-ledger 1 9\nI 0 1\nA 0 1\n");
    let second = file("second", "redoubt-ledger 1 9\nI 4 1\n");
    let both = Entries::read_all(&[&first, &second]).unwrap();
    assert_eq!((both.seed, both.fates.len(), both.acknowledged()), (9, 2, 1));
    assert!(Entries::read_all(&[&first, &first]).is_err());
    let other_seed = file("other", "redoubt-ledger 1 8\nI 8 1\n");
    assert!(Entries::read_all(&[&first, &other_seed]).is_err());
}
