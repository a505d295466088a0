-- The table that is changed online while another connection writes to it.
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(100), KEY by_a (a)) ENGINE=InnoDB;
INSERT INTO t (a, b) SELECT seq, CONCAT(SHA1(seq), MD5(seq)) FROM seq_1_to_30000;
