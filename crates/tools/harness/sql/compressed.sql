-- ROW_FORMAT=COMPRESSED at one KEY_BLOCK_SIZE: rows that compress well and badly, splits, reorganisations,
-- and columns stored off the page.
CREATE TABLE t (
  id BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(60), d TEXT, KEY by_a (a), KEY by_b (b(20))
) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=$KBS;
-- expect: SELECT CREATE_OPTIONS LIKE '%KEY_BLOCK_SIZE=$KBS%' OR CREATE_OPTIONS LIKE '%key_block_size=$KBS%' FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'
-- expect: SELECT ZIP_PAGE_SIZE = $KBS * 1024 FROM information_schema.INNODB_SYS_TABLES WHERE NAME = CONCAT(DATABASE(), '/t')
INSERT INTO t (a, b, d) SELECT seq * 7919 % 10007, LEFT(SHA1(seq), 1 + seq % 40), REPEAT(MD5(seq), seq % 5) FROM seq_1_to_3000;
UPDATE t SET b = REVERSE(b), a = a + 1 WHERE id % 3 = 0;
UPDATE t SET d = REPEAT(SHA2(id, 256), 60) WHERE id % 20 = 0;
UPDATE t SET d = NULL WHERE id % 40 = 0;
DELETE FROM t WHERE id % 5 = 0;
INSERT INTO t (id, a, b) SELECT 10000 + seq * 401 % 1009, seq, MD5(seq) FROM seq_1_to_1000;
-- probe: SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (by_a)
-- R-tree pages, which the server changes without a record when it compresses them anew (their split sequence number).
CREATE TABLE s (
  id INT PRIMARY KEY AUTO_INCREMENT, p POINT NOT NULL, SPATIAL KEY by_p (p)
) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=$KBS;
INSERT INTO s (p) SELECT POINT(seq * 7919 % 10007, seq % 771) FROM seq_1_to_4000;
UPDATE s SET p = POINT(id % 300, id * 13 % 5000) WHERE id % 3 = 0;
DELETE FROM s WHERE id % 5 = 0;
-- probe: SELECT COUNT(*), SUM(id) FROM s FORCE INDEX (by_p) WHERE MBRContains(ST_GeomFromText('POLYGON((0 0,5000 0,5000 500,0 500,0 0))'), p)
