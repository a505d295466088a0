//! Operations on a server's connections for tests of the network library, for every layer.

use crate::command::{Outcome, PATIENCE};
use mysql::Conn;
use mysql::prelude::Queryable;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::poll_until;
use redoubt_workload::sql::{execute, query_text};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
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

/// The end of a connection that is idle for `wait_timeout`: not before that time, and long before that of another
/// connection that is idle from the same time on and has four times the timeout. `habit`: as for
/// [`require_kills`].
///
/// # Errors
/// [`Error::Violation`], and those of the client.
pub fn require_idle_timeout(connect: &dyn Fn() -> Result<Conn>, habit: usize) -> Result<()> {
    const TIMEOUT_S: u64 = 3;
    let silent = |timeout_s: u64| {
        let mut conn = connect()?;
        execute(&mut conn, &format!("SET SESSION wait_timeout = {timeout_s}"))?;
        statements(&mut conn, habit)?;
        let id = connection_id(&mut conn)?;
        Ok::<_, Error>((conn, id, Instant::now()))
    };
    let (mut conn, id, begin) = silent(TIMEOUT_S)?;
    let (_patient, patient_id, _) = silent(4 * TIMEOUT_S)?;
    let mut other = connect()?;
    let left = format!("SELECT id FROM information_schema.processlist WHERE id IN ({id}, {patient_id})");
    let (rows, took) = poll_until("the end of an idle connection", PATIENCE, || {
        let rows = query_text(&mut other, &left)?;
        Ok((!rows.contains(&vec![id.to_string()])).then(|| (rows, begin.elapsed())))
    })?;
    // The server may count from the moment before its answer arrived.
    let earliest = Duration::from_secs(TIMEOUT_S) - Duration::from_millis(100);
    require(took >= earliest, format!("idle for {took:?} only"))?;
    require(rows == [[patient_id.to_string()]], "it outlived one with four times its time")?;
    require(conn.query_drop("SELECT 1").is_err(), "the connection works after its end")
}

/// The end of a login that stops: not before `connect_timeout` (`timeout_s`, as the server was started with), and while
/// one that began after that was made ten times as long is there still.
///
/// # Errors
/// [`Error::Violation`], and those of the server.
pub fn require_login_timeout(root: &mut Conn, timeout_s: u64, connect: &dyn Fn() -> TcpStream) -> Result<()> {
    let io = || Error::io("wait for the end of a login");
    let begin = Instant::now();
    let mut silent = connect();
    silent.set_read_timeout(Some(PATIENCE)).map_err(io())?;
    let mut greeting = [0; 4];
    // A server reads its limit when it has accepted; it has greeted after that.
    silent.read_exact(&mut greeting).map_err(io())?;
    execute(root, &format!("SET GLOBAL connect_timeout = {}", 10 * timeout_s))?;
    let mut patient = connect();
    // The server has unread bytes, so it ends the connection with a reset.
    let end = silent.read_to_end(&mut Vec::new());
    let took = begin.elapsed();
    patient.set_nonblocking(true).map_err(io())?;
    let rest = patient.read_to_end(&mut Vec::new());
    execute(root, &format!("SET GLOBAL connect_timeout = {timeout_s}"))?;
    let is_end = end.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true);
    require(is_end, format!("a login that stopped: {end:?}"))?;
    let earliest = Duration::from_secs(timeout_s) - Duration::from_millis(100);
    require(took >= earliest, format!("a login ended after {took:?}"))?;
    let is_there = rest.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    require(is_there, "a login outlived one with ten times its time")
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
    poll_until("the end of a killed connection", PATIENCE, || {
        Ok((query_text(&mut killer, &gone)? == [["0"]]).then_some(()))
    })?;
    require(idle.query_drop("SELECT 1").is_err(), "an idle connection survives its KILL")?;

    for kill in ["KILL", "KILL QUERY"] {
        let (mut conn, id) = used()?;
        let sleeper = std::thread::spawn(move || {
            let result = conn.query_drop("SELECT SLEEP(100000) FROM (SELECT 1 UNION SELECT 2) x");
            (conn, result)
        });
        let sleeps = format!(
            "SELECT state FROM information_schema.processlist WHERE id = {id} AND info LIKE '%SLEEP%'"
        );
        poll_until("the sleep", PATIENCE, || {
            Ok((!query_text(&mut killer, &sleeps)?.is_empty()).then_some(()))
        })?;
        execute(&mut killer, &format!("{kill} {id}"))?;
        poll_until(&format!("the end of a sleep after {kill}"), PATIENCE, || {
            Ok(sleeper.is_finished().then_some(()))
        })?;
        let (mut conn, result) =
            sleeper.join().map_err(|_| Error::State("a client's thread panicked".to_owned()))?;
        if kill == "KILL" {
            require(result.is_err(), "a statement ended well though its connection was killed")?;
            require(conn.query_drop("SELECT 1").is_err(), "a connection survives its KILL")?;
        } else {
            statements(&mut conn, habit)?;
        }
    }
    Ok(())
}
