use super::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn set(variables: &[(&str, &str)], name: &str) -> Result<Option<OsString>, String> {
    from(variables.iter().map(|(name, value)| (name.into(), value.into())), name)
}

#[test]
fn setting_that_is_set_is_read() {
    assert_eq!(set(&[("HOME", "/")], "REDOUBT_SEED"), Ok(None));
    let variables = [("REDOUBT_BIN", "x"), ("REDOUBT_SEED", "12")];
    assert_eq!(set(&variables, "REDOUBT_SEED"), Ok(Some("12".into())));
    assert_eq!(set(&variables, "REDOUBT_SOAK_ROUNDS"), Ok(None));
    assert_eq!(number("REDOUBT_SEED", "12"), Ok(12));
    assert_eq!(range("REDOUBT_TCP_SEEDS", "3..12"), Ok(3..12));
}

#[test]
fn misspelt_setting_is_an_error_whatever_is_read() {
    // Each lacks or changes a letter of a setting, or belongs to nothing at all.
    for misspelt in ["SOAK_ROUND", "GROUP_ROUND", "TCP_SEED", "CONSENSUS_SEED", "NET_SEEDS", "ROUNDS"] {
        let misspelt = format!("{BEGINNING}{misspelt}");
        let error = set(&[(&misspelt, "12")], "REDOUBT_SEED").unwrap_err();
        assert!(error.contains(&format!("{misspelt} is not known")), "{error}");
    }
}

#[test]
fn unknown_name_and_wrong_value_are_errors() {
    assert!(set(&[], &format!("{BEGINNING}ROUNDS")).unwrap_err().contains("not a setting"));
    // A variable of the product is no setting of a test.
    assert!(set(&[], "REDOUBT_NODE").unwrap_err().contains("not a setting"));
    assert!(number("REDOUBT_SEED", "a dozen").unwrap_err().contains("a dozen"));
    for wrong in ["3", "..", "a..b", "5..5", "6..5"] {
        assert!(range("REDOUBT_TCP_SEEDS", wrong).unwrap_err().contains(wrong));
    }
}

/// The root of the source tree.
fn root() -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.into_iter().find(|folder| folder.join("Cargo.lock").exists()).unwrap().to_owned()
}

/// All variables in a file that are written out.
fn collect(path: &Path, names: &mut BTreeSet<String>) {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let is_part = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    for (at, _) in text.match_indices(BEGINNING) {
        if text[..at].ends_with(is_part) {
            continue;
        }
        let rest = &text[at..];
        let name = &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())];
        // A name that ends so is completed elsewhere.
        if !name.ends_with('_') {
            names.insert(name.to_owned());
        }
    }
}

fn collect_below(path: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect_below(&path, names);
            }
        } else if entry.file_type().unwrap().is_file() && !path.ends_with("test-support/src/setting.rs") {
            collect(&path, names);
        }
    }
}

#[test]
fn lists_contain_every_variable_of_the_source_tree() {
    let mut names = BTreeSet::new();
    for folder in ["crates", "scripts", "packaging", ".ci"] {
        collect_below(&root().join(folder), &mut names);
    }
    for file in ["test", "demo", "Makefile"] {
        collect(&root().join(file), &mut names);
    }
    let unknown: Vec<_> = names.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "neither settings nor variables of the product: {unknown:?}");
    let found = |name: &&str| names.contains(*name) || name.ends_with("_MISSING") || name.contains("_11_");
    let gone: Vec<_> = SETTINGS.iter().chain(&OTHERS).filter(|name| !found(name)).collect();
    assert!(gone.is_empty(), "nothing reads {gone:?} any more");
}
