//! Ledger clients on every member, and the longest time without an acknowledged commit.
//!
//! Each member has a ledger of its own, a file in the group's directory, with clients of its own. All clients share
//! one set of tables. A client stays with its member and waits for its return. After a conflict, or an error of a
//! member outside the group, a transaction is absent or unknown, as in [`redoubt_workload::ledger`].

use std::path::PathBuf;
use std::time::{Duration, Instant};

use redoubt_workload::error::{Error, Result};

use super::Group;
use redoubt_workload::ledger::{ClientId, Options, Run, Summary};

/// Time that a client waits for the return of its member.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(600);

/// Files of all existing ledgers of a group.
pub fn ledgers(group: &Group) -> Vec<PathBuf> {
    (0..group.len()).map(|index| ledger(group, index)).filter(|path| path.exists()).collect()
}

fn ledger(group: &Group, index: usize) -> PathBuf {
    group.directory().join(format!("ledger-{index}"))
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    /// Runs by member.
    runs: Vec<Run>,
}

impl Load {
    /// Starts `clients` on every member. All members must run.
    ///
    /// # Errors
    /// As for [`Run::start`].
    pub fn start(group: &Group, clients: u32) -> Result<Self> {
        let mut runs = Vec::new();
        for (index, first) in (0..group.len()).zip((0..).step_by(clients as usize)) {
            let options = Options {
                clients,
                first_client: first,
                reconnect_timeout: RECONNECT_TIMEOUT,
                tolerates_errors: true,
                is_durable_elsewhere: true,
                ..Options::default()
            };
            runs.push(Run::start(&group.server(index)?.socket(), &ledger(group, index), options)?);
        }
        Ok(Self { runs })
    }

    fn run(&self, member: usize) -> Result<&Run> {
        self.runs.get(member).ok_or_else(|| Error::State(format!("member {member} has no load")))
    }

    /// Waits until the clients of each of these members have had `count` more commits acknowledged than now.
    ///
    /// # Errors
    /// As for [`Run::wait_for_more`].
    pub fn wait_for_more(&self, members: &[usize], count: u64, timeout: Duration) -> Result<()> {
        let wait = |member: &usize| {
            self.run(*member)?.wait_for_more(count, timeout).map_err(|error| match error {
                Error::Deadline { what, after, detail } => {
                    Error::Deadline { what: format!("{what} on member {member}"), after, detail }
                }
                other => other,
            })
        };
        members.iter().try_for_each(wait)
    }

    /// Returns after `duration`, or earlier when a client of the first member failed.
    pub fn run_for(&self, duration: Duration) {
        if let Some(run) = self.runs.first() {
            run.run_for(duration);
        }
    }

    /// Commits of the clients of these members, up to now.
    ///
    /// # Errors
    /// [`Error::State`] when there is no such member.
    pub fn commits(&self, members: &[usize]) -> Result<Commits> {
        let mut commits = Vec::new();
        for member in members {
            commits.extend(self.run(*member)?.times());
        }
        Ok(Commits::new(commits))
    }

    /// Stops the clients after their current transactions, and returns a summary of each member. No member may be
    /// stopped (SIGSTOP).
    ///
    /// # Errors
    /// The first error of a client.
    pub fn stop(self) -> Result<Vec<Summary>> {
        self.runs.into_iter().map(Run::stop).collect()
    }
}

/// When commits of some clients were acknowledged.
#[derive(Debug, Clone)]
pub struct Commits {
    /// Commits in order of time.
    times: Vec<(ClientId, Instant)>,
}

/// A stretch of time without an acknowledged commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Beginning of the gap: a commit, or the beginning of the period.
    pub began: Instant,
    /// Length of the gap.
    pub length: Duration,
}

impl Commits {
    /// Sorts these times.
    pub fn new(times: impl IntoIterator<Item = (ClientId, Instant)>) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable_by_key(|(_, time)| *time);
        Self { times }
    }

    /// The longest time without any commit between `from` and `until`. The edges of this period bound a gap.
    pub fn longest_gap(&self, from: Instant, until: Instant) -> Gap {
        longest(from, until, self.within(from, until).map(|(_, time)| time))
    }

    /// The longest time without a commit of one client between `from` and `until`, among the clients that committed at
    /// all.
    pub fn longest_gap_of_a_client(&self, from: Instant, until: Instant) -> Gap {
        let mut clients: Vec<ClientId> = self.times.iter().map(|(client, _)| *client).collect();
        clients.sort_unstable();
        clients.dedup();
        let gap = |client: ClientId| {
            let own = self.within(from, until).filter(move |(owner, _)| *owner == client);
            longest(from, until, own.map(|(_, time)| time))
        };
        let none = Gap { began: from, length: Duration::ZERO };
        clients.into_iter().map(gap).max_by_key(|gap| gap.length).unwrap_or(none)
    }

    /// Number of commits between `from` and `until`.
    pub fn count(&self, from: Instant, until: Instant) -> usize {
        self.within(from, until).count()
    }

    /// Commits per second between `from` and `until`.
    pub fn per_second(&self, from: Instant, until: Instant) -> f64 {
        self.count(from, until) as f64 / until.saturating_duration_since(from).as_secs_f64()
    }

    /// Number of commits in each interval of length `place` from `from` on, up to the last whole one before `until`.
    pub fn per_place(&self, from: Instant, until: Instant, place: Duration) -> Vec<usize> {
        let place_of = |time: Instant| (time - from).as_nanos().checked_div(place.as_nanos()).unwrap_or(0);
        let mut counts = vec![0; usize::try_from(place_of(until)).unwrap_or(0)];
        for (_, time) in self.within(from, until) {
            let at = usize::try_from(place_of(time)).ok();
            if let Some(count) = at.and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        }
        counts
    }

    fn within(&self, from: Instant, until: Instant) -> impl Iterator<Item = (ClientId, Instant)> {
        let inside = move |(_, time): &&(ClientId, Instant)| (from..until).contains(time);
        self.times.iter().filter(inside).copied()
    }
}

fn longest(from: Instant, until: Instant, times: impl Iterator<Item = Instant>) -> Gap {
    let mut longest = Gap { began: from, length: Duration::ZERO };
    let mut last = from;
    for time in times.chain([until]) {
        let length = time.saturating_duration_since(last);
        if length > longest.length {
            longest = Gap { began: last, length };
        }
        last = time;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_those_of_all_clients_or_of_one() {
        let zero = Instant::now();
        let at = |millis: u64| zero + Duration::from_millis(millis);
        let commits = Commits::new([
            (ClientId(1), at(45)),
            (ClientId(0), at(10)),
            (ClientId(0), at(60)),
            (ClientId(1), at(90)),
        ]);
        let gap = |began: u64, length: u64| Gap { began: at(began), length: Duration::from_millis(length) };
        assert_eq!(commits.longest_gap(at(0), at(100)), gap(10, 35));
        assert_eq!(commits.longest_gap(at(55), at(150)), gap(90, 60));
        assert_eq!(commits.longest_gap(at(20), at(40)), gap(20, 20));
        assert_eq!(commits.longest_gap_of_a_client(at(0), at(100)), gap(10, 50));
        assert_eq!(commits.count(at(10), at(90)), 3);
        assert!((commits.per_second(at(0), at(100)) - 40.0).abs() < 1e-9);
        assert_eq!(commits.per_place(at(0), at(109), Duration::from_millis(50)), [2, 2]);
    }

    #[test]
    fn without_commits_all_of_the_time_is_a_gap() {
        let (from, until) = (Instant::now(), Instant::now() + Duration::from_secs(3));
        let none = Commits::new([]);
        assert_eq!(none.longest_gap(from, until).length, until - from);
        assert_eq!(none.count(from, until), 0);
    }
}
