-- The table two prepared transactions work on.
CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(200)) ENGINE=InnoDB;
INSERT INTO t SELECT seq, MD5(seq) FROM seq_1_to_5000;
