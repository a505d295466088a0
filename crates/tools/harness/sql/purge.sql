-- Deletes on a scale that empties pages: purge removes the records, merges pages and frees them.
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(200), KEY by_a (a), KEY by_b (b)) ENGINE=InnoDB;
INSERT INTO t SELECT seq, seq * 7919 % 100003, CONCAT(SHA1(seq), SHA1(seq + 1)) FROM seq_1_to_15000;
UPDATE t SET a = a + 1, b = REVERSE(b);
DELETE FROM t WHERE id % 10 <> 0;
-- until: SELECT VARIABLE_VALUE < 5 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_HISTORY_LIST_LENGTH'
INSERT INTO t SELECT 100000 + seq, seq, MD5(seq) FROM seq_1_to_3000;
-- expect: SELECT COUNT(*) = 4500 FROM t
-- probe: SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (by_a)
-- probe: SELECT COUNT(*), SUM(CRC32(b)) FROM t FORCE INDEX (by_b)
