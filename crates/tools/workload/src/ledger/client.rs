//! One ledger client: its transactions, and going on over lost connections.
//!
//! Invariant: `I` is in the file before COMMIT is sent, and `A` only after the server's answer. A sequence
//! number whose COMMIT was sent is never used again, whatever became of it.

use std::path::Path;
use std::time::Instant;

use crate::error::{Error, Result, is_connection_loss, is_retryable};
use crate::process::POLL_INTERVAL;
use crate::sql::{connect, connect_within, execute, query_text};
use mysql::Conn;
use mysql::prelude::Queryable;

use super::{ClientId, DATABASE, DETAILS, Fate, Options, Sequence, Shared};

const INSERT_ENTRY: &str = "INSERT INTO entry (client, sequence, checksum, payload) VALUES (?, ?, ?, ?)";
const INSERT_DETAIL: &str =
    "INSERT INTO detail (client, sequence, part, random_key, checksum) VALUES (?, ?, ?, ?, ?)";
const UPDATE_COUNTER: &str =
    "UPDATE counter SET transactions = transactions + 1, last_sequence = ? WHERE client = ?";

/// The rows of one transaction; all of them follow from seed, client and sequence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) payload: Vec<u8>,
    pub(super) checksum: u64,
    /// Random key and checksum of each detail row.
    pub(super) details: Vec<(u64, u64)>,
}

impl Contents {
    pub(super) fn new(seed: u64, client: ClientId, sequence: Sequence) -> Self {
        let mix = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(client.0) << 40) ^ sequence.0;
        let mut random = fastrand::Rng::with_seed(mix);
        // Mostly small rows, sometimes one that is stored off its page.
        let length_bytes =
            if random.u32(..50) == 0 { random.usize(5_000..20_000) } else { random.usize(20..900) };
        let payload: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length_bytes).collect();
        let checksum = checksum(&payload);
        let details = (0..DETAILS).map(|_| (random.u64(..), random.u64(..))).collect();
        Self { payload, checksum, details }
    }
}

/// FNV-1a, 64 bits: this guards against lost and mixed-up bytes, not against an adversary.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Makes the tables and the counter rows that are missing.
pub(super) fn create_tables(socket: &Path, options: &Options) -> Result<()> {
    let mut conn = connect_within(socket, options.reconnect_timeout)?;
    let durable = query_text(&mut conn, "SELECT @@innodb_flush_log_at_trx_commit")?;
    if durable != [["1"]] && !options.is_durable_elsewhere {
        return Err(Error::Violation(format!(
            "the ledger proves nothing with innodb_flush_log_at_trx_commit={durable:?}; set it to 1"
        )));
    }
    execute(&mut conn, &format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))?;
    execute(&mut conn, &format!("USE {DATABASE}"))?;
    for statement in [
        "CREATE TABLE IF NOT EXISTS counter (client INT UNSIGNED PRIMARY KEY, \
         transactions BIGINT UNSIGNED NOT NULL, last_sequence BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS entry (client INT UNSIGNED, sequence BIGINT UNSIGNED, \
         checksum BIGINT UNSIGNED NOT NULL, payload MEDIUMBLOB NOT NULL, \
         PRIMARY KEY (client, sequence), KEY by_checksum (checksum)) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS detail (client INT UNSIGNED, sequence BIGINT UNSIGNED, part INT UNSIGNED, \
         random_key BIGINT UNSIGNED NOT NULL, checksum BIGINT UNSIGNED NOT NULL, \
         PRIMARY KEY (client, sequence, part), KEY by_random_key (random_key)) ENGINE=InnoDB",
    ] {
        execute(&mut conn, statement)?;
    }
    for client in options.first_client..options.first_client + options.clients {
        execute(&mut conn, &format!("INSERT IGNORE INTO counter VALUES ({client}, 0, 0)"))?;
    }
    Ok(())
}

/// Runs transactions until the run stops; a failure stops the other clients, too.
pub(super) fn run(shared: &Shared, client: ClientId) -> Result<()> {
    let result = run_client(shared, client);
    if result.is_err() {
        shared.state().failed = true;
        shared.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        shared.changed.notify_all();
    }
    result
}

fn run_client(shared: &Shared, client: ClientId) -> Result<()> {
    let mut sequence = shared.state().entries.last_sequence(client);
    let mut conn = None;
    while !shared.stopping() {
        let Some(open) = conn.as_mut() else {
            conn = reconnect(shared)?;
            continue;
        };
        let next = Sequence(sequence.0 + 1);
        let contents = Contents::new(shared.seed, client, next);
        match write_rows(open, client, next, &contents) {
            Ok(()) => {}
            Err(error) if is_retryable(&error) => {
                // The server may have rolled back the statement only; without this the rest would stay.
                conn = rollback(open).then_some(()).and(conn);
                continue;
            }
            Err(error) if is_connection_loss(&error) => {
                conn = lost(shared);
                continue;
            }
            Err(_) if shared.options.tolerates_errors => {
                // Some errors end the transaction, others the statement only; a new connection has no transaction.
                conn = refused(shared);
                continue;
            }
            Err(error) => return Err(Error::sql("a ledger transaction")(error)),
        }
        shared.record(client, next, Fate::Unknown)?;
        sequence = next;
        match open.query_drop("COMMIT") {
            Ok(()) => shared.record(client, next, Fate::Acknowledged)?,
            // After any answer but OK, the outcome counts as unknown.
            Err(error) if is_connection_loss(&error) || is_retryable(&error) => conn = lost(shared),
            Err(_) if shared.options.tolerates_errors => conn = refused(shared),
            Err(error) => return Err(Error::sql("COMMIT")(error)),
        }
    }
    Ok(())
}

fn write_rows(
    conn: &mut Conn,
    client: ClientId,
    sequence: Sequence,
    contents: &Contents,
) -> std::result::Result<(), mysql::Error> {
    conn.query_drop("START TRANSACTION")?;
    conn.exec_drop(INSERT_ENTRY, (client.0, sequence.0, contents.checksum, &contents.payload))?;
    for (part, (random_key, checksum)) in (0u32..).zip(&contents.details) {
        conn.exec_drop(INSERT_DETAIL, (client.0, sequence.0, part, *random_key, *checksum))?;
    }
    conn.exec_drop(UPDATE_COUNTER, (sequence.0, client.0))
}

fn rollback(conn: &mut Conn) -> bool {
    conn.query_drop("ROLLBACK").is_ok()
}

fn lost(shared: &Shared) -> Option<Conn> {
    shared.state().connections_lost += 1;
    None
}

/// As [`lost`], by a server that may continue refusing for a while.
fn refused(shared: &Shared) -> Option<Conn> {
    std::thread::sleep(POLL_INTERVAL);
    lost(shared)
}

/// A new connection, `None` when the run stops meanwhile.
fn reconnect(shared: &Shared) -> Result<Option<Conn>> {
    let start = Instant::now();
    while !shared.stopping() {
        let opened = connect(&shared.socket).and_then(|mut conn| {
            execute(&mut conn, &format!("USE {DATABASE}"))?;
            Ok(conn)
        });
        match opened {
            Ok(conn) => return Ok(Some(conn)),
            Err(error) if !error.is_connection_loss() && !shared.options.tolerates_errors => {
                return Err(error);
            }
            Err(error) if start.elapsed() >= shared.options.reconnect_timeout => {
                return Err(Error::Deadline {
                    what: "a new connection of a ledger client".into(),
                    after: shared.options.reconnect_timeout,
                    detail: error.to_string(),
                });
            }
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
    Ok(None)
}
