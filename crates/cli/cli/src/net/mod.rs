//! `redoubt net`: the network library of servers on this host.

pub mod args;
mod metrics;
mod page;
mod servers;

use crate::error::{CliError, Result};
use crate::run::preload::find;
use crate::show::print_json;
use args::{Change, NetArguments, NetCommand, NetRunArguments, NetSetArguments, NetStatusArguments, Switch};
use redoubt_client::{preload, server};
use redoubt_shm_control::net::{
    Admission, BYPASS_VARIABLE, BYPASS_WORD, Counter, Habit, LEASE_WORD, Mode, PATIENCE_WORD, Setting,
    Snapshot, USER_TCP_WORD, UserTcpLink, VARIABLE,
};
use serde::Serialize;
use servers::NetServer;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Does what was asked for.
///
/// # Errors
/// Errors of the sub-command.
pub fn run(arguments: &NetArguments) -> Result<()> {
    match &arguments.command {
        NetCommand::Run(arguments) => start(arguments),
        NetCommand::Status(arguments) => status(arguments),
        NetCommand::Set(arguments) => set(arguments),
    }
}

fn start(arguments: &NetRunArguments) -> Result<()> {
    let library = find("libredoubt_net.so", arguments.library.as_deref(), "--library")?;
    let Some((name, rest)) = arguments.command.split_first() else {
        return Err(CliError::Usage("no server command after `--`".to_owned()));
    };
    let program = server::find_program(name)?;
    preload::check(&program, &library)?;
    let names = arguments.user_tcp.iter().map(|wanted| wanted.interface.as_str());
    require_interfaces(names, "/proc/self/net/dev".as_ref())?;
    let error = Command::new(&program)
        .args(rest)
        .env("LD_PRELOAD", preload::value(&library))
        .env(VARIABLE, setting(arguments).to_value())
        .env(BYPASS_VARIABLE, if arguments.bypass { "on" } else { "off" })
        .exec();
    Err(CliError::io("start", program, error))
}

/// The kernel's TCP would serve without a word but that in the server's log: a name that is misspelt is better refused.
/// `list`: the kernel's list of the interfaces of this network namespace; where it cannot be read nothing is refused.
fn require_interfaces<'name>(mut names: impl Iterator<Item = &'name str>, list: &Path) -> Result<()> {
    let Ok(list) = std::fs::read_to_string(list) else { return Ok(()) };
    let known: Vec<&str> = list.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    let Some(missing) = names.find(|name| !known.contains(name)) else { return Ok(()) };
    let known = known.join(", ");
    Err(CliError::Usage(format!("there is no network interface {missing} (--user-tcp); there are {known}")))
}

fn setting(arguments: &NetRunArguments) -> Setting {
    let admission = Admission {
        limit: arguments.admission,
        lease_ms: arguments.admission_lease * 1000,
        longest_wait_ms: arguments.admission_longest_wait * 1000,
        administrators: arguments.admission_administrator.clone(),
    };
    Setting { collapser: arguments.collapser, admission, user_tcp: arguments.user_tcp.clone() }
}

#[derive(Serialize)]
struct Waiter {
    /// `TID` in MariaDB's information_schema.processlist, THREAD_OS_ID in performance_schema.threads.
    thread_id: u32,
    descriptor: u32,
    waited_seconds: f64,
    client: Option<String>,
}

#[derive(Serialize)]
struct AdmissionStatus {
    /// `null`: off.
    limit: Option<u32>,
    lease_seconds: f64,
    longest_wait_seconds: f64,
    inside: u64,
    waiting: u64,
    /// Duration of the longest completed wait since the start.
    longest_ended_wait_seconds: f64,
    /// The first entries of the queue.
    waiters: Vec<Waiter>,
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

impl AdmissionStatus {
    fn new(snapshot: &Snapshot) -> Self {
        let waiter = |waiter: &redoubt_shm_control::net::Waiter| {
            let address = std::net::SocketAddr::from((waiter.address, waiter.port));
            Waiter {
                thread_id: waiter.thread_id,
                descriptor: waiter.descriptor,
                waited_seconds: seconds(waiter.waited_ms),
                client: (waiter.port != 0).then(|| address.to_string()),
            }
        };
        Self {
            limit: snapshot.limit.count(),
            lease_seconds: seconds(snapshot.lease_ms),
            longest_wait_seconds: seconds(snapshot.longest_wait_ms),
            inside: snapshot.inside,
            waiting: snapshot.waiting,
            longest_ended_wait_seconds: seconds(snapshot.longest_ended_wait_ms),
            waiters: snapshot.waiters.iter().map(waiter).collect(),
        }
    }

    fn print(&self, snapshot: &Snapshot) {
        let get = |counter| snapshot.get(counter);
        let Some(limit) = self.limit else {
            return say!("  admission      off");
        };
        say!(
            "  admission      {} of {limit} inside, {} waiting; maximum wait so far {:.3} s",
            self.inside,
            self.waiting,
            self.longest_ended_wait_seconds
        );
        say!(
            "  commands       {} admitted at once, {} after a wait, of which {} over the limit; {} waits \
             cancelled",
            get(Counter::Entered),
            get(Counter::Waited),
            get(Counter::LetInLate),
            get(Counter::WaitsEnded)
        );
        say!(
            "  never wait     {} connections not parsed, {} with locks, {} of administrators; {} leases ended",
            get(Counter::NotUnderstood),
            get(Counter::Holders),
            get(Counter::Administrators),
            get(Counter::LeasesEnded)
        );
        for waiter in &self.waiters {
            let client = waiter.client.as_deref().unwrap_or("a local client");
            say!("    thread {} for {client}: {:.1} s", waiter.thread_id, waiter.waited_seconds);
        }
    }
}

#[derive(Serialize)]
struct LinkStatus {
    interface: String,
    /// zero-copy, native, generic, or failed: the kernel has it alone.
    mode: &'static str,
    connections: u64,
    opened: u64,
    frames_received: u64,
    frames_sent: u64,
    frames_dropped: u64,
    segments_retransmitted: u64,
    resets_received: u64,
    timed_out: u64,
    bad_checksums: u64,
}

impl LinkStatus {
    fn new(link: &UserTcpLink) -> Self {
        Self {
            interface: link.interface.clone(),
            mode: link.mode.name(),
            connections: link.connections,
            opened: link.opened,
            frames_received: link.frames_received,
            frames_sent: link.frames_sent,
            frames_dropped: link.frames_dropped,
            segments_retransmitted: link.retransmitted,
            resets_received: link.resets_received,
            timed_out: link.timed_out,
            bad_checksums: link.bad_checksums,
        }
    }

    fn print(&self) {
        say!(
            "  {:<14} {}, {} connections past the kernel's TCP, {} in all",
            self.interface,
            self.mode,
            self.connections,
            self.opened
        );
        say!(
            "    frames       {} received, {} sent, {} dropped (buffers full), {} with a wrong checksum",
            self.frames_received,
            self.frames_sent,
            self.frames_dropped,
            self.bad_checksums
        );
        say!(
            "    segments     {} retransmitted; {} connections reset by clients, {} timed out",
            self.segments_retransmitted,
            self.resets_received,
            self.timed_out
        );
    }
}

#[derive(Serialize)]
struct UserTcpStatus {
    /// New connections are taken.
    is_on: bool,
    interfaces: Vec<LinkStatus>,
}

impl UserTcpStatus {
    fn new(snapshot: &Snapshot) -> Self {
        Self {
            is_on: snapshot.is_user_tcp_on,
            interfaces: snapshot.user_tcp.iter().map(LinkStatus::new).collect(),
        }
    }

    fn print(&self) {
        say!("  user-tcp       {}", if self.is_on { "on" } else { "off" });
        self.interfaces.iter().for_each(LinkStatus::print);
    }
}

#[derive(Serialize)]
struct NetStatus {
    process_id: u32,
    datadir: Option<String>,
    started_at_seconds: u64,
    collapser: &'static str,
    /// `null`: it is not known yet.
    collapser_in_force: Option<&'static str>,
    /// New connections of clients on this host go past TCP, if these were started so as well.
    bypass: bool,
    open_connections: u64,
    saved_system_calls: u64,
    admission: AdmissionStatus,
    user_tcp: UserTcpStatus,
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
            collapser_in_force: (snapshot.collapser == Mode::Off || snapshot.habit != Habit::Unknown)
                .then(|| snapshot.collapser.resolved(snapshot.habit).name()),
            bypass: snapshot.is_bypass_on,
            open_connections: get(Counter::Connections).saturating_sub(get(Counter::Closed)),
            saved_system_calls: snapshot.saved(),
            admission: AdmissionStatus::new(snapshot),
            user_tcp: UserTcpStatus::new(snapshot),
            counters: Counter::ALL.iter().map(|counter| (counter.name(), get(*counter))).collect(),
        }
    }

    fn print(&self, snapshot: &Snapshot) {
        let get = |counter| snapshot.get(counter);
        let place = self.datadir.as_deref().unwrap_or("?");
        say!("server of process {} in {place}", self.process_id);
        match self.collapser_in_force {
            Some(in_force) if in_force != self.collapser => {
                say!("  collapser      {}, which is {in_force} in this server", self.collapser);
            }
            _ => say!("  collapser      {}", self.collapser),
        }
        say!("  bypass         {}", if self.bypass { "on" } else { "off" });
        say!(
            "  connections    {} open, {} in all; {} collapsed, {} left to the kernel, {} past TCP",
            self.open_connections,
            get(Counter::Connections),
            get(Counter::Collapsed),
            get(Counter::LeftAlone),
            get(Counter::Bypassed)
        );
        say!("  requests       {}", get(Counter::Requests));
        say!(
            "  reads, waits   {}, for which {} system calls were made",
            get(Counter::Calls),
            get(Counter::SystemCalls)
        );
        let each = self.saved_system_calls as f64 / get(Counter::Requests).max(1) as f64;
        say!("  saved          {} system calls, {each:.2} a request", self.saved_system_calls);
        self.admission.print(snapshot);
        self.user_tcp.print();
    }
}

fn status(arguments: &NetStatusArguments) -> Result<()> {
    if arguments.listen.is_some() {
        return page::serve(arguments);
    }
    let mut all = Vec::new();
    let mut snapshots = Vec::new();
    for server in servers::selected(&arguments.selection)? {
        let snapshot = server.snapshot()?;
        all.push(NetStatus::new(&server, &snapshot));
        snapshots.push(snapshot);
    }
    if arguments.json {
        return print_json(&all);
    }
    if arguments.prometheus {
        crate::output::show(format_args!("{}", metrics::render(&all, 0)));
        return Ok(());
    }
    for (status, snapshot) in all.iter().zip(&snapshots) {
        status.print(snapshot);
    }
    Ok(())
}

fn set(arguments: &NetSetArguments) -> Result<()> {
    match &arguments.change {
        Change::Collapser { mode, selection } => servers::selected_one(selection)?.set_collapser(*mode),
        Change::Admission { limit, selection } => servers::selected_one(selection)?.set_limit(*limit),
        Change::Bypass { state, selection } => {
            servers::selected_one(selection)?.set_word(BYPASS_WORD, u64::from(matches!(state, Switch::On)))
        }
        Change::UserTcp { state, selection } => {
            let is_on = matches!(state, Switch::On);
            servers::selected_one(selection)?.set_word(USER_TCP_WORD, u64::from(is_on))
        }
        Change::AdmissionLease { seconds, selection } => {
            servers::selected_one(selection)?.set_word(LEASE_WORD, seconds * 1000)
        }
        Change::AdmissionLongestWait { seconds, selection } => {
            servers::selected_one(selection)?.set_word(PATIENCE_WORD, seconds * 1000)
        }
    }
}

#[cfg(test)]
mod tests;
