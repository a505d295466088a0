//! Connections and statements.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use mysql::prelude::{FromRow, Queryable};
use mysql::{Conn, OptsBuilder, Params};

use crate::error::{Error, Result};

/// A new connection as root to the server behind `socket`, in a database if one is named.
///
/// # Errors
/// [`Error::Sql`] when the server does not accept it.
pub fn connect(socket: &Path, database: Option<&str>) -> Result<Conn> {
    // A transaction on a slow link takes long; a server whose storage is gone takes for ever.
    let timeout = Some(Duration::from_secs(600));
    let options = OptsBuilder::new()
        .socket(Some(socket.to_string_lossy()))
        .user(Some("root"))
        .db_name(database)
        .prefer_socket(false)
        .stmt_cache_size(Some(100))
        .read_timeout(timeout)
        .write_timeout(timeout);
    Conn::new(options).map_err(Error::sql("connect"))
}

/// Runs a statement for its effect.
///
/// # Errors
/// [`Error::Sql`].
pub fn execute(conn: &mut Conn, statement: &str) -> Result<()> {
    conn.query_drop(statement).map_err(Error::sql(statement))
}

/// Runs a prepared statement for its effect. Each text is prepared once per connection.
///
/// # Errors
/// [`Error::Sql`].
pub fn change(conn: &mut Conn, statement: &str, params: impl Into<Params>) -> Result<()> {
    conn.exec_drop(statement, params).map_err(Error::sql(statement))
}

/// The first row of a prepared query.
///
/// # Errors
/// [`Error::Sql`].
pub fn first<T: FromRow>(conn: &mut Conn, statement: &str, params: impl Into<Params>) -> Result<Option<T>> {
    conn.exec_first(statement, params).map_err(Error::sql(statement))
}

/// The one row of a prepared query.
///
/// # Errors
/// [`Error::Sql`], [`Error::Inconsistent`] if there is none.
pub fn one<T: FromRow>(conn: &mut Conn, statement: &str, params: impl Into<Params>) -> Result<T> {
    first(conn, statement, params)?.ok_or_else(|| Error::Inconsistent(format!("no row: {statement}")))
}

/// All rows of a prepared query.
///
/// # Errors
/// [`Error::Sql`].
pub fn all<T: FromRow>(conn: &mut Conn, statement: &str, params: impl Into<Params>) -> Result<Vec<T>> {
    conn.exec(statement, params).map_err(Error::sql(statement))
}

/// Rows as text, `NULL` for SQL NULL.
///
/// # Errors
/// [`Error::Sql`].
pub fn rows(conn: &mut Conn, statement: &str) -> Result<Vec<Vec<String>>> {
    let rows: Vec<mysql::Row> = conn.query(statement).map_err(Error::sql(statement))?;
    let text = |value: mysql::Value| match value {
        mysql::Value::NULL => "NULL".to_owned(),
        mysql::Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => other.as_sql(true),
    };
    Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
}

/// Gathers rows into INSERT statements of a quarter of a megabyte.
pub struct Inserter<'a> {
    conn: &'a mut Conn,
    table: &'a str,
    statement: String,
}

impl<'a> Inserter<'a> {
    /// Into `table`, all columns in their order, or `table (column, ...)`.
    pub fn new(conn: &'a mut Conn, table: &'a str) -> Self {
        Self { conn, table, statement: String::new() }
    }

    /// One row, without parentheses. Texts in it are made of letters and digits.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn row(&mut self, values: std::fmt::Arguments<'_>) -> Result<()> {
        const MAX_LEN_BYTES: usize = 256 << 10;
        if self.statement.is_empty() {
            self.statement = format!("INSERT INTO {} VALUES ", self.table);
        } else {
            self.statement.push(',');
        }
        // Writing to a string does not fail.
        let _ = write!(self.statement, "({values})");
        if self.statement.len() >= MAX_LEN_BYTES { self.flush() } else { Ok(()) }
    }

    /// Sends what has not been sent.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn flush(&mut self) -> Result<()> {
        if self.statement.is_empty() {
            return Ok(());
        }
        let statement = std::mem::take(&mut self.statement);
        execute(self.conn, &statement)
    }
}
