-- Secondary-index changes to pages that are not in the pool: buffered inserts, delete marks and purges.
-- expect: SELECT @@innodb_change_buffering = 'all'
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(100), c INT, KEY by_a (a), KEY by_b (b), KEY by_c (c, a)) ENGINE=InnoDB;
INSERT INTO t (a, b, c) SELECT seq * 7919 % 1000003, SHA1(seq), seq * 104729 % 999983 FROM seq_1_to_40000;
INSERT INTO t (a, b, c) SELECT seq * 7907 % 1000003, MD5(seq), seq * 104723 % 999983 FROM seq_1_to_8000;
UPDATE t SET a = a + 1, c = c - 1 WHERE id % 17 = 0;
DELETE FROM t WHERE id % 13 = 0;
-- expect: SELECT SUM(VARIABLE_VALUE) > 0 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ('INNODB_IBUF_MERGED_INSERTS', 'INNODB_IBUF_SIZE')
-- probe: SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (by_a)
-- probe: SELECT COUNT(*), SUM(CRC32(b)) FROM t FORCE INDEX (by_b)
-- probe: SELECT COUNT(*), SUM(c) FROM t FORCE INDEX (by_c)
