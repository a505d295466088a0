//! Sessions of a server that stand still, shown without a clock.
//!
//! Invariant: what [`wait_until_still`] returns was true from its first look to its last: each session was in the same
//! statement all the time, while [`MEANWHILE`] other sessions were opened, answered and closed, one after the other. A
//! machine that is slow or busy slows those down as well.

use std::time::Duration;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::Server;
use redoubt_workload::sql::query_text;

/// Statements of others that end while the watched ones do not. Much longer than a commit, also one that waits for a
/// slow sync.
pub const MEANWHILE: usize = 300;

/// Sessions and the statements they are in, by their numbers: a session that continues has another statement.
type Busy = Vec<Vec<String>>;

/// Waits until as many sessions as `count` that fit `condition` (of `information_schema.PROCESSLIST`) are each in a
/// statement that does not end.
///
/// # Errors
/// [`Error::Deadline`] with the sessions as they were seen last, or [`Error::Sql`] if the server does not answer.
pub fn wait_until_still(server: &Server, condition: &str, count: usize, timeout: Duration) -> Result<()> {
    let mut last = Vec::new();
    let seen = poll_until("sessions that stand still", timeout, || {
        last = busy(server, condition)?;
        if last.len() != count {
            return Ok(None);
        }
        for _ in 0..MEANWHILE {
            // Of no table: a page may have to come from the node.
            server.query("SELECT 1")?;
        }
        Ok((busy(server, condition)? == last).then_some(()))
    });
    seen.map_err(|error| match error {
        Error::Deadline { what, after, .. } => {
            Error::Deadline { what, after, detail: format!("{condition}: {last:?}") }
        }
        other => other,
    })
}

fn busy(server: &Server, condition: &str) -> Result<Busy> {
    let statement = format!(
        "SELECT ID, QUERY_ID FROM information_schema.PROCESSLIST WHERE COMMAND IN ('Query', 'Execute') \
         AND ID <> CONNECTION_ID() AND ({condition}) ORDER BY ID"
    );
    query_text(&mut server.connect()?, &statement)
}
