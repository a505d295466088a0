#![allow(clippy::unwrap_used)] // A test fails by panicking.

use super::{MISSING, statements, text};
use crate::generator::{Config, Generator};

#[test]
fn hashes_and_sequences_are_expressions_that_mysql_has() {
    assert_eq!(
        text(
            "INSERT INTO t SELECT seq, REPEAT(MD5(seq), 3), SHA1(CONCAT(seq, 'x')) FROM seq_1_to_300 ORDER BY MD5(seq)"
        ),
        "INSERT INTO t SELECT seq, REPEAT(LEFT(SHA2(seq, 256), 32), 3), LEFT(SHA2(CONCAT(seq, 'x'), 256), 40) FROM \
         (SELECT n AS seq FROM d0.numbers WHERE n BETWEEN 1 AND 300) numbers ORDER BY LEFT(SHA2(seq, 256), 32)"
    );
    assert_eq!(text("CREATE TABLE t (a INT) PAGE_COMPRESSED=1"), "CREATE TABLE t (a INT) COMPRESSION='zlib'");
    assert_eq!(text("INSERT INTO t VALUES (1)"), "INSERT INTO t VALUES (1)");
}

#[test]
fn nothing_of_mariadbs_dialect_is_left() {
    let mut generator = Generator::new(Config { seed: 5, page_size_bytes: 16384, large_undo: true });
    let mut all = statements(generator.preparation(), true);
    assert!(all[1].sql.contains("d0.numbers"), "{:?}", all[1]);
    all.extend(statements(generator.take(5000).collect(), false));
    let foreign = ["MD5(", "SHA1(", "seq_", "PAGE_COMPRESSED", "VERSIONING", "SEQUENCE", "HISTORY"];
    for statement in &all {
        assert!(!MISSING.contains(&statement.class), "{statement:?}");
        assert!(!foreign.iter().any(|word| statement.sql.contains(word)), "{statement:?}");
    }
}
