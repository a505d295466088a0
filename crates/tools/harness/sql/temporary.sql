-- Temporary tables and sorts on disk, which leave nothing behind, and a table filled from them.
CREATE TEMPORARY TABLE tmp (id INT PRIMARY KEY, b VARCHAR(200), KEY by_b (b)) ENGINE=InnoDB;
INSERT INTO tmp SELECT seq, SHA1(seq) FROM seq_1_to_20000;
UPDATE tmp SET b = MD5(b) WHERE id % 2 = 0;
DELETE FROM tmp WHERE id % 3 = 0;
SET SESSION max_heap_table_size = 16384, tmp_table_size = 16384, sort_buffer_size = 32768;
CREATE TABLE t (b VARCHAR(200), total BIGINT, KEY by_b (b)) ENGINE=InnoDB;
INSERT INTO t SELECT b, SUM(id) FROM tmp GROUP BY b ORDER BY SUM(id) DESC LIMIT 5000;
DROP TEMPORARY TABLE tmp;
CREATE TEMPORARY TABLE left_open (id INT PRIMARY KEY) ENGINE=InnoDB;
INSERT INTO left_open SELECT seq FROM seq_1_to_5000;
-- probe: SELECT COUNT(*), SUM(total) FROM t
