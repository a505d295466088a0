-- A system-versioned table keeps the history of its rows.
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(100)) ENGINE=InnoDB WITH SYSTEM VERSIONING;
INSERT INTO t SELECT seq, seq, MD5(seq) FROM seq_1_to_2000;
UPDATE t SET a = a + 1, b = SHA1(b) WHERE id % 2 = 0;
DELETE FROM t WHERE id % 5 = 0;
-- expect: SELECT COUNT(*) > 2000 FROM t FOR SYSTEM_TIME ALL
-- probe: SELECT COUNT(*), SUM(a), SUM(CRC32(b)) FROM t FOR SYSTEM_TIME ALL
