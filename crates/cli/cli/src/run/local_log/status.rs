//! `redoubt status --local-log`: the counters of a server whose redo log is in persistent memory.

use crate::error::{CliError, Result};
use crate::show::{bytes, print_json};
use redoubt_shm_control::local_log::{Counter, FILE_NAME, Persistence, Snapshot};
use rustix::fs::FlockOperation;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

#[derive(Serialize)]
struct LocalLogStatus {
    datadir: String,
    process_id: u64,
    running: bool,
    started_at_seconds: u64,
    persistence: &'static str,
    /// Time in the calls a commit may wait for. Writes that make a file longer are left out: servers do that ahead.
    commit_wait_nanos: u64,
    counters: BTreeMap<&'static str, u64>,
}

/// Shows the server of a data directory.
///
/// # Errors
/// [`CliError::Usage`] if none was started there with `--local-log`; errors of the system.
pub fn run(datadir: &Path, json: bool) -> Result<()> {
    let path = datadir.join(FILE_NAME);
    let file = File::open(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => CliError::Usage(format!(
            "there is no {}: no server was started in this data directory with `redoubt run --local-log`, or it has \
             not opened its redo log yet",
            path.display()
        )),
        _ => CliError::io("open", &path, error),
    })?;
    let content = std::fs::read(&path).map_err(|error| CliError::io("read", &path, error))?;
    let snapshot =
        Snapshot::parse(&content).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
    // The server holds the lock for as long as it lives.
    let running = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    let status = LocalLogStatus {
        datadir: datadir.display().to_string(),
        process_id: snapshot.process_id,
        running,
        started_at_seconds: snapshot.start_s,
        persistence: match snapshot.persistence {
            Persistence::NothingMapped => "nothing mapped yet",
            Persistence::MapSync => "persistent memory (MAP_SYNC)",
            Persistence::Pretended => "pretended: ordinary memory, lost with the power",
        },
        commit_wait_nanos: [Counter::MappedWriteNanos, Counter::SyncsAvoidedNanos, Counter::SyncsPassedNanos]
            .iter()
            .map(|counter| snapshot.get(*counter))
            .sum(),
        counters: Counter::ALL.iter().map(|counter| (counter.name(), snapshot.get(*counter))).collect(),
    };
    if json { print_json(&status) } else { print(&status, &snapshot) }
}

fn print(status: &LocalLogStatus, snapshot: &Snapshot) -> Result<()> {
    let state = if status.running { "running" } else { "ended" };
    say!("local log of {}", status.datadir);
    say!("  server          process {}, {state}", status.process_id);
    say!("  durability      {}", status.persistence);
    let line = |title: &str, calls: Counter, nanos: Counter, byte_count: Option<Counter>| {
        let (calls, nanos) = (snapshot.get(calls), snapshot.get(nanos));
        let size =
            byte_count.map_or_else(String::new, |counter| format!(", {}", bytes(snapshot.get(counter))));
        let mean = nanos.checked_div(calls).unwrap_or(0);
        say!("  {title:<15} {calls}{size}, {} us in all, {mean} ns each", nanos / 1000);
    };
    line("writes, mapped", Counter::MappedWrites, Counter::MappedWriteNanos, Some(Counter::MappedBytes));
    line("writes, kernel", Counter::PassedWrites, Counter::PassedWriteNanos, Some(Counter::PassedBytes));
    line("syncs, avoided", Counter::SyncsAvoided, Counter::SyncsAvoidedNanos, None);
    line("syncs, kernel", Counter::SyncsPassed, Counter::SyncsPassedNanos, None);
    say!("  commit wait     {} us", status.commit_wait_nanos / 1000);
    say!("  fences          {}", snapshot.get(Counter::Fences));
    say!("  mappings        {}", snapshot.get(Counter::Mappings));
    say!("  maps refused    {}", snapshot.get(Counter::MapsRefused));
    say!("  failures        {}", snapshot.get(Counter::Failures));
    Ok(())
}
