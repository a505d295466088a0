-- Full-text indexes with their auxiliary tables, deletes, a synchronisation and an optimisation.
CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, title VARCHAR(200), body TEXT, FULLTEXT KEY words (title, body)) ENGINE=InnoDB;
INSERT INTO t (title, body) SELECT CONCAT('title ', ELT(1 + seq % 4, 'storage', 'engine', 'redo', 'page')), CONCAT('number', seq, ' ', REPEAT(CONCAT('word', seq % 50, ' '), 20), 'common') FROM seq_1_to_2000;
DELETE FROM t WHERE id % 10 = 0;
UPDATE t SET body = CONCAT('changed ', body) WHERE id % 7 = 0;
SET GLOBAL innodb_optimize_fulltext_only = ON;
OPTIMIZE TABLE t;
SET GLOBAL innodb_optimize_fulltext_only = OFF;
INSERT INTO t (title, body) SELECT 'late', CONCAT('late', seq, ' unsynchronised') FROM seq_1_to_200;
ALTER TABLE t ADD FULLTEXT KEY body_words (body);
-- expect: SELECT COUNT(*) = 500 FROM t WHERE MATCH (title, body) AGAINST ('engine')
-- expect: SELECT COUNT(*) = 200 FROM t WHERE MATCH (body) AGAINST ('unsynchronised')
-- probe: SELECT COUNT(*) FROM t WHERE MATCH (title, body) AGAINST ('changed')
-- probe: SELECT COUNT(*), SUM(id) FROM t WHERE MATCH (title, body) AGAINST ('+redo +word7' IN BOOLEAN MODE)
-- probe: SELECT COUNT(*) FROM t WHERE MATCH (body) AGAINST ('unsynchronised')
