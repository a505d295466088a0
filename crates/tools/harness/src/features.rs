//! One named step per InnoDB feature, each in a database of its own named `f_` and the feature's name.
//!
//! A step makes the feature touch many pages, and proves with expectations that the feature was really in use.
//! Otherwise a row format that fell back to another one would pass unnoticed. The snapshot of the step's database and
//! the answers to its probes must survive a restart. `after_restart` contains the steps that need a restarted server.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mysql::Conn;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{connect, execute, query_text};

use crate::script;
use redoubt_workload::check::Probe;

/// Arguments every server of the battery needs, at the bootstrap and at every start: change buffering,
/// three undo tablespaces that are truncated, and a system tablespace of two files.
pub const INNODB_ARGS: [&str; 6] = [
    "--innodb-change-buffering=all",
    "--innodb-undo-tablespaces=3",
    "--innodb-undo-log-truncate=ON",
    "--innodb-max-undo-log-size=10485760",
    "--innodb-autoextend-increment=8",
    "--innodb-data-file-path=ibdata1:12M;ibdata2:4M:autoextend",
];

/// Arguments every server of the battery needs at every start.
pub const SERVER_ARGS: [&str; 3] = ["--log-bin=binlog", "--server-id=1", "--binlog-format=ROW"];

const ALL_PAGE_SIZES: RangeInclusive<u32> = 4096..=65536;
// ROW_FORMAT=COMPRESSED exists up to this page size only.
const COMPRESSED_PAGE_SIZES: RangeInclusive<u32> = 4096..=16384;

/// Resources of a step.
#[derive(Debug)]
pub struct Context<'a> {
    /// The running server.
    pub server: &'a Server,
    /// A connection; the step's database is the current one.
    pub conn: Conn,
    /// The step's database.
    pub database: String,
    /// Connections to keep open until the restart, for transactions that must be open then.
    pub held: Vec<Conn>,
}

/// The action of a step.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Runs a script with variables.
    Script(&'static str, &'static [(&'static str, &'static str)]),
    /// Does what a script cannot, and returns its probes.
    Code(fn(&mut Context<'_>) -> Result<Vec<String>>),
}

/// A feature of InnoDB and how it is exercised.
#[derive(Debug, Clone)]
pub struct Feature {
    /// Its name, and with `f_` in front its database.
    pub name: &'static str,
    /// Page sizes in bytes it exists for.
    pub page_sizes: RangeInclusive<u32>,
    /// Its action.
    pub step: Step,
    /// The checks that need a restarted server.
    pub after_restart: Option<fn(&mut Conn) -> Result<()>>,
}

impl Feature {
    /// Its database.
    pub fn database(&self) -> String {
        format!("f_{}", self.name)
    }

    /// Runs the step in a new database and returns the probes and the connections to hold until the restart.
    ///
    /// # Errors
    /// Those of the step, with the feature's name in front where it is a broken promise.
    pub fn run(&self, server: &Server) -> Result<(Vec<Probe>, Vec<Conn>)> {
        let mut conn = server.connect()?;
        let database = self.database();
        execute(&mut conn, &format!("CREATE DATABASE {database}"))?;
        execute(&mut conn, &format!("USE {database}"))?;
        let mut context = Context { server, conn, database: database.clone(), held: Vec::new() };
        let queries = match self.step {
            Step::Script(text, variables) => script::run(&mut context.conn, text, variables)?,
            Step::Code(code) => code(&mut context)?,
        };
        let probes = queries.into_iter().map(|query| Probe { database: database.clone(), query }).collect();
        Ok((probes, context.held))
    }
}

macro_rules! sql {
    ($file:literal) => {
        include_str!(concat!("../sql/", $file, ".sql"))
    };
}

const fn script_step(name: &'static str, text: &'static str) -> Feature {
    script_with(name, text, &[])
}

const fn script_with(
    name: &'static str,
    text: &'static str,
    variables: &'static [(&'static str, &'static str)],
) -> Feature {
    Feature { name, page_sizes: ALL_PAGE_SIZES, step: Step::Script(text, variables), after_restart: None }
}

const fn compressed(
    name: &'static str,
    page_sizes: RangeInclusive<u32>,
    variables: &'static [(&'static str, &'static str)],
) -> Feature {
    Feature { name, page_sizes, step: Step::Script(sql!("compressed"), variables), after_restart: None }
}

/// Every feature, in an order in which they can be run on one server.
pub fn all() -> Vec<Feature> {
    let mut features = storage_formats();
    features.extend(table_features());
    features.extend(operations());
    features
}

/// The features that exist at a page size.
pub fn for_page_size(page_size_bytes: u32) -> Vec<Feature> {
    all().into_iter().filter(|feature| feature.page_sizes.contains(&page_size_bytes)).collect()
}

fn storage_formats() -> Vec<Feature> {
    vec![
        script_with("redundant", sql!("row_format"), &[("FORMAT", "REDUNDANT")]),
        script_with("compact", sql!("row_format"), &[("FORMAT", "COMPACT")]),
        script_with("dynamic", sql!("row_format"), &[("FORMAT", "DYNAMIC")]),
        compressed("compressed_1k", COMPRESSED_PAGE_SIZES, &[("KBS", "1")]),
        compressed("compressed_2k", COMPRESSED_PAGE_SIZES, &[("KBS", "2")]),
        compressed("compressed_4k", COMPRESSED_PAGE_SIZES, &[("KBS", "4")]),
        compressed("compressed_8k", 8192..=16384, &[("KBS", "8")]),
        compressed("compressed_16k", 16384..=16384, &[("KBS", "16")]),
        script_step("page_compressed", sql!("page_compressed")),
        script_step("off_page", sql!("off_page")),
        code("system_tablespace", grow_system_tablespace, None),
        script_step("types", sql!("types")),
    ]
}

fn table_features() -> Vec<Feature> {
    vec![
        script_step("fulltext", sql!("fulltext")),
        script_step("spatial", sql!("spatial")),
        script_step("generated", sql!("generated")),
        script_step("partitions", sql!("partitions")),
        script_step("foreign_keys", sql!("foreign_keys")),
        script_step("sequences", sql!("sequences")),
        script_step("temporary", sql!("temporary")),
        script_step("versioned", sql!("versioned")),
    ]
}

fn operations() -> Vec<Feature> {
    vec![
        script_step("alter_instant", sql!("alter_instant")),
        script_step("alter_inplace", sql!("alter_inplace")),
        script_step("alter_copy", sql!("alter_copy")),
        code("alter_online", alter_online, None),
        script_step("ddl", sql!("ddl")),
        code("import", import_tablespace, None),
        script_step("bulk_insert", sql!("bulk_insert")),
        script_step("purge", sql!("purge")),
        script_step("undo_truncate", sql!("undo_truncate")),
        script_step("redo_resize", sql!("redo_resize")),
        script_step("log_buffering", sql!("log_buffering")),
        script_step("binlog", sql!("binlog")),
        code("xa", xa_prepare, Some(xa_finish)),
        code("uncommitted", leave_uncommitted, None),
    ]
}

/// The change buffer works only when pages do not fit the buffer pool, so it wants a server of its own with
/// 16 KiB pages and the smallest pool; see [`CHANGE_BUFFER_POOL_MIB`].
pub fn change_buffer() -> Feature {
    script_step("change_buffer", sql!("change_buffer"))
}

/// Buffer pool in MiB for [`change_buffer`].
pub const CHANGE_BUFFER_POOL_MIB: u32 = 6;

fn code(
    name: &'static str,
    step: fn(&mut Context<'_>) -> Result<Vec<String>>,
    after_restart: Option<fn(&mut Conn) -> Result<()>>,
) -> Feature {
    Feature { name, page_sizes: ALL_PAGE_SIZES, step: Step::Code(step), after_restart }
}

/// Fills tables in the system tablespace until its second file has grown.
fn grow_system_tablespace(context: &mut Context<'_>) -> Result<Vec<String>> {
    const INITIAL_BYTES: u64 = 4 << 20;
    let probes = script::run(&mut context.conn, sql!("system_tablespace"), &[])?;
    let file = context.server.datadir().join("ibdata2");
    let length_bytes = std::fs::metadata(&file).map_err(Error::io_at("look at", &file))?.len();
    if length_bytes > INITIAL_BYTES {
        return Ok(probes);
    }
    Err(Error::Violation(format!("{} has not grown: {length_bytes} bytes", file.display())))
}

/// Adds indexes and rebuilds a table in place while another connection writes to it, so that the row logs
/// of the online operation are applied.
fn alter_online(context: &mut Context<'_>) -> Result<Vec<String>> {
    script::run(&mut context.conn, sql!("alter_online"), &[])?;
    let socket = context.server.socket();
    let database = context.database.clone();
    let stop = AtomicBool::new(false);
    let conn = &mut context.conn;
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&socket, &database, &stop));
        let altered = [
            "ALTER TABLE t ADD INDEX by_b (b), ALGORITHM=INPLACE, LOCK=NONE",
            "ALTER TABLE t FORCE, ALGORITHM=INPLACE, LOCK=NONE",
            "ALTER TABLE t DROP INDEX by_a, ADD INDEX by_ab (a, b), ALGORITHM=INPLACE, LOCK=NONE",
        ]
        .iter()
        .try_for_each(|statement| execute(conn, statement));
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().map_err(|_| Error::State("the writing thread panicked".into()))?;
        altered.and(written)
    })?;
    if written == 0 {
        return Err(Error::Violation("nothing was written during the online ALTER".into()));
    }
    Ok(vec!["SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (by_ab)".into()])
}

fn write_until(socket: &Path, database: &str, stop: &AtomicBool) -> Result<u64> {
    let mut conn = connect(socket)?;
    execute(&mut conn, &format!("USE {database}"))?;
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        written += 1;
        execute(&mut conn, &format!("INSERT INTO t (a, b) VALUES ({written}, MD5({written}))"))?;
        execute(&mut conn, &format!("UPDATE t SET a = a + 1, b = MD5(a) WHERE id = {}", written * 13))?;
        execute(&mut conn, &format!("DELETE FROM t WHERE id = {}", written * 17))?;
    }
    Ok(written)
}

/// Takes a table from a second, stock server (FLUSH TABLES ... FOR EXPORT) and imports its files here.
fn import_tablespace(context: &mut Context<'_>) -> Result<Vec<String>> {
    let own = context.server.config();
    let mut config = ServerConfig::new(Launcher::Stock).product(own.product.clone());
    config.page_size_bytes = own.page_size_bytes;
    config.innodb_args.clone_from(&own.innodb_args);
    let donor = Server::create(config)?;
    let mut donor_conn = donor.connect()?;
    execute(&mut donor_conn, "CREATE DATABASE donor")?;
    execute(&mut donor_conn, "USE donor")?;
    script::run(&mut donor_conn, sql!("import_donor"), &[])?;
    let sum = query_text(&mut donor_conn, "CHECKSUM TABLE t EXTENDED")?;
    execute(&mut donor_conn, "FLUSH TABLES t FOR EXPORT")?;

    script::run(&mut context.conn, sql!("import_target"), &[])?;
    for extension in ["ibd", "cfg"] {
        let from = donor.datadir().join("donor").join(format!("t.{extension}"));
        let to = context.server.datadir().join(&context.database).join(format!("t.{extension}"));
        std::fs::copy(&from, &to).map_err(Error::io_at("copy", &from))?;
    }
    execute(&mut context.conn, "ALTER TABLE t IMPORT TABLESPACE")?;
    let imported = query_text(&mut context.conn, "CHECKSUM TABLE t EXTENDED")?;
    let value = |rows: &[Vec<String>]| rows.first().and_then(|row| row.get(1)).cloned();
    if value(&sum) != value(&imported) {
        return Err(Error::Violation(format!("imported table differs: {sum:?} and {imported:?}")));
    }
    // The imported tablespace must be writable like any other.
    execute(&mut context.conn, "UPDATE t SET a = a + 1 WHERE id % 7 = 0")?;
    execute(&mut context.conn, "INSERT INTO t (a, b, c) SELECT seq, MD5(seq), NULL FROM seq_1_to_500")?;
    Ok(vec!["SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (by_a)".into()])
}

/// Leaves two prepared XA transactions behind; their rows are not visible until they are finished.
fn xa_prepare(context: &mut Context<'_>) -> Result<Vec<String>> {
    script::run(&mut context.conn, sql!("xa"), &[])?;
    for (name, first) in [("keep", 10_001), ("undo", 20_001)] {
        let mut conn = context.server.connect()?;
        execute(&mut conn, &format!("USE {}", context.database))?;
        execute(&mut conn, &format!("XA START '{name}'"))?;
        let rows = format!("SELECT seq, REPEAT(MD5(seq), 4) FROM seq_{first}_to_{}", first + 999);
        execute(&mut conn, &format!("INSERT INTO t {rows}"))?;
        execute(
            &mut conn,
            &format!("UPDATE t SET b = '{name}' WHERE id BETWEEN {0} AND {0} + 99", first / 10),
        )?;
        execute(&mut conn, &format!("XA END '{name}'"))?;
        execute(&mut conn, &format!("XA PREPARE '{name}'"))?;
        context.held.push(conn);
    }
    Ok(vec!["XA RECOVER".into()])
}

/// Commits one of the prepared transactions and rolls the other back, on a restarted server.
fn xa_finish(conn: &mut Conn) -> Result<()> {
    execute(conn, "XA COMMIT 'keep'")?;
    execute(conn, "XA ROLLBACK 'undo'")?;
    let count = "SELECT COUNT(*), SUM(b = 'keep'), SUM(b = 'undo'), SUM(id > 10000) FROM f_xa.t";
    let rows = query_text(conn, count)?;
    let expected = ["6000", "100", "0", "1000"];
    if rows.first().is_some_and(|row| row.iter().map(String::as_str).eq(expected)) {
        return Ok(());
    }
    Err(Error::Violation(format!("XA transactions ended wrong: expected {expected:?}, got {rows:?}")))
}

/// Leaves a large transaction open, so that the restart has to roll it back.
fn leave_uncommitted(context: &mut Context<'_>) -> Result<Vec<String>> {
    script::run(&mut context.conn, sql!("uncommitted"), &[])?;
    let mut conn = context.server.connect()?;
    execute(&mut conn, &format!("USE {}", context.database))?;
    execute(&mut conn, "START TRANSACTION")?;
    execute(&mut conn, "UPDATE t SET a = a + 1, b = REPEAT(b, 2)")?;
    execute(&mut conn, "DELETE FROM t WHERE id % 3 = 0")?;
    execute(&mut conn, "INSERT INTO t (a, b) SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_3000")?;
    context.held.push(conn);
    // Makes the redo of the open transaction durable, so that the restart really finds it.
    execute(&mut context.conn, "INSERT INTO t2 VALUES (1)")?;
    Ok(Vec::new())
}
