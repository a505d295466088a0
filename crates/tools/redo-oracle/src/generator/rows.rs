//! Statements on rows.

use super::model::{Kind, Table};
use super::{Class, Generator};

/// Ids of rows are below this, so that statements meet each other's rows.
const IDS: u32 = 4000;

impl Generator {
    /// Any statement on rows of any table.
    pub(super) fn row_statement(&mut self) {
        let Some(at) = self.any_table(|_| true) else { return };
        let table = self.tables[at].clone();
        if self.chance(35) && self.special_row_statement(&table) {
            return;
        }
        match self.random.u32(..100) {
            0..16 => self.insert(&table),
            16..24 => self.insert_select(&table),
            24..29 => self.insert_on_duplicate(&table),
            29..32 => self.insert_ignore(&table),
            32..37 => self.replace(&table),
            37..58 => self.update(&table),
            58..62 => self.update_limit(&table),
            62..65 => self.update_key(&table),
            65..70 => self.update_off_page(&table),
            70..82 => self.delete(&table),
            82..86 => self.delete_range(&table),
            86..89 => self.multi_update(&table),
            89..91 => self.multi_delete(&table),
            91..94 => self.load_data(&table),
            94..96 => self.select_for_update(&table),
            96..98 => self.bulk_insert(&table),
            _ => self.insert_table(&table),
        }
    }

    fn id(&mut self) -> u32 {
        self.random.u32(1..IDS)
    }

    /// A value of `c`: short, long, repetitive or not.
    fn text(&mut self, len: u32) -> String {
        let count = self.random.u32(..=len);
        match self.random.u32(..5) {
            0 => format!("'{}'", "a".repeat(count.min(30) as usize)),
            1 => format!("LEFT(SHA2({}, 512), {})", self.random.u16(..), count.max(1)),
            2 => format!("REPEAT(CHAR({}), {count})", self.random.u32(97..123)),
            3 => format!("LEFT(CONCAT(MD5({0}), REPEAT(MD5({0}), 9)), {count})", self.random.u16(..)),
            _ => "''".to_owned(),
        }
    }

    /// A value of `b`: mostly none, some on the page, some on pages of their own, some on many.
    fn blob(&mut self) -> String {
        match self.random.u32(..20) {
            0..11 => "NULL".to_owned(),
            11..16 => format!("REPEAT(MD5({}), {})", self.random.u16(..), self.random.u32(1..12)),
            16..19 => format!("REPEAT(SHA2({}, 512), {})", self.random.u16(..), self.random.u32(40..300)),
            _ => format!("REPEAT(SHA1({}), {})", self.random.u16(..), self.random.u32(1000..3000)),
        }
    }

    /// Columns of an insert beyond the common ones, and their values.
    fn extra(&mut self, table: &Table) -> (String, String) {
        let (mut names, mut values) = (String::new(), String::new());
        for (name, assignable) in &table.extra {
            if *assignable && self.random.u32(..100) < 25 {
                names.push_str(&format!(", {name}"));
                values.push_str(&format!(", {}", self.random.u32(..90)));
            }
        }
        (names, values)
    }

    fn special_columns(&mut self, kind: Kind) -> (&'static str, String) {
        match kind {
            Kind::FullText => (", body", format!(", {}", self.words())),
            Kind::Spatial => {
                (", p", format!(", POINT({}, {})", self.random.u32(..1000), self.random.u32(..1000)))
            }
            _ => ("", String::new()),
        }
    }

    fn words(&mut self) -> String {
        let words: Vec<_> =
            (0..self.random.u32(1..9)).map(|_| format!("word{}", self.random.u32(..300))).collect();
        format!("'{}'", words.join(" "))
    }

    fn values(&mut self, table: &Table) -> (String, String) {
        let (names, _) = self.extra(table);
        let special = self.special_columns(table.kind).0;
        let rows: Vec<_> = (0..self.random.u32(1..6))
            .map(|_| {
                let id = if self.chance(70) { self.id().to_string() } else { "NULL".to_owned() };
                let k = self.random.u32(..1000);
                let extra: String =
                    (0..names.matches(',').count()).map(|_| format!(", {}", self.random.u32(..90))).collect();
                let special = self.special_columns(table.kind).1;
                format!("({id}, {k}, {}, {}{special}{extra})", self.text(table.text_len), self.blob())
            })
            .collect();
        (format!("(id, k, c, b{special}{names})"), rows.join(", "))
    }

    fn insert(&mut self, table: &Table) {
        let (columns, rows) = self.values(table);
        self.emit(Class::Insert, format!("INSERT INTO {} {columns} VALUES {rows}", table.name));
    }

    fn insert_ignore(&mut self, table: &Table) {
        let (columns, rows) = self.values(table);
        self.emit(Class::InsertIgnore, format!("INSERT IGNORE INTO {} {columns} VALUES {rows}", table.name));
    }

    fn replace(&mut self, table: &Table) {
        let (columns, rows) = self.values(table);
        self.emit(Class::Replace, format!("REPLACE INTO {} {columns} VALUES {rows}", table.name));
    }

    fn insert_on_duplicate(&mut self, table: &Table) {
        let (columns, rows) = self.values(table);
        let text = self.text(table.text_len);
        let sql = format!(
            "INSERT INTO {} {columns} VALUES {rows} ON DUPLICATE KEY UPDATE k = VALUES(k) + 1, c = {text}",
            table.name
        );
        self.emit(Class::InsertOnDuplicate, sql);
    }

    /// Rows from the sequence engine, ascending or not.
    pub(super) fn fill(&mut self, at: usize, count: u32) {
        let table = self.tables[at].clone();
        let sql = self.select_rows(&table, count, false);
        self.emit(Class::InsertSelect, sql);
    }

    fn select_rows(&mut self, table: &Table, count: u32, fresh_ids: bool) -> String {
        let from = self.id();
        let (special, special_value) = match table.kind {
            Kind::FullText => (", body", ", CONCAT('word', seq % 97, ' also word', seq % 31)"),
            Kind::Spatial => (", p", ", POINT(seq * 7919 % 1009, seq % 77)"),
            _ => ("", ""),
        };
        let id = if fresh_ids { "NULL" } else { "seq" };
        let blob = self.blob();
        let order = self.pick(&["", "", " ORDER BY MD5(seq)", " ORDER BY seq DESC"]);
        format!(
            "INSERT {}INTO {} (id, k, c, b{special}) SELECT {id}, seq * 7919 % 1009, LEFT(CONCAT(MD5(seq), \
             REPEAT(CHAR(97 + seq % 26), seq % 170)), {}), IF(seq % 17 = 0, {blob}, NULL){special_value} FROM \
             seq_{from}_to_{}{order}",
            if fresh_ids { "" } else { "IGNORE " },
            table.name,
            table.text_len,
            from + count
        )
    }

    fn insert_select(&mut self, table: &Table) {
        let (count, fresh) = (self.random.u32(20..250), self.chance(30));
        let sql = self.select_rows(table, count, fresh);
        self.emit(Class::InsertSelect, sql);
    }

    fn insert_table(&mut self, table: &Table) {
        let Some(other) = self.any_table(|other| other.kind != Kind::Spatial) else { return };
        let (other, limit) = (self.tables[other].name.clone(), self.random.u32(5..100));
        let (special, value) = self.special_columns(table.kind);
        let sql = format!(
            "INSERT IGNORE INTO {} (id, k, c, b{special}) SELECT id + 1, k, LEFT(c, {}), b{value} FROM {other} LIMIT {limit}",
            table.name, table.text_len
        );
        self.emit(Class::InsertSelect, sql);
    }

    /// Without checks, into a new table: its pages are built as a whole.
    fn bulk_insert(&mut self, table: &Table) {
        let name = self.fresh("bulk");
        self.finish_all();
        let source = table.name.clone();
        self.emit(Class::CreateLike, format!("CREATE TABLE d0.{name} LIKE {source}"));
        self.emit(Class::SetGlobal, "SET unique_checks = 0, foreign_key_checks = 0".to_owned());
        let sql = format!("INSERT INTO d0.{name} SELECT * FROM {source} LIMIT {}", self.random.u32(1..800));
        self.emit(Class::BulkInsert, sql);
        self.emit(Class::SetGlobal, "SET unique_checks = 1, foreign_key_checks = 1".to_owned());
        self.emit(Class::DropTable, format!("DROP TABLE d0.{name}"));
    }

    fn assignment(&mut self, table: &Table) -> String {
        let extra = table.extra.iter().find(|(_, assignable)| *assignable).map(|(name, _)| name.clone());
        match self.random.u32(..6) {
            0 => "k = k + 1".to_owned(),
            1 => format!("k = {}", self.random.u32(..1000)),
            2 => format!("c = {}", self.text(table.text_len)),
            3 => format!("c = LEFT(CONCAT(c, MD5(id)), {})", table.text_len),
            4 => format!("c = LEFT(c, {}), k = k - 1", self.random.u32(..20)),
            _ => match extra {
                Some(name) => format!("{name} = {}, k = k + 2", self.random.u32(..99)),
                None => "c = REVERSE(c), k = k + 3".to_owned(),
            },
        }
    }

    fn condition(&mut self, width: u32) -> String {
        let id = self.id();
        match self.random.u32(..4) {
            0 => format!("id = {id}"),
            1 => format!("k BETWEEN {0} AND {0} + {1}", self.random.u32(..1000), width / 8),
            2 => format!("id BETWEEN {id} AND {id} + {width} AND id % 3 = 0"),
            _ => format!("id BETWEEN {id} AND {id} + {width}"),
        }
    }

    fn update(&mut self, table: &Table) {
        let width = self.random.u32(1..120);
        let (set, condition) = (self.assignment(table), self.condition(width));
        self.emit(Class::Update, format!("UPDATE {} SET {set} WHERE {condition}", table.name));
    }

    fn update_limit(&mut self, table: &Table) {
        let (set, count) = (self.assignment(table), self.random.u32(1..40));
        let order = self.pick(&["k", "c", "id DESC", "k DESC, id"]);
        self.emit(
            Class::UpdateLimit,
            format!("UPDATE {} SET {set} ORDER BY {order} LIMIT {count}", table.name),
        );
    }

    fn update_key(&mut self, table: &Table) {
        let (from, to) = (self.id(), self.random.u32(IDS..2 * IDS));
        let sql =
            format!("UPDATE IGNORE {} SET id = {to} WHERE id >= {from} ORDER BY id LIMIT 1", table.name);
        self.emit(Class::UpdateKey, sql);
    }

    fn update_off_page(&mut self, table: &Table) {
        let (blob, condition) = (self.blob(), self.condition(30));
        self.emit(
            Class::UpdateOffPage,
            format!("UPDATE {} SET b = {blob} WHERE {condition} LIMIT 12", table.name),
        );
    }

    fn delete(&mut self, table: &Table) {
        let condition = self.condition(25);
        self.emit(Class::Delete, format!("DELETE FROM {} WHERE {condition}", table.name));
    }

    fn delete_range(&mut self, table: &Table) {
        let (id, width) = (self.id(), self.random.u32(100..1200));
        self.emit(
            Class::DeleteRange,
            format!("DELETE FROM {} WHERE id BETWEEN {id} AND {}", table.name, id + width),
        );
    }

    fn multi_update(&mut self, table: &Table) {
        let Some(other) = self.any_table(|other| other.name != table.name) else { return };
        let (other, id) = (self.tables[other].name.clone(), self.id());
        let sql = format!(
            "UPDATE {} x JOIN {other} y ON x.id = y.id SET x.k = y.k + 1, y.k = x.k WHERE x.id BETWEEN {id} AND {}",
            table.name,
            id + 200
        );
        self.emit(Class::MultiUpdate, sql);
    }

    fn multi_delete(&mut self, table: &Table) {
        let Some(other) = self.any_table(|other| other.name != table.name) else { return };
        let (other, id) = (self.tables[other].name.clone(), self.id());
        let sql = format!(
            "DELETE x, y FROM {} x JOIN {other} y ON x.id = y.id WHERE x.id BETWEEN {id} AND {}",
            table.name,
            id + 150
        );
        self.emit(Class::MultiDelete, sql);
    }

    fn load_data(&mut self, table: &Table) {
        if matches!(table.kind, Kind::Spatial) {
            return;
        }
        let (file, how) = (self.random.u32(..4), self.pick(&["IGNORE", "REPLACE"]));
        let body = if table.kind == Kind::FullText { " SET body = c" } else { "" };
        let sql = format!(
            "LOAD DATA INFILE '$FILES/load{file}.txt' {how} INTO TABLE {} (id, k, c){body}",
            table.name
        );
        self.emit(Class::LoadData, sql);
    }

    fn select_for_update(&mut self, table: &Table) {
        let (condition, how) = (self.condition(20), self.pick(&["FOR UPDATE", "LOCK IN SHARE MODE"]));
        self.emit(
            Class::SelectForUpdate,
            format!("SELECT COUNT(*) FROM {} WHERE {condition} {how}", table.name),
        );
    }

    /// Emits a statement that only a table of its kind allows; false: nothing.
    fn special_row_statement(&mut self, table: &Table) -> bool {
        let name = &table.name;
        let id = self.id();
        match table.kind {
            Kind::Parent => {
                if self.chance(50) {
                    let sql = format!("DELETE FROM {name} WHERE id BETWEEN {id} AND {}", id + 20);
                    self.emit(Class::ForeignKeyDelete, sql);
                } else {
                    let to = self.random.u32(IDS..2 * IDS);
                    let sql = format!("UPDATE {name} SET id = {to} WHERE id >= {id} ORDER BY id LIMIT 1");
                    self.emit(Class::ForeignKeyUpdate, sql);
                }
            }
            Kind::Child => {
                let Some(parent) = table.parent.clone() else { return false };
                let sql = format!(
                    "INSERT IGNORE INTO {name} (k, c, r) SELECT k, 'child', id FROM {parent} WHERE id >= {id} LIMIT 9"
                );
                self.emit(Class::ForeignKeyInsert, sql);
            }
            Kind::FullText => {
                let words = self.words();
                let sql = format!("UPDATE {name} SET body = {words} WHERE id BETWEEN {id} AND {}", id + 60);
                self.emit(Class::FullTextDml, sql);
            }
            Kind::Spatial => {
                let sql = format!(
                    "UPDATE {name} SET p = POINT({}, id) WHERE id BETWEEN {id} AND {}",
                    self.random.u32(..2000),
                    id + 80
                );
                self.emit(Class::SpatialDml, sql);
            }
            Kind::Ranged | Kind::Hashed => {
                let Some(partition) = table.partitions.first() else { return false };
                let sql =
                    format!("UPDATE {name} PARTITION ({partition}) SET k = k + 1, c = REVERSE(c) LIMIT 70");
                self.emit(Class::PartitionDml, sql);
            }
            Kind::Versioned if self.chance(15) => {
                self.emit(Class::DeleteHistory, format!("DELETE HISTORY FROM {name}"));
            }
            Kind::Versioned => {
                let sql = format!("UPDATE {name} SET k = k + 1 WHERE id BETWEEN {id} AND {}", id + 50);
                self.emit(Class::VersionedDml, sql);
            }
            Kind::Plain => return false,
        }
        true
    }
}
