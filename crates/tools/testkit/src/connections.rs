//! What tests of the network library do with a server's connections, whichever layer these go through.

use crate::command::{Outcome, PATIENCE};
use mysql::Conn;
use mysql::prelude::Queryable;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::poll_until;
use redoubt_workload::sql::{execute, query_text};
use std::path::Path;
use std::time::{Duration, Instant};

fn require(is_so: bool, what: impl Into<String>) -> Result<()> {
    if is_so { Ok(()) } else { Err(Error::Violation(what.into())) }
}

/// Some statements, each with its right answer.
///
/// # Errors
/// [`Error::Violation`] with another answer; those of the client.
pub fn statements(conn: &mut Conn, count: usize) -> Result<()> {
    for number in 0..count {
        let rows = query_text(conn, &format!("SELECT {number}, REPEAT('x', {number})"))?;
        let is_right = rows == [[number.to_string(), "x".repeat(number)]];
        require(is_right, format!("statement {number}: {rows:?}"))?;
    }
    Ok(())
}

/// The server's number for a connection.
///
/// # Errors
/// [`Error::State`] when the server does not say it.
pub fn connection_id(conn: &mut Conn) -> Result<u64> {
    let rows = query_text(conn, "SELECT CONNECTION_ID()")?;
    let number = rows.first().and_then(|row| row.first()).and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::State(format!("no number of a connection: {rows:?}")))
}

/// Certificates for a server at this address, below `directory`, and the server's options that name them.
///
/// # Errors
/// Those of `redoubt certificates`.
pub fn certificates(directory: &Path, address: &str) -> Result<Vec<String>> {
    let path = directory.join("tls");
    let arguments = ["certificates", "create", &path.to_string_lossy(), "--node", address].map(str::to_owned);
    let outcome = Outcome::of(&find_redoubt()?, arguments, PATIENCE)?;
    require(outcome.code == Some(0), format!("{outcome:?}"))?;
    let file = |name: &str| path.join(format!("node-{address}")).join(name).display().to_string();
    Ok(vec![
        format!("--ssl-cert={}", file("certificate.pem")),
        format!("--ssl-key={}", file("key.pem")),
        format!("--ssl-ca={}", file("authority.pem")),
    ])
}

/// KILL of a connection that is idle, of one that runs, and of a statement. `habit`: statements after which the library
/// knows a connection's ways.
///
/// # Errors
/// [`Error::Violation`] when one outlives its KILL; [`Error::Deadline`] when it takes long.
pub fn require_kills(connect: &dyn Fn() -> Result<Conn>, habit: usize) -> Result<()> {
    let used = || {
        let mut conn = connect()?;
        statements(&mut conn, habit)?;
        let id = connection_id(&mut conn)?;
        Ok::<_, Error>((conn, id))
    };
    let (mut killer, _) = used()?;
    let (mut idle, id) = used()?;
    execute(&mut killer, &format!("KILL {id}"))?;
    let gone = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
    poll_until("the end of a killed connection", Duration::from_secs(10), || {
        Ok((query_text(&mut killer, &gone)? == [["0"]]).then_some(()))
    })?;
    require(idle.query_drop("SELECT 1").is_err(), "an idle connection survives its KILL")?;

    for kill in ["KILL", "KILL QUERY"] {
        let (mut conn, id) = used()?;
        let start = Instant::now();
        let sleeper = std::thread::spawn(move || {
            let result = conn.query_drop("SELECT SLEEP(100) FROM (SELECT 1 UNION SELECT 2) x");
            (conn, result)
        });
        let sleeps = format!(
            "SELECT state FROM information_schema.processlist WHERE id = {id} AND info LIKE '%SLEEP%'"
        );
        poll_until("the sleep", Duration::from_secs(10), || {
            Ok((!query_text(&mut killer, &sleeps)?.is_empty()).then_some(()))
        })?;
        execute(&mut killer, &format!("{kill} {id}"))?;
        let (mut conn, result) =
            sleeper.join().map_err(|_| Error::State("a client's thread panicked".to_owned()))?;
        require(start.elapsed() < Duration::from_secs(50), format!("the sleep outlived {kill}"))?;
        if kill == "KILL" {
            require(result.is_err(), "a statement ended well though its connection was killed")?;
            require(conn.query_drop("SELECT 1").is_err(), "a connection survives its KILL")?;
        } else {
            statements(&mut conn, habit)?;
        }
    }
    Ok(())
}
