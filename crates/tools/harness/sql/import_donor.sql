-- The table that is exported from one server and imported into another.
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(200), c TEXT, KEY by_a (a)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
INSERT INTO t (a, b, c) SELECT seq * 3, SHA1(seq), REPEAT(MD5(seq), seq % 12) FROM seq_1_to_6000;
UPDATE t SET c = REPEAT(SHA1(id), 700) WHERE id % 100 = 0;
DELETE FROM t WHERE id % 9 = 0;
