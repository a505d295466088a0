//! Statements that create and remove tables, databases and sequences.

use super::model::{FORMATS, Format, Kind, Table};
use super::{CONNECTIONS, Class, DATABASES, Generator};

/// Tables a history has at most at a time.
const TABLES: usize = 26;

impl Generator {
    /// Anything that creates or removes a table.
    pub(super) fn table_statement(&mut self) {
        if self.chance(85) {
            self.finish_all();
        }
        if self.tables.len() < 8 || self.tables.len() < TABLES && self.chance(45) {
            return self.create_any();
        }
        match self.random.u32(..100) {
            0..35 => self.drop_table(),
            35..65 => self.truncate(),
            65..85 => self.rename(),
            _ => self.rename_swap(),
        }
    }

    fn create_any(&mut self) {
        match self.random.u32(..100) {
            0..45 => {
                let number = self.random.usize(..FORMATS.len());
                self.create_table_of_format(number);
            }
            45..52 => self.create_in_system(),
            52..59 => self.create_like(),
            59..66 => self.create_select(),
            66..74 => self.create_family(),
            74..80 => self.create_full_text(),
            80..86 => self.create_spatial(),
            86..94 => self.create_partitioned(),
            _ => self.create_versioned(),
        }
        if self.chance(80) {
            let (at, count) = (self.tables.len() - 1, self.random.u32(50..900));
            self.fill(at, count);
        }
    }

    /// One of each special kind.
    pub(super) fn create_special_tables(&mut self) {
        self.create_in_system();
        self.create_family();
        self.create_full_text();
        self.create_spatial();
        self.create_partitioned();
        self.create_partitioned();
        self.create_versioned();
        self.emit(Class::CreateSequence, "CREATE SEQUENCE d0.q0 ENGINE=InnoDB".to_owned());
    }

    fn database(&mut self) -> &'static str {
        if self.second_database && self.chance(30) { DATABASES[1] } else { DATABASES[0] }
    }

    /// A model of a new table.
    fn table(&mut self, kind: Kind, format: Format) -> Table {
        let name = self.fresh("t");
        Table {
            name: format!("{}.{name}", self.database()),
            kind,
            text_len: format.text_len(),
            extra: Vec::new(),
            indexes: vec!["k".to_owned(), "c".to_owned()],
            partitions: Vec::new(),
            constraint: None,
            added_fulltext: None,
            in_system: false,
            compressed: format.key_block_kib > 0,
            parent: None,
        }
    }

    /// Creates a table; `more` is further columns and keys, `options` what follows.
    fn create(&mut self, class: Class, table: Table, more: &str, options: &str) {
        let primary = if table.kind == Kind::Plain && self.chance(10) { "k, id" } else { "id" };
        let id_key = if primary == "id" { "" } else { ", KEY id_key (id)" };
        let sql = format!(
            "CREATE TABLE {} (id INT AUTO_INCREMENT, k INT NOT NULL DEFAULT 0, c VARCHAR({}) NOT NULL DEFAULT '', \
             b LONGBLOB{more}, PRIMARY KEY ({primary}), KEY k (k), KEY c (c){id_key}) ENGINE=InnoDB CHARSET=latin1 {options}",
            table.name, table.text_len
        );
        self.emit(class, sql);
        self.tables.push(table);
    }

    pub(super) fn create_table_of_format(&mut self, number: usize) {
        let format = FORMATS[number];
        let (class, format) = match format.options {
            _ if !format.exists(self.config.page_size_bytes) => (Class::CreateDynamic, FORMATS[2]),
            options if format.key_block_kib > 0 => {
                debug_assert!(options.contains("COMPRESSED"));
                (Class::CreateCompressed, format)
            }
            options if options.contains("PAGE_COMPRESSED") => (Class::CreatePageCompressed, format),
            options if options.contains("REDUNDANT") => (Class::CreateRedundant, format),
            options if options.contains("COMPACT") => (Class::CreateCompact, format),
            _ => (Class::CreateDynamic, format),
        };
        let table = self.table(Kind::Plain, format);
        self.create(class, table, "", format.options);
    }

    /// A table in the system tablespace.
    fn create_in_system(&mut self) {
        let connection = self.turn;
        let mut table = self.table(Kind::Plain, FORMATS[0]);
        table.in_system = true;
        let options = self.pick(&["ROW_FORMAT=REDUNDANT", "ROW_FORMAT=COMPACT", "ROW_FORMAT=DYNAMIC"]);
        self.emit_on(connection, Class::SetGlobal, "SET GLOBAL innodb_file_per_table = OFF".to_owned());
        self.create(Class::CreateInSystem, table, "", options);
        self.emit_on(connection, Class::SetGlobal, "SET GLOBAL innodb_file_per_table = ON".to_owned());
    }

    fn create_like(&mut self) {
        let Some(at) = self.any_table(|table| table.kind == Kind::Plain && table.constraint.is_none()) else {
            return self.create_table_of_format(2);
        };
        let source = self.tables[at].clone();
        let mut table = self.table(Kind::Plain, FORMATS[2]);
        (table.text_len, table.compressed) = (source.text_len, source.compressed);
        (table.extra, table.indexes) = (source.extra.clone(), source.indexes.clone());
        self.emit(Class::CreateLike, format!("CREATE TABLE {} LIKE {}", table.name, source.name));
        self.tables.push(table);
    }

    fn create_select(&mut self) {
        let Some(at) = self.any_table(|table| table.kind == Kind::Plain) else { return };
        let (source, text_len) = (self.tables[at].name.clone(), self.tables[at].text_len);
        let mut table = self.table(Kind::Plain, FORMATS[2]);
        table.text_len = table.text_len.max(text_len);
        let options = self.pick(&["ROW_FORMAT=DYNAMIC", "ROW_FORMAT=REDUNDANT", "ROW_FORMAT=COMPACT"]);
        let sql = format!(
            "CREATE TABLE {} (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, c VARCHAR({}) NOT NULL \
             DEFAULT '', b LONGBLOB, KEY k (k), KEY c (c)) ENGINE=InnoDB CHARSET=latin1 {options} IGNORE SELECT id, k, c, b FROM {source} LIMIT 500",
            table.name, table.text_len
        );
        self.emit(Class::CreateSelect, sql);
        self.tables.push(table);
    }

    /// A parent, and a child whose rows follow it.
    fn create_family(&mut self) {
        let mut parent = self.table(Kind::Parent, FORMATS[2]);
        parent.name = format!("{}.{}", DATABASES[0], self.fresh("parent"));
        let parent_name = parent.name.clone();
        self.create(Class::CreateDynamic, parent, "", "ROW_FORMAT=DYNAMIC");
        let at = self.tables.len() - 1;
        self.fill(at, 300);
        let mut child = self.table(Kind::Child, FORMATS[2]);
        child.name = format!("{}.{}", DATABASES[0], self.fresh("child"));
        child.parent = Some(parent_name.clone());
        let action = self.pick(&["CASCADE", "SET NULL", "CASCADE"]);
        let more = format!(
            ", r INT, KEY r (r), CONSTRAINT {} FOREIGN KEY (r) REFERENCES {parent_name} (id) ON DELETE {action} ON UPDATE {action}",
            self.fresh("f")
        );
        self.create(Class::CreateForeignKey, child, &more, "ROW_FORMAT=DYNAMIC");
    }

    fn create_full_text(&mut self) {
        let table = self.table(Kind::FullText, FORMATS[2]);
        let more = ", body TEXT, FULLTEXT body (body)";
        self.create(Class::CreateFullText, table, more, "ROW_FORMAT=DYNAMIC");
    }

    fn create_spatial(&mut self) {
        let number = self.random.usize(..3);
        let table = self.table(Kind::Spatial, FORMATS[number]);
        let more = ", p POINT NOT NULL DEFAULT POINT(1, 1), SPATIAL INDEX p (p)";
        self.create(Class::CreateSpatial, table, more, FORMATS[number].options);
    }

    fn create_partitioned(&mut self) {
        let ranged = self.chance(60);
        let format = if self.chance(50) { FORMATS[2] } else { FORMATS[0] };
        let mut table = self.table(if ranged { Kind::Ranged } else { Kind::Hashed }, format);
        let options = if ranged {
            table.partitions = ["p0", "p1", "p2", "pm"].map(str::to_owned).to_vec();
            "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (700), PARTITION p1 VALUES LESS THAN (1500), \
             PARTITION p2 VALUES LESS THAN (2500), PARTITION pm VALUES LESS THAN MAXVALUE)"
        } else {
            table.partitions = ["p0", "p1", "p2", "p3"].map(str::to_owned).to_vec();
            "PARTITION BY HASH (id) PARTITIONS 4"
        };
        self.create(Class::CreatePartitioned, table, "", &format!("{} {options}", format.options));
    }

    fn create_versioned(&mut self) {
        let table = self.table(Kind::Versioned, FORMATS[2]);
        self.create(Class::CreateVersioned, table, "", "ROW_FORMAT=DYNAMIC WITH SYSTEM VERSIONING");
    }

    fn drop_table(&mut self) {
        let Some(at) = self.any_table(|table| table.kind != Kind::Parent) else { return };
        let table = self.tables.swap_remove(at);
        self.emit(Class::DropTable, format!("DROP TABLE {}", table.name));
        let orphan =
            table.parent.and_then(|parent| self.tables.iter().position(|other| other.name == parent));
        if let Some(at) = orphan {
            let parent = self.tables.swap_remove(at);
            self.emit(Class::DropTable, format!("DROP TABLE {}", parent.name));
        }
    }

    fn truncate(&mut self) {
        let Some(at) = self.any_table(|table| table.kind != Kind::Parent && table.kind != Kind::Versioned)
        else {
            return;
        };
        let name = self.tables[at].name.clone();
        self.emit(Class::Truncate, format!("TRUNCATE TABLE {name}"));
        if self.chance(60) {
            let count = self.random.u32(20..400);
            self.fill(at, count);
        }
    }

    fn rename(&mut self) {
        let Some(at) = self.any_table(|table| !matches!(table.kind, Kind::Parent | Kind::Child)) else {
            return;
        };
        let to = format!("{}.{}", self.database(), self.fresh("t"));
        let from = std::mem::replace(&mut self.tables[at].name, to.clone());
        let sql = if self.chance(50) {
            format!("RENAME TABLE {from} TO {to}")
        } else {
            format!("ALTER TABLE {from} RENAME TO {to}")
        };
        self.emit(Class::Rename, sql);
    }

    /// Two tables take each other's name.
    fn rename_swap(&mut self) {
        let plain = |table: &Table| table.kind == Kind::Plain && table.constraint.is_none();
        let (Some(a), Some(b)) = (self.any_table(plain), self.any_table(plain)) else { return };
        if a == b {
            return;
        }
        let (first, second) = (self.tables[a].name.clone(), self.tables[b].name.clone());
        let between = format!("{}.{}", DATABASES[0], self.fresh("t"));
        let sql = format!("RENAME TABLE {first} TO {between}, {second} TO {first}, {between} TO {second}");
        self.emit(Class::RenameSwap, sql);
        (self.tables[a].name, self.tables[b].name) = (second, first);
    }

    pub(super) fn second_database(&mut self) {
        self.finish_all();
        let name = DATABASES[1];
        if self.second_database {
            self.emit(Class::DropDatabase, format!("DROP DATABASE {name}"));
            self.tables.retain(|table| !table.name.starts_with(name));
        } else {
            self.emit(Class::CreateDatabase, format!("CREATE DATABASE {name}"));
        }
        self.second_database = !self.second_database;
    }

    pub(super) fn sequence_statement(&mut self) {
        self.finish_all();
        let name = self.fresh("d0.q");
        let options = self.pick(&["CACHE 10", "NOCACHE", "MAXVALUE 40 CYCLE CACHE 7", "INCREMENT BY 3"]);
        self.emit(Class::CreateSequence, format!("CREATE SEQUENCE {name} {options} ENGINE=InnoDB"));
        let count = self.random.u32(1..30);
        self.emit(Class::NextValue, format!("SELECT NEXTVAL({name}) FROM seq_1_to_{count}"));
        self.emit(Class::NextValue, "SELECT NEXTVAL(d0.q0) FROM seq_1_to_20".to_owned());
        let restart = self.random.u32(1..30);
        self.emit(Class::AlterSequence, format!("ALTER SEQUENCE {name} RESTART {restart}"));
        self.emit(Class::NextValue, format!("SELECT SETVAL({name}, {})", restart + 2));
        if self.chance(80) {
            self.emit(Class::DropSequence, format!("DROP SEQUENCE {name}"));
        }
    }

    pub(super) fn temporary_statement(&mut self) {
        if self.sessions.iter().any(|session| session.xa.is_some()) {
            self.finish_all();
        }
        let name = self.fresh("d0.temporary");
        let format = self.pick(&["DYNAMIC", "REDUNDANT", "COMPACT"]);
        let sql = format!(
            "CREATE TEMPORARY TABLE {name} (id INT PRIMARY KEY, c VARCHAR(100), KEY (c)) ENGINE=InnoDB ROW_FORMAT={format}"
        );
        self.emit(Class::CreateTemporary, sql);
        self.emit(
            Class::TemporaryDml,
            format!("INSERT INTO {name} SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_300"),
        );
        self.emit(Class::TemporaryDml, format!("UPDATE {name} SET c = REVERSE(c) WHERE id % 3 = 0"));
        self.emit(Class::TemporaryDml, format!("DELETE FROM {name} WHERE id % 4 = 0"));
        self.emit(Class::DropTemporary, format!("DROP TEMPORARY TABLE {name}"));
    }

    /// A transaction with so much undo that its undo tablespace is truncated some time later.
    pub(super) fn large_undo(&mut self) {
        self.finish_all();
        let name = self.fresh("d0.undo");
        let sql = format!("CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b VARBINARY(500)) ENGINE=InnoDB");
        self.emit(Class::CreateDynamic, sql);
        let sql = format!("INSERT INTO {name} SELECT seq, 0, REPEAT(SHA1(seq), 12) FROM seq_1_to_5000");
        self.emit(Class::LargeUndo, sql);
        self.emit(Class::Begin, "BEGIN".to_owned());
        for _ in 0..6 {
            self.emit(Class::LargeUndo, format!("UPDATE {name} SET b = REVERSE(b), a = a + 1"));
        }
        self.emit(Class::Commit, "COMMIT".to_owned());
        self.emit(Class::DropTable, format!("DROP TABLE {name}"));
        debug_assert!(self.turn < CONNECTIONS);
    }
}
