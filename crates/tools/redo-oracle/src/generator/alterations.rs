//! Statements that change tables: by all algorithms, indexes, partitions, maintenance.

use super::model::{Kind, Table};
use super::{Class, DATABASES, Generator};

impl Generator {
    /// Any change of any table.
    pub(super) fn alteration(&mut self) {
        if self.chance(85) {
            self.finish_all();
        }
        if self.chance(25)
            && let Some(at) = self.any_table(|table| matches!(table.kind, Kind::Ranged | Kind::Hashed))
        {
            return self.partition_statement(at);
        }
        if self.chance(12)
            && let Some(at) = self.any_table(|table| table.kind == Kind::FullText)
        {
            return self.optimize_full_text(at);
        }
        let Some(at) = self.any_table(|table| !matches!(table.kind, Kind::Parent | Kind::Child)) else {
            return;
        };
        match self.random.u32(..100) {
            0..24 => self.instant(at),
            24..40 => self.change_columns(at),
            40..62 => self.change_indexes(at),
            62..80 => self.rebuild(at),
            80..86 => self.other(at),
            _ => self.maintain(at),
        }
    }

    fn alter(&mut self, class: Class, at: usize, what: &str) {
        let name = self.tables[at].name.clone();
        self.emit(class, format!("ALTER TABLE {name} {what}"));
    }

    fn instant(&mut self, at: usize) {
        let last = self.tables[at].extra.last().map(|(name, _)| name.clone());
        match self.random.u32(..10) {
            0..4 => {
                let name = self.fresh("x");
                let definition = self.pick(&[
                    "INT",
                    "INT NOT NULL DEFAULT 42",
                    "VARCHAR(60) DEFAULT 'default'",
                    "CHAR(9) NOT NULL DEFAULT 'd'",
                    "DECIMAL(9,2)",
                    "TEXT",
                ]);
                let place = self.pick(&["", "", " FIRST", " AFTER id", " AFTER k"]);
                let what = format!("ADD COLUMN {name} {definition}{place}, ALGORITHM=INSTANT");
                self.alter(Class::AddColumnInstant, at, &what);
                self.tables[at].extra.push((name, true));
            }
            4..6 => {
                let Some((name, _)) = self.tables[at].extra.pop() else { return self.instant_add(at) };
                self.alter(Class::DropColumnInstant, at, &format!("DROP COLUMN {name}, ALGORITHM=INSTANT"));
            }
            6..8 => {
                let place = self.pick(&["FIRST", "AFTER k", "AFTER c"]);
                let what = format!("MODIFY COLUMN b LONGBLOB {place}, ALGORITHM=INSTANT");
                self.alter(Class::ReorderInstant, at, &what);
            }
            _ => {
                let Some(name) = last else { return self.instant_add(at) };
                let to = self.fresh("x");
                self.alter(
                    Class::RenameColumn,
                    at,
                    &format!("RENAME COLUMN {name} TO {to}, ALGORITHM=INSTANT"),
                );
                if let Some(column) = self.tables[at].extra.last_mut() {
                    column.0 = to;
                }
            }
        }
    }

    fn instant_add(&mut self, at: usize) {
        let name = self.fresh("x");
        self.alter(
            Class::AddColumnInstant,
            at,
            &format!("ADD COLUMN {name} INT DEFAULT 7, ALGORITHM=INSTANT"),
        );
        self.tables[at].extra.push((name, true));
    }

    fn change_columns(&mut self, at: usize) {
        let len = self.tables[at].text_len;
        match self.random.u32(..7) {
            0 => {
                let kind = self.pick(&["INT UNSIGNED", "BIGINT", "INT"]);
                let what = format!("MODIFY COLUMN k {kind} NOT NULL DEFAULT 0, ALGORITHM=COPY");
                self.alter(Class::ModifyCopy, at, &what);
            }
            1 if len < 190 => {
                self.tables[at].text_len = len + 1;
                let what =
                    format!("MODIFY COLUMN c VARCHAR({}) NOT NULL DEFAULT '', ALGORITHM=INPLACE", len + 1);
                self.alter(Class::ModifyInplace, at, &what);
            }
            2 => {
                let name = self.fresh("x");
                let what = format!("ADD COLUMN {name} BIGINT NOT NULL DEFAULT 1, FORCE, ALGORITHM=INPLACE");
                self.alter(Class::AddColumnInplace, at, &what);
                self.tables[at].extra.push((name, true));
            }
            3 => {
                let (name, index) = (self.fresh("v"), self.fresh("i"));
                let what = format!("ADD COLUMN {name} INT AS (k * 2) VIRTUAL");
                self.alter(Class::AddVirtual, at, &what);
                if self.chance(70) {
                    self.alter(
                        Class::AddIndexInplace,
                        at,
                        &format!("ADD INDEX {index} ({name}), ALGORITHM=INPLACE"),
                    );
                }
                self.tables[at].extra.push((name, false));
            }
            4 => {
                let name = self.fresh("v");
                let what = format!("ADD COLUMN {name} INT AS (k + 1) STORED");
                self.alter(Class::AddStored, at, &what);
                self.tables[at].extra.push((name, false));
            }
            5 => {
                let what = format!("AUTO_INCREMENT = {}", self.random.u32(1..9000));
                self.alter(Class::SetAutoIncrement, at, &what);
            }
            _ => {
                let Some((name, _)) = self.tables[at].extra.pop() else { return };
                self.alter(Class::ModifyCopy, at, &format!("DROP COLUMN {name}, ALGORITHM=COPY"));
            }
        }
    }

    fn change_indexes(&mut self, at: usize) {
        let name = self.fresh("i");
        let table = self.tables[at].name.clone();
        let columns = self.pick(&["k, id", "c(20), k", "k DESC", "c", "b(30)", "k, c(10)"]);
        match self.random.u32(..10) {
            0..2 => {
                self.emit(Class::CreateIndex, format!("CREATE INDEX {name} ON {table} ({columns})"));
            }
            2..4 => {
                let lock = self.pick(&["NONE", "SHARED", "EXCLUSIVE"]);
                let what = format!("ADD INDEX {name} ({columns}), ALGORITHM=INPLACE, LOCK={lock}");
                self.alter(Class::AddIndexInplace, at, &what);
            }
            4 => {
                self.alter(Class::AddIndexCopy, at, &format!("ADD INDEX {name} ({columns}), ALGORITHM=COPY"))
            }
            5 => {
                let sql = format!("CREATE UNIQUE INDEX {name} ON {table} (id, k)");
                self.emit(Class::CreateUnique, sql);
            }
            6 if self.tables[at].kind == Kind::Plain => {
                match self.tables[at].added_fulltext.take() {
                    None => {
                        self.alter(Class::AddFullText, at, &format!("ADD FULLTEXT INDEX {name} (c)"));
                        self.tables[at].added_fulltext = Some(name);
                    }
                    Some(old) => self.alter(Class::DropFullText, at, &format!("DROP INDEX {old}")),
                }
                return;
            }
            _ => {
                let count = self.tables[at].indexes.len();
                if count > 2 {
                    let old = self.tables[at].indexes.swap_remove(count - 1);
                    self.alter(Class::DropIndex, at, &format!("DROP INDEX {old}"));
                } else {
                    self.alter(Class::DropIndex, at, "DROP INDEX k, ADD INDEX k (k), ALGORITHM=INPLACE");
                }
                return;
            }
        }
        self.tables[at].indexes.push(name);
    }

    fn rebuild(&mut self, at: usize) {
        match self.random.u32(..10) {
            0..3 => self.alter(Class::ForceInplace, at, "FORCE, ALGORITHM=INPLACE"),
            3..5 => self.alter(Class::ForceCopy, at, "FORCE, ALGORITHM=COPY"),
            5..8 => {
                let formats = [
                    "ROW_FORMAT=REDUNDANT",
                    "ROW_FORMAT=COMPACT",
                    "ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=0",
                    "PAGE_COMPRESSED=1",
                    "PAGE_COMPRESSED=0",
                    "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4",
                ];
                let format = self.pick(&formats);
                if self.tables[at].in_system
                    || format.contains("KEY_BLOCK_SIZE=4") && self.config.page_size_bytes > 16384
                {
                    return;
                }
                self.tables[at].compressed = format.contains("COMPRESSED KEY");
                self.alter(Class::ChangeRowFormat, at, format);
            }
            _ if self.tables[at].kind == Kind::Plain => {
                let columns = self.pick(&["id", "k, id", "id, k"]);
                let what = format!(
                    "DROP PRIMARY KEY, ADD PRIMARY KEY ({columns}), ADD KEY {} (id)",
                    self.fresh("i")
                );
                self.alter(Class::ChangePrimaryKey, at, &what);
            }
            _ => {}
        }
    }

    fn other(&mut self, at: usize) {
        let plain = self.tables[at].kind == Kind::Plain;
        match self.random.u32(..3) {
            0 if plain && self.tables[at].name.starts_with(DATABASES[0]) => self.foreign_key(at),
            1 if plain && self.tables[at].constraint.is_none() => {
                self.alter(Class::AddVersioning, at, "ADD SYSTEM VERSIONING");
                self.tables[at].kind = Kind::Versioned;
            }
            _ => self.alter(Class::ForceInplace, at, "ENGINE=InnoDB"),
        }
    }

    fn foreign_key(&mut self, at: usize) {
        if let Some(name) = self.tables[at].constraint.take() {
            return self.alter(Class::DropForeignKey, at, &format!("DROP FOREIGN KEY {name}"));
        }
        let Some(parent) = self.any_table(|table| table.kind == Kind::Parent) else { return };
        let (parent, name) = (self.tables[parent].name.clone(), self.fresh("f"));
        let column = self.fresh("r");
        let what = format!(
            "ADD COLUMN {column} INT, ADD CONSTRAINT {name} FOREIGN KEY ({column}) REFERENCES {parent} (id) ON DELETE SET NULL"
        );
        self.alter(Class::AddForeignKey, at, &what);
        self.tables[at].constraint = Some(name);
    }

    fn maintain(&mut self, at: usize) {
        let name = self.tables[at].name.clone();
        match self.random.u32(..3) {
            0 => self.emit(Class::Optimize, format!("OPTIMIZE TABLE {name}")),
            1 => self.emit(Class::Analyze, format!("ANALYZE TABLE {name}")),
            _ => self.emit(Class::Check, format!("CHECK TABLE {name}")),
        }
    }

    fn optimize_full_text(&mut self, at: usize) {
        let name = self.tables[at].name.clone();
        self.emit(Class::SetGlobal, "SET GLOBAL innodb_optimize_fulltext_only = ON".to_owned());
        self.emit(Class::FullTextOptimize, format!("OPTIMIZE TABLE {name}"));
        self.emit(Class::SetGlobal, "SET GLOBAL innodb_optimize_fulltext_only = OFF".to_owned());
    }

    fn partition_statement(&mut self, at: usize) {
        let table = self.tables[at].clone();
        if table.kind == Kind::Ranged {
            self.range_partition(at, &table)
        } else {
            self.hash_partition(at, &table)
        }
    }

    fn range_partition(&mut self, at: usize, table: &Table) {
        let first = table.partitions.first().cloned().unwrap_or_else(|| "pm".to_owned());
        match self.random.u32(..6) {
            0 => self.alter(Class::TruncatePartition, at, &format!("TRUNCATE PARTITION {first}")),
            1 => self.alter(Class::RebuildPartition, at, &format!("REBUILD PARTITION {first}")),
            2 if table.partitions.len() > 2 => {
                self.alter(Class::DropPartition, at, &format!("DROP PARTITION {first}"));
                self.tables[at].partitions.remove(0);
            }
            3 if table.extra.is_empty() && table.indexes.len() == 2 => self.exchange_partition(at, &first),
            _ => {
                let (name, bound) = (self.fresh("p"), 2500 + 40 * self.next_name % 9000);
                let what = format!(
                    "REORGANIZE PARTITION pm INTO (PARTITION {name} VALUES LESS THAN ({bound}), PARTITION pm VALUES LESS THAN MAXVALUE)"
                );
                self.alter(Class::ReorganizePartition, at, &what);
                let before_last = self.tables[at].partitions.len().saturating_sub(1);
                self.tables[at].partitions.insert(before_last, name);
            }
        }
    }

    /// With a table that is made for it.
    fn exchange_partition(&mut self, at: usize, partition: &str) {
        let (table, name) = (self.tables[at].name.clone(), self.fresh("d0.e"));
        self.emit(Class::CreateLike, format!("CREATE TABLE {name} LIKE {table}"));
        self.emit(Class::ForceCopy, format!("ALTER TABLE {name} REMOVE PARTITIONING"));
        let rows =
            format!("INSERT IGNORE INTO {name} (id, k, c) SELECT seq, seq, 'exchanged' FROM seq_1_to_300");
        self.emit(Class::InsertSelect, rows);
        let what = format!("EXCHANGE PARTITION {partition} WITH TABLE {name}");
        self.alter(Class::ExchangePartition, at, &what);
        self.emit(Class::DropTable, format!("DROP TABLE {name}"));
    }

    fn hash_partition(&mut self, at: usize, table: &Table) {
        let count = table.partitions.len();
        match self.random.u32(..4) {
            0 if count < 8 => {
                self.alter(Class::AddPartition, at, "ADD PARTITION PARTITIONS 1");
                self.tables[at].partitions.push(format!("p{count}"));
            }
            1 if count > 2 => {
                self.alter(Class::CoalescePartition, at, "COALESCE PARTITION 1");
                self.tables[at].partitions.pop();
            }
            2 => self.alter(Class::RebuildPartition, at, "REBUILD PARTITION p0"),
            _ => self.alter(Class::TruncatePartition, at, "TRUNCATE PARTITION p1"),
        }
    }
}
