//! A group of stock servers with a wsrep provider, observed from outside.
//!
//! A [`Group`] owns its members: servers on one host, each with a directory, ports and a copy of one fresh data
//! directory. The group treats the provider as a black box: it starts, kills and stops members as processes, and
//! queries them with SQL. So the same checks apply to Galera and any other provider.
//!
//! * [`load`]: ledger clients on every member, and the longest time without an acknowledged commit.
//! * [`hot`]: one row that all members increment.
//! * [`hosts`]: a network for each member.
//! * `provider`: options of the provider, and certificates.
//!
//! Invariants: a member keeps its addresses over restarts, and no other process gets them meanwhile ([`ports`]). A
//! stopped member (SIGSTOP) receives no queries, since it would not answer. The drop of a group kills its servers and
//! no other process, then removes their directories.
//!
//! Directory: `m0`, `m1`, ... of [`Server`]; `certificates`; `ledger-0`, ... of [`load`]; `bin` as [`programs`] has it.

pub mod hosts;
pub mod hot;
pub mod load;
pub mod ports;
pub mod programs;
mod provider;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mysql::Conn;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::{find_program, kill9, poll_every, run_to_end};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};

use hosts::Hosts;
pub use provider::Provider;
use provider::{Addresses, Cluster, certify, cluster_name, member_args};
use redoubt_workload::check::Snapshot;
use redoubt_workload::ledger::{self, Entries, Report};

/// Timeout for members to agree, or to become part of the group again.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Interval between two queries of a member's state: each needs a connection of its own, beside a load.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Number of lines of a member's error log in a message.
const LOG_LINES: usize = 40;
const HOST: &str = "127.0.0.1";

#[derive(Debug)]
struct Member {
    server: Server,
    /// Whether SIGSTOP stopped the process.
    stopped: bool,
    _addresses: Addresses,
}

/// A group of stock servers with a wsrep provider, observed from outside.
#[derive(Debug)]
pub struct Group {
    members: Vec<Member>,
    start_times: Vec<Duration>,
    // Dropped after the servers, which run in these networks.
    hosts: Option<Hosts>,
    directory: tempfile::TempDir,
}

impl Group {
    /// Creates a group. The first member bootstraps it. The others join one after the other, each once the previous
    /// one is synced. `tweak` may change the configuration of every member.
    ///
    /// # Errors
    /// The first failure; [`Error::State`] with the ends of all logs when a member does not join.
    pub fn create(provider: &Provider, members: usize, tweak: impl Fn(&mut ServerConfig)) -> Result<Self> {
        Self::prepare(provider, members, None, tweak)?.begin()
    }

    /// Like [`Group::create`], with a separate network for each member, so that [`Group::cut`] works.
    ///
    /// # Errors
    /// As for [`Group::create`] and [`Hosts::create`].
    pub fn create_apart(
        provider: &Provider,
        members: usize,
        tweak: impl Fn(&mut ServerConfig),
    ) -> Result<Self> {
        let hosts = Hosts::create(members)?;
        Self::prepare(provider, members, Some(hosts), tweak)?.begin()
    }

    fn begin(mut self) -> Result<Self> {
        let group = &mut self;
        for index in 0..group.len() {
            // The reason is often in the log of another member.
            let joined = group.join(index);
            joined.map_err(|error| match error {
                Error::Interrupted => error,
                other => {
                    let logs = group.log_tails(LOG_LINES);
                    Error::State(format!("member {index} does not join: {other}\n{logs}"))
                }
            })?;
        }
        Ok(self)
    }

    /// Like [`Group::create`], but all joining members start at the same time.
    ///
    /// # Errors
    /// As for [`Group::create`].
    pub fn create_at_once(
        provider: &Provider,
        members: usize,
        tweak: impl Fn(&mut ServerConfig),
    ) -> Result<Self> {
        let mut group = Self::prepare(provider, members, None, tweak)?;
        group.join(0)?;
        (1..members).try_for_each(|index| group.server_mut(index)?.spawn(&[]))?;
        (1..members).try_for_each(|index| group.server_mut(index)?.wait_ready())?;
        (0..members).try_for_each(|index| group.wait_synced(index, PATIENCE))?;
        Ok(group)
    }

    /// Starts a member for the first time.
    fn join(&mut self, index: usize) -> Result<()> {
        let start = Instant::now();
        let bootstrap: &[&str] = if index == 0 { &["--wsrep-new-cluster"] } else { &[] };
        self.server_mut(index)?.start_with(bootstrap)?;
        self.wait_synced(index, PATIENCE)?;
        self.start_times.push(start.elapsed());
        Ok(())
    }

    /// Creates the directories and configurations of all members.
    fn prepare(
        provider: &Provider,
        members: usize,
        hosts: Option<Hosts>,
        tweak: impl Fn(&mut ServerConfig),
    ) -> Result<Self> {
        if !provider.library.is_file() {
            return Err(Error::missing(provider.library.display().to_string(), "it is the wsrep provider"));
        }
        let directory = tempfile::Builder::new()
            .prefix("rdg-")
            .tempdir()
            .map_err(Error::io("make a temporary directory"))?;
        let path = programs::path(directory.path(), provider.scripts.as_deref())?;
        let addresses = (0..members).map(|_| Addresses::reserve()).collect::<Result<Vec<_>>>()?;
        let host = |index| hosts.as_ref().map_or_else(|| HOST.to_owned(), |hosts| hosts.address(index));
        let everybody = addresses.iter().enumerate();
        let everybody: Vec<String> =
            everybody.map(|(index, addresses)| format!("{}:{}", host(index), addresses.group)).collect();
        let host_names: Vec<String> = (0..members).map(host).collect();
        let name = cluster_name(directory.path());
        let authority = match provider.is_encrypted {
            true => Some(certify(directory.path(), &name, &host_names)?),
            false => None,
        };
        let cluster = Cluster { name, everybody: everybody.join(","), authority };
        let mut group = Self { members: Vec::new(), start_times: Vec::new(), hosts, directory };
        for (index, addresses) in addresses.into_iter().enumerate() {
            let mut config = ServerConfig::new(Launcher::Stock);
            config.log_file_size_bytes = 48 << 20;
            config.server_args = member_args(provider, &cluster, index, &host_names[index], &addresses);
            config.network = group.hosts.as_ref().map(|hosts| hosts.name(index));
            config.environment.push(("PATH".to_owned(), path.clone()));
            tweak(&mut config);
            let home = group.directory.path().join(format!("m{index}"));
            let mut server = Server::in_directory(config, &home)?;
            match group.members.first() {
                None => server.install_db()?,
                Some(first) => copy_into(&first.server.datadir(), &server.datadir())?,
            }
            group.members.push(Member { server, stopped: false, _addresses: addresses });
        }
        Ok(group)
    }

    /// Number of members, running or not.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether the group has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Time that each member took to its first synced state, without the installation before.
    pub fn start_times(&self) -> &[Duration] {
        &self.start_times
    }

    /// The directory with all files of this group.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the directory and the servers' files when this is dropped.
    pub fn keep(&mut self) {
        self.directory.disable_cleanup(true);
    }

    /// The server of member `index`.
    ///
    /// # Errors
    /// [`Error::State`] when there is no such member.
    pub fn server(&self, index: usize) -> Result<&Server> {
        Ok(&self.member(index)?.server)
    }

    /// Mutable access to [`Group::server`].
    ///
    /// # Errors
    /// As for [`Group::server`].
    pub fn server_mut(&mut self, index: usize) -> Result<&mut Server> {
        Ok(&mut self.member_mut(index)?.server)
    }

    fn member(&self, index: usize) -> Result<&Member> {
        self.members.get(index).ok_or_else(|| no_member(index))
    }

    fn member_mut(&mut self, index: usize) -> Result<&mut Member> {
        self.members.get_mut(index).ok_or_else(|| no_member(index))
    }

    /// Members that run and are not stopped.
    pub fn running(&self) -> Vec<usize> {
        let runs = |member: &Member| member.server.process_id().is_some() && !member.stopped;
        (0..).zip(&self.members).filter(|(_, member)| runs(member)).map(|(index, _)| index).collect()
    }

    /// Kills a member with SIGKILL, stopped or not.
    ///
    /// # Errors
    /// [`Error::State`] when it does not run.
    pub fn kill9(&mut self, index: usize) -> Result<()> {
        let member = self.member_mut(index)?;
        member.stopped = false;
        member.server.kill9()
    }

    /// Kills all running members with SIGKILL, in such a short time that none can react.
    ///
    /// # Errors
    /// [`Error::Io`] from the operating system.
    pub fn kill9_all(&mut self) -> Result<()> {
        let running: Vec<&mut Member> =
            self.members.iter_mut().filter(|member| member.server.process_id().is_some()).collect();
        for id in running.iter().filter_map(|member| member.server.process_id()) {
            kill9(id.cast_signed())?;
        }
        for member in running {
            member.stopped = false;
            member.server.kill9()?;
        }
        Ok(())
    }

    /// Shuts a member down cleanly and waits until it exits.
    ///
    /// # Errors
    /// As for [`Server::shutdown`].
    pub fn shutdown(&mut self, index: usize) -> Result<()> {
        self.member_mut(index)?.server.shutdown()
    }

    /// Restarts a member with the addresses of all members only, and waits until it is part of the group.
    ///
    /// # Errors
    /// As for [`Server::start`]; see [`Group::wait_synced`].
    pub fn start(&mut self, index: usize) -> Result<()> {
        self.server_mut(index)?.start()?;
        self.wait_synced(index, PATIENCE)
    }

    /// Restarts all members after all were down: like [`Group::start`], at the same time, and without an operator.
    ///
    /// # Errors
    /// As for [`Group::start`].
    pub fn start_all_after_blackout(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.server.spawn(&[])?;
        }
        for member in &mut self.members {
            member.server.wait_ready()?;
        }
        (0..self.len()).try_for_each(|index| self.wait_synced(index, PATIENCE))
    }

    /// Stops a member's process (SIGSTOP).
    ///
    /// # Errors
    /// As for [`Server::halt`].
    pub fn stop_process(&mut self, index: usize) -> Result<()> {
        let member = self.member_mut(index)?;
        member.server.halt()?;
        member.stopped = true;
        Ok(())
    }

    /// Resumes a stopped member (SIGCONT).
    ///
    /// # Errors
    /// As for [`Server::resume`].
    pub fn cont(&mut self, index: usize) -> Result<()> {
        let member = self.member_mut(index)?;
        member.server.resume()?;
        member.stopped = false;
        Ok(())
    }

    /// Cuts a member off from the others. Its connections stay open.
    ///
    /// # Errors
    /// [`Error::State`] unless each has a network of its own; [`Error::Command`] of `ip`.
    pub fn cut(&self, index: usize) -> Result<()> {
        self.hosts()?.cut(index)
    }

    /// Blocks or unblocks the link between two members, which still reach all others ([`Hosts::part`]).
    ///
    /// # Errors
    /// As for [`Group::cut`].
    pub fn part(&self, pair: [usize; 2], is_parted: bool) -> Result<()> {
        self.hosts()?.part(pair, is_parted)
    }

    /// Removes a member's address, or restores it.
    ///
    /// # Errors
    /// As for [`Group::cut`].
    pub fn set_addressed(&self, index: usize, has_address: bool) -> Result<()> {
        self.hosts()?.set_addressed(index, has_address)
    }

    /// Reconnects a member with the others.
    ///
    /// # Errors
    /// As for [`Group::cut`].
    pub fn rejoin(&self, index: usize) -> Result<()> {
        self.hosts()?.join(index)
    }

    fn hosts(&self) -> Result<&Hosts> {
        self.hosts.as_ref().ok_or_else(|| Error::State("the members share one network".to_owned()))
    }

    /// Waits until a member reports that it is ready, synced, and in a primary component of all running members.
    ///
    /// # Errors
    /// [`Error::Deadline`] with its last answer and the end of its log, [`Error::Exited`] when its process ended.
    pub fn wait_synced(&mut self, index: usize, timeout: Duration) -> Result<()> {
        let size = self.running().len().to_string();
        let wanted = [
            ("wsrep_cluster_size", size.as_str()),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_local_state_comment", "Synced"),
            ("wsrep_ready", "ON"),
        ];
        let member = self.member_mut(index)?;
        let mut seen = "it did not answer".to_owned();
        let synced = poll_every(LOOK_INTERVAL, &format!("member {index} in sync"), timeout, || {
            member.server.require_running()?;
            let status = match wsrep_status(&member.server) {
                Ok(status) => status,
                Err(error) if error.is_connection_loss() => return Ok(None),
                Err(error) => return Err(error),
            };
            let answer = |name: &str| status.get(name).map_or("", String::as_str);
            if wanted.iter().all(|(name, value)| answer(name) == *value) {
                return Ok(Some(()));
            }
            let answers = wanted.map(|(name, value)| format!("{name} is {:?}, not {value:?}", answer(name)));
            seen = answers.join(", ");
            Ok(None)
        });
        let log = member.server.error_log_tail(LOG_LINES);
        synced.map_err(|error| with_detail(error, || format!("{seen}; the end of its log:\n{log}")))
    }

    /// A value of a member's `SHOW GLOBAL STATUS`, such as `wsrep_last_committed`.
    ///
    /// # Errors
    /// [`Error::Parse`] when there is no such value, [`Error::Sql`].
    pub fn status(&self, index: usize, name: &str) -> Result<String> {
        let mut status = wsrep_status(self.server(index)?)?;
        status.remove(name).ok_or_else(|| Error::Parse {
            what: format!("the status of member {index}"),
            detail: format!("there is no {name}"),
        })
    }

    /// A connection to a member whose statements see everything that any member has acknowledged before.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn causal_connection(&self, index: usize) -> Result<Conn> {
        let mut conn = self.server(index)?.connect()?;
        execute(&mut conn, "SET SESSION wsrep_sync_wait = 15")?;
        Ok(conn)
    }

    /// Waits until all running members have applied the same position, and returns it. The group must receive no
    /// writes.
    ///
    /// # Errors
    /// [`Error::Deadline`] with the positions of all members, [`Error::Sql`].
    pub fn wait_applied(&self, timeout: Duration) -> Result<u64> {
        let mut seen = Vec::new();
        let applied = poll_every(LOOK_INTERVAL, "the same position on all members", timeout, || {
            seen = self.positions()?;
            let first = seen.first().copied();
            Ok(first.filter(|first| seen.iter().all(|position| position == first)))
        });
        applied.map_err(|error| {
            let logs = self.log_tails(LOG_LINES / 2);
            with_detail(error, || format!("they have applied {seen:?}; the ends of their logs:\n{logs}"))
        })
    }

    fn positions(&self) -> Result<Vec<u64>> {
        let position = |index: usize| {
            let text = self.status(index, "wsrep_last_committed")?;
            let parse_error = |_| Error::Parse {
                what: format!("wsrep_last_committed of member {index}"),
                detail: text.clone(),
            };
            text.parse().map_err(parse_error)
        };
        self.running().into_iter().map(position).collect()
    }

    /// Waits until all running members have applied the same position. Then checksums and definitions of all user
    /// tables must be equal. Returns the number of tables. The group must receive no writes meanwhile.
    ///
    /// # Errors
    /// [`Error::Violation`] with every difference; as for [`Group::wait_applied`].
    pub fn require_equal_checksums(&self) -> Result<usize> {
        let position = self.wait_applied(PATIENCE)?;
        let mut first: Option<(usize, Snapshot)> = None;
        for index in self.running() {
            let snapshot = Snapshot::take(&mut self.server(index)?.connect()?, None, &[])?;
            match &first {
                None => first = Some((index, snapshot)),
                Some((other, expected)) => {
                    expected.require_same(&snapshot, &format!("member {index} beside member {other}"))?;
                }
            }
        }
        if self.positions()?.iter().any(|now| *now != position) {
            return Err(Error::State(format!("something was written after {position} was compared")));
        }
        first
            .map(|(_, snapshot)| snapshot.checksums.len())
            .ok_or_else(|| Error::State("no member runs".to_owned()))
    }

    /// Compares the tables of every running member with all ledgers of this group, and returns the report of the last
    /// one. No load may run.
    ///
    /// # Errors
    /// [`Error::Violation`] that names the member and the faults; as for [`Group::wait_applied`].
    pub fn require_sound_ledger(&self) -> Result<Report> {
        let mut last = None;
        for (index, report) in self.ledger_reports()? {
            let report = report.require_sound();
            last = Some(report.map_err(|error| Error::Violation(format!("member {index}: {error}")))?);
        }
        last.ok_or_else(|| Error::State("no member runs".to_owned()))
    }

    /// Compares each running member with all ledgers of this group. No load may run.
    ///
    /// # Errors
    /// As for [`Group::wait_applied`].
    pub fn ledger_reports(&self) -> Result<Vec<(usize, Report)>> {
        self.wait_applied(PATIENCE)?;
        let entries = Entries::read_all(&load::ledgers(self))?;
        let report = |index| Ok((index, ledger::verify(&mut self.server(index)?.connect()?, &entries)?));
        self.running().into_iter().map(report).collect()
    }

    /// The members' status of the group, and the ends of their error logs, for messages.
    pub fn log_tails(&self, lines: usize) -> String {
        let tail = |(index, member): (usize, &Member)| {
            let says = member.says().unwrap_or_else(|error| error.to_string());
            format!("---- member {index}\n{says}\n{}\n", member.server.error_log_tail(lines))
        };
        self.members.iter().enumerate().map(tail).collect()
    }
}

impl Member {
    /// The member's status of the group, one line per value.
    fn says(&self) -> Result<String> {
        if self.stopped {
            return Ok("it is stopped".to_owned());
        }
        let own = ["wsrep_last_committed", "wsrep_local_recv_queue", "wsrep_local_state_comment"];
        let status = wsrep_status(&self.server)?.into_iter();
        let lines =
            status.filter(|(name, _)| name.starts_with("wsrep_group") || own.contains(&name.as_str()));
        Ok(lines.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join("\n"))
    }
}

fn wsrep_status(server: &Server) -> Result<BTreeMap<String, String>> {
    let rows = query_text(&mut server.connect()?, "SHOW GLOBAL STATUS LIKE 'wsrep\\_%'")?;
    let pair = |row: Vec<String>| {
        let mut words = row.into_iter();
        Some((words.next()?, words.next()?))
    };
    Ok(rows.into_iter().filter_map(pair).collect())
}

/// Copies the data directory of the first member, so that the installation runs only once.
fn copy_into(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new(find_program("cp", "coreutils")?);
    run_to_end(command.args(["-a", "--sparse=always"]).arg(from.join(".")).arg(to)).map(drop)
}

fn no_member(index: usize) -> Error {
    Error::State(format!("there is no member {index}"))
}

fn with_detail(error: Error, detail: impl FnOnce() -> String) -> Error {
    match error {
        Error::Deadline { what, after, .. } => Error::Deadline { what, after, detail: detail() },
        other => other,
    }
}

#[cfg(test)]
mod tests;
