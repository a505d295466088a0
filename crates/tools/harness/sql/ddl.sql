-- Tables created, truncated, renamed between databases, dropped and made again under the same name.
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, b VARCHAR(200), KEY by_b (b)) ENGINE=InnoDB;
INSERT INTO t (b) SELECT SHA1(seq) FROM seq_1_to_4000;
TRUNCATE TABLE t;
INSERT INTO t (b) SELECT MD5(seq) FROM seq_1_to_3000;
CREATE TABLE copied LIKE t;
INSERT INTO copied SELECT * FROM t;
RENAME TABLE t TO old_t, copied TO t;
DROP TABLE old_t;
CREATE TABLE old_t (id INT PRIMARY KEY, other CHAR(32)) ENGINE=InnoDB;
INSERT INTO old_t SELECT seq, MD5(seq) FROM seq_1_to_2000;
CREATE DATABASE f_ddl_second;
RENAME TABLE old_t TO f_ddl_second.moved;
CREATE TABLE f_ddl_second.dropped (id INT PRIMARY KEY, b TEXT) ENGINE=InnoDB;
INSERT INTO f_ddl_second.dropped SELECT seq, REPEAT(MD5(seq), 50) FROM seq_1_to_1000;
RENAME TABLE f_ddl_second.moved TO back;
DROP DATABASE f_ddl_second;
DELETE FROM t WHERE id % 2 = 0;
OPTIMIZE TABLE t;
CREATE OR REPLACE TABLE replaced (id INT) ENGINE=InnoDB;
CREATE OR REPLACE TABLE replaced AS SELECT id, other, 1 AS one FROM back WHERE id % 2 = 0;
CREATE TABLE `odd name-ü #1` (id INT PRIMARY KEY) ENGINE=InnoDB;
INSERT INTO `odd name-ü #1` SELECT seq FROM seq_1_to_100;
ANALYZE TABLE t, replaced;
-- expect: SELECT COUNT(*) = 1500 FROM t
-- probe: SELECT COUNT(*), SUM(CRC32(b)) FROM t FORCE INDEX (by_b)
