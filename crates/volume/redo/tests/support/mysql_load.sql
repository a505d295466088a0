-- Statements that make a server write every type of redo record that its users can cause.
SELECT innodb_redo_log_consumer_register();
SET SESSION cte_max_recursion_depth = 1000000;
SET GLOBAL innodb_log_compressed_pages = ON;
CREATE DATABASE load_test CHARACTER SET latin1;
USE load_test;
CREATE TABLE numbers (n INT PRIMARY KEY);
INSERT INTO numbers WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < 6000) SELECT n FROM seq;

-- Row formats.
CREATE TABLE compact_rows (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(300), b INT, c CHAR(32), KEY (b), UNIQUE KEY (id, a)) ROW_FORMAT=COMPACT;
CREATE TABLE redundant_rows (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(300), b INT, c CHAR(32), KEY (b)) ROW_FORMAT=REDUNDANT;
CREATE TABLE dynamic_rows (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(300), b INT, c CHAR(32), d LONGBLOB, KEY (b), KEY (a)) ROW_FORMAT=DYNAMIC;
CREATE TABLE compressed_rows (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(300), b INT, c CHAR(32), d LONGTEXT, KEY (b), KEY (a)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4;
INSERT INTO compact_rows (a, b, c) SELECT REPEAT(LEFT(SHA2(n, 224), 32), 1 + n % 8), n % 97, LEFT(SHA2(n, 224), 32) FROM numbers;
INSERT INTO redundant_rows (a, b, c) SELECT REPEAT(LEFT(SHA2(n, 224), 32), 1 + n % 8), n % 97, LEFT(SHA2(n, 224), 32) FROM numbers;
INSERT INTO dynamic_rows (a, b, c, d) SELECT REPEAT(LEFT(SHA2(n, 224), 32), 1 + n % 8), n % 97, LEFT(SHA2(n, 224), 32), REPEAT(LEFT(SHA2(n, 224), 32), IF(n % 100, 1, 2000)) FROM numbers;
INSERT INTO compressed_rows (a, b, c, d) SELECT REPEAT(LEFT(SHA2(n, 224), 32), 1 + n % 8), n % 97, LEFT(SHA2(n, 224), 32), REPEAT(LEFT(SHA2(n, 224), 32), IF(n % 20, 1, 800)) FROM numbers;
UPDATE compact_rows SET a = LEFT(a, 10) WHERE id % 3 = 0;
UPDATE compact_rows SET a = REPEAT(c, 9) WHERE id % 5 = 0;
UPDATE redundant_rows SET a = REPEAT(c, 9), b = NULL WHERE id % 5 = 0;
UPDATE dynamic_rows SET c = REVERSE(c), b = b + 1 WHERE id % 2 = 0;
UPDATE dynamic_rows SET d = REPEAT(c, 3000) WHERE id % 50 = 0;
UPDATE compressed_rows SET c = REVERSE(c), b = b + 1 WHERE id % 2 = 0;
UPDATE compressed_rows SET d = REPEAT(c, 700) WHERE id % 30 = 0;
UPDATE compressed_rows SET a = REPEAT(c, 9) WHERE id % 7 = 0;
SET GLOBAL innodb_log_compressed_pages = OFF;
INSERT INTO compressed_rows (a, b, c, d) SELECT REPEAT(LEFT(SHA2(n, 224), 32), 1 + n % 8), n % 97, LEFT(SHA2(n + 1, 224), 32), REPEAT(LEFT(SHA2(n, 224), 32), 1) FROM numbers;
UPDATE compressed_rows SET a = REPEAT(LEFT(SHA2(a, 224), 32), 9) WHERE id % 4 = 0;
DELETE FROM compressed_rows WHERE id % 3 = 0;
SET GLOBAL innodb_log_compressed_pages = ON;
INSERT INTO compressed_rows (a, b, c, d) SELECT SHA2(RAND(n), 512), n % 97, LEFT(SHA2(n + 1, 224), 32), SHA2(RAND(n + 1), 512) FROM numbers LIMIT 3000;
DELETE FROM compressed_rows WHERE id % 5 = 1;
DELETE FROM compact_rows WHERE id BETWEEN 500 AND 5000;
DELETE FROM redundant_rows WHERE id BETWEEN 1 AND 4000;
DELETE FROM dynamic_rows WHERE id % 2 = 1;
INSERT INTO dynamic_rows (id, a, b, c) SELECT n * 2 + 1, LEFT(SHA2(n, 224), 32), n, LEFT(SHA2(n, 224), 32) FROM numbers WHERE n < 2900 ORDER BY RAND(7);

-- Backwards, so that pages split at the start and the smallest record moves.
CREATE TABLE backwards (id INT PRIMARY KEY, a CHAR(200)) ROW_FORMAT=REDUNDANT;
INSERT INTO backwards SELECT 6001 - n, LEFT(SHA2(n, 224), 32) FROM numbers ORDER BY n;
DELETE FROM backwards WHERE id < 3000 ORDER BY id;
CREATE TABLE backwards_compact (id INT PRIMARY KEY, a CHAR(200));
INSERT INTO backwards_compact SELECT 6001 - n, LEFT(SHA2(n, 224), 32) FROM numbers ORDER BY n;
DELETE FROM backwards_compact WHERE id < 3000 ORDER BY id;
CREATE TABLE backwards_compressed (id INT PRIMARY KEY, a CHAR(200)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8;
INSERT INTO backwards_compressed SELECT 6001 - n, LEFT(SHA2(n, 224), 32) FROM numbers ORDER BY n;
DELETE FROM backwards_compressed WHERE id < 3000 ORDER BY id;

-- Pages of two records, which do not go to their neighbours: the smallest are discarded. What was inserted last goes first.
CREATE TABLE wide (id INT PRIMARY KEY, a VARCHAR(7500)) ROW_FORMAT=REDUNDANT;
BEGIN;
INSERT INTO wide SELECT 6001 - n, REPEAT('w', 7500) FROM numbers WHERE n <= 300 ORDER BY n;
ROLLBACK;

-- Spatial, full text, JSON and large objects.
CREATE TABLE places (id INT AUTO_INCREMENT PRIMARY KEY, g GEOMETRY NOT NULL SRID 0, SPATIAL INDEX (g));
INSERT INTO places (g) SELECT ST_GeomFromText(CONCAT('POINT(', n % 71, ' ', n % 83, ')')) FROM numbers;
DELETE FROM places WHERE id % 3 = 0;
UPDATE places SET g = ST_GeomFromText('POINT(1 2)') WHERE id % 7 = 0;
CREATE TABLE places_redundant (id INT AUTO_INCREMENT PRIMARY KEY, g GEOMETRY NOT NULL SRID 0, SPATIAL INDEX (g)) ROW_FORMAT=REDUNDANT;
INSERT INTO places_redundant (g) SELECT ST_GeomFromText(CONCAT('POINT(', n % 71, ' ', n % 83, ')')) FROM numbers;
CREATE TABLE texts (id INT AUTO_INCREMENT PRIMARY KEY, t TEXT, FULLTEXT KEY (t));
INSERT INTO texts (t) SELECT CONCAT('word', n, ' and ', LEFT(SHA2(n, 224), 32), ' some text') FROM numbers LIMIT 2000;
DELETE FROM texts WHERE id % 10 = 0;
CREATE TABLE documents (id INT AUTO_INCREMENT PRIMARY KEY, j JSON, v INT GENERATED ALWAYS AS (j->'$.n') STORED, w INT GENERATED ALWAYS AS (j->'$.m') VIRTUAL, KEY (w), KEY multi ((CAST(j->'$.list' AS UNSIGNED ARRAY))));
INSERT INTO documents (j) SELECT JSON_OBJECT('n', n, 'm', n * 2, 'list', JSON_ARRAY(n, n + 1), 's', REPEAT('x', IF(n % 10, 10, 30000))) FROM numbers LIMIT 2000;
UPDATE documents SET j = JSON_SET(j, '$.m', 7, '$.s', 'shorter') WHERE id % 3 = 0;
CREATE TABLE objects (id INT PRIMARY KEY, b LONGBLOB);
INSERT INTO objects SELECT n, REPEAT(LEFT(SHA2(n, 224), 32), 20000) FROM numbers WHERE n <= 8;
UPDATE objects SET b = CONCAT(LEFT(b, 100000), 'changed', SUBSTRING(b, 100008)) WHERE id <= 4;
DELETE FROM objects WHERE id > 6;

-- Columns added and dropped instantly, and moved by that.
CREATE TABLE instant (id INT PRIMARY KEY, a INT, b VARCHAR(40), c CHAR(10) NOT NULL DEFAULT 'c');
INSERT INTO instant (id, a, b) SELECT n, n, LEFT(SHA2(n, 224), 32) FROM numbers LIMIT 1000;
ALTER TABLE instant ADD COLUMN d INT NOT NULL DEFAULT 5, ALGORITHM=INSTANT;
INSERT INTO instant (id, a, b, d) SELECT n + 10000, n, 'x', n FROM numbers LIMIT 500;
ALTER TABLE instant ADD COLUMN first_column VARCHAR(400) DEFAULT 'f' FIRST, ALGORITHM=INSTANT;
ALTER TABLE instant DROP COLUMN b, ALGORITHM=INSTANT;
UPDATE instant SET a = a + 1, first_column = REPEAT('y', id % 300) WHERE id % 3 = 0;
ALTER TABLE instant ADD COLUMN e INT AFTER id, DROP COLUMN d, ALGORITHM=INSTANT;
INSERT INTO instant (id, a, e) SELECT n + 20000, n, n FROM numbers LIMIT 500;
DELETE FROM instant WHERE id % 7 = 0;
UPDATE instant SET e = 9 WHERE id % 5 = 0;
CREATE TABLE instant_redundant (id INT PRIMARY KEY, a INT, b VARCHAR(40)) ROW_FORMAT=REDUNDANT;
INSERT INTO instant_redundant SELECT n, n, 'r' FROM numbers LIMIT 1000;
ALTER TABLE instant_redundant ADD COLUMN c INT DEFAULT 7 FIRST, ALGORITHM=INSTANT;
ALTER TABLE instant_redundant DROP COLUMN a, ALGORITHM=INSTANT;
INSERT INTO instant_redundant (id, b) SELECT n + 10000, 'r' FROM numbers LIMIT 1000;
UPDATE instant_redundant SET b = 'changed' WHERE id % 3 = 0;
DELETE FROM instant_redundant WHERE id % 4 = 0;

-- Tables and tablespaces.
ALTER TABLE dynamic_rows ADD INDEX added (c), ALGORITHM=INPLACE;
ALTER TABLE redundant_rows ADD INDEX added (c), ALGORITHM=INPLACE;
ALTER TABLE compressed_rows ADD INDEX added (c), ALGORITHM=INPLACE;
ALTER TABLE compact_rows ENGINE=InnoDB, ALGORITHM=INPLACE;
ALTER TABLE compact_rows MODIFY c CHAR(40), ALGORITHM=COPY;
ALTER TABLE compact_rows DROP INDEX b;
CREATE TABLESPACE general ADD DATAFILE 'general.ibd' ENGINE=InnoDB;
CREATE TABLE in_general (id INT PRIMARY KEY, a VARCHAR(100)) TABLESPACE general;
INSERT INTO in_general SELECT n, LEFT(SHA2(n, 224), 32) FROM numbers;
CREATE TABLE truncated LIKE in_general;
INSERT INTO truncated SELECT * FROM in_general;
TRUNCATE TABLE truncated;
CREATE TABLE renamed_before (id INT PRIMARY KEY) AS SELECT n AS id FROM numbers LIMIT 10;
RENAME TABLE renamed_before TO renamed_after;
CREATE TABLE dropped (id INT PRIMARY KEY) AS SELECT n AS id FROM numbers LIMIT 1000;
DROP TABLE dropped;
CREATE TABLE partitioned (id INT, p INT, a VARCHAR(50), PRIMARY KEY (id, p)) PARTITION BY RANGE (p) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (50), PARTITION p2 VALUES LESS THAN MAXVALUE);
INSERT INTO partitioned SELECT n, n % 100, LEFT(SHA2(n, 224), 32) FROM numbers;
ALTER TABLE partitioned TRUNCATE PARTITION p1;
ALTER TABLE partitioned REORGANIZE PARTITION p0 INTO (PARTITION p00 VALUES LESS THAN (5), PARTITION p01 VALUES LESS THAN (10));
ALTER TABLE partitioned DROP PARTITION p2;
CREATE UNDO TABLESPACE more_undo ADD DATAFILE 'more_undo.ibu';
ALTER UNDO TABLESPACE innodb_undo_001 SET INACTIVE;

-- Transactions.
BEGIN;
UPDATE numbers SET n = -n WHERE n > 3000;
SAVEPOINT half;
DELETE FROM numbers WHERE n BETWEEN 1 AND 100;
UPDATE dynamic_rows SET a = REPEAT('z', 250), b = 1;
ROLLBACK TO SAVEPOINT half;
COMMIT;
BEGIN;
INSERT INTO dynamic_rows (a, b) SELECT LEFT(SHA2(n, 224), 32), n FROM numbers;
DELETE FROM redundant_rows;
UPDATE compressed_rows SET b = 0 WHERE id % 10 = 0;
ROLLBACK;
XA START 'one'; INSERT INTO in_general VALUES (900001, 'xa'); XA END 'one'; XA PREPARE 'one'; XA COMMIT 'one';
XA START 'two'; INSERT INTO in_general VALUES (900002, 'xa'); XA END 'two'; XA PREPARE 'two'; XA ROLLBACK 'two';
CREATE TEMPORARY TABLE temporary AS SELECT * FROM numbers;
UPDATE temporary SET n = n + 100000;
ALTER TABLE dynamic_rows AUTO_INCREMENT = 500000;
INSERT INTO dynamic_rows (a) VALUES ('after');
DELETE FROM backwards_compact WHERE id % 3 <> 0;
DELETE FROM backwards_compressed WHERE id % 3 <> 0;
DELETE FROM backwards WHERE id % 3 <> 0;
SELECT SLEEP(4);
ALTER UNDO TABLESPACE innodb_undo_001 SET ACTIVE;
SET GLOBAL innodb_redo_log_capacity = 536870912;
SELECT SLEEP(3);
INSERT INTO numbers SELECT n + 1000000 FROM numbers;
-- The session is the consumer that keeps the log files: it stays.
SELECT 'the load is done';
SELECT SLEEP(1000);
