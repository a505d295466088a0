-- Inserts into an empty table without checks are built as sorted pages; both the committed and the
-- rolled-back kind, and a failed one.
SET SESSION unique_checks = 0, foreign_key_checks = 0;
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(200), KEY by_a (a), KEY by_b (b(30))) ENGINE=InnoDB;
CREATE TABLE rolled_back LIKE t;
CREATE TABLE large_rows (id INT PRIMARY KEY, b MEDIUMTEXT) ENGINE=InnoDB;
START TRANSACTION;
INSERT INTO t SELECT seq * 7919 % 100003, seq, SHA1(seq) FROM seq_1_to_20000;
COMMIT;
START TRANSACTION;
INSERT INTO rolled_back SELECT seq, seq, SHA1(seq) FROM seq_1_to_10000;
ROLLBACK;
INSERT INTO large_rows SELECT seq, REPEAT(SHA1(seq), 600) FROM seq_1_to_200;
INSERT INTO rolled_back SELECT seq, seq, MD5(seq) FROM seq_1_to_2000;
SET SESSION unique_checks = 1, foreign_key_checks = 1;
INSERT INTO t SELECT 200000 + seq, seq, MD5(seq) FROM seq_1_to_500;
-- expect: SELECT COUNT(*) = 2000 FROM rolled_back
-- probe: SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (by_a)
-- probe: SELECT COUNT(*), SUM(CRC32(b)) FROM large_rows
