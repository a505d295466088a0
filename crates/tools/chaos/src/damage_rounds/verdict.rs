//! Effect of a round's damage, and whether it keeps the three promises of [`super`].
//!
//! The server is asked first. Where it cannot start or read, the ways out that a user has are tried in their order: the
//! table is dropped, the volume is exported, a copy of the file is put back.

use super::blow::Blow;
use super::load::History;
use super::{NodeState, PATIENCE, Round, VOLUME, server_config};
use mysql::Conn;
use redoubt_harness::command::Outcome;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::poll_until;
use redoubt_workload::product::Product;
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;
use std::fmt;
use std::path::Path;

/// Effect of the damage. All of these keep the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The server has all rows, and so has an export. Nothing is named: the damage was repaired, or it hit nothing that
    /// counts.
    AllThere,
    /// The server has all rows; an export names what is damaged.
    AllThereAndNamed,
    /// Tables that are named cannot be read. They were dropped, and the rest is whole.
    TableDropped,
    /// No server starts; the export has all but what it names.
    Exported,
    /// No server starts; the export ends at the last good position, and reports that.
    ExportedUpToDamage,
    /// No server starts; the message asks for a copy of the file, with which all is there.
    PutBack,
    /// An earlier version of pages of a table, with a valid checksum. Nothing proves it any more.
    OlderPageUnnoticed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllThere => "all rows there",
            Self::AllThereAndNamed => "all rows there, export names it",
            Self::TableDropped => "table set aside and dropped, rest whole",
            Self::Exported => "export of what is whole",
            Self::ExportedUpToDamage => "export up to the damage",
            Self::PutBack => "refused until the file is put back",
            Self::OlderPageUnnoticed => "older page unnoticed",
        })
    }
}

/// A table as a server has it.
struct Looked {
    history: History,
    /// After which change it is, or why it cannot be read.
    found: Result<u64>,
}

impl Looked {
    fn is_complete(&self) -> bool {
        matches!(self.found, Ok(last) if last >= self.history.acknowledged())
    }

    fn describe(&self) -> String {
        match &self.found {
            Ok(last) => {
                format!("{} is after change {last} of {}", self.history.table(), self.history.acknowledged())
            }
            Err(error) => format!("{}: {error}", self.history.table()),
        }
    }
}

/// `is_alive`: after the damage, each table was changed, or the server has ended.
pub(super) fn of(round: &mut Round, blow: &Blow, histories: &[History], is_alive: bool) -> Result<Verdict> {
    let mut said = String::new();
    if let Err(error) = ensure_server(&mut round.server, &mut said) {
        said += &error.to_string();
        return without_server(round, blow, histories, said);
    }
    let looked = look(&mut round.server, histories, &mut said);
    said += &round.node.status(VOLUME)?.to_string();
    said += &round.server.error_log_tail(60);
    if looked.iter().all(Looked::is_complete) {
        if !is_alive && !said.contains("quarantine\":[{") {
            return Err(Error::Violation(format!(
                "the server runs, and some table takes no changes: {said}"
            )));
        }
        let whole = require_export(round, blow, histories, &[], said)?;
        return Ok(if whole { Verdict::AllThere } else { Verdict::AllThereAndNamed });
    }
    let lost: Vec<_> = looked.iter().filter(|looked| !looked.is_complete()).collect();
    if let Some(verdict) = older_page(blow, &lost) {
        return Ok(verdict);
    }
    if let Some(unnamed) = lost.iter().find(|looked| !is_named(&looked.history, &said)) {
        if round.server.connect().is_err() {
            return without_server(round, blow, histories, said);
        }
        return Err(Error::Violation(format!("{}, and nothing names it: {said}", unnamed.describe())));
    }
    drop_tables(round, &lost)?;
    let names: Vec<_> = lost.iter().map(|looked| looked.history.file()).collect();
    require_export(round, blow, histories, &names, said)?;
    Ok(Verdict::TableDropped)
}

fn ensure_server(server: &mut Server, said: &mut String) -> Result<()> {
    if server.process_id().is_some() && server.connect().is_err() {
        let _ = server.kill9();
    }
    if server.process_id().is_none() {
        let started = server.start();
        *said += &server.error_log_tail(60);
        started?;
    }
    server.connect().map(drop)
}

fn look(server: &mut Server, histories: &[History], said: &mut String) -> Vec<Looked> {
    let mut looked = Vec::new();
    for history in histories {
        let found = server.connect().and_then(|mut conn: Conn| history.compare(&mut conn));
        if found.is_err() && server.connect().is_err() {
            *said += &server.error_log_tail(60);
            let _ = server.kill9();
            // It may end again at the same page: the other tables are to be read all the same.
            let _ = server.start_with(&["--innodb-force-recovery=1"]);
        }
        looked.push(Looked { history: *history, found });
    }
    looked
}

fn is_named(history: &History, said: &str) -> bool {
    said.contains(&history.file())
}

/// Nothing proves that an older version of a page with a valid checksum is not the newest, once its log is gone. All that
/// is missing must be of the table of that page, and the table must be readable: the page is whole.
fn older_page(blow: &Blow, lost: &[&Looked]) -> Option<Verdict> {
    let owner = blow.older_page_of()?;
    let is_explained = |looked: &&Looked| {
        looked.history.table() == format!("d.t{owner}") && !matches!(looked.found, Err(Error::Sql { .. }))
    };
    lost.iter().all(is_explained).then_some(Verdict::OlderPageUnnoticed)
}

fn drop_tables(round: &mut Round, lost: &[&Looked]) -> Result<()> {
    let _ = round.server.kill9();
    if round.server.start().is_err() {
        let _ = round.server.kill9();
        round.server.start_with(&["--innodb-force-recovery=1"])?;
    }
    for looked in lost {
        execute(&mut round.server.connect()?, &format!("DROP TABLE {}", looked.history.table()))?;
    }
    let names: Vec<_> = lost.iter().map(|looked| looked.history.file()).collect();
    poll_until("the end of the quarantine of dropped tables", PATIENCE, || {
        let list = round.node.status(VOLUME)?["volumes"][0]["quarantine"].to_string();
        Ok(names.iter().all(|name| !list.contains(name.as_str())).then_some(()))
    })
}

/// Exports, and compares what a stock server finds there with the tables but `without`. False: the export names damage,
/// and everything that it does not name is there.
fn require_export(
    round: &Round,
    blow: &Blow,
    histories: &[History],
    without: &[String],
    said: String,
) -> Result<bool> {
    let directory = tempfile::tempdir().map_err(Error::io("make a temporary directory"))?;
    let outcome = export(round, directory.path(), &[])?;
    let is_whole = match outcome.code {
        Some(0) => true,
        Some(2) => false,
        _ => {
            return Err(Error::Violation(format!(
                "the export fails: {} {}; {said}",
                outcome.stdout, outcome.stderr
            )));
        }
    };
    let names: String = without.join(" ") + &outcome.stderr;
    let looked = look_at_export((directory.path(), &round.product), histories, is_whole, &outcome.stderr)?;
    let lost = looked.iter().find(|looked| {
        !looked.is_complete() && !is_named(&looked.history, &names) && older_page(blow, &[looked]).is_none()
    });
    match lost {
        None => Ok(is_whole),
        Some(lost) => Err(Error::Violation(format!(
            "the export ({:?}) does not name this: {}; {}; {said}",
            outcome.code,
            lost.describe(),
            outcome.stderr
        ))),
    }
}

fn export(round: &Round, directory: &Path, options: &[&str]) -> Result<Outcome> {
    let address = round.node.address().to_string();
    let data = directory.join("data").display().to_string();
    let arguments = ["volume", "export", VOLUME, "--to", &data, "--node", &address];
    Outcome::of(round.node.redoubt_bin(), [&arguments[..], options].concat(), PATIENCE)
}

/// Removes the binary logs that are not there from their index, as the export asks for. False: it does not.
fn remove_missing_logs(directory: &Path, said: &str) -> Result<bool> {
    let Some((before, _)) = said.split_once(" names binary logs that are not in the export: ") else {
        return Ok(false);
    };
    let data = directory.join("data");
    let path = data.join(before.rsplit(' ').next().unwrap_or_default());
    let text = std::fs::read_to_string(&path).map_err(Error::io_at("read", &path))?;
    let kept: String =
        text.lines().filter(|line| data.join(line).exists()).flat_map(|line| [line, "\n"]).collect();
    std::fs::write(&path, kept).map_err(Error::io_at("write", &path))?;
    Ok(true)
}

/// `said`: what the export reports.
fn look_at_export(
    (directory, product): (&Path, &Product),
    histories: &[History],
    is_whole: bool,
    said: &str,
) -> Result<Vec<Looked>> {
    let mut stock = Server::in_directory(server_config(Launcher::Stock, product), directory)?;
    let mut started = stock.start().is_ok();
    if !started && remove_missing_logs(directory, said)? {
        started = stock.start().is_ok();
        if !started && stock.error_log_tail(60).contains("--tc-heuristic-recover") {
            // It ends by itself.
            let _ = stock.start_with(&["--tc-heuristic-recover=COMMIT"]);
            started = stock.start().is_ok();
        }
    }
    if !started {
        if is_whole {
            return Err(Error::Violation(format!(
                "no server starts on an export with status 0: {}",
                stock.error_log_tail(40)
            )));
        }
        let _ = stock.kill9();
        stock.start_with(&["--innodb-force-recovery=1"])?;
    }
    let looked = look(&mut stock, histories, &mut String::new());
    let _ = stock.kill9();
    Ok(looked)
}

/// The server does not start on the volume, or ends. `said` is what a user sees.
fn without_server(
    round: &mut Round,
    blow: &Blow,
    histories: &[History],
    mut said: String,
) -> Result<Verdict> {
    let _ = round.server.kill9();
    said += &round.node.status(VOLUME).map_or_else(|error| error.to_string(), |status| status.to_string());
    said += &round.node.log_tail(40);
    let directory = tempfile::tempdir().map_err(Error::io("make a temporary directory"))?;
    let mut outcome = export(round, directory.path(), &[])?;
    if outcome.code == Some(1) && outcome.stderr.contains("--with-damaged") {
        said += &outcome.stderr;
        outcome = export(round, directory.path(), &["--with-damaged"])?;
    }
    said += &outcome.stderr;
    if !matches!(outcome.code, Some(0 | 2)) {
        return put_back(round, blow, histories, &said);
    }
    let is_whole = outcome.code == Some(0);
    let looked = look_at_export((directory.path(), &round.product), histories, is_whole, &outcome.stderr)?;
    // Or: it is not known whether commits after that were acknowledged.
    let is_said = ["acknowledged commits", "commits after that were acknowledged"];
    let ends_early = is_said.iter().any(|said| outcome.stderr.contains(said)) && blow.is_in_log_or_state();
    for looked in &looked {
        let is_prefix = ends_early && looked.found.is_ok();
        let is_excused = is_prefix || older_page(blow, &[looked]).is_some();
        if !looked.is_complete() && !is_excused && !is_named(&looked.history, &outcome.stderr) {
            return Err(Error::Violation(format!(
                "no server starts, and the export ({:?}) does not name this: {}; {said}",
                outcome.code,
                looked.describe()
            )));
        }
    }
    if !blow.is_named_in(&said) && !histories.iter().any(|history| is_named(history, &said)) && is_whole {
        return Err(Error::Violation(format!("no server starts, and nothing names a file: {said}")));
    }
    Ok(if ends_early { Verdict::ExportedUpToDamage } else { Verdict::Exported })
}

/// Nothing else is possible. The message must name the file and ask for a copy of it.
fn put_back(round: &mut Round, blow: &Blow, histories: &[History], said: &str) -> Result<Verdict> {
    if !blow.is_named_in(said) || !said.contains("copy") {
        return Err(Error::Violation(format!(
            "no server starts, no export works, and no way out is named: {said}"
        )));
    }
    if round.state == NodeState::Running {
        return Err(Error::Violation(format!(
            "a file that was damaged while the node ran stops everything, and only an operator helps: {said}"
        )));
    }
    if round.node.process_id().is_some() {
        round.node.kill9()?;
    }
    blow.undo(&round.volume_directory())?;
    round.node.start()?;
    ensure_server(&mut round.server, &mut String::new())?;
    let looked = look(&mut round.server, histories, &mut String::new());
    match looked.iter().find(|looked| !looked.is_complete()) {
        None => Ok(Verdict::PutBack),
        Some(lost) => Err(Error::Violation(format!("with the file put back: {}; {said}", lost.describe()))),
    }
}
