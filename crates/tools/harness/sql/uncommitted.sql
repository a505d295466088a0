-- The table a transaction is left open on.
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(400), KEY by_a (a)) ENGINE=InnoDB;
CREATE TABLE t2 (id INT PRIMARY KEY) ENGINE=InnoDB;
INSERT INTO t (a, b) SELECT seq * 7919 % 10007, SHA1(seq) FROM seq_1_to_6000;
