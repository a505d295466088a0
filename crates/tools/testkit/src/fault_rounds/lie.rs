//! Planted lies: faults that no storage may survive unnoticed, so that a round that passes means something.
//!
//! A `fsync` that is swallowed shows only when power is lost, which no killed process loses. A swallowed *write*
//! does: the bytes are nowhere. The node's injector reports writes of the log as done without doing them, then node
//! and server are killed at once and the server's directory goes too (what the node has not confirmed is in there),
//! so that nobody is left who could send again or object. The ledger must notice.

use super::*;

/// Runs the lie, and returns what the ledger says. `None`: it was found out before the ledger was asked. Either the
/// node refuses, because it had written a checkpoint since that its log does not reach; or the server, because a page
/// that the node had applied since is newer than what is left of the log, or the list of binary logs names one that is
/// not there.
///
/// # Errors
/// When the lie could not be told; that it was not noticed shows in the report.
pub fn run(seed: u64) -> Result<Option<(ledger::Report, Counts)>> {
    let mut setup = Setup::new(seed, None, None, "1M")?;
    let options = ledger::Options { clients: CLIENTS, tolerates_errors: true, ..ledger::Options::default() };
    let run = Run::start(&setup.server.socket(), &setup.ledger, options)?;
    run.wait_for_more(50, PATIENCE)?;
    setup.node_faults.set(seed, "write swallow kind=file path=*/log/*\n")?;
    run.wait_for_more(50, PATIENCE)?;
    setup.server.kill9()?;
    setup.node.kill9()?;
    setup.server.empty_data_directory()?;
    setup.calm()?;
    setup.node.start()?;
    if let Err(error) = setup.server.start() {
        const FOUND_OUT: [&str; 3] =
            ["files of the log are missing", "is in the future", "Could not open log file"];
        let said = error.to_string();
        return if FOUND_OUT.iter().any(|words| said.contains(words)) { Ok(None) } else { Err(error) };
    }
    run.stop()?;
    let report = ledger::verify(&mut setup.server.connect()?, &Entries::read(&setup.ledger)?)?;
    Ok(Some((report, setup.node_faults.counts()?)))
}
