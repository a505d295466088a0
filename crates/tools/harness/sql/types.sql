-- One column of every kind that has a stored form of its own.
CREATE TABLE t (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT, t1 TINYINT, s2 SMALLINT, m3 MEDIUMINT, b8 BIGINT UNSIGNED, f FLOAT, d DOUBLE,
  n DECIMAL(30,10), bits BIT(37), da DATE, ti TIME(6), dt DATETIME(3), ts TIMESTAMP(6) NULL, y YEAR,
  e ENUM('a','b','c'), st SET('x','y','z'), bi BINARY(16), vb VARBINARY(300), u VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci,
  tb TINYBLOB, js JSON, u4 UUID, i6 INET6,
  PRIMARY KEY (id), UNIQUE KEY by_u4 (u4), KEY by_u (u), KEY by_n (n), KEY by_dt (dt, e), KEY by_i6 (i6)
) ENGINE=InnoDB;
INSERT INTO t
  SELECT seq, seq % 128, -seq, seq * 3, seq * 1e12, seq / 7, SQRT(seq), seq * 1.0000000001, seq * 999, DATE_ADD('1970-01-01', INTERVAL seq DAY),
  SEC_TO_TIME(seq), DATE_ADD('2000-01-01', INTERVAL seq HOUR), FROM_UNIXTIME(1e9 + seq * 3600), 1950 + seq % 200, 1 + seq % 3, seq % 8,
  UNHEX(MD5(seq)), REPEAT(UNHEX(SHA1(seq)), seq % 15), CONCAT(CHAR(0xF09F9880 + seq % 40 USING utf8mb4), seq), UNHEX(MD5(seq)),
  JSON_OBJECT('k', seq), CONCAT('00000000-0000-4000-8000-', LPAD(HEX(seq), 12, '0')), CONCAT('2001:db8::', HEX(seq))
  FROM seq_1_to_4000;
UPDATE t SET n = n * 2, u = REVERSE(u), bits = bits + 1, vb = NULL WHERE id % 3 = 0;
DELETE FROM t WHERE id % 8 = 0;
REPLACE INTO t (id, u4, u) SELECT seq * 5, CONCAT('00000000-0000-4000-8000-', LPAD(HEX(seq * 5), 12, '0')), 'replaced' FROM seq_1_to_300;
-- probe: SELECT COUNT(*), SUM(CRC32(u)) FROM t FORCE INDEX (by_u)
-- probe: SELECT COUNT(*), SUM(n) FROM t FORCE INDEX (by_n)
