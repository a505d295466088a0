//! Planted lies: faults that no storage may survive unnoticed, so that a round that passes means something.
//!
//! A `fsync` that is swallowed shows only when power is lost, which no killed process loses. A swallowed *write* does: the
//! bytes are nowhere. The node's injector reports writes of the log as done without doing them, then node and server are
//! killed at once, so that nobody is left who could send again or object. The ledger must notice.

use super::*;

/// Who noticed.
#[derive(Debug)]
pub enum Noticed {
    /// The node itself, at its restart: it had written a checkpoint since, which its log does not reach.
    ByNode,
    /// Nobody before the ledger, which says this; whether it noticed shows there.
    Ledger(ledger::Report),
}

/// Runs the lie.
///
/// # Errors
/// When the lie could not be told.
pub fn run(seed: u64) -> Result<(Noticed, Counts)> {
    let mut setup = Setup::new(seed)?;
    let options = ledger::Options { clients: CLIENTS, tolerates_errors: true, ..ledger::Options::default() };
    let run = Run::start(&setup.server.socket(), &setup.ledger, options)?;
    run.wait_for_more(50, PATIENCE)?;
    setup.node_faults.set(seed, "write swallow kind=file path=*/log/*\n")?;
    run.wait_for_more(50, PATIENCE)?;
    setup.server.kill9()?;
    setup.node.kill9()?;
    setup.calm()?;
    setup.node.start()?;
    let noticed = match setup.server.start() {
        Err(error) if error.to_string().contains("files of the log are missing") => Noticed::ByNode,
        Err(error) => return Err(error),
        Ok(()) => {
            run.stop()?;
            Noticed::Ledger(ledger::verify(&mut setup.server.connect()?, &Entries::read(&setup.ledger)?)?)
        }
    };
    Ok((noticed, setup.node_faults.counts()?))
}
