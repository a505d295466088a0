//! `redoubt group rescue`: the last server of a group whose others are lost continues alone.

use super::args::GroupRescueArguments;
use crate::error::{CliError, Result};
use crate::show::{confirm, print_json};
use redoubt_group::rescue::{Report, Rescue, Voter};
use serde::Serialize;
use std::fmt::Write as _;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Timeout of another member's answer.
const ANSWER: Duration = Duration::from_secs(3);

/// Output for programs.
#[derive(Serialize)]
struct Shown<'a> {
    group: &'a str,
    seqno: i64,
    undecided: usize,
    epoch: u64,
    end: u64,
    voters: Vec<ShownVoter<'a>>,
    is_alone: bool,
}

#[derive(Serialize)]
struct ShownVoter<'a> {
    name: Option<&'a str>,
    address: Option<&'a str>,
    is_self: bool,
}

impl<'a> ShownVoter<'a> {
    fn of(voter: &'a Voter) -> Self {
        let Voter { name, address, is_self } = voter;
        Self { name: name.as_deref(), address: address.as_deref(), is_self: *is_self }
    }
}

/// Shows what the server has, and has it go on alone if that is confirmed.
///
/// # Errors
/// [`CliError::Usage`] if it cannot be done, or is not confirmed.
pub fn run(arguments: &GroupRescueArguments) -> Result<()> {
    let directory = &arguments.datadir;
    let opened = Rescue::open(directory);
    // Opening it may have made files.
    give_to_owner(directory)?;
    let rescue = opened.map_err(|error| CliError::Usage(error.to_string()))?;
    let report = rescue.report();
    if arguments.show || report.is_alone {
        match arguments.json {
            true => print_json(&shown(&report, false))?,
            false => crate::output::show(format_args!("{}", text(&report))),
        }
        if report.is_alone && !arguments.json {
            say!("It is the only member already; start the server as usual.");
        }
        return Ok(());
    }
    require_silent(&report.lost)?;
    if !arguments.json {
        crate::output::show(format_args!("{}", text(&report)));
    }
    let question = format!(
        "This server becomes the only member of its group. Commits that only {} had are lost for good, and none of \
         them may ever be started with what it has of this group: there would be two histories. Type 'alone': ",
        names(&report.lost)
    );
    if !arguments.yes && !confirm("going on alone", &question, "alone")? {
        return Err(CliError::Usage("nothing was changed".to_owned()));
    }
    let done = rescue.go_on_alone();
    give_to_owner(directory)?;
    done.map_err(|error| CliError::Usage(error.to_string()))?;
    if arguments.json {
        return print_json(&shown(&report, true));
    }
    say!(
        "This server is the only member now. Start it as usual (without --wsrep-new-cluster). Before you start \
         any other member again, remove redoubt_group.*.log from its data directory: it joins as a new member."
    );
    Ok(())
}

fn shown(report: &Report, is_alone: bool) -> Shown<'_> {
    Shown {
        group: &report.group,
        seqno: report.seqno.0,
        undecided: report.undecided,
        epoch: report.reach.0,
        end: report.reach.1,
        voters: report.voters.iter().map(ShownVoter::of).collect(),
        is_alone,
    }
}

fn name(voter: &Voter) -> String {
    let name = voter.name.as_deref().unwrap_or("a member of unknown name");
    match &voter.address {
        Some(address) => format!("{name} ({address})"),
        None => name.to_owned(),
    }
}

fn names(voters: &[Voter]) -> String {
    voters.iter().map(name).collect::<Vec<_>>().join(" and ")
}

fn text(report: &Report) -> String {
    let mut out = format!("group          {}\n", report.group);
    for voter in &report.voters {
        let this = if voter.is_self { ", this server" } else { "" };
        let _ = writeln!(out, "votes          {}{this}", name(voter));
    }
    let _ = writeln!(
        out,
        "ordered        {} (wsrep_last_committed), as far as this server knows",
        report.seqno.0
    );
    let _ = writeln!(
        out,
        "more here      {} of which it does not know whether a majority had them; they are kept",
        report.undecided
    );
    let (epoch, end) = report.reach;
    let _ = writeln!(
        out,
        "log ends       in epoch {epoch}, at {end}: of two servers, take the one with the higher epoch, \
                           and of two in the same epoch the one that ends later"
    );
    out
}

/// A member that answers is not lost.
fn require_silent(others: &[Voter]) -> Result<()> {
    for voter in others {
        let Some(address) = &voter.address else { continue };
        let is_there = |address| TcpStream::connect_timeout(&address, ANSWER).is_ok();
        if address.to_socket_addrs().is_ok_and(|mut found| found.any(is_there)) {
            return Err(CliError::Usage(format!(
                "{} answers, so it is not lost: start this server as always, and the group comes back with it. If that \
                 is another server at its address, stop it first",
                name(voter)
            )));
        }
    }
    Ok(())
}

/// The server runs as another account than this command.
fn give_to_owner(directory: &Path) -> Result<()> {
    let wrong = |error| CliError::io("read", directory, error);
    let Ok(owner) = std::fs::metadata(directory) else { return Ok(()) };
    for entry in std::fs::read_dir(directory).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let metadata = entry.metadata().map_err(wrong)?;
        let is_foreign = (metadata.uid(), metadata.gid()) != (owner.uid(), owner.gid());
        if entry.file_name().as_encoded_bytes().starts_with(b"redoubt_group.") && is_foreign {
            std::os::unix::fs::chown(entry.path(), Some(owner.uid()), Some(owner.gid()))
                .map_err(|error| CliError::io("give the server's account", entry.path(), error))?;
        }
    }
    Ok(())
}
