//! A drill: a group of servers is created on this host, put under load, and broken in the ways that a group has to
//! survive. The drill measures the effect on the clients. At the end it compares the data of all servers.
//!
//! The load is that of [`group::load`](crate::group::load): clients on every member record acknowledged commits
//! outside the database. So a lost commit is found at the end. All events happen to the last member. A gap is the
//! longest time in which no client of the *others* had a commit acknowledged. The clients do not wait for each other,
//! so rates are those of this load on this host, and no benchmark.
//!
//! The drill affects only servers that it started.

use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::{check_interrupt, timed};
use redoubt_workload::server::ServerConfig;
use serde::Serialize;

use crate::group::load::{Commits, Load};
use crate::group::{Group, PATIENCE, Provider};

/// Minimum number of members: with fewer members, the failure of one stops the group.
pub const FEWEST_MEMBERS: usize = 3;
/// Maximum number of members that is reasonable on one host.
pub const MOST_MEMBERS: usize = 9;
/// Commits of each member that show that its clients work.
const AT_WORK: u64 = 20;
/// Interval of the checks for an interrupt.
const LOOK: Duration = Duration::from_millis(200);
const BUFFER_POOL_BYTES: u64 = 64 << 20;
/// Width of an interval in [`Rates`].
pub const PLACE: Duration = Duration::from_millis(500);

/// Settings of a drill.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The library under test.
    pub provider: Provider,
    /// Number of servers, [`FEWEST_MEMBERS`] to [`MOST_MEMBERS`].
    pub members: usize,
    /// Clients on each of them.
    pub clients: u32,
    /// How long the load runs before and after each event.
    pub calm: Duration,
    /// Leave the servers' directories where they are.
    pub keep: bool,
}

/// Message to the person who waits for the drill.
#[derive(Debug)]
pub enum Note<'a> {
    /// A step begins: its action and its reason.
    Step(&'a str, &'a str),
    /// The result.
    Result(String),
}

/// Result of a drill. The figures' names are those of the last line of `redoubt group drill --json`.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Number of servers.
    pub members: usize,
    /// Commits per second of all clients before the first event.
    pub commits_per_second: f64,
    /// Longest time without a commit of the others after a member was killed (SIGKILL).
    pub kill_gap_seconds: f64,
    /// Time from the start of the killed member until all are in sync again.
    pub kill_return_seconds: f64,
    /// Longest time without a commit of the others after a member was stopped (SIGSTOP).
    pub stop_gap_seconds: f64,
    /// Time from the resumption of the stopped member (SIGCONT) until all are in sync again.
    pub stop_return_seconds: f64,
    /// All members were killed: time from the start of all until all are in sync and a commit of each is acknowledged.
    pub blackout_restart_seconds: f64,
    /// Commits that were acknowledged.
    pub commits_acknowledged: u64,
    /// Acknowledged commits that every member has completely.
    pub commits_found: u64,
    /// Whether all tables are equal on all members.
    pub checksums_equal: bool,
    /// Tables that were compared.
    pub tables: usize,
    /// Descriptions of the faults.
    pub faults: Vec<String>,
    /// Commits over time.
    #[serde(skip)]
    pub rates: Rates,
}

impl Outcome {
    /// Whether no commit is lost and all members have the same data.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty() && self.checksums_equal && self.commits_found == self.commits_acknowledged
    }
}

/// Commits over time, and the times of the events.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    /// By member: commits in each [`PLACE`] from the beginning of the load on.
    pub by_member: Vec<Vec<usize>>,
    /// Seconds after the beginning of the load, and the event.
    pub events: Vec<(f64, &'static str)>,
}

/// Runs the drill. `tell` receives a note for each step.
///
/// # Errors
/// [`Error::State`] for numbers out of range, [`Error::Interrupted`], and the first failure: for example a member that
/// does not return in time, with the end of its log. Faults of the data are no error but part of the outcome.
pub fn run(plan: &Plan, tell: &mut dyn FnMut(Note<'_>)) -> Result<Outcome> {
    if !(FEWEST_MEMBERS..=MOST_MEMBERS).contains(&plan.members) {
        return Err(Error::State(format!(
            "a drill needs {FEWEST_MEMBERS} to {MOST_MEMBERS} members, not {}",
            plan.members
        )));
    }
    tell(Note::Step(
        "Make a group",
        "The first server's data is the group's; each of the others gets it with the server's own script.",
    ));
    let small = |config: &mut ServerConfig| config.buffer_pool_bytes = BUFFER_POOL_BYTES;
    let mut group = Group::create(&plan.provider, plan.members, small)?;
    if plan.keep {
        group.keep();
    }
    tell(Note::Result(format!(
        "{} servers in {}, in sync {}",
        plan.members,
        group.directory().display(),
        list(group.start_times())
    )));
    let load = Load::start(&group, plan.clients)?;
    let (calm, began, events) = (plan.calm, Instant::now(), Vec::new());
    let done = Drill { load: &load, group: &mut group, calm, began, events, tell }.all();
    let measured = done.map_err(|error| with_logs(error, &group))?;
    load.stop()?;
    compare(&group, measured, tell).map_err(|error| with_logs(error, &group))
}

/// Measurements of the clients.
struct Measured {
    commits_per_second: f64,
    kill_gap: Duration,
    kill_return: Duration,
    stop_gap: Duration,
    stop_return: Duration,
    blackout_restart: Duration,
    rates: Rates,
}

struct Drill<'a> {
    load: &'a Load,
    group: &'a mut Group,
    calm: Duration,
    began: Instant,
    events: Vec<(f64, &'static str)>,
    tell: &'a mut dyn FnMut(Note<'_>),
}

impl Drill<'_> {
    fn all(mut self) -> Result<Measured> {
        // The order of the fields is the order of the steps.
        Ok(Measured {
            commits_per_second: self.calm_load()?,
            kill_gap: self.kill()?,
            kill_return: self.start_again()?,
            stop_gap: self.stop()?,
            stop_return: self.go_on()?,
            blackout_restart: self.kill_all()?,
            rates: self.rates()?,
        })
    }

    fn step(&mut self, what: &str, why: &str) {
        (self.tell)(Note::Step(what, why));
    }

    fn result(&mut self, what: String) {
        (self.tell)(Note::Result(what));
    }

    fn event(&mut self, name: &'static str) -> Instant {
        let now = Instant::now();
        self.events.push(((now - self.began).as_secs_f64(), name));
        now
    }

    fn victim(&self) -> usize {
        self.group.len() - 1
    }

    fn everybody(&self) -> Vec<usize> {
        (0..self.group.len()).collect()
    }

    fn others(&self) -> Vec<usize> {
        (0..self.victim()).collect()
    }

    /// Lets the load run for a while.
    fn rest(&self) -> Result<()> {
        let until = Instant::now() + self.calm;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            check_interrupt()?;
            self.load.run_for(left.min(LOOK));
        }
        Ok(())
    }

    fn calm_load(&mut self) -> Result<f64> {
        self.step(
            "Put load on all of them",
            "Clients write down outside the database what was acknowledged.",
        );
        let everybody = self.everybody();
        self.load.wait_for_more(&everybody, AT_WORK, PATIENCE)?;
        let from = Instant::now();
        self.rest()?;
        let until = Instant::now();
        let commits = self.load.commits(&everybody)?;
        let rate = commits.per_second(from, until);
        self.result(format!(
            "{rate:.0} commits/s; longest time without one {:.3} s",
            commits.longest_gap(from, until).length.as_secs_f64()
        ));
        Ok(rate)
    }

    /// The longest time in which the others had no commit after `event`.
    fn gap_since(&mut self, event: Instant) -> Result<Duration> {
        self.rest()?;
        let (others, until) = (self.others(), Instant::now());
        self.load.wait_for_more(&others, AT_WORK, PATIENCE)?;
        let commits: Commits = self.load.commits(&others)?;
        let gap = commits.longest_gap(event, until);
        let rate = commits.per_second(gap.began + gap.length, until);
        self.result(format!(
            "the others had no commit for {:.3} s; then {rate:.0} commits/s",
            gap.length.as_secs_f64()
        ));
        Ok(gap.length)
    }

    fn kill(&mut self) -> Result<Duration> {
        self.step("Kill a server (SIGKILL)", "The others shall go on.");
        let event = self.event("one killed");
        let victim = self.victim();
        self.group.kill9(victim)?;
        self.gap_since(event)
    }

    fn start_again(&mut self) -> Result<Duration> {
        self.step("Start it again", "It receives the missing write sets (IST), and is a member again.");
        let event = self.event("started");
        let victim = self.victim();
        self.group.start(victim)?;
        self.is_back(event)
    }

    /// Waits until the victim's clients work and all members are in sync.
    fn is_back(&mut self, event: Instant) -> Result<Duration> {
        let victim = self.victim();
        self.load.wait_for_more(&[victim], AT_WORK, PATIENCE)?;
        self.everybody().into_iter().try_for_each(|index| self.group.wait_synced(index, PATIENCE))?;
        let elapsed = event.elapsed();
        let gap = self.load.commits(&self.others())?.longest_gap(event, Instant::now()).length;
        self.result(format!(
            "all are in sync after {:.1} s; the others were without a commit for at most {:.3} s of it",
            elapsed.as_secs_f64(),
            gap.as_secs_f64()
        ));
        self.rest()?;
        Ok(elapsed)
    }

    fn stop(&mut self) -> Result<Duration> {
        self.step(
            "Stop a server (SIGSTOP)",
            "Its connections stay, it answers nothing. The others shall go on.",
        );
        let event = self.event("one stopped");
        let victim = self.victim();
        self.group.stop_process(victim)?;
        self.gap_since(event)
    }

    fn go_on(&mut self) -> Result<Duration> {
        self.step("Let it go on (SIGCONT)", "It has missed what was committed meanwhile.");
        let event = self.event("goes on");
        let victim = self.victim();
        self.group.cont(victim)?;
        self.group.wait_synced(victim, PATIENCE)?;
        self.is_back(event)
    }

    fn kill_all(&mut self) -> Result<Duration> {
        self.step(
            "Kill all servers at once, and start all of them",
            "As after a loss of power: each is started as usual, without a hint which one was the last.",
        );
        self.event("all killed");
        self.group.kill9_all()?;
        let event = self.event("all started");
        let (_, in_sync) = timed(|| self.group.start_all_after_blackout())?;
        let everybody = self.everybody();
        self.load.wait_for_more(&everybody, 1, PATIENCE)?;
        let elapsed = event.elapsed();
        self.result(format!(
            "all are in sync after {:.1} s; each has acknowledged a commit after {:.1} s",
            in_sync.as_secs_f64(),
            elapsed.as_secs_f64()
        ));
        self.rest()?;
        Ok(elapsed)
    }

    fn rates(&self) -> Result<Rates> {
        let until = Instant::now();
        let places = |index| Ok(self.load.commits(&[index])?.per_place(self.began, until, PLACE));
        let by_member = self.everybody().into_iter().map(places).collect::<Result<_>>()?;
        Ok(Rates { by_member, events: self.events.clone() })
    }
}

/// Compares all servers with the acknowledged commits, and with each other.
fn compare(group: &Group, measured: Measured, tell: &mut dyn FnMut(Note<'_>)) -> Result<Outcome> {
    tell(Note::Step(
        "Compare",
        "Every acknowledged commit, and the checksums of all tables, on every server.",
    ));
    let mut faults = Vec::new();
    let tables = match group.require_equal_checksums() {
        Ok(tables) => Some(tables),
        Err(Error::Violation(fault)) => {
            faults.push(fault);
            None
        }
        Err(error) => return Err(error),
    };
    let reports = group.ledger_reports()?;
    for (index, report) in &reports {
        faults.extend(report.faults.iter().map(|fault| format!("member {index}: {fault}")));
    }
    let acknowledged = reports.iter().map(|(_, report)| report.rows_acknowledged).max().unwrap_or(0);
    let found = reports.iter().map(|(_, report)| report.rows_found).min().unwrap_or(0);
    tell(Note::Result(format!("{found} of {acknowledged} acknowledged commits are there, on every server")));
    tell(Note::Result(match tables {
        Some(tables) => format!("{tables} tables are the same on all"),
        None => "the tables DIFFER".to_owned(),
    }));
    let seconds = |duration: Duration| round(duration.as_secs_f64());
    Ok(Outcome {
        members: group.len(),
        commits_per_second: round(measured.commits_per_second),
        kill_gap_seconds: seconds(measured.kill_gap),
        kill_return_seconds: seconds(measured.kill_return),
        stop_gap_seconds: seconds(measured.stop_gap),
        stop_return_seconds: seconds(measured.stop_return),
        blackout_restart_seconds: seconds(measured.blackout_restart),
        commits_acknowledged: acknowledged,
        commits_found: found,
        checksums_equal: tables.is_some(),
        tables: tables.unwrap_or(0),
        faults,
        rates: measured.rates,
    })
}

/// To milliseconds.
fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

fn list(times: &[Duration]) -> String {
    let times: Vec<String> = times.iter().map(|time| format!("{:.1} s", time.as_secs_f64())).collect();
    format!("after {}", times.join(", "))
}

/// Why something did not come back often stands in another one's log.
fn with_logs(error: Error, group: &Group) -> Error {
    const LINES: usize = 15;
    match error {
        Error::Interrupted => error,
        Error::Deadline { what, after, detail } => {
            Error::Deadline { what, after, detail: format!("{detail}\n{}", group.log_tails(LINES)) }
        }
        other => other,
    }
}
