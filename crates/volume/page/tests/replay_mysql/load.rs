//! The load: every row format but COMPRESSED, and every kind of page change that a stock server logs.

use std::fmt::Write;

/// One server configuration.
#[derive(Debug)]
pub struct Options {
    pub page_size_bytes: usize,
    /// Rows of the larger tables.
    pub rows: usize,
}

/// Tables: name and options.
fn tables(options: &Options) -> Vec<(&'static str, &'static str)> {
    let mut tables = vec![
        ("redundant", "ROW_FORMAT=REDUNDANT"),
        ("compact", "ROW_FORMAT=COMPACT"),
        ("dynamic", "ROW_FORMAT=DYNAMIC"),
        ("shared", "TABLESPACE=general ROW_FORMAT=DYNAMIC"),
    ];
    if options.page_size_bytes >= 16384 {
        tables.push(("packed_zlib", "ROW_FORMAT=DYNAMIC COMPRESSION='zlib'"));
        tables.push(("packed_lz4", "ROW_FORMAT=DYNAMIC COMPRESSION='lz4'"));
    }
    if options.page_size_bytes <= 16384 {
        tables.push(("compressed", "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4"));
    }
    tables
}

const PREPARE: &str = "
SET NAMES latin1;
CREATE DATABASE d DEFAULT CHARSET latin1;
USE d;
SET cte_max_recursion_depth = 100000;
CREATE TABLE numbers (seq INT PRIMARY KEY);
INSERT INTO numbers
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT i FROM n;
CREATE FUNCTION hash32(x TEXT) RETURNS CHAR(32) DETERMINISTIC RETURN LEFT(SHA2(x, 256), 32);
CREATE FUNCTION hash40(x TEXT) RETURNS CHAR(40) DETERMINISTIC RETURN LEFT(SHA2(x, 512), 40);
CREATE TABLESPACE general ADD DATAFILE 'general.ibd' ENGINE=InnoDB;
";

/// Initial content, before the first base is taken.
pub fn before(options: &Options) -> String {
    let mut sql = PREPARE.to_owned();
    for (name, table_options) in tables(options) {
        create(&mut sql, &format!("{name}_old"), table_options);
        insert(&mut sql, &format!("{name}_old"), options.rows / 2);
    }
    sql
}

fn create(sql: &mut String, name: &str, table_options: &str) {
    write!(
        sql,
        "CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, c VARCHAR(200) NOT NULL,
           d VARBINARY(40), e CHAR(10), f VARCHAR(300), b LONGBLOB, KEY(k), KEY(c), KEY(d), KEY(e, k), KEY(f(50)))
           CHARSET=latin1 {table_options};\n"
    )
    .unwrap();
}

fn insert(sql: &mut String, name: &str, rows: usize) {
    write!(
        sql,
        "INSERT INTO {name} (k, c, d, e, f, b) SELECT seq * 7919 % 5003,
           LEFT(CONCAT(hash32(seq), REPEAT(CHAR(97 + seq % 26), seq % 170)), 200),
           IF(seq % 5, LEFT(hash40(seq * 3), seq % 40), NULL), IF(seq % 3, LEFT(hash32(seq + 7), seq % 11), NULL),
           IF(seq % 4, REPEAT(CHAR(65 + seq % 26), seq % 290), NULL),
           IF(seq % 37 = 0, REPEAT(SHA2(seq, 512), 20 + seq % 120), NULL) FROM numbers WHERE seq <= {rows};\n"
    )
    .unwrap();
}

/// Changes of the rows of a table, all of them logged.
fn change(sql: &mut String, name: &str) {
    write!(
        sql,
        "DELETE FROM {name} WHERE id % 4 = 1;
         UPDATE {name} SET c = LEFT(CONCAT(c, hash40(id)), 200), k = k + 1 WHERE id % 3 = 0;
         INSERT IGNORE INTO {name} (id, k, c, d, e, b)
           SELECT 20000 + seq * 3, seq % 100, LEFT(SHA2(seq, 512), seq % 120),
           LEFT(hash32(seq), seq % 30), 'x', IF(seq % 50 = 0, REPEAT('lob', 9000), NULL)
           FROM numbers WHERE seq <= 900 ORDER BY hash32(seq);
         UPDATE {name} SET d = NULL, c = LEFT(c, 10), e = LEFT(hash32(id), 10) WHERE id BETWEEN 500 AND 1500;
         UPDATE {name} SET e = NULL, f = NULL WHERE id % 7 = 0;
         UPDATE {name} SET e = 'filled', f = REPEAT('f', id % 280) WHERE id % 14 = 0;
         UPDATE {name} SET k = k + 3 WHERE id % 5 = 2;
         UPDATE {name} SET b = REPEAT('y', 20000) WHERE id % 211 = 0;
         UPDATE {name} SET b = CONCAT(b, 'z') WHERE id % 422 = 0;
         UPDATE IGNORE {name} SET id = id + 1000000 WHERE id < 1000000 AND id % 53 = 0 ORDER BY id;
         DELETE FROM {name} WHERE id BETWEEN 900 AND 1900;
         BEGIN;
         UPDATE {name} SET k = k + 17, c = REVERSE(c);
         SAVEPOINT a;
         DELETE FROM {name} WHERE id % 2;
         ROLLBACK TO a;
         INSERT INTO {name} (k, c) SELECT seq, hash40(seq) FROM numbers WHERE seq <= 400;
         ROLLBACK;
         INSERT INTO {name} (k, c) SELECT -seq, REPEAT('ascending', 9) FROM numbers WHERE seq <= 500;
         DELETE FROM {name} WHERE id % 9 < 3;
         REPLACE INTO {name} (id, k, c) SELECT seq * 11, seq, 'replaced' FROM numbers WHERE seq <= 300;\n"
    )
    .unwrap();
}

/// One script for each client of the first part. In place changes of tables are not logged, and so are in this part
/// only.
pub fn first(options: &Options) -> Vec<String> {
    let mut scripts: Vec<String> = Vec::new();
    for (name, table_options) in tables(options) {
        let mut sql = String::from("SET NAMES latin1; USE d;\n");
        create(&mut sql, name, table_options);
        insert(&mut sql, name, options.rows);
        change(&mut sql, &format!("{name}_old"));
        change(&mut sql, name);
        write!(
            sql,
            "CREATE TABLE {name}_bulk LIKE {name};
             INSERT INTO {name}_bulk SELECT * FROM {name};
             ALTER TABLE {name}_bulk ADD INDEX k_d (k, d), ALGORITHM=INPLACE;
             INSERT INTO {name}_bulk (k, c) SELECT -seq, REPEAT('more', 9) FROM numbers WHERE seq <= 500;
             DELETE FROM {name}_bulk WHERE id % 7 < 3;
             RENAME TABLE {name}_bulk TO {name}_renamed;
             ALTER TABLE {name}_renamed FORCE;
             CREATE TABLE {name}_gone LIKE {name};
             INSERT INTO {name}_gone (k, c) SELECT seq, hash40(seq) FROM numbers WHERE seq <= 500;
             TRUNCATE TABLE {name}_gone;
             INSERT INTO {name}_gone (k, c) SELECT seq, hash32(seq) FROM numbers WHERE seq <= 300;
             CREATE TABLE {name}_dropped LIKE {name};
             INSERT INTO {name}_dropped (k, c) SELECT seq, hash40(seq) FROM numbers WHERE seq <= 500;
             DROP TABLE {name}_dropped;
             ALTER TABLE {name} FORCE, ALGORITHM=COPY;\n"
        )
        .unwrap();
        scripts.push(sql);
    }
    scripts.push(format!("USE d;\n{}", instant("redundant")));
    scripts.push(format!("USE d;\n{}", instant("dynamic")));
    scripts.push(format!("USE d;\n{}", instant("compact")));
    scripts.push(SPECIAL.to_owned());
    scripts.push(SINGLE.to_owned());
    scripts
}

/// Columns that are added and dropped at once, with rows of all versions changed in between.
fn instant(format: &str) -> String {
    let table = format!("instant_{format}");
    let churn = |step: usize| {
        format!(
            "UPDATE {table} SET k = k + 1 WHERE id % 3 = {};
             DELETE FROM {table} WHERE id % 19 = {step};
             UPDATE {table} SET id = id + {} WHERE id < 100000 AND id % 97 = {step};\n",
            step % 3,
            100_000 * (step + 1)
        )
    };
    let mut sql = format!(
        "CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, k INT, a VARCHAR(50), n CHAR(20) NOT NULL,
           KEY(k)) ROW_FORMAT={format};
         INSERT INTO {table} (k, a, n) SELECT seq, hash40(seq), LEFT(hash32(seq), seq % 20) FROM numbers
           WHERE seq <= 3000;\n"
    );
    let steps = [
        format!(
            "ALTER TABLE {table} ADD COLUMN b INT DEFAULT 7, ADD COLUMN c VARCHAR(20) DEFAULT 'c', ALGORITHM=INSTANT;
             INSERT INTO {table} (k, a, n, b) SELECT seq, hash32(seq), 'n', seq FROM numbers WHERE seq <= 2000;
             UPDATE {table} SET c = 'updated' WHERE id % 5 = 0;"
        ),
        format!(
            "ALTER TABLE {table} ADD COLUMN first_one INT FIRST, ALGORITHM=INSTANT;
             INSERT INTO {table} (first_one, k, n) SELECT seq, -seq, 'm' FROM numbers WHERE seq <= 1000;"
        ),
        format!(
            "ALTER TABLE {table} DROP COLUMN a, ALGORITHM=INSTANT;
             INSERT INTO {table} (k, n, b) SELECT seq, 'dropped', IF(seq % 2, NULL, seq) FROM numbers WHERE seq <= 1500;
             UPDATE {table} SET n = LEFT(hash32(id), 20) WHERE id % 4 = 0;"
        ),
        format!(
            "ALTER TABLE {table} ADD COLUMN t TEXT AFTER k, ALGORITHM=INSTANT;
             UPDATE {table} SET t = REPEAT('t', id % 900) WHERE id % 6 = 0;
             INSERT INTO {table} (k, n, t) SELECT seq, 'text', REPEAT('long', seq * 3) FROM numbers WHERE seq <= 800;"
        ),
        format!(
            "ALTER TABLE {table} DROP COLUMN b, DROP COLUMN first_one, ADD COLUMN z BIGINT NOT NULL DEFAULT 3,
               ALGORITHM=INSTANT;
             UPDATE {table} SET z = id WHERE id % 5 = 1;
             INSERT INTO {table} (k, n, z) SELECT seq, 'last', -seq FROM numbers WHERE seq <= 1200;"
        ),
    ];
    for (number, step) in steps.iter().enumerate() {
        sql.push_str(step);
        sql.push_str(&churn(number));
    }
    write!(
        sql,
        "BEGIN; UPDATE {table} SET n = 'rolled back', t = NULL; DELETE FROM {table} WHERE id % 2; ROLLBACK;
         DELETE FROM {table} WHERE id % 3 = 0;\n"
    )
    .unwrap();
    sql
}

const SPECIAL: &str = "
USE d;
CREATE TABLE full_text (id INT AUTO_INCREMENT PRIMARY KEY, body TEXT, FULLTEXT(body));
INSERT INTO full_text (body)
  SELECT CONCAT_WS(' ', 'word', CONCAT('w', seq % 400), CONCAT('x', seq), LEFT(hash32(seq), 8)) FROM numbers
  WHERE seq <= 2000;
DELETE FROM full_text WHERE id % 3 = 0;
SET GLOBAL innodb_optimize_fulltext_only = ON;
OPTIMIZE TABLE full_text;
SET GLOBAL innodb_optimize_fulltext_only = OFF;

CREATE TABLE points (id INT AUTO_INCREMENT PRIMARY KEY, p POINT NOT NULL SRID 0, SPATIAL INDEX(p));
INSERT INTO points (p) SELECT POINT(seq * 7919 % 1009, seq * 104729 % 1013) FROM numbers WHERE seq <= 4000;
DELETE FROM points WHERE id % 3 = 0;
INSERT INTO points (p) SELECT POINT(seq % 100, seq % 77) FROM numbers WHERE seq <= 1000;
UPDATE points SET p = POINT(id, id) WHERE id % 11 = 0;
CREATE TABLE shapes (id INT AUTO_INCREMENT PRIMARY KEY, g GEOMETRY NOT NULL, SPATIAL INDEX(g)) ROW_FORMAT=REDUNDANT;
INSERT INTO shapes (g) SELECT LineString(Point(seq, seq % 9), Point(seq % 31, seq)) FROM numbers WHERE seq <= 1500;
DELETE FROM shapes WHERE id % 5 = 0;

CREATE TABLE documents (id INT AUTO_INCREMENT PRIMARY KEY, j JSON, v INT AS (j->'$.v') VIRTUAL,
  s VARCHAR(40) AS (j->>'$.s') STORED, KEY(v), KEY(s), KEY many ((CAST(j->'$.a' AS UNSIGNED ARRAY))));
INSERT INTO documents (j) SELECT JSON_OBJECT('v', seq, 's', hash32(seq), 'a', JSON_ARRAY(seq, seq + 1, seq % 7),
  'big', REPEAT('b', IF(seq % 9, 100, 30000))) FROM numbers WHERE seq <= 1500;
UPDATE documents SET j = JSON_SET(j, '$.v', id * 3) WHERE id % 2;
UPDATE documents SET j = JSON_REPLACE(j, '$.big', REPEAT('c', 29000)) WHERE id % 18 = 0;
UPDATE documents SET j = JSON_REPLACE(j, '$.s', 'short') WHERE id % 3 = 0;
UPDATE documents SET j = JSON_REMOVE(j, '$.big') WHERE id % 27 = 0;
DELETE FROM documents WHERE id % 10 = 0;

CREATE TABLE parts (id INT, k INT, c VARCHAR(100), PRIMARY KEY(id), KEY(k)) PARTITION BY HASH(id) PARTITIONS 5;
INSERT INTO parts SELECT seq, seq % 77, hash40(seq) FROM numbers WHERE seq <= 3000;
UPDATE parts SET c = REPEAT(c, 2), k = k + 1 WHERE id % 4 = 0;
DELETE FROM parts WHERE id % 3 = 1;
CREATE TABLE ranges (id INT, c VARCHAR(100), PRIMARY KEY(id)) PARTITION BY RANGE(id)
  (PARTITION a VALUES LESS THAN (1000), PARTITION b VALUES LESS THAN (2000), PARTITION z VALUES LESS THAN MAXVALUE);
INSERT INTO ranges SELECT seq, hash40(seq) FROM numbers WHERE seq <= 3000;
ALTER TABLE ranges DROP PARTITION b;
ALTER TABLE ranges TRUNCATE PARTITION a;

CREATE TABLE parents (id INT PRIMARY KEY, c CHAR(40));
CREATE TABLE children (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parents(id) ON DELETE CASCADE
  ON UPDATE CASCADE);
INSERT INTO parents SELECT seq, hash40(seq) FROM numbers WHERE seq <= 600 ON DUPLICATE KEY UPDATE c = '';
INSERT INTO children SELECT seq, 1 + seq % 600 FROM numbers WHERE seq <= 3000;
DELETE FROM parents WHERE id % 4 = 0;
UPDATE parents SET id = id + 10000 WHERE id % 5 = 0;

CREATE TABLE wide (id INT PRIMARY KEY, a CHAR(200), b CHAR(200), c CHAR(200), d VARCHAR(200), e VARCHAR(200))
  ROW_FORMAT=REDUNDANT;
INSERT INTO wide SELECT seq, IF(seq % 2, NULL, 'a'), 'b', NULL, hash40(seq), NULL FROM numbers WHERE seq <= 800;
UPDATE wide SET a = 'was null', c = hash32(id), e = hash40(id) WHERE id % 2;
UPDATE wide SET a = NULL, d = NULL WHERE id % 4 = 1;
CREATE TABLE keyless (a INT, b VARCHAR(60), KEY(b));
INSERT INTO keyless SELECT seq, hash32(seq) FROM numbers WHERE seq <= 2500;
DELETE FROM keyless WHERE a % 3 = 0;
UPDATE keyless SET b = hash40(a) WHERE a % 5 = 0;
XA START 'one'; INSERT INTO keyless VALUES (-1, 'xa'); XA END 'one'; XA PREPARE 'one'; XA COMMIT 'one';
XA START 'two'; UPDATE keyless SET b = 'xa' WHERE a < 100; XA END 'two'; XA PREPARE 'two'; XA ROLLBACK 'two';

CREATE UNDO TABLESPACE more ADD DATAFILE 'more.ibu';
INSERT INTO keyless SELECT seq, hash32(seq) FROM numbers WHERE seq <= 2500;
ALTER UNDO TABLESPACE more SET INACTIVE;
";

const SINGLE: &str = "
USE d;
CREATE TABLE single (id INT PRIMARY KEY, k INT, c VARCHAR(120), KEY(k), KEY(c)) ROW_FORMAT=DYNAMIC;
CREATE TABLE single_redundant (id INT PRIMARY KEY, k INT, c VARCHAR(120), KEY(k), KEY(c)) ROW_FORMAT=REDUNDANT;
DELIMITER //
CREATE PROCEDURE work(start_at INT, end_at INT)
BEGIN
  DECLARE i INT DEFAULT start_at;
  WHILE i < end_at DO
    SET @key = i * 7919 % 2003, @text = REPEAT(hash32(i), 1 + i % 3);
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
CALL work(0, 5000);
DELETE FROM single WHERE id > 300;
DELETE FROM single_redundant WHERE id > 300;
CALL work(5000, 7000);
";

/// One script for each client of the second part: rows only, no change of a table that is not logged.
pub fn second(options: &Options) -> Vec<String> {
    let mut scripts: Vec<String> = tables(options)
        .iter()
        .map(|(name, _)| {
            let mut sql = String::from("SET NAMES latin1; USE d;\n");
            for table in [format!("{name}_renamed"), format!("{name}_gone"), (*name).to_owned()] {
                insert(&mut sql, &table, options.rows / 3);
                change(&mut sql, &table);
            }
            sql
        })
        .collect();
    for format in ["redundant", "dynamic", "compact"] {
        scripts.push(format!(
            "USE d; UPDATE instant_{format} SET z = z + 1, t = LEFT(t, 100);
             INSERT INTO instant_{format} (k, n) SELECT seq, 'again' FROM numbers WHERE seq <= 2000;
             DELETE FROM instant_{format} WHERE id % 4 = 0;
             ALTER TABLE instant_{format} ADD COLUMN y VARCHAR(90) DEFAULT 'why', DROP COLUMN t, ALGORITHM=INSTANT;
             UPDATE instant_{format} SET y = hash40(id) WHERE id % 3 = 0;
             DELETE FROM instant_{format} WHERE id % 5 < 3;"
        ));
    }
    scripts.push(
        "USE d;
         DELETE FROM points WHERE id % 4 = 1;
         INSERT INTO points (p) SELECT POINT(seq, seq) FROM numbers WHERE seq < 900;
         DELETE FROM shapes WHERE id % 3 = 1;
         UPDATE full_text SET body = CONCAT(body, ' again'); DELETE FROM full_text WHERE id % 5 = 0;
         UPDATE documents SET j = JSON_SET(j, '$.v', id); DELETE FROM documents WHERE id % 3 = 0;
         UPDATE parts SET c = hash32(id); DELETE FROM parts WHERE id % 2;
         DELETE FROM wide WHERE id % 3 = 0; UPDATE wide SET a = hash32(id), b = NULL;
         CALL work(7000, 9000); DELETE FROM single; DELETE FROM single_redundant; CALL work(9000, 9500);"
            .to_owned(),
    );
    scripts
}

/// Work without end for a server that is to be killed; all of it is logged.
pub fn endless(options: &Options) -> Vec<String> {
    let scripts = tables(options).into_iter().map(|(name, table_options)| {
        let mut sql = String::from("SET NAMES latin1; USE d;\n");
        for round in 0..20 {
            let (old, table) = (format!("{name}_old"), format!("{name}_{round}"));
            create(&mut sql, &table, table_options);
            insert(&mut sql, &table, options.rows / 3);
            change(&mut sql, &table);
            insert(&mut sql, &old, options.rows / 3);
            change(&mut sql, &old);
        }
        sql
    });
    scripts.chain(["dynamic", "redundant"].map(|format| format!("USE d;\n{}", instant(format)))).collect()
}

/// Gives statements that check every table and sum up what is in it. CHECKSUM TABLE of one with virtual columns is
/// another with each start of the same server.
pub const TABLES: &str = "SELECT CONCAT('CHECK TABLE ', table_schema, '.', table_name, ' EXTENDED;
  CHECKSUM TABLE ', table_schema, '.', table_name, ' EXTENDED;') FROM information_schema.tables
  WHERE table_schema IN ('d', 'mysql') AND table_type = 'BASE TABLE' AND engine = 'InnoDB'
  AND table_name NOT IN ('innodb_index_stats', 'innodb_table_stats', 'documents') ORDER BY 1";

/// The one with virtual columns.
pub const DOCUMENTS: &str = "CHECK TABLE d.documents EXTENDED;
  SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS('|', id, j, v, s))) FROM d.documents FORCE INDEX (PRIMARY);
  SELECT COUNT(*), SUM(v) FROM d.documents FORCE INDEX (v); SELECT SUM(CRC32(s)) FROM d.documents FORCE INDEX (s);
  SELECT COUNT(*) FROM d.documents WHERE 3 MEMBER OF (j->'$.a')";
