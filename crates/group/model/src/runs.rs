//! The bounds of each run, and its expected result.

use crate::model::{
    Action, EQUAL_ORDER, Group, Mistake, ONE_OWNER, ONE_VALUE, REVOKED, SKIPPED, STAYS_CHOSEN,
};
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::time::Instant;

pub struct Run {
    pub name: &'static str,
    group: Group,
    /// Invariant that the run has to violate; `None` for a model without a bug.
    violated: Option<&'static str>,
    /// Events that have to happen in the run. Otherwise its result has no meaning.
    happens: &'static [&'static str],
}

const THREADS: usize = 1;
const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 4;
const D: u8 = 8;
const ALL: u8 = A | B | C;
const MINE: u8 = 0;

impl Run {
    fn new(name: &'static str, group: Group) -> Self {
        Self { name, group, violated: None, happens: &[] }
    }

    fn happens(self, happens: &'static [&'static str]) -> Self {
        Self { happens, ..self }
    }

    fn violates(self, violated: &'static str) -> Self {
        Self { violated: Some(violated), ..self }
    }

    /// Whether the result is as expected.
    pub fn check(&self) -> bool {
        let begun = Instant::now();
        let until = match self.violated {
            None => HasDiscoveries::AnyFailures,
            Some(violated) => HasDiscoveries::AllOf(BTreeSet::from([violated])),
        };
        let checker = self.group.clone().checker().threads(THREADS).finish_when(until);
        // A model without a bug is searched depth first, which needs the least memory. A model with a bug is searched
        // breadth first, which finds the shortest trace.
        match self.violated {
            Some(_) if std::env::var_os("DFS").is_none() => self.report(&checker.spawn_bfs().join(), begun),
            _ => self.report(&checker.spawn_dfs().join(), begun),
        }
    }

    fn report(&self, checker: &impl Checker<Group>, begun: Instant) -> bool {
        let discoveries = checker.discoveries();
        let invariants = [ONE_VALUE, EQUAL_ORDER, ONE_OWNER, STAYS_CHOSEN];
        let violated: Vec<_> =
            invariants.into_iter().filter(|invariant| discoveries.contains_key(invariant)).collect();
        let is_good = match self.violated {
            None => {
                violated.is_empty()
                    && checker.is_done()
                    && self.happens.iter().all(|event| discoveries.contains_key(event))
            }
            Some(expected) => violated.contains(&expected),
        };
        let happens: Vec<_> =
            [REVOKED, SKIPPED].into_iter().filter(|event| discoveries.contains_key(event)).collect();
        println!(
            "{}: {} | states {} | distinct {} | depth {} | {:.1} s | violated: {violated:?} | happens: {happens:?}",
            self.name,
            if is_good { "as expected" } else { "NOT AS EXPECTED" },
            checker.state_count(),
            checker.unique_state_count(),
            checker.max_depth(),
            begun.elapsed().as_secs_f64(),
        );
        for invariant in violated {
            println!("  {invariant} is violated by:");
            for (number, action) in discoveries[invariant].clone().into_actions().into_iter().enumerate() {
                println!("  {:3} {}", number + 1, short(&format!("{action:?}")));
            }
        }
        is_good
    }
}

/// The action without the content of promises and messages.
fn short(action: &str) -> String {
    let mut text = action.to_owned();
    if action.starts_with("Begin") {
        let from: Vec<_> = action
            .match_indices("Promise { from: ")
            .map(|(at, found)| action[at + found.len()..].chars().next().unwrap_or('?').to_string())
            .collect();
        let rest = &action[action.rfind("], owners").map_or(0, |at| at + 3)..];
        let member = &action[..action.find(", promises").unwrap_or(action.len())];
        text = format!("{member}, promises of: [{}], {rest}", from.join(", "));
    }
    text
}

fn three() -> Group {
    Group {
        members: 3,
        slots: 5,
        ballots: 4,
        proposals: 1,
        stops: 0,
        told: 0,
        tellers: 0,
        founders: ALL,
        first: Some((ALL, ALL, vec![0, 1])),
        prelude: Vec::new(),
        wanted: None,
        owners: vec![MINE],
        candidates: ALL,
        stopping: 0,
        slow_disks: 0,
        mistake: None,
    }
}

/// The second epoch has three of four members. The fourth one still receives messages and may have promised something,
/// but its votes do not count.
fn with_leaving() -> Group {
    Group {
        members: 4,
        slots: 4,
        founders: A | B | C | D,
        first: Some((A | B | C | D, ALL, vec![0])),
        stops: 1,
        told: 1,
        tellers: D,
        // The fourth member is ahead of the third by one proposal. It has promised the ballot of the second member,
        // and has been restarted since. The third one has asked for an earlier ballot.
        prelude: vec![
            Action::Propose { member: 0 },
            Action::Accept { member: 1, owner: 0 },
            Action::Accept { member: 3, owner: 0 },
            Action::Ask { member: 2, ballot: 2 },
            Action::Ask { member: 1, ballot: 3 },
            Action::Promise { member: 3, ballot: 3 },
            Action::Restart { member: 3 },
            Action::Deliver { member: 3 },
        ],
        candidates: B | C,
        stopping: D,
        ..three()
    }
}

pub fn all() -> Vec<Run> {
    let planted = |name, mistake, group: Group, violated| {
        Run::new(name, Group { mistake: Some(mistake), ..group }).violates(violated)
    };
    let one_owner = || Group { first: Some((ALL, ALL, vec![0])), candidates: B | C, ..three() };
    let stops = || Group { stops: 1, stopping: C, ..one_owner() };
    let told = || Group { told: 1, tellers: ALL, ..one_owner() };
    let owners =
        || Group { first: None, owners: vec![A | B], ballots: 3, proposals: 2, candidates: A | B, ..three() };
    let slow = || Group { slow_disks: A, stops: 1, stopping: A, ..three() };
    let change = || Group { members: 4, wanted: Some(A | B | D), candidates: A | B, proposals: 0, ..three() };
    vec![
        Run::new("epochs", three()).happens(&[REVOKED]),
        Run::new("stops", stops()).happens(&[REVOKED]),
        Run::new("told", Group { slots: 4, ..told() }).happens(&[REVOKED]),
        Run::new("owners", owners()).happens(&[SKIPPED]),
        Run::new(
            "slow-disk",
            Group { slots: 4, candidates: A | B, first: Some((ALL, ALL, vec![0])), ..slow() },
        )
        .happens(&[REVOKED]),
        Run::new("change", change()),
        Run::new("proposal-and-change", Group { slots: 4, proposals: 1, ..change() }).happens(&[REVOKED]),
        Run::new("leaving", with_leaving()),
        planted("mistake-candidate-goes-on", Mistake::CandidateGoesOn, with_leaving(), ONE_VALUE),
        planted("mistake-no-majority", Mistake::NoMajority, three(), STAYS_CHOSEN),
        planted("mistake-promise-forgotten", Mistake::PromiseForgotten, stops(), STAYS_CHOSEN),
        planted("mistake-epoch-before-chosen", Mistake::EpochBeforeChosen, three(), ONE_VALUE),
        planted("mistake-skips-at-the-end", Mistake::SkipsAtTheEnd, slow(), EQUAL_ORDER),
        planted(
            "mistake-restarted-owner",
            Mistake::RestartedOwner,
            Group { proposals: 2, ..slow() },
            ONE_OWNER,
        ),
        planted("mistake-accepted-after-promise", Mistake::AcceptedAfterPromise, three(), STAYS_CHOSEN),
        planted("mistake-new-members-alone", Mistake::NewMembersAlone, change(), STAYS_CHOSEN),
        planted(
            "mistake-told-is-acknowledged",
            Mistake::ToldIsAcknowledged,
            Group { first: Some((ALL, ALL, vec![0, 1])), candidates: A | B, ..told() },
            STAYS_CHOSEN,
        ),
        planted(
            "mistake-early-promise",
            Mistake::EarlyPromise,
            Group { candidates: A | B, ..slow() },
            STAYS_CHOSEN,
        ),
    ]
}
