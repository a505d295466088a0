-- The redo log with and without the operating system's cache, switched while it is written.
CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(500)) ENGINE=InnoDB;
SET GLOBAL innodb_log_file_buffering = ON;
INSERT INTO t SELECT seq, SHA1(seq) FROM seq_1_to_3000;
SET GLOBAL innodb_log_file_buffering = OFF;
UPDATE t SET b = REVERSE(b) WHERE id % 2 = 0;
SET GLOBAL innodb_log_file_buffering = ON;
DELETE FROM t WHERE id % 7 = 0;
SET GLOBAL innodb_log_file_buffering = OFF;
INSERT INTO t SELECT 10000 + seq, REPEAT(MD5(seq), 9) FROM seq_1_to_1000;
-- probe: SELECT COUNT(*), SUM(CRC32(b)) FROM t
