//! Planted lies: faults that no storage may survive unnoticed, so that a round that passes means something.
//!
//! A swallowed `fsync` shows only at a loss of power, which the end of a process is not. A swallowed *write* does: the
//! bytes are nowhere. The node's injector reports writes of the log as done without doing them. Then node and server
//! are killed at once, and the server's directory goes too, because it holds the data that the node has not confirmed.
//! So no process is left that could send the data again or object. The ledger must notice.

use super::*;

/// Runs the lie, and returns the ledger's report. `None`: the lie was found before the ledger was compared. Either the
/// node refuses to start, because its checkpoint is newer than the end of its log. Or the server refuses, because a
/// page that the node has applied is newer than the remaining log, or because the list of binary logs names a missing
/// one.
///
/// # Errors
/// An error that prevents the lie. An unnoticed lie is no error; it shows in the report.
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
