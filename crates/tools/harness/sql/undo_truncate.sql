-- Undo logs beyond the limit, which the server then cuts back: the undo tablespace is written anew.
-- expect: SELECT @@innodb_undo_tablespaces >= 2 AND @@innodb_undo_log_truncate = 1
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARBINARY(1000)) ENGINE=InnoDB;
INSERT INTO t SELECT seq, 0, REPEAT(SHA1(seq), 20) FROM seq_1_to_6000;
START TRANSACTION;
UPDATE t SET b = REVERSE(b), a = a + 1;
UPDATE t SET b = REPEAT(MD5(id), 25), a = a + 1;
UPDATE t SET b = REVERSE(b), a = a + 1;
UPDATE t SET b = REPEAT(SHA1(id + a), 20), a = a + 1;
UPDATE t SET b = REVERSE(b), a = a + 1;
COMMIT;
-- until: SELECT VARIABLE_VALUE > 0 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_UNDO_TRUNCATIONS'
UPDATE t SET a = a + 1 WHERE id % 2 = 0;
