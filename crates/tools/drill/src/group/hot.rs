//! One row that clients on all members increment: no increment may be lost or counted twice.
//!
//! Members apply each other's increments while their own clients hold the row, so nearly every one conflicts. The
//! value must equal the number of acknowledged increments on each member. A client repeats an increment after a
//! conflict. Any other error ends the run, because its increment would be neither.

use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::sql::{connect, execute};

use super::{Group, PATIENCE};

const INCREMENT: &str = "UPDATE redoubt_hot.counter SET value = value + 1 WHERE id = 1";
const VALUE: &str = "SELECT value FROM redoubt_hot.counter WHERE id = 1";

/// Results that the clients received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counted {
    /// Acknowledged increments: the value of the row on every member.
    pub acknowledged: u64,
    /// Increments that were rejected as conflicts.
    pub conflicts: u64,
    /// Duration of the increments.
    pub elapsed: Duration,
}

/// Increments for `duration` with `clients` on every running member, and compares the row of each member with the sum.
///
/// # Errors
/// [`Error::Violation`] when a member has another value, [`Error::Sql`]; as for [`Group::wait_applied`].
pub fn count(group: &Group, clients: usize, duration: Duration) -> Result<Counted> {
    let members = group.running();
    let first = *members.first().ok_or_else(|| Error::State("no member runs".to_owned()))?;
    let mut conn = group.server(first)?.connect()?;
    for statement in [
        "CREATE DATABASE IF NOT EXISTS redoubt_hot",
        "CREATE OR REPLACE TABLE redoubt_hot.counter (id INT PRIMARY KEY, value BIGINT UNSIGNED NOT NULL) \
         ENGINE=InnoDB",
        "INSERT INTO redoubt_hot.counter VALUES (1, 0)",
    ] {
        execute(&mut conn, statement)?;
    }
    group.wait_applied(PATIENCE)?;
    let sockets =
        members.iter().map(|index| Ok(group.server(*index)?.socket())).collect::<Result<Vec<_>>>()?;

    let began = Instant::now();
    let until = began + duration;
    let counted = std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .flat_map(|socket| std::iter::repeat_n(socket, clients))
            .map(|socket| scope.spawn(move || client(socket, until)))
            .collect();
        let mut total = Counted { acknowledged: 0, conflicts: 0, elapsed: Duration::ZERO };
        for thread in threads {
            let ended =
                thread.join().unwrap_or_else(|_| Err(Error::State("a client panicked".to_owned())))?;
            total.acknowledged += ended.0;
            total.conflicts += ended.1;
        }
        Ok(total)
    })?;
    let counted = Counted { elapsed: began.elapsed(), ..counted };

    group.wait_applied(PATIENCE)?;
    for index in members {
        let value = group.server(index)?.query(VALUE)?;
        if value != [[counted.acknowledged.to_string()]] {
            return Err(Error::Violation(format!(
                "the counter of member {index} is {value:?} after {} acknowledged increments",
                counted.acknowledged
            )));
        }
    }
    Ok(counted)
}

/// Acknowledged increments and conflicts of one client.
fn client(socket: &std::path::Path, until: Instant) -> Result<(u64, u64)> {
    let mut conn = connect(socket)?;
    let (mut acknowledged, mut conflicts) = (0, 0);
    while Instant::now() < until {
        match execute(&mut conn, INCREMENT) {
            Ok(()) => acknowledged += 1,
            Err(error) if error.is_retryable() => conflicts += 1,
            Err(error) => return Err(error),
        }
    }
    Ok((acknowledged, conflicts))
}
