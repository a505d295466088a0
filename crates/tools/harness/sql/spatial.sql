-- R-trees: inserts with splits, updates that move shapes, deletes.
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, g GEOMETRY NOT NULL, SPATIAL KEY by_g (g)) ENGINE=InnoDB;
INSERT INTO t (g) SELECT POINT(seq * 7919 % 1000, seq * 104729 % 1000) FROM seq_1_to_4000;
INSERT INTO t (g) SELECT ST_GeomFromText(CONCAT('LINESTRING(', seq, ' ', seq, ',', seq + 5, ' ', seq + 9, ')')) FROM seq_1_to_500;
UPDATE t SET g = POINT(ST_X(g) + 0.5, ST_Y(g)) WHERE id <= 4000 AND id % 3 = 0;
DELETE FROM t WHERE id % 5 = 0;
START TRANSACTION;
DELETE FROM t WHERE id % 2 = 0;
ROLLBACK;
-- expect: SELECT COUNT(*) > 100 FROM t FORCE INDEX (by_g) WHERE MBRContains(ST_GeomFromText('POLYGON((0 0,400 0,400 400,0 400,0 0))'), g)
-- probe: SELECT COUNT(*), SUM(id) FROM t FORCE INDEX (by_g) WHERE MBRContains(ST_GeomFromText('POLYGON((100 100,700 100,700 600,100 600,100 100))'), g)
