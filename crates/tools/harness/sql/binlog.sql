-- Commits in two phases with the binary log, and rotated binary logs, which are plain files.
-- expect: SELECT @@log_bin = 1
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, b VARCHAR(100)) ENGINE=InnoDB;
INSERT INTO t (b) SELECT MD5(seq) FROM seq_1_to_200;
FLUSH BINARY LOGS;
UPDATE t SET b = SHA1(id) WHERE id % 3 = 0;
FLUSH BINARY LOGS;
DELETE FROM t WHERE id % 4 = 0;
-- probe: SHOW BINLOG EVENTS IN 'binlog.000001' LIMIT 300
