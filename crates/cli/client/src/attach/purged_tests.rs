use super::*;

#[test]
fn numbers_have_six_digits_at_least() {
    for (path, number) in [("bin.000001", Some(1)), ("d/bin.1000002", Some(1_000_002))] {
        assert_eq!(numbered(path).map(|(_, number)| number), number, "{path}");
    }
    for path in ["bin.00001", "bin.00000x", "bin", "bin.", "bin.99999999999999999999"] {
        assert_eq!(numbered(path), None, "{path}");
    }
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
