#![allow(clippy::unwrap_used)] // A test fails by panicking.

use std::collections::BTreeMap;

use super::{CONNECTIONS, Class, Config, Generator, Statement, load_files, model};

fn history(seed: u64, page_size_bytes: u32, count: usize) -> Vec<Statement> {
    let mut generator = Generator::new(Config { seed, page_size_bytes, large_undo: true });
    let mut statements = generator.preparation();
    statements.extend(generator.take(count));
    statements
}

#[test]
fn same_seed_gives_the_same_statements_and_another_gives_others() {
    let first = history(7, 16384, 3000);
    assert_eq!(first, history(7, 16384, 3000));
    assert_ne!(first, history(8, 16384, 3000));
    assert_eq!(load_files(), load_files());
}

#[test]
fn every_class_is_generated() {
    let mut counts: BTreeMap<Class, usize> = BTreeMap::new();
    for seed in 0..12 {
        for statement in history(seed, 16384, 3000) {
            *counts.entry(statement.class).or_default() += 1;
        }
    }
    // The import is no statement of a generator: it is made before the base.
    let missing: Vec<_> = Class::ALL
        .iter()
        .filter(|class| !counts.contains_key(class) && **class != Class::Import)
        .map(|class| class.name())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_script_needs_no_quoting() {
    for statement in history(3, 4096, 4000) {
        assert!(!statement.sql.contains(['\t', '\n']), "{}", statement.sql);
        assert!(statement.connection < CONNECTIONS);
    }
}

#[test]
fn class_names_are_distinct() {
    for class in Class::ALL {
        assert_eq!(Class::named(class.name()), Some(*class));
    }
}

#[test]
fn every_storage_format_of_a_page_size_is_created() {
    for page_size_bytes in [4096, 8192, 16384, 32768, 65536] {
        let preparation = history(1, page_size_bytes, 0);
        for format in model::FORMATS.iter().filter(|format| format.exists(page_size_bytes)) {
            assert!(
                preparation.iter().any(|statement| statement.sql.contains(format.options)),
                "{page_size_bytes}: {}",
                format.options
            );
        }
    }
}
