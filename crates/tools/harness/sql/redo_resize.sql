-- The redo log is resized online, larger and smaller, with writes in between.
CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(1000)) ENGINE=InnoDB;
INSERT INTO t SELECT seq, REPEAT(SHA1(seq), 10) FROM seq_1_to_4000;
SET GLOBAL innodb_log_file_size = 33554432;
-- until: SELECT @@GLOBAL.innodb_log_file_size = 33554432
UPDATE t SET b = REVERSE(b);
SET GLOBAL innodb_log_file_size = 20971520;
-- until: SELECT @@GLOBAL.innodb_log_file_size = 20971520
UPDATE t SET b = REPEAT(MD5(id), 12);
UPDATE t SET b = REVERSE(b);
UPDATE t SET b = REPEAT(SHA1(id), 15);
-- probe: SELECT COUNT(*), SUM(CRC32(b)) FROM t
