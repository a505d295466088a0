-- Tables in the system tablespace, enough to fill its first file and grow the second.
-- expect: SELECT @@innodb_data_file_path = 'ibdata1:12M;ibdata2:4M:autoextend'
SET GLOBAL innodb_file_per_table = OFF;
CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(1000), KEY by_b (b(40))) ENGINE=InnoDB;
CREATE TABLE t_dropped (id INT PRIMARY KEY, b VARCHAR(1000)) ENGINE=InnoDB;
SET GLOBAL innodb_file_per_table = ON;
-- expect: SELECT SPACE = 0 FROM information_schema.INNODB_SYS_TABLES WHERE NAME = CONCAT(DATABASE(), '/t')
INSERT INTO t SELECT seq, REPEAT(SHA1(seq), 20) FROM seq_1_to_14000;
INSERT INTO t_dropped SELECT seq, REPEAT(SHA1(seq), 20) FROM seq_1_to_2000;
DROP TABLE t_dropped;
UPDATE t SET b = REVERSE(b) WHERE id % 6 = 0;
-- probe: SELECT COUNT(*), SUM(CRC32(b)) FROM t FORCE INDEX (by_b)
