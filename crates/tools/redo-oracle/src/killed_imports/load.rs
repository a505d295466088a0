//! Statements that change tables and free pages.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mysql::Conn;
use redoubt_harness::command::PATIENCE;
use redoubt_redo::Family;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::Server;
use redoubt_workload::sql::{connect, execute};

use super::{DATABASE, Plan};

const TABLES: u32 = 4;
const CLIENTS: u32 = 4;

/// Makes and fills the tables.
pub(super) fn prepare(server: &Server, plan: &Plan) -> Result<()> {
    let mut conn = server.connect()?;
    execute(&mut conn, &format!("CREATE DATABASE {DATABASE}"))?;
    use_database(&mut conn, plan.family)?;
    for table in 0..TABLES {
        execute(&mut conn, &create_table(plan, table, 0))?;
        execute(&mut conn, &fill(plan, table, 1, plan.rows))?;
    }
    Ok(())
}

fn use_database(conn: &mut Conn, family: Family) -> Result<()> {
    if family == Family::MySql {
        execute(conn, "SET SESSION cte_max_recursion_depth = 1000000")?;
    }
    execute(conn, &format!("USE {DATABASE}"))
}

/// Row formats in turn.
fn create_table(plan: &Plan, table: u32, further: u32) -> String {
    let [fourth, last] = match (plan.family, plan.page_size_bytes) {
        (Family::MariaDb, _) => ["DYNAMIC PAGE_COMPRESSED=1", "DYNAMIC"],
        // Holes are punched by blocks of 4 KiB.
        (Family::MySql, 4096) => ["COMPRESSED", "DYNAMIC"],
        (Family::MySql, ..=16384) => ["COMPRESSED", "DYNAMIC COMPRESSION='zlib'"],
        (Family::MySql, _) => ["DYNAMIC", "DYNAMIC COMPRESSION='zlib'"],
    };
    let formats = ["DYNAMIC", "REDUNDANT", "COMPACT", fourth, last];
    let turn = (plan.seed + u64::from(further)) / 3 + u64::from(table);
    let format = formats[turn as usize % formats.len()];
    format!(
        "CREATE TABLE t{table} (id INT PRIMARY KEY, k INT NOT NULL, c VARCHAR(160) NOT NULL, b LONGBLOB, KEY k (k), \
         KEY c (c)) ENGINE=InnoDB CHARSET=latin1 ROW_FORMAT={format}"
    )
}

/// 32 digits.
fn hash(plan: &Plan, of: &str) -> String {
    match plan.family {
        Family::MariaDb => format!("MD5({of})"),
        Family::MySql => format!("LEFT(SHA2({of}, 256), 32)"),
    }
}

fn fill(plan: &Plan, table: u32, from: u32, to: u32) -> String {
    let numbers = match plan.family {
        Family::MariaDb => format!("seq_{from}_to_{to}"),
        Family::MySql => format!(
            "(WITH RECURSIVE s (seq) AS (SELECT {from} UNION ALL SELECT seq + 1 FROM s WHERE seq < {to}) SELECT * FROM s) n"
        ),
    };
    let hash = hash(plan, "seq");
    format!("REPLACE INTO t{table} SELECT seq, seq * 7919 % 10007, REPEAT({hash}, 4), NULL FROM {numbers}")
}

/// Clients that change tables and free pages until the server is gone.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// `further` makes it another load than the plan's first.
    pub(super) fn start(socket: &Path, plan: &Arc<Plan>, further: u64) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let seed = (plan.seed + further).wrapping_mul(1009);
        let client = |number: u32| {
            let (stop, done, socket) = (Arc::clone(&stop), Arc::clone(&done), socket.to_owned());
            let plan = Arc::clone(plan);
            let mut random = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(number)));
            std::thread::spawn(move || {
                let Ok(mut conn) = connect(&socket) else { return };
                let mut use_it = use_database(&mut conn, plan.family);
                while use_it.is_ok() && !stop.load(Ordering::Relaxed) {
                    match step(&mut conn, &mut random, &plan, number == 0) {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        // Deadlocks, lock waits, tables and indexes that are not there: part of the load.
                        Err(error) if !error.is_connection_loss() => {}
                        Err(error) => use_it = Err(error),
                    }
                }
            })
        };
        let threads = (0..CLIENTS).map(client).collect();
        Self { stop, done, threads }
    }

    /// Lets it run for so long: the time of a kill, which is to be any. Longer if so many statements have not been done
    /// by then: what a machine does in a time depends on what else it does.
    pub(super) fn run_for(&self, time: Duration, least: u64) -> Result<()> {
        std::thread::sleep(time);
        poll_until("statements of the load", PATIENCE, || {
            Ok((self.done.load(Ordering::Relaxed) >= least).then_some(()))
        })
    }

    /// Ends it after the statements that run, and says how many were done.
    pub(super) fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| Error::State("a client of the load panicked".into()))?;
        }
        Ok(self.done.load(Ordering::Relaxed))
    }
}

/// One statement or small transaction. Only one client defines and empties tables, so that the others continue.
fn step(conn: &mut Conn, random: &mut fastrand::Rng, plan: &Plan, defines: bool) -> Result<()> {
    let rows = plan.rows;
    let table = random.u32(..TABLES);
    let id = random.u32(1..=rows);
    let last = id + random.u32(100..2_000);
    let some_c = hash(plan, &random.u32(..).to_string());
    match random.u32(..if defines { 100 } else { 80 }) {
        0..=34 => {
            execute(conn, "BEGIN")?;
            for _ in 0..4 {
                let id = random.u32(1..=rows);
                execute(conn, &format!("UPDATE t{table} SET k = k + 1 WHERE id = {id}"))?;
                execute(conn, &format!("UPDATE t{table} SET c = REPEAT({some_c}, 3) WHERE id = {id}"))?;
                execute(conn, &format!("DELETE FROM t{table} WHERE id = {id}"))?;
                execute(conn, &fill(plan, table, id, id))?;
            }
            execute(conn, if random.u8(..8) == 0 { "ROLLBACK" } else { "COMMIT" })
        }
        35..=49 => execute(conn, &format!("DELETE FROM t{table} WHERE id BETWEEN {id} AND {last}")),
        50..=64 => execute(conn, &fill(plan, table, id, last)),
        65..=69 => execute(
            conn,
            &format!("UPDATE t{table} SET c = {} WHERE id BETWEEN {id} AND {last}", hash(plan, "c")),
        ),
        70..=74 => {
            let length = random.u32(1_000..60_000);
            execute(
                conn,
                &format!("UPDATE t{table} SET b = REPEAT('b', {length}) WHERE id BETWEEN {id} AND {id} + 20"),
            )
        }
        75..=79 => execute(conn, &format!("UPDATE t{table} SET b = NULL WHERE b IS NOT NULL LIMIT 50")),
        80..=83 => execute(conn, &format!("TRUNCATE TABLE t{table}")),
        84..=87 => {
            execute(conn, &format!("DROP TABLE t{table}"))?;
            execute(conn, &create_table(plan, table, id))?;
            execute(conn, &fill(plan, table, 1, rows))
        }
        88..=91 => execute(conn, &format!("ALTER TABLE t{table} ADD INDEX more (c, k)")),
        92..=95 => execute(conn, &format!("ALTER TABLE t{table} DROP INDEX more")),
        _ => execute(conn, &format!("ALTER TABLE t{table} FORCE")),
    }
}
