-- Foreign keys with cascades, in both directions and onto the same table.
CREATE TABLE parent (id INT PRIMARY KEY, b VARCHAR(100)) ENGINE=InnoDB;
CREATE TABLE child (id INT PRIMARY KEY AUTO_INCREMENT, parent INT, b VARCHAR(100), CONSTRAINT child_parent FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE=InnoDB;
CREATE TABLE loose (id INT PRIMARY KEY AUTO_INCREMENT, parent INT, CONSTRAINT loose_parent FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE SET NULL ON UPDATE CASCADE) ENGINE=InnoDB;
CREATE TABLE tree (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE) ENGINE=InnoDB;
INSERT INTO parent SELECT seq, MD5(seq) FROM seq_1_to_1000;
INSERT INTO child (parent, b) SELECT 1 + seq % 1000, SHA1(seq) FROM seq_1_to_6000;
INSERT INTO loose (parent) SELECT 1 + seq % 1000 FROM seq_1_to_3000;
INSERT INTO tree SELECT seq, IF(seq > 8, seq DIV 8, NULL) FROM seq_1_to_1000;
DELETE FROM parent WHERE id % 5 = 0;
UPDATE parent SET id = id + 10000 WHERE id % 7 = 0;
DELETE FROM tree WHERE id = 3;
-- expect: SELECT COUNT(*) = 0 FROM child LEFT JOIN parent ON child.parent = parent.id WHERE parent.id IS NULL
-- expect: SELECT COUNT(*) = 600 FROM loose WHERE parent IS NULL
-- probe: SELECT COUNT(*) FROM tree
ALTER TABLE loose DROP FOREIGN KEY loose_parent;
