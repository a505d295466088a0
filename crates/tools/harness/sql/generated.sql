-- Generated columns, stored and virtual, with indexes on both, added at creation and in place.
CREATE TABLE t (
  id INT PRIMARY KEY, a INT, b VARCHAR(100),
  s INT GENERATED ALWAYS AS (a * 2) STORED, v INT GENERATED ALWAYS AS (a % 100) VIRTUAL, l VARCHAR(20) GENERATED ALWAYS AS (LEFT(b, 10)) VIRTUAL,
  KEY by_s (s), KEY by_v (v), KEY by_l (l)
) ENGINE=InnoDB;
INSERT INTO t (id, a, b) SELECT seq, seq * 31 % 5003, MD5(seq) FROM seq_1_to_5000;
UPDATE t SET a = a + 7, b = SHA1(id) WHERE id % 3 = 0;
DELETE FROM t WHERE id % 6 = 0;
ALTER TABLE t ADD COLUMN w BIGINT GENERATED ALWAYS AS (a + id) VIRTUAL;
ALTER TABLE t ADD INDEX by_w (w), ALGORITHM=INPLACE;
UPDATE t SET a = a + 1 WHERE id % 4 = 1;
-- probe: SELECT COUNT(*), SUM(v) FROM t FORCE INDEX (by_v)
-- probe: SELECT COUNT(*), SUM(w) FROM t FORCE INDEX (by_w)
-- probe: SELECT COUNT(*), SUM(CRC32(l)) FROM t FORCE INDEX (by_l)
