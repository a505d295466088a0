-- One uncompressed row format: inserts in and out of key order, updates that grow and shrink rows,
-- deletes, and a rolled-back transaction.
CREATE TABLE t (
  id BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
  a INT, b VARCHAR(200), c CHAR(40) CHARACTER SET utf8mb4, n INT NULL, d TEXT,
  KEY by_a (a), KEY by_b (b(50)), KEY by_n (n, a)
) ENGINE=InnoDB ROW_FORMAT=$FORMAT;
-- expect: SELECT ROW_FORMAT = '$FORMAT' FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'
INSERT INTO t (a, b, c, n, d)
  SELECT seq * 7919 % 10007, CONCAT(MD5(seq), SHA1(seq)), LEFT(MD5(seq + 1), seq % 32), IF(seq % 4, seq, NULL), REPEAT(MD5(seq), seq % 9)
  FROM seq_1_to_6000;
INSERT INTO t (id, a, b, c, n, d)
  SELECT 10000 + seq * 4001 % 5003, seq, MD5(seq), MD5(seq), NULL, SHA1(seq) FROM seq_1_to_3000;
UPDATE t SET b = CONCAT(b, '-', id), a = a + 1 WHERE id % 3 = 0;
UPDATE t SET d = REPEAT(SHA1(id), 12) WHERE id % 10 = 0;
UPDATE t SET d = NULL, n = NULL WHERE id % 11 = 0;
DELETE FROM t WHERE id % 5 = 0;
UPDATE t SET id = id + 100000 WHERE id % 97 = 0;
START TRANSACTION;
UPDATE t SET b = 'rolled back', n = 1 WHERE id % 2 = 0;
DELETE FROM t WHERE id % 7 = 0;
ROLLBACK;
-- probe: SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (by_a)
-- probe: SELECT COUNT(*), SUM(CRC32(b)) FROM t FORCE INDEX (by_b)
-- expect: SELECT COUNT(*) > 6000 FROM t
