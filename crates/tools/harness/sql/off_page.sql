-- Columns too long for the page: chains of their own pages, grown, shrunk, freed and reused.
CREATE TABLE dynamic_rows (id INT PRIMARY KEY, b LONGBLOB, t MEDIUMTEXT) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
CREATE TABLE compact_rows (id INT PRIMARY KEY, b LONGBLOB, t MEDIUMTEXT, KEY by_t (t(100))) ENGINE=InnoDB ROW_FORMAT=COMPACT;
INSERT INTO dynamic_rows SELECT seq, REPEAT(SHA1(seq), seq * 47 % 3000), REPEAT(MD5(seq), seq % 700) FROM seq_1_to_150;
INSERT INTO compact_rows SELECT * FROM dynamic_rows;
UPDATE dynamic_rows SET b = REPEAT(MD5(id), 9000) WHERE id % 10 = 0;
UPDATE compact_rows SET b = CONCAT(b, b), t = REVERSE(t) WHERE id % 3 = 0;
UPDATE dynamic_rows SET b = 'short', t = NULL WHERE id % 7 = 0;
DELETE FROM compact_rows WHERE id % 4 = 0;
INSERT INTO compact_rows SELECT 1000 + seq, REPEAT(SHA1(seq), 2000), MD5(seq) FROM seq_1_to_30;
START TRANSACTION;
UPDATE dynamic_rows SET b = REPEAT('r', 100000) WHERE id % 5 = 0;
ROLLBACK;
-- probe: SELECT COUNT(*), SUM(LENGTH(b)), SUM(CRC32(b)), SUM(CRC32(t)) FROM dynamic_rows
-- probe: SELECT COUNT(*), SUM(LENGTH(b)), SUM(CRC32(b)), SUM(CRC32(t)) FROM compact_rows
