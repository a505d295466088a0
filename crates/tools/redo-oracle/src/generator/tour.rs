//! A tour: one statement of each class that chance brings up too seldom, on tables of its own, at the start of each
//! history. So every history has every class, at every page size.

use super::{Class, Config, Generator};

impl Generator {
    /// Emits the statements of the tour.
    pub(super) fn tour(&mut self) {
        self.turn = 0;
        let name = self.fresh("d0.tour");
        for statements in [CHANGES, INDEXES, PARTITIONS, HASHED, VERSIONED, TRANSACTIONS, OTHERS] {
            for (class, sql) in statements {
                self.emit(*class, sql.replace("$T", &name));
            }
        }
        let compressed = Config::compressed(self.config.page_size_bytes);
        self.emit(Class::ChangeRowFormat, format!("ALTER TABLE {name} {compressed}"));
        self.emit(Class::DropTable, format!("DROP TABLE {name}"));
        self.sequence_statement();
        self.temporary_statement();
        if self.config.large_undo {
            self.large_undo();
        }
    }
}

impl Config {
    fn compressed(page_size_bytes: u32) -> &'static str {
        if page_size_bytes > 16384 {
            "ROW_FORMAT=REDUNDANT"
        } else {
            "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4"
        }
    }
}

type Part = &'static [(Class, &'static str)];

/// Columns.
const CHANGES: Part = &[
    (
        Class::CreateDynamic,
        "CREATE TABLE $T (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, c VARCHAR(90) NOT NULL DEFAULT '', \
         b LONGBLOB, KEY k (k), KEY c (c)) ENGINE=InnoDB CHARSET=latin1 ROW_FORMAT=DYNAMIC",
    ),
    (Class::InsertSelect, "INSERT INTO $T (k, c) SELECT seq % 77, MD5(seq) FROM seq_1_to_600"),
    (
        Class::AddColumnInstant,
        "ALTER TABLE $T ADD COLUMN x1 INT DEFAULT 5, ADD COLUMN x2 TEXT, ALGORITHM=INSTANT",
    ),
    (Class::Update, "UPDATE $T SET x1 = id, x2 = REPEAT('x', id) WHERE id % 3 = 0"),
    (Class::RenameColumn, "ALTER TABLE $T RENAME COLUMN x1 TO x3, ALGORITHM=INSTANT"),
    (Class::ReorderInstant, "ALTER TABLE $T MODIFY COLUMN x2 TEXT AFTER id, ALGORITHM=INSTANT"),
    (Class::DropColumnInstant, "ALTER TABLE $T DROP COLUMN x3, ALGORITHM=INSTANT"),
    (Class::Insert, "INSERT INTO $T (k, c, x2) VALUES (1, 'after instant', 'x'), (2, '', NULL)"),
    (
        Class::ModifyInplace,
        "ALTER TABLE $T MODIFY COLUMN c VARCHAR(99) NOT NULL DEFAULT '', ALGORITHM=INPLACE",
    ),
    (Class::ModifyCopy, "ALTER TABLE $T MODIFY COLUMN k BIGINT NOT NULL DEFAULT 0, ALGORITHM=COPY"),
    (
        Class::AddColumnInplace,
        "ALTER TABLE $T ADD COLUMN x4 BIGINT NOT NULL DEFAULT 1, FORCE, ALGORITHM=INPLACE",
    ),
    (Class::AddVirtual, "ALTER TABLE $T ADD COLUMN v1 INT AS (k * 2) VIRTUAL"),
    (Class::AddIndexInplace, "ALTER TABLE $T ADD INDEX v1 (v1), ALGORITHM=INPLACE"),
    (Class::AddStored, "ALTER TABLE $T ADD COLUMN v2 INT AS (k + 1) STORED"),
    (Class::SetAutoIncrement, "ALTER TABLE $T AUTO_INCREMENT = 5000"),
];

/// Indexes, keys and rebuilds.
const INDEXES: Part = &[
    (Class::CreateIndex, "CREATE INDEX i1 ON $T (k, c(10))"),
    (Class::AddIndexCopy, "ALTER TABLE $T ADD INDEX i2 (b(20)), ALGORITHM=COPY"),
    (Class::CreateUnique, "CREATE UNIQUE INDEX i3 ON $T (id, k)"),
    (Class::DropIndex, "ALTER TABLE $T DROP INDEX i1"),
    (Class::ChangePrimaryKey, "ALTER TABLE $T DROP PRIMARY KEY, ADD PRIMARY KEY (k, id), ADD KEY i4 (id)"),
    (Class::AddFullText, "ALTER TABLE $T ADD FULLTEXT INDEX i5 (c)"),
    (Class::DropFullText, "ALTER TABLE $T DROP INDEX i5"),
    (Class::ForceInplace, "ALTER TABLE $T FORCE, ALGORITHM=INPLACE"),
    (Class::ForceCopy, "ALTER TABLE $T FORCE, ALGORITHM=COPY"),
    (Class::CreateDynamic, "CREATE TABLE $Tp (id INT PRIMARY KEY) ENGINE=InnoDB"),
    (
        Class::AddForeignKey,
        "ALTER TABLE $T ADD COLUMN r INT, ADD CONSTRAINT tour_r FOREIGN KEY (r) REFERENCES $Tp (id) ON DELETE SET NULL",
    ),
    (Class::DropForeignKey, "ALTER TABLE $T DROP FOREIGN KEY tour_r"),
    (Class::DropTable, "DROP TABLE $Tp"),
    (Class::Optimize, "OPTIMIZE TABLE $T"),
    (Class::Analyze, "ANALYZE TABLE $T"),
    (Class::Check, "CHECK TABLE $T"),
    (Class::CreateLike, "CREATE TABLE $Tl LIKE $T"),
    (Class::MultiDelete, "DELETE x, y FROM $T x JOIN $Tl y ON x.id = y.id"),
    (Class::RenameSwap, "RENAME TABLE $T TO $Tx, $Tl TO $T, $Tx TO $Tl, $T TO $Tx, $Tl TO $T, $Tx TO $Tl"),
    (Class::Truncate, "TRUNCATE TABLE $Tl"),
    (Class::DropTable, "DROP TABLE $Tl"),
];

/// Partitions by range.
const PARTITIONS: Part = &[
    (
        Class::CreatePartitioned,
        "CREATE TABLE $Tr (id INT PRIMARY KEY, k INT, c VARCHAR(50), KEY k (k)) ENGINE=InnoDB PARTITION BY RANGE (id) \
         (PARTITION p0 VALUES LESS THAN (700), PARTITION p1 VALUES LESS THAN (1500), PARTITION pm VALUES LESS THAN MAXVALUE)",
    ),
    (Class::InsertSelect, "INSERT INTO $Tr SELECT seq * 4, seq, MD5(seq) FROM seq_1_to_500"),
    (
        Class::CreateLike,
        "CREATE TABLE $Te (id INT PRIMARY KEY, k INT, c VARCHAR(50), KEY k (k)) ENGINE=InnoDB",
    ),
    (Class::InsertSelect, "INSERT INTO $Te SELECT seq, seq, 'exchanged' FROM seq_1_to_300"),
    (Class::ExchangePartition, "ALTER TABLE $Tr EXCHANGE PARTITION p0 WITH TABLE $Te"),
    (
        Class::ReorganizePartition,
        "ALTER TABLE $Tr REORGANIZE PARTITION pm INTO (PARTITION p2 VALUES LESS THAN (1800), PARTITION pm VALUES LESS THAN MAXVALUE)",
    ),
    (Class::RebuildPartition, "ALTER TABLE $Tr REBUILD PARTITION p1"),
    (Class::TruncatePartition, "ALTER TABLE $Tr TRUNCATE PARTITION p1"),
    (Class::DropPartition, "ALTER TABLE $Tr DROP PARTITION p0"),
    (Class::PartitionDml, "UPDATE $Tr PARTITION (pm) SET k = k + 1"),
    (Class::DropTable, "DROP TABLE $Te, $Tr"),
];

/// Partitions by hash.
const HASHED: Part = &[
    (
        Class::CreatePartitioned,
        "CREATE TABLE $Th (id INT PRIMARY KEY, k INT) ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 3",
    ),
    (Class::InsertSelect, "INSERT INTO $Th SELECT seq, seq FROM seq_1_to_400"),
    (Class::AddPartition, "ALTER TABLE $Th ADD PARTITION PARTITIONS 1"),
    (Class::CoalescePartition, "ALTER TABLE $Th COALESCE PARTITION 2"),
    (Class::DropTable, "DROP TABLE $Th"),
];

/// System versioning.
const VERSIONED: Part = &[
    (Class::CreateDynamic, "CREATE TABLE $Tv (id INT PRIMARY KEY, k INT) ENGINE=InnoDB"),
    (Class::InsertSelect, "INSERT INTO $Tv SELECT seq, seq FROM seq_1_to_300"),
    (Class::AddVersioning, "ALTER TABLE $Tv ADD SYSTEM VERSIONING"),
    (Class::VersionedDml, "UPDATE $Tv SET k = k + 1 WHERE id % 2 = 0"),
    (Class::VersionedDml, "DELETE FROM $Tv WHERE id % 5 = 0"),
    (Class::DeleteHistory, "DELETE HISTORY FROM $Tv"),
    (Class::DropTable, "DROP TABLE $Tv"),
];

/// Every end that a transaction can have.
const TRANSACTIONS: Part = &[
    (Class::Begin, "BEGIN"),
    (Class::Update, "UPDATE $T SET k = k + 1000 WHERE id % 7 = 0"),
    (Class::Savepoint, "SAVEPOINT a"),
    (Class::Delete, "DELETE FROM $T WHERE id % 11 = 0"),
    (Class::Savepoint, "SAVEPOINT b"),
    (Class::UpdateOffPage, "UPDATE $T SET b = REPEAT(MD5(id), 2000) WHERE id % 50 = 0"),
    (Class::RollbackTo, "ROLLBACK TO SAVEPOINT b"),
    (Class::ReleaseSavepoint, "RELEASE SAVEPOINT a"),
    (Class::Rollback, "ROLLBACK"),
    (Class::XaStart, "XA START 'tour1'"),
    (Class::Insert, "INSERT INTO $T (k, c) VALUES (7, 'prepared')"),
    (Class::XaEnd, "XA END 'tour1'"),
    (Class::XaPrepare, "XA PREPARE 'tour1'"),
    (Class::XaCommit, "XA COMMIT 'tour1'"),
    (Class::XaStart, "XA START 'tour2'"),
    (Class::Insert, "INSERT INTO $T (k, c) VALUES (8, 'rolled back')"),
    (Class::XaEnd, "XA END 'tour2'"),
    (Class::XaPrepare, "XA PREPARE 'tour2'"),
    (Class::XaRollback, "XA ROLLBACK 'tour2'"),
];

/// The rest.
const OTHERS: Part = &[
    (Class::CreateDatabase, "CREATE DATABASE d2"),
    (Class::CreateDynamic, "CREATE TABLE d2.t (id INT PRIMARY KEY) ENGINE=InnoDB"),
    (Class::Insert, "INSERT INTO d2.t VALUES (1), (2)"),
    (Class::DropDatabase, "DROP DATABASE d2"),
    (Class::FlushTables, "FLUSH TABLES"),
    (Class::Insert, "INSERT INTO d0.imported (k, c) VALUES (1, 'into an imported table')"),
    (Class::Update, "UPDATE d0.imported SET c = REVERSE(c), k = k + 1 WHERE id % 2 = 0"),
    (Class::DeleteRange, "DELETE FROM d0.imported WHERE id BETWEEN 100 AND 400"),
];
