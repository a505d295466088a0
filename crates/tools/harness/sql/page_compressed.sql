-- Page compression: pages are compressed when they are written, and written shorter than a page.
CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(200), d TEXT, KEY by_a (a)) ENGINE=InnoDB PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=6;
INSERT INTO t (a, b, d) SELECT seq % 100, REPEAT('abcdef', seq % 30), REPEAT('compressible ', seq % 40) FROM seq_1_to_8000;
UPDATE t SET b = MD5(id), a = a + 1 WHERE id % 3 = 0;
DELETE FROM t WHERE id % 4 = 0;
FLUSH TABLES t FOR EXPORT;
UNLOCK TABLES;
-- expect: SELECT VARIABLE_VALUE > 0 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_NUM_PAGES_PAGE_COMPRESSED'
UPDATE t SET a = a + 1000 WHERE id % 9 = 0;
-- probe: SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (by_a)
