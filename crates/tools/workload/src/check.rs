//! Properties that must be the same before and after a restart, and properties that must hold at any time.
//!
//! A [`Snapshot`] holds, per table, `CHECKSUM TABLE ... EXTENDED` and the definition, and the answers of further
//! queries (probes). CHECKSUM TABLE does not compute virtual columns (two runs over the same rows can differ), so a
//! table that has any is summed up by a query over all its columns instead. The next AUTO_INCREMENT value is left out
//! of definitions: the server may skip values over a crash.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::sql::{execute, query_text};
use mysql::Conn;

const SYSTEM_SCHEMAS: &str = "'mysql','sys','information_schema','performance_schema'";

// CHECK TABLE does not exist for sequences; their single rows are compared by checksum.
const CHECKABLE: &str = "TABLE_TYPE IN ('BASE TABLE','SYSTEM VERSIONED')";

/// A query whose answer must not change over a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Database it is asked in.
    pub database: String,
    /// The query.
    pub query: String,
}

/// Contents and definitions of tables at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// `schema.table` to `CHECKSUM TABLE EXTENDED`.
    pub checksums: BTreeMap<String, u64>,
    /// `schema.table` to `SHOW CREATE TABLE`, without the next AUTO_INCREMENT value.
    pub definitions: BTreeMap<String, String>,
    /// Database and query to its rows.
    pub probes: BTreeMap<String, Vec<Vec<String>>>,
    /// Tables that have no file: a server was killed between DISCARD and IMPORT TABLESPACE. They have no definition here.
    pub without_tablespace: BTreeSet<String>,
}

impl Snapshot {
    /// Reads all user tables, or those of one database, and runs the probes.
    ///
    /// # Errors
    /// [`Error::Sql`], or [`Error::Violation`] when a table cannot be summed up.
    pub fn take(conn: &mut Conn, database: Option<&str>, probes: &[Probe]) -> Result<Self> {
        let mut snapshot = Self::default();
        for table in user_tables(conn, database)? {
            match definition(conn, &table) {
                Err(error) if error.is_without_tablespace() => {
                    snapshot.without_tablespace.insert(table.name());
                    continue;
                }
                definition => snapshot.definitions.insert(table.name(), definition?),
            };
            snapshot.checksums.insert(table.name(), checksum(conn, &table)?);
        }
        for probe in probes {
            execute(conn, &format!("USE {}", probe.database))?;
            let name = format!("{}: {}", probe.database, probe.query);
            snapshot.probes.insert(name, query_text(conn, &probe.query)?);
        }
        Ok(snapshot)
    }

    /// Fails with every difference when `self` (before) and `after` are not the same.
    ///
    /// # Errors
    /// [`Error::Violation`].
    pub fn require_same(&self, after: &Self, occasion: &str) -> Result<()> {
        let mut differences = Vec::new();
        compare("checksum of", &self.checksums, &after.checksums, &mut differences);
        compare("definition of", &self.definitions, &after.definitions, &mut differences);
        compare("answer to", &self.probes, &after.probes, &mut differences);
        if self.without_tablespace != after.without_tablespace {
            let (before, after) = (&self.without_tablespace, &after.without_tablespace);
            differences.push(format!("tables without a tablespace: {before:?}, then {after:?}"));
        }
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::Violation(format!("{occasion}: {}", differences.join("; "))))
    }
}

fn compare<V: PartialEq + std::fmt::Debug>(
    what: &str,
    before: &BTreeMap<String, V>,
    after: &BTreeMap<String, V>,
    differences: &mut Vec<String>,
) {
    for (key, value) in before {
        match after.get(key) {
            Some(now) if now == value => {}
            Some(now) => differences.push(format!("{what} {key} was {value:?} and is {now:?}")),
            None => differences.push(format!("{what} {key} is gone")),
        }
    }
    for key in after.keys().filter(|key| !before.contains_key(*key)) {
        differences.push(format!("{what} {key} is new"));
    }
}

/// A table of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its database.
    pub schema: String,
    /// Its name.
    pub table: String,
}

impl Table {
    fn name(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }

    fn quoted(&self) -> String {
        format!("`{}`.`{}`", self.schema.replace('`', "``"), self.table.replace('`', "``"))
    }
}

/// All user tables and sequences, or those of one database.
///
/// # Errors
/// [`Error::Sql`].
pub fn user_tables(conn: &mut Conn, database: Option<&str>) -> Result<Vec<Table>> {
    let filter = match database {
        Some(name) => format!("TABLE_SCHEMA = '{name}'"),
        None => format!("TABLE_SCHEMA NOT IN ({SYSTEM_SCHEMAS})"),
    };
    list_tables(conn, &format!("{filter} AND TABLE_TYPE IN ('BASE TABLE','SEQUENCE','SYSTEM VERSIONED')"))
}

fn list_tables(conn: &mut Conn, filter: &str) -> Result<Vec<Table>> {
    let statement = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE {filter} ORDER BY 1, 2"
    );
    let rows: Vec<(String, String)> =
        mysql::prelude::Queryable::query(conn, &statement).map_err(Error::sql(&statement))?;
    Ok(rows.into_iter().map(|(schema, table)| Table { schema, table }).collect())
}

/// `CHECKSUM TABLE ... EXTENDED` of every user table.
///
/// # Errors
/// [`Error::Sql`], or [`Error::Violation`] when a table cannot be summed up.
pub fn checksums(conn: &mut Conn) -> Result<BTreeMap<String, u64>> {
    user_tables(conn, None)?.iter().map(|table| Ok((table.name(), checksum(conn, table)?))).collect()
}

fn checksum(conn: &mut Conn, table: &Table) -> Result<u64> {
    if has_virtual_columns(conn, table)? {
        return checksum_by_query(conn, table);
    }
    let rows = query_text(conn, &format!("CHECKSUM TABLE {} EXTENDED", table.quoted()))?;
    let value = rows.first().and_then(|row| row.get(1)).and_then(|text| text.parse().ok());
    match value {
        Some(value) => Ok(value),
        None => {
            let warnings = query_text(conn, "SHOW WARNINGS")?;
            Err(Error::Violation(format!("{} has no checksum: {warnings:?}", table.name())))
        }
    }
}

fn has_virtual_columns(conn: &mut Conn, table: &Table) -> Result<bool> {
    let statement = format!(
        "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{}' AND TABLE_NAME = '{}' \
         AND EXTRA LIKE 'VIRTUAL GENERATED%'",
        table.schema, table.table
    );
    Ok(query_text(conn, &statement)? != [["0"]])
}

fn checksum_by_query(conn: &mut Conn, table: &Table) -> Result<u64> {
    let columns = query_text(conn, &format!("SHOW COLUMNS FROM {}", table.quoted()))?;
    let parts: Vec<String> = columns
        .iter()
        .filter_map(|row| row.first())
        .map(|column| format!("IFNULL(HEX(`{}`), 'NULL')", column.replace('`', "``")))
        .collect();
    let statement = format!(
        "SELECT CAST(COUNT(*) + COALESCE(SUM(CRC32(CONCAT_WS(',', {}))), 0) AS UNSIGNED) FROM {}",
        parts.join(", "),
        table.quoted()
    );
    let rows = query_text(conn, &statement)?;
    rows.first().and_then(|row| row.first()).and_then(|text| text.parse().ok()).ok_or_else(|| Error::Parse {
        what: format!("the checksum of {}", table.name()),
        detail: format!("{rows:?}"),
    })
}

fn definition(conn: &mut Conn, table: &Table) -> Result<String> {
    let rows = query_text(conn, &format!("SHOW CREATE TABLE {}", table.quoted()))?;
    let text = rows.first().and_then(|row| row.get(1)).ok_or_else(|| Error::Parse {
        what: format!("SHOW CREATE TABLE {}", table.name()),
        detail: format!("{rows:?}"),
    })?;
    Ok(text.split(' ').filter(|word| !word.starts_with("AUTO_INCREMENT=")).collect::<Vec<_>>().join(" "))
}

/// Waits until purge has removed all versions that no transaction can see. A check during purge may miss the row of an
/// index record, also on the stock server. The wait never ends while a prepared XA transaction exists.
///
/// # Errors
/// [`Error::Sql`].
pub fn finish_purge(conn: &mut Conn) -> Result<()> {
    execute(conn, "SET GLOBAL innodb_max_purge_lag_wait = 0")
}

/// Runs `CHECK TABLE ... EXTENDED` on every InnoDB table, those of the server itself included, and returns
/// how many were checked.
///
/// # Errors
/// [`Error::Violation`] that names every table with anything but an `OK`.
pub fn check_all(conn: &mut Conn) -> Result<usize> {
    check_all_but(conn, &BTreeSet::new())
}

/// [`check_all`] without some tables, by name (`schema.table`).
///
/// # Errors
/// As for [`check_all`].
pub fn check_all_but(conn: &mut Conn, left_out: &BTreeSet<String>) -> Result<usize> {
    let mut tables = list_tables(conn, &format!("ENGINE = 'InnoDB' AND {CHECKABLE}"))?;
    tables.retain(|table| !left_out.contains(&table.name()));
    check_tables(conn, &tables)
}

/// [`check_all`] for the tables of one database.
///
/// # Errors
/// As for [`check_all`].
pub fn check_database(conn: &mut Conn, database: &str) -> Result<usize> {
    let tables = tables_of(conn, database)?;
    check_tables(conn, &tables)
}

/// The tables of one database that `CHECK TABLE ... EXTENDED` finds damaged, with what it said.
///
/// # Errors
/// [`Error::Sql`].
pub fn damaged_tables(conn: &mut Conn, database: &str) -> Result<Vec<(Table, String)>> {
    let tables = tables_of(conn, database)?;
    damaged(conn, &tables)
}

fn tables_of(conn: &mut Conn, database: &str) -> Result<Vec<Table>> {
    list_tables(conn, &format!("TABLE_SCHEMA = '{database}' AND {CHECKABLE}"))
}

fn check_tables(conn: &mut Conn, tables: &[Table]) -> Result<usize> {
    let faults: Vec<_> = damaged(conn, tables)?.into_iter().map(|(_, what)| what).collect();
    if faults.is_empty() { Ok(tables.len()) } else { Err(Error::Violation(faults.join("; "))) }
}

fn damaged(conn: &mut Conn, tables: &[Table]) -> Result<Vec<(Table, String)>> {
    let mut damaged = Vec::new();
    for table in tables {
        if let Some(rows) = check_table(conn, table)? {
            damaged.push((table.clone(), format!("{}: {rows:?}", table.name())));
        }
    }
    Ok(damaged)
}

/// Checks one table; returns the server's answer if the table is not sound.
///
/// A check during purge reports delete-marked records, of the table and its indexes, of a transaction that purge takes
/// in several batches (`innodb_purge_batch_size` undo pages each): after the first one the server treats the whole
/// transaction as purged. The stock server on a local disk does the same, nearly every time when the batches are small.
/// So a table with nothing but such warnings is checked once more after purge.
fn check_table(conn: &mut Conn, table: &Table) -> Result<Option<Vec<Vec<String>>>> {
    let statement = format!("CHECK TABLE {} EXTENDED", table.quoted());
    let mut rows = query_text(conn, &statement)?;
    let mut verdict = judge(&rows);
    if matches!(verdict, Verdict::OnlyDeleteMarked | Verdict::Unpurged) {
        finish_purge_within(conn, PURGE_WAIT_SECONDS)?;
        let again = query_text(conn, &statement)?;
        verdict = judge(&again);
        rows.extend(again);
    }
    let sound = match verdict {
        Verdict::Sound => true,
        Verdict::OnlyDeleteMarked => has_virtual_columns(conn, table)?,
        Verdict::Unpurged | Verdict::Damaged => false,
    };
    Ok((!sound).then_some(rows))
}

// Purge of the battery's largest step takes a few seconds; with a prepared XA transaction it never ends.
const PURGE_WAIT_SECONDS: u32 = 20;

fn finish_purge_within(conn: &mut Conn, seconds: u32) -> Result<()> {
    execute(conn, &format!("SET SESSION max_statement_time = {seconds}"))?;
    let purged = finish_purge(conn);
    execute(conn, "SET SESSION max_statement_time = 0")?;
    match purged {
        Err(Error::Sql { source, .. }) if is_statement_timeout(&source) => Ok(()),
        other => other,
    }
}

fn is_statement_timeout(error: &mysql::Error) -> bool {
    matches!(error, mysql::Error::MySqlError(error) if error.code == ER_STATEMENT_TIMEOUT)
}

const ER_STATEMENT_TIMEOUT: u16 = 1969;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Sound,
    /// The table is `OK`, with warnings about delete-marked index records without a row and nothing else. The
    /// stock server on a local disk leaves such records in indexes on virtual columns now and then after a
    /// SIGKILL, and purge does not remove them; no query can see them. Only there they are let pass.
    OnlyDeleteMarked,
    /// As before, and delete-marked rows among them. After purge there must be none.
    Unpurged,
    Damaged,
}

fn judge(rows: &[Vec<String>]) -> Verdict {
    let column = |row: &Vec<String>, index: usize| row.get(index).cloned().unwrap_or_default();
    let Some((last, others)) = rows.split_last() else { return Verdict::Damaged };
    if column(last, 2) != "status" || column(last, 3) != "OK" {
        return Verdict::Damaged;
    }
    let is_delete_marked = |row: &Vec<String>, what| {
        let text = column(row, 3);
        column(row, 2) == "Warning" && text.contains(what) && text.contains("(info_bits=32,")
    };
    let is_entry = |row: &Vec<String>| is_delete_marked(row, "Clustered index record not found");
    let is_row = |row: &Vec<String>| is_delete_marked(row, "Unpurged clustered index record");
    // MariaDB 11.4.7 says it of rows that an online ALTER or mariadb-upgrade has copied, on a local disk as well: purge has
    // not made their DB_TRX_ID 0, which no query can see.
    let is_stale = |row: &&Vec<String>| {
        column(row, 2) == "Warning" && column(row, 3).contains("Clustered index record with stale history")
    };
    let others: Vec<_> = others.iter().filter(|row| !is_stale(row)).collect();
    match others.as_slice() {
        [] => Verdict::Sound,
        rows if rows.iter().copied().all(is_entry) => Verdict::OnlyDeleteMarked,
        rows if rows.iter().all(|row| is_entry(row) || is_row(row)) => Verdict::Unpurged,
        _ => Verdict::Damaged,
    }
}

#[cfg(test)]
mod tests;
