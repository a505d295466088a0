-- Sequences: cached, not cached and cycling ones.
CREATE SEQUENCE cached START WITH 100 INCREMENT BY 10 CACHE 50 ENGINE=InnoDB;
CREATE SEQUENCE uncached NOCACHE ENGINE=InnoDB;
CREATE SEQUENCE cycling MAXVALUE 100 CYCLE CACHE 7 ENGINE=InnoDB;
CREATE TABLE t (id BIGINT PRIMARY KEY DEFAULT NEXTVAL(uncached), c BIGINT) ENGINE=InnoDB;
INSERT INTO t (c) SELECT NEXTVAL(cached) FROM seq_1_to_700;
DO (SELECT SUM(NEXTVAL(cycling)) FROM seq_1_to_250);
ALTER SEQUENCE cached RESTART 90000;
INSERT INTO t (c) SELECT NEXTVAL(cached) FROM seq_1_to_60;
-- probe: SELECT * FROM cached
-- probe: SELECT * FROM uncached
-- probe: SELECT * FROM cycling
-- expect: SELECT next_not_cached_value = 761 FROM uncached
