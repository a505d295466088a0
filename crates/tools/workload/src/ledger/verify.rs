//! Compares the tables with the ledger.
//!
//! Every row of the three tables must be explained by the ledger, and every acknowledged transaction by
//! rows; the counters must agree with the number of transactions found. All tables are then checked with
//! `CHECK TABLE ... EXTENDED`.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use mysql::Conn;
use mysql::prelude::Queryable;

use super::client::{Contents, checksum};
use super::{ClientId, DATABASE, DETAILS, Entries, Fate, Sequence};
use crate::check::check_database;

/// Faults named in a message; more are counted.
const MAX_FAULTS_NAMED: usize = 20;

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Commits the server acknowledged.
    pub rows_acknowledged: u64,
    /// Acknowledged commits that are present and whole.
    pub rows_found: u64,
    /// Commits without an answer that are present and whole.
    pub unknown_present: u64,
    /// Commits without an answer that are absent.
    pub unknown_absent: u64,
    /// The defects, in words; empty if there is none.
    pub faults: Vec<String>,
    /// Number of faults, also those not named.
    pub faults_total: u64,
}

impl Report {
    /// Turns faults into an error.
    ///
    /// # Errors
    /// [`Error::Violation`] that names the faults.
    pub fn require_sound(self) -> Result<Self> {
        if self.faults_total == 0 {
            return Ok(self);
        }
        Err(Error::Violation(format!(
            "{} faults in the ledger: {}",
            self.faults_total,
            self.faults.join("; ")
        )))
    }

    fn fault(&mut self, text: String) {
        self.faults_total += 1;
        if self.faults.len() < MAX_FAULTS_NAMED {
            self.faults.push(text);
        }
    }
}

type Key = (ClientId, Sequence);
/// Part, random key and checksum of a row of the detail table.
type Detail = (u32, u64, u64);

/// Verifies the rows that `conn` reads against the ledger's entries, and checks the tables. Commits a
/// transaction open on `conn`, as CHECK TABLE does.
///
/// # Errors
/// [`Error::Sql`]; faults are in the report, see [`Report::require_sound`].
pub fn verify(conn: &mut Conn, entries: &Entries) -> Result<Report> {
    let mut report = compare_rows(conn, entries)?;
    match check_database(conn, DATABASE) {
        Err(Error::Violation(text)) => report.fault(format!("CHECK TABLE: {text}")),
        other => {
            other?;
        }
    }
    Ok(report)
}

/// [`verify`] without CHECK TABLE.
///
/// # Errors
/// As for [`verify`].
pub fn compare_rows(conn: &mut Conn, entries: &Entries) -> Result<Report> {
    let mut report = Report {
        rows_acknowledged: entries.acknowledged(),
        rows_found: 0,
        unknown_present: 0,
        unknown_absent: 0,
        faults: Vec::new(),
        faults_total: 0,
    };
    let present = read_entries(conn, entries, &mut report)?;
    let details = read_details(conn)?;
    for (key, fate) in &entries.fates {
        judge(*key, *fate, present.get(key).copied(), details.get(key), entries.seed, &mut report);
    }
    for key in details.keys().filter(|key| !entries.fates.contains_key(*key)) {
        report.fault(format!("{} has detail rows, but its COMMIT was never sent", name(*key)));
    }
    check_counters(conn, &present, &mut report)?;
    Ok(report)
}

/// Decides about one transaction: whole, absent, or a fault.
fn judge(
    key: Key,
    fate: Fate,
    entry_sound: Option<bool>,
    details: Option<&Vec<Detail>>,
    seed: u64,
    report: &mut Report,
) {
    let whole = match (entry_sound, details) {
        (None, None) => false,
        (Some(true), Some(rows)) if details_sound(key, rows, seed) => true,
        (Some(false), _) => return report.fault(format!("the payload of {} is wrong", name(key))),
        (entry, rows) => {
            let rows = rows.map_or(0, Vec::len);
            let text = format!(
                "{} is partial: entry row {}, {rows} of {DETAILS} detail rows (or wrong ones)",
                name(key),
                if entry.is_some() { "present" } else { "missing" }
            );
            return report.fault(text);
        }
    };
    match (fate, whole) {
        (Fate::Acknowledged, true) => report.rows_found += 1,
        (Fate::Acknowledged, false) => report.fault(format!("{} was acknowledged and is missing", name(key))),
        (Fate::Unknown, true) => report.unknown_present += 1,
        (Fate::Unknown, false) => report.unknown_absent += 1,
    }
}

fn details_sound(key: Key, rows: &[Detail], seed: u64) -> bool {
    let expected = Contents::new(seed, key.0, key.1).details;
    rows.len() == expected.len()
        && rows.iter().zip((0u32..).zip(&expected)).all(|((part, random_key, sum), (index, (key, value)))| {
            *part == index && random_key == key && sum == value
        })
}

/// Reads the entry table; the value says whether the payload is the right one.
fn read_entries(conn: &mut Conn, entries: &Entries, report: &mut Report) -> Result<BTreeMap<Key, bool>> {
    let statement = format!("SELECT client, sequence, checksum, payload FROM {DATABASE}.entry");
    let mut present = BTreeMap::new();
    let mut unexplained = Vec::new();
    let read = |(client, sequence, sum, payload): (u32, u64, u64, Vec<u8>)| {
        let key = (ClientId(client), Sequence(sequence));
        if entries.fates.contains_key(&key) {
            let expected = Contents::new(entries.seed, key.0, key.1);
            let sound = payload == expected.payload && sum == expected.checksum && checksum(&payload) == sum;
            present.insert(key, sound);
        } else {
            unexplained.push(key);
        }
    };
    let _: Vec<()> = conn.query_map(&statement, read).map_err(Error::sql(&statement))?;
    for key in unexplained {
        report.fault(format!("{} is present, but its COMMIT was never sent", name(key)));
    }
    Ok(present)
}

fn read_details(conn: &mut Conn) -> Result<BTreeMap<Key, Vec<Detail>>> {
    let statement = format!(
        "SELECT client, sequence, part, random_key, checksum FROM {DATABASE}.detail \
         ORDER BY client, sequence, part"
    );
    let mut details: BTreeMap<Key, Vec<Detail>> = BTreeMap::new();
    let rows: Vec<(u32, u64, u32, u64, u64)> = conn.query(&statement).map_err(Error::sql(&statement))?;
    for (client, sequence, part, random_key, sum) in rows {
        details.entry((ClientId(client), Sequence(sequence))).or_default().push((part, random_key, sum));
    }
    Ok(details)
}

fn check_counters(conn: &mut Conn, present: &BTreeMap<Key, bool>, report: &mut Report) -> Result<()> {
    let statement = format!("SELECT client, transactions, last_sequence FROM {DATABASE}.counter");
    let rows: Vec<(u32, u64, u64)> = conn.query(&statement).map_err(Error::sql(&statement))?;
    let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (client, sequence) in present.keys() {
        let counted = found.entry(client.0).or_default();
        *counted = (counted.0 + 1, counted.1.max(sequence.0));
    }
    for (client, transactions, last_sequence) in rows {
        let (counted, last) = found.remove(&client).unwrap_or_default();
        if (transactions, last_sequence) != (counted, last) {
            report.fault(format!(
                "the counter of client {client} says {transactions} transactions up to {last_sequence}, \
                 but {counted} up to {last} are present"
            ));
        }
    }
    for client in found.keys() {
        report.fault(format!("the counter of client {client} is missing"));
    }
    Ok(())
}

fn name((client, sequence): Key) -> String {
    format!("transaction {} of client {}", sequence.0, client.0)
}
