-- The table whose tablespace is thrown away to take the exported one.
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(200), c TEXT, KEY by_a (a)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
INSERT INTO t (a, b) SELECT seq, 'thrown away' FROM seq_1_to_500;
ALTER TABLE t DISCARD TABLESPACE;
