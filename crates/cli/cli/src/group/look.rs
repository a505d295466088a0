//! State of a group: the servers' reports about themselves and about the others, put together.
//!
//! The list of members is that of the server that has a majority and the newest epoch. A server's report about itself
//! (its state, its position) counts more than the reports of others about it.
//!
//! All servers are asked at the same time, each by a thread of its own ([`Worker`]) over a connection that is kept for
//! the next look. A look has one deadline, however the servers and name servers behave: a thread that still waits then
//! is left alone, and asked again once it has returned. Looks have numbers, so that a late answer to an earlier look is
//! never the answer to this one.

use super::args::Login;
use super::dial::{Address, Dialer};
use super::sql::{Connection, SqlError};
use crate::error::{CliError, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

const DEFAULT_SOCKET: &str = "/run/mysqld/mysqld.sock";
const DEFAULT_PORT: u16 = 3306;
/// Provider name of the library (`entry.rs` of `redoubt-group`).
const PROVIDER: &str = "Redoubt Group";
/// A server that does not answer within this time is shown as unreachable.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after the deadline in which a server's own error may come.
const GRACE: Duration = Duration::from_millis(500);
/// Time without a message after which a member is away, as in the library.
const AWAY_MS: u64 = 3000;
/// Number of missing write sets from which flow control (`pace` of the library) excludes a member: it has to catch up
/// by itself.
const FAR_BEHIND: i64 = 64 * 32;

/// A group at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// `wsrep_cluster_name`.
    pub group: String,
    /// Id of the group, which never changes.
    pub group_id: String,
    /// Number of members needed to commit.
    pub needed: usize,
    /// Number of voters that are present.
    pub present: usize,
    /// Grows with each change of who owns slots or votes.
    pub epoch: u64,
    /// The last number that was given to a write set.
    pub last_ordered: i64,
    /// All members, by name.
    pub members: Vec<MemberLook>,
    /// The servers that were asked.
    pub servers: Vec<ServerLook>,
    /// Problems that need an operator; empty when all is well.
    pub problems: Vec<String>,
}

/// A member.
#[derive(Clone, Debug, Serialize)]
pub struct MemberLook {
    /// `wsrep_node_name`.
    pub name: String,
    /// Address for other members.
    pub address: String,
    /// Address for clients.
    pub client_address: String,
    /// State in words: its own report, or the reports of others.
    pub state: String,
    /// It counts for the majority.
    pub votes: bool,
    /// It proposes by itself; otherwise it forwards its commits to a member with slots.
    pub owns_slots: bool,
    /// It is there, and not silent.
    pub is_there: bool,
    /// Number of the last write set that its server has applied.
    pub applied: Option<i64>,
    /// Write sets that it lacks.
    pub lag: Option<i64>,
    /// Time since the last message from it; `None` for the server that reports this.
    pub heard_ms: Option<u64>,
}

/// A server that was asked.
#[derive(Clone, Debug, Serialize)]
pub struct ServerLook {
    /// Server as named on the command line.
    pub server: String,
    /// `wsrep_node_name`.
    pub name: Option<String>,
    /// `wsrep_local_state_comment`.
    pub state: Option<String>,
    /// Reason why it did not answer.
    pub error: Option<String>,
}

/// Asks the same servers again and again.
pub struct Observer {
    asked: Vec<Asked>,
    /// Number of looks so far.
    looks: u64,
}

/// A request to one server.
#[derive(Clone, Copy)]
struct Request {
    /// Number of the look.
    look: u64,
    /// Deadline of the answer.
    until: Instant,
}

struct Asked {
    name: String,
    requests: Sender<Request>,
    /// Answers with the numbers of their looks.
    answers: Receiver<(u64, std::result::Result<Answer, String>)>,
    /// It has not returned from its last request.
    is_busy: bool,
}

/// The thread that asks one server. It ends with its [`Observer`], once its last request has returned.
struct Worker {
    dialer: Dialer,
    user: String,
    password: Option<String>,
    connection: Option<Connection>,
}

/// The answer of a server.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    name: String,
    group: String,
    status: BTreeMap<String, String>,
}

/// A member in the library's JSON (`order/roster.rs` of `redoubt-group`).
#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Seen {
    name: String,
    address: String,
    client_address: String,
    votes: bool,
    is_there: bool,
    owns_slots: bool,
    applied: Option<i64>,
    heard_ms: Option<u64>,
    is_self: bool,
}

impl Observer {
    /// An observer of the servers that the command line names.
    ///
    /// # Errors
    /// [`CliError::Usage`] for an invalid name, errors of the system for the file with the password or without a thread.
    pub fn new(login: &Login) -> Result<Self> {
        let named =
            if login.server.is_empty() { vec![DEFAULT_SOCKET.to_owned()] } else { login.server.clone() };
        let password = match &login.password_file {
            Some(file) => Some(first_line(file)?),
            None => std::env::var("MYSQL_PWD").ok(),
        };
        let asked = |name: String| {
            let address = parse(&name).ok_or_else(|| {
                CliError::Usage(format!("{name:?} is no server: HOST, HOST:PORT or the path of a socket"))
            })?;
            let (user, password) = (login.user.clone(), password.clone());
            Asked::start(name, Worker { dialer: Dialer::new(address), user, password, connection: None })
        };
        Ok(Self { asked: named.into_iter().map(asked).collect::<Result<_>>()?, looks: 0 })
    }

    /// Asks all of them.
    ///
    /// # Errors
    /// [`CliError::Usage`] if none of them answers as a member of a group, with each server's error.
    pub fn look(&mut self) -> Result<Look> {
        self.looks += 1;
        let request = Request { look: self.looks, until: Instant::now() + ANSWER_TIMEOUT };
        self.asked.iter_mut().for_each(|asked| asked.ask(request));
        let end = request.until + GRACE;
        let answers: Vec<_> = self.asked.iter_mut().map(|asked| asked.take(request, end)).collect();
        let names = self.asked.iter().map(|asked| asked.name.as_str());
        compose(&names.zip(answers).collect::<Vec<_>>())
    }
}

impl Asked {
    fn start(name: String, mut worker: Worker) -> Result<Self> {
        let (requests, requested) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        let work = move || {
            while let Ok(Request { look, until }) = requested.recv()
                && sender.send((look, worker.ask(until))).is_ok()
            {}
        };
        let spawned = std::thread::Builder::new().name("redoubt-ask".to_owned()).spawn(work);
        spawned.map_err(|error| CliError::io("start a thread for", Path::new(&name), error))?;
        Ok(Self { name, requests, answers, is_busy: false })
    }

    fn ask(&mut self, request: Request) {
        // Its answer to an earlier look, which came too late.
        if self.is_busy && self.answers.try_recv().is_ok() {
            self.is_busy = false;
        }
        self.is_busy = self.is_busy || self.requests.send(request).is_ok();
    }

    /// The answer to this request, if it comes before `end`.
    fn take(&mut self, request: Request, end: Instant) -> std::result::Result<Answer, String> {
        loop {
            match self.answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((look, answer)) => {
                    self.is_busy = false;
                    if look == request.look {
                        return answer;
                    }
                    // The thread was busy with an earlier look until now.
                    self.ask(request);
                }
                Err(RecvTimeoutError::Timeout) => return Err(no_answer()),
                Err(RecvTimeoutError::Disconnected) => return Err("an internal error".to_owned()),
            }
        }
    }
}

impl Worker {
    fn ask(&mut self, until: Instant) -> std::result::Result<Answer, String> {
        let answer = self.try_ask(until).map_err(|error| words(&error));
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }

    fn try_ask(&mut self, until: Instant) -> std::result::Result<Answer, SqlError> {
        // A kept connection may have ended with its server: then a new one.
        if let Some(connection) = &mut self.connection {
            connection.set_deadline(until);
            if let Ok(answer) = Answer::read(connection) {
                return Ok(answer);
            }
        }
        let connection = Connection::open(&mut self.dialer, &self.user, self.password.as_deref(), until)?;
        Answer::read(self.connection.insert(connection))
    }
}

impl Answer {
    fn read(connection: &mut Connection) -> std::result::Result<Self, SqlError> {
        let status = pairs(connection.query("SHOW GLOBAL STATUS LIKE 'wsrep\\_%'")?);
        let query = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_node_name', 'wsrep_cluster_name')";
        let mut variables = pairs(connection.query(query)?);
        let mut take = |name: &str| variables.remove(name).unwrap_or_default();
        Ok(Self { name: take("wsrep_node_name"), group: take("wsrep_cluster_name"), status })
    }

    fn text(&self, name: &str) -> &str {
        self.status.get(name).map_or("", String::as_str)
    }

    fn number<T: std::str::FromStr + Default>(&self, name: &str) -> T {
        self.text(name).parse().unwrap_or_default()
    }

    fn state(&self) -> &str {
        self.text("wsrep_local_state_comment")
    }

    fn is_alone(&self) -> bool {
        self.state() == "Without a majority"
    }

    /// The members as it sees them.
    fn members(&self) -> std::result::Result<Vec<Seen>, String> {
        let of_members = |(name, _): &(&String, &String)| name.starts_with("wsrep_group_member_");
        let parse = |(name, text): (&String, &String)| {
            serde_json::from_str(text).map_err(|error| format!("its {name} is not understood: {error}"))
        };
        self.status.iter().filter(of_members).map(parse).collect()
    }

    /// Reason why it is not a server of a Redoubt group.
    fn complaint(&self) -> Option<String> {
        if self.status.contains_key("wsrep_group_epoch") {
            return None;
        }
        let provider = self.text("wsrep_provider_name");
        Some(match provider {
            "" | "NULL" => "it has no wsrep provider (wsrep_on, wsrep_provider)".to_owned(),
            PROVIDER => format!("it is not part of a group: its state is {}", self.state()),
            other => format!("its wsrep provider is {other}, not Redoubt's libredoubt_group.so"),
        })
    }
}

/// An error of a connection, for people: the system's error for a deadline is EAGAIN.
fn words(error: &SqlError) -> String {
    if error.is_timeout() { no_answer() } else { error.to_string() }
}

fn no_answer() -> String {
    format!("it does not answer within {} s", ANSWER_TIMEOUT.as_secs())
}

fn pairs(rows: Vec<Vec<String>>) -> BTreeMap<String, String> {
    let pair = |row: Vec<String>| {
        let mut cells = row.into_iter();
        Some((cells.next()?.to_lowercase(), cells.next()?))
    };
    rows.into_iter().filter_map(pair).collect()
}

/// Puts together what servers have answered.
fn compose(answers: &[(&str, std::result::Result<Answer, String>)]) -> Result<Look> {
    let mut servers = Vec::new();
    let mut sound: Vec<&Answer> = Vec::new();
    for (server, answer) in answers {
        let complaint = match answer {
            Ok(answer) => answer.complaint().or_else(|| answer.members().err()),
            Err(error) => Some(error.clone()),
        };
        sound.extend(answer.iter().filter(|_| complaint.is_none()));
        let own = answer.as_ref().ok();
        servers.push(ServerLook {
            server: (*server).to_owned(),
            name: own.map(|answer| answer.name.clone()),
            state: own.map(|answer| answer.state().to_owned()).filter(|_| complaint.is_none()),
            error: complaint,
        });
    }
    let rank = |answer: &&&Answer| (!answer.is_alone(), answer.number::<u64>("wsrep_group_epoch"));
    let Some(best) = sound.iter().max_by_key(rank) else {
        let said = servers
            .iter()
            .map(|server| format!("{}: {}", server.server, server.error.as_deref().unwrap_or("no answer")));
        return Err(CliError::Usage(format!(
            "no member of a group answers; {}",
            said.collect::<Vec<_>>().join("; ")
        )));
    };
    let last_ordered = sound.iter().map(|answer| answer.number("wsrep_last_ordered")).max().unwrap_or(0);
    let seen = best.members().map_err(CliError::Usage)?;
    let members: Vec<MemberLook> = seen.into_iter().map(|seen| member(seen, &sound, last_ordered)).collect();
    let voters = members.iter().filter(|member| member.votes).count();
    let mut look = Look {
        group: best.group.clone(),
        group_id: best.text("wsrep_cluster_state_uuid").to_owned(),
        needed: voters / 2 + 1,
        present: members.iter().filter(|member| member.votes && member.is_there).count(),
        epoch: best.number("wsrep_group_epoch"),
        last_ordered,
        members,
        servers,
        problems: Vec::new(),
    };
    look.problems = problems(&look, best.is_alone());
    Ok(look)
}

/// State of a member: from its own report, if it was asked.
fn member(seen: Seen, answers: &[&Answer], last_ordered: i64) -> MemberLook {
    let own = answers.iter().find(|answer| {
        answer
            .members()
            .is_ok_and(|members| members.iter().any(|it| it.is_self && it.address == seen.address))
    });
    let is_heard = seen.is_self || own.is_some() || seen.heard_ms.is_some_and(|heard| heard < AWAY_MS);
    let state = match own {
        Some(own) => own.state().to_owned(),
        None if is_heard && seen.is_there => "there".to_owned(),
        None if is_heard => "joining".to_owned(),
        None => "away".to_owned(),
    };
    let applied = own.map_or(seen.applied, |own| Some(own.number("wsrep_last_committed")));
    MemberLook {
        state,
        is_there: is_heard && seen.is_there,
        applied,
        // Numbers of two servers are not of the same moment.
        lag: applied.filter(|_| is_heard).map(|applied| (last_ordered - applied).max(0)),
        name: seen.name,
        address: seen.address,
        // Default value if the server has no address configured (wsrep_node_incoming_address).
        client_address: if seen.client_address == "AUTO" { String::new() } else { seen.client_address },
        votes: seen.votes,
        owns_slots: seen.owns_slots,
        heard_ms: seen.heard_ms.filter(|_| own.is_none()),
    }
}

fn problems(look: &Look, is_alone: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if is_alone {
        problems.push(format!(
            "commits wait: {} of {} members are here, {} are needed",
            look.present,
            look.members.iter().filter(|member| member.votes).count(),
            look.needed
        ));
    }
    for member in &look.members {
        let name = &member.name;
        match member.heard_ms {
            Some(heard) if heard >= AWAY_MS => {
                problems.push(format!("{name} last answered {} s ago", heard / 1000));
            }
            None if !member.is_there && member.state == "away" => {
                problems.push(format!("{name} has not answered since the queried server started"));
            }
            _ => {}
        }
        if member.is_there && !member.votes {
            problems.push(format!("{name} does not vote (yet)"));
        }
        if let Some(lag) = member.lag.filter(|lag| *lag > FAR_BEHIND) {
            problems.push(format!("{name} lacks {lag} write sets; the others do not wait for it any more"));
        }
        if !matches!(member.state.as_str(), "Synced" | "there" | "away") && !is_alone {
            problems.push(format!("{name} is not in sync: {}", member.state));
        }
    }
    for server in &look.servers {
        if let Some(error) = &server.error {
            problems.push(format!("{}: {error}", server.server));
        }
    }
    problems
}

/// Parses `HOST`, `HOST:PORT`, `[IPV6]:PORT` or a path.
fn parse(text: &str) -> Option<Address> {
    if text.starts_with('/') {
        return Some(Address::Socket(PathBuf::from(text)));
    }
    let tcp = |host: &str, port| Address::Tcp { host: host.to_owned(), port };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some(""))?)
        }
        None => match text.split_once(':') {
            // More than one colon: an address of IPv6 alone.
            Some((_, rest)) if rest.contains(':') => (text, ""),
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        },
    };
    let port = if port.is_empty() { DEFAULT_PORT } else { port.parse().ok().filter(|port| *port > 0)? };
    (!host.is_empty() && !host.contains('/')).then(|| tcp(host, port))
}

fn first_line(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|error| CliError::io("read", file, error))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
