//! The load: every row format, every kind of page change a stock server logs.

use std::fmt::Write;

/// One server configuration.
#[derive(Debug)]
pub struct Options {
    pub page_size_bytes: usize,
    pub checksum: &'static str,
}

/// Tables: name, length of the character column, table options.
fn tables(options: &Options) -> Vec<(String, u32, String)> {
    let mut tables = vec![
        ("redundant".into(), 200, "ROW_FORMAT=REDUNDANT".into()),
        ("compact".into(), 200, "ROW_FORMAT=COMPACT".into()),
        ("dynamic".into(), 200, "ROW_FORMAT=DYNAMIC".into()),
        ("page_compressed".into(), 200, "ROW_FORMAT=DYNAMIC PAGE_COMPRESSED=1".into()),
    ];
    if options.page_size_bytes <= 16384 {
        for key_block_size in [1, 2, 4, 8, 16] {
            if key_block_size * 1024 <= options.page_size_bytes {
                let char_len = if key_block_size <= 2 { 40 } else { 200 };
                tables.push((
                    format!("compressed_{key_block_size}"),
                    char_len,
                    format!("ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE={key_block_size}"),
                ));
            }
        }
    }
    tables
}

/// The whole load as one script for the command-line client.
pub fn sql(options: &Options) -> String {
    let mut sql = String::from("SET NAMES latin1; CREATE DATABASE d; USE d;\n");
    for (name, char_len, table_options) in tables(options) {
        table_load(&mut sql, &name, char_len, &table_options);
    }
    sql.push_str(SPECIAL);
    sql
}

fn table_load(sql: &mut String, name: &str, char_len: u32, table_options: &str) {
    let text = format!("LEFT(CONCAT(MD5(seq), REPEAT(CHAR(97 + seq % 26), seq % 170)), {char_len})");
    let blob = "IF(seq % 37 = 0, REPEAT(SHA2(seq, 512), 20 + seq % 300), NULL)";
    let bytes = "IF(seq % 5, LEFT(SHA1(seq * 3), seq % 40), NULL)";
    write!(
        sql,
        "CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, c VARCHAR({char_len}) NOT NULL,
           d VARBINARY(40), b LONGBLOB, KEY(k), KEY(c), KEY(d)) CHARSET=latin1 {table_options};
         INSERT INTO {name} (k, c, d, b)
           SELECT seq * 7919 % 5003, {text}, {bytes}, {blob} FROM seq_1_to_4000;
         DELETE FROM {name} WHERE id % 4 = 1;
         UPDATE {name} SET c = LEFT(CONCAT(c, SHA1(id)), {char_len}), k = k + 1 WHERE id % 3 = 0;
         INSERT INTO {name} (id, k, c, d, b)
           SELECT seq * 4 + 1, seq % 100, {text}, {bytes}, {blob} FROM seq_1_to_900 ORDER BY MD5(seq);
         UPDATE {name} SET d = NULL, c = LEFT(c, 10) WHERE id BETWEEN 500 AND 1500;
         UPDATE {name} SET b = REPEAT('x', 20000) WHERE id % 211 = 0;
         DELETE FROM {name} WHERE id BETWEEN 1000 AND 2500;
         BEGIN;
         UPDATE {name} SET k = k + 17, c = REVERSE(c);
         DELETE FROM {name} WHERE id % 2;
         ROLLBACK;
         SET unique_checks = 0, foreign_key_checks = 0;
         CREATE TABLE {name}_bulk LIKE {name};
         INSERT INTO {name}_bulk SELECT * FROM {name};
         SET unique_checks = 1, foreign_key_checks = 1;
         ALTER TABLE {name}_bulk ADD INDEX k_d (k, d), ALGORITHM=INPLACE;
         INSERT INTO {name}_bulk (k, c) SELECT -seq, LEFT(REPEAT('ascending', 9), {char_len}) FROM seq_1_to_500;
         DELETE FROM {name}_bulk WHERE id % 7 < 3;
         RENAME TABLE {name}_bulk TO {name}_renamed;
         ALTER TABLE {name}_renamed FORCE;
         CREATE TABLE {name}_gone LIKE {name};
         INSERT INTO {name}_gone (k, c) SELECT seq, SHA1(seq) FROM seq_1_to_500;
         TRUNCATE TABLE {name}_gone;
         INSERT INTO {name}_gone (k, c) SELECT seq, MD5(seq) FROM seq_1_to_300;
         CREATE TABLE {name}_dropped LIKE {name};
         INSERT INTO {name}_dropped (k, c) SELECT seq, SHA1(seq) FROM seq_1_to_500;
         DROP TABLE {name}_dropped;
         OPTIMIZE TABLE {name};\n"
    )
    .unwrap();
}

/// Index types and statements that need no variation, and single-row transactions.
const SPECIAL: &str = "
CREATE TABLE instant_column (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(50)) ROW_FORMAT=DYNAMIC;
INSERT INTO instant_column (a) SELECT SHA1(seq) FROM seq_1_to_3000;
ALTER TABLE instant_column ADD COLUMN b INT DEFAULT 7, ADD COLUMN c VARCHAR(20) DEFAULT 'c', ALGORITHM=INSTANT;
INSERT INTO instant_column (a, b) SELECT MD5(seq), seq FROM seq_1_to_3000;
UPDATE instant_column SET c = 'updated' WHERE id % 5 = 0;
ALTER TABLE instant_column DROP COLUMN a, ALGORITHM=INSTANT;
INSERT INTO instant_column (b) SELECT seq FROM seq_1_to_1000;
DELETE FROM instant_column WHERE id % 3 = 0;

CREATE TABLE full_text (id INT AUTO_INCREMENT PRIMARY KEY, body TEXT, FULLTEXT(body));
INSERT INTO full_text (body)
  SELECT CONCAT_WS(' ', 'word', CONCAT('w', seq % 400), CONCAT('x', seq), LEFT(MD5(seq), 8)) FROM seq_1_to_2000;
DELETE FROM full_text WHERE id % 3 = 0;
SET GLOBAL innodb_optimize_fulltext_only = ON;
OPTIMIZE TABLE full_text;
SET GLOBAL innodb_optimize_fulltext_only = OFF;

CREATE TABLE points (id INT AUTO_INCREMENT PRIMARY KEY, p POINT NOT NULL, SPATIAL INDEX(p));
INSERT INTO points (p) SELECT POINT(seq * 7919 % 1009, seq * 104729 % 1013) FROM seq_1_to_4000;
DELETE FROM points WHERE id % 3 = 0;
INSERT INTO points (p) SELECT POINT(seq % 100, seq % 77) FROM seq_1_to_1000;
UPDATE points SET p = POINT(id, id) WHERE id % 11 = 0;

CREATE TABLE single (id INT PRIMARY KEY, k INT, c VARCHAR(120), KEY(k), KEY(c)) ROW_FORMAT=DYNAMIC;
CREATE TABLE single_redundant (id INT PRIMARY KEY, k INT, c VARCHAR(120), KEY(k), KEY(c)) ROW_FORMAT=REDUNDANT;
DELIMITER //
CREATE PROCEDURE work()
BEGIN
  DECLARE i INT DEFAULT 0;
  WHILE i < 6000 DO
    SET @key = i * 7919 % 2003, @text = REPEAT(MD5(i), 1 + i % 3);
    INSERT INTO single VALUES (@key, i, @text) ON DUPLICATE KEY UPDATE k = i, c = LEFT(@text, 20 + i % 60);
    INSERT INTO single_redundant VALUES (@key, i, @text) ON DUPLICATE KEY UPDATE k = i, c = LEFT(@text, 20 + i % 60);
    IF i % 3 = 0 THEN
      DELETE FROM single WHERE id = i * 31 % 2003;
      DELETE FROM single_redundant WHERE id = i * 31 % 2003;
    END IF;
    SET i = i + 1;
  END WHILE;
END //
DELIMITER ;
CALL work();
DELETE FROM single WHERE id > 300;
DELETE FROM single_redundant WHERE id > 300;
";
