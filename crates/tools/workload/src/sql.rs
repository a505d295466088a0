//! Connections and statements.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

pub use mysql::Conn;
use mysql::prelude::{FromRow, Queryable};
use mysql::{OptsBuilder, Params};

use crate::error::{Error, Result};
use crate::process::poll_until;

/// How long a client waits for an answer: a transaction on a slow link takes long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// A new connection as root to the server behind `socket`.
///
/// # Errors
/// [`Error::Sql`] when the server does not accept it.
pub fn connect(socket: &Path) -> Result<Conn> {
    open(socket, None, ANSWER_TIMEOUT)
}

/// [`connect`], in a database.
///
/// # Errors
/// As for [`connect`].
pub fn connect_to(socket: &Path, database: &str) -> Result<Conn> {
    open(socket, Some(database), ANSWER_TIMEOUT)
}

/// [`connect`], for statements that may take `answer_timeout`.
///
/// # Errors
/// As for [`connect`].
pub fn connect_for(socket: &Path, answer_timeout: Duration) -> Result<Conn> {
    open(socket, None, answer_timeout)
}

/// Connects again and again until the server accepts, for at most `timeout`.
///
/// # Errors
/// [`Error::Deadline`], or an error that is not about the connection.
pub fn connect_within(socket: &Path, timeout: Duration) -> Result<Conn> {
    poll_until("a connection", timeout, || try_connect(socket))
}

/// A new connection, or none if there is no server (any more, or yet).
///
/// # Errors
/// An error that is not about the connection.
pub fn try_connect(socket: &Path) -> Result<Option<Conn>> {
    match connect(socket) {
        Ok(conn) => Ok(Some(conn)),
        Err(error) if error.is_connection_loss() => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(socket: &Path, database: Option<&str>, answer_timeout: Duration) -> Result<Conn> {
    let options = OptsBuilder::new()
        .socket(Some(socket.to_string_lossy()))
        .user(Some("root"))
        .db_name(database)
        .prefer_socket(false)
        .stmt_cache_size(Some(100))
        .read_timeout(Some(answer_timeout))
        .write_timeout(Some(answer_timeout));
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
/// [`Error::Sql`], [`Error::Violation`] if there is none.
pub fn one<T: FromRow>(conn: &mut Conn, statement: &str, params: impl Into<Params>) -> Result<T> {
    first(conn, statement, params)?.ok_or_else(|| Error::Violation(format!("no row: {statement}")))
}

/// All rows of a prepared query.
///
/// # Errors
/// [`Error::Sql`].
pub fn all<T: FromRow>(conn: &mut Conn, statement: &str, params: impl Into<Params>) -> Result<Vec<T>> {
    conn.exec(statement, params).map_err(Error::sql(statement))
}

/// Runs a statement and returns its rows as text (`NULL` for SQL NULL).
///
/// # Errors
/// [`Error::Sql`].
pub fn query_text(conn: &mut Conn, statement: &str) -> Result<Vec<Vec<String>>> {
    let rows: Vec<mysql::Row> = conn.query(statement).map_err(Error::sql(statement))?;
    let text = |value: mysql::Value| match value {
        mysql::Value::NULL => "NULL".to_owned(),
        mysql::Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => other.as_sql(true),
    };
    Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
}

/// A status counter or a system variable read with `SHOW GLOBAL STATUS`, as a number.
///
/// # Errors
/// [`Error::Parse`] when there is none of that name or it is not a number.
pub fn status_number(conn: &mut Conn, name: &str) -> Result<u64> {
    let rows = query_text(conn, &format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    rows.first()
        .and_then(|row| row.get(1))
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| Error::Parse { what: format!("status {name}"), detail: format!("{rows:?}") })
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
