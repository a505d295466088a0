//! `redoubt net`: the network library of servers on this host.

pub mod args;
mod servers;

use crate::error::{CliError, Result};
use crate::run::{preload, server};
use crate::show::print_json;
use args::{Layer, NetCommand, NetRunArguments, NetSetArguments, NetStatusArguments};
use redoubt_wire::net::{BYPASS_VARIABLE, Counter, Mode, Snapshot, VARIABLE};
use serde::Serialize;
use servers::NetServer;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Does what was asked for.
///
/// # Errors
/// Those of the command.
pub fn run(command: &NetCommand) -> Result<()> {
    match command {
        NetCommand::Run(arguments) => start(arguments),
        NetCommand::Status(arguments) => status(arguments),
        NetCommand::Set(arguments) => set(arguments),
    }
}

fn start(arguments: &NetRunArguments) -> Result<()> {
    let library = preload::find("libredoubt_net.so", arguments.library.as_deref(), "--library")?;
    let Some((name, rest)) = arguments.command.split_first() else {
        return Err(CliError::Usage("no server command after `--`".to_owned()));
    };
    let program = server::find_program(name)?;
    preload::check(&program, &library)?;
    let error = Command::new(&program)
        .args(rest)
        .env("LD_PRELOAD", preload::value(&library))
        .env(VARIABLE, format!("collapser={}", arguments.collapser.name()))
        .env(BYPASS_VARIABLE, if arguments.bypass { "on" } else { "off" })
        .exec();
    Err(CliError::io("start", program, error))
}

#[derive(Serialize)]
struct NetStatus {
    process_id: u32,
    datadir: Option<String>,
    started_at_seconds: u64,
    collapser: &'static str,
    collapser_in_force: &'static str,
    open_connections: u64,
    saved_system_calls: u64,
    counters: BTreeMap<&'static str, u64>,
}

impl NetStatus {
    fn new(server: &NetServer, snapshot: &Snapshot) -> Self {
        let get = |counter| snapshot.get(counter);
        Self {
            process_id: server.pid,
            datadir: server.datadir.as_ref().map(|path| path.display().to_string()),
            started_at_seconds: snapshot.start_s,
            collapser: snapshot.collapser.name(),
            collapser_in_force: snapshot.collapser.resolved().name(),
            open_connections: get(Counter::Connections).saturating_sub(get(Counter::Closed)),
            saved_system_calls: snapshot.saved(),
            counters: Counter::ALL.iter().map(|counter| (counter.name(), get(*counter))).collect(),
        }
    }

    fn print(&self, snapshot: &Snapshot) {
        let get = |counter| snapshot.get(counter);
        let place = self.datadir.as_deref().unwrap_or("?");
        say!("server of process {} in {place}", self.process_id);
        match snapshot.collapser {
            Mode::Auto => say!("  collapser      auto, which is {}", self.collapser_in_force),
            mode => say!("  collapser      {}", mode.name()),
        }
        say!(
            "  connections    {} open, {} in all; {} collapsed, {} left to the kernel",
            self.open_connections,
            get(Counter::Connections),
            get(Counter::Collapsed),
            get(Counter::LeftAlone)
        );
        say!("  requests       {}", get(Counter::Requests));
        say!(
            "  reads, waits   {}, for which {} system calls were made",
            get(Counter::Calls),
            get(Counter::SystemCalls)
        );
        let each = self.saved_system_calls as f64 / get(Counter::Requests).max(1) as f64;
        say!("  saved          {} system calls, {each:.2} a request", self.saved_system_calls);
    }
}

fn status(arguments: &NetStatusArguments) -> Result<()> {
    let mut all = Vec::new();
    for server in servers::selected(&arguments.selection)? {
        let snapshot = server.snapshot()?;
        all.push((NetStatus::new(&server, &snapshot), snapshot));
    }
    if arguments.json {
        return print_json(&all.iter().map(|(status, _)| status).collect::<Vec<_>>());
    }
    for (status, snapshot) in &all {
        status.print(snapshot);
    }
    Ok(())
}

fn set(arguments: &NetSetArguments) -> Result<()> {
    let server = servers::selected_one(&arguments.selection)?;
    match arguments.layer {
        Layer::Collapser => server.set_collapser(arguments.mode),
    }
}
