//! Outcomes of applying entries on this server, for inconsistency votes ([`crate::ballots`]).
//!
//! A member that fails to apply an entry votes, and waits at its commit position for the decision. The others vote when
//! a ballot is open, as soon as they have applied the entry. Without a ballot this costs one atomic load.
//!
//! The lock is a leaf. A committing thread reads the flag after it has left the commit order. A thread with a new
//! ballot reads the commit order after it has set the flag. So one of the two sees the other.

use super::{Session, lock};
use crate::ballots::{Code, News};
use crate::order::Input;
use crate::write_set::{Action, Seqno};
use redoubt_locks::IgnorePoison;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    /// Entries with an open ballot that are not finished here.
    asked: BTreeSet<Seqno>,
    /// Decided entries that are not finished here.
    decided: BTreeMap<Seqno, Code>,
    /// Entries that failed here.
    failed: BTreeSet<Seqno>,
    is_over: bool,
}

/// Outcomes of applying entries on this server.
#[derive(Debug, Default)]
pub struct Outcomes {
    state: Mutex<State>,
    changed: Condvar,
    /// There are open or decided ballots, which committing threads have to check.
    is_asked: AtomicBool,
}

impl Outcomes {
    /// Records a failure. Returns the decision on it, if there is one already.
    fn failed(&self, seqno: Seqno) -> Option<Code> {
        let mut state = lock(&self.state);
        state.asked.remove(&seqno);
        state.failed.insert(seqno);
        state.decided.get(&seqno).copied()
    }

    /// Waits for the decision on an entry that failed here. `None`: the session has ended.
    fn wait(&self, seqno: Seqno) -> Option<Code> {
        let mut state = lock(&self.state);
        loop {
            if let Some(code) = state.decided.remove(&seqno) {
                state.failed.remove(&seqno);
                return Some(code);
            }
            if state.is_over {
                return None;
            }
            state = self.changed.wait(state).ignore_poison();
        }
    }

    /// Whether an entry failed here, and the session ended without a decision.
    pub fn is_undecided(&self, seqno: Seqno) -> bool {
        lock(&self.state).failed.contains(&seqno)
    }

    fn ask(&self, seqno: Seqno) {
        let mut state = lock(&self.state);
        if !state.failed.contains(&seqno) {
            state.asked.insert(seqno);
            self.is_asked.store(true, Ordering::SeqCst);
        }
    }

    fn decide(&self, seqno: Seqno, code: Code) {
        let mut state = lock(&self.state);
        state.asked.remove(&seqno);
        state.decided.insert(seqno, code);
        self.is_asked.store(true, Ordering::SeqCst);
        drop(state);
        self.changed.notify_all();
    }

    /// Open ballots up to `up_to`, which are all finished here, and the first of these entries that was decided to
    /// fail. Entries up to `start` are exempt: the server's data had them at the start, and data from a donor has the
    /// donor's outcome.
    fn done(&self, up_to: Seqno, start: Seqno) -> (Vec<Seqno>, Option<Seqno>) {
        if !self.is_asked.load(Ordering::SeqCst) {
            return (Vec::new(), None);
        }
        let mut state = lock(&self.state);
        let later = state.asked.split_off(&Seqno(up_to.0 + 1));
        let asked = std::mem::replace(&mut state.asked, later);
        let later = state.decided.split_off(&Seqno(up_to.0 + 1));
        let decided = std::mem::replace(&mut state.decided, later);
        self.is_asked.store(!(state.asked.is_empty() && state.decided.is_empty()), Ordering::SeqCst);
        let different = decided.into_iter().find(|(seqno, code)| *seqno > start && *code != Code::DONE);
        (asked.into_iter().collect(), different.map(|(seqno, _)| seqno))
    }

    /// Ends all waits: there are no more decisions.
    pub fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

impl Session {
    /// Processes an event of a ballot, which a vote or the end of a member has caused.
    pub(super) fn on_ballot(&self, news: News) {
        match news {
            News::Opened(seqno) => self.outcomes.ask(seqno),
            News::Decided(seqno, code) => self.outcomes.decide(seqno, code),
        }
        self.tell_outcomes();
    }

    /// Sends due votes after a commit, and leaves the group if a finished entry was decided to fail.
    pub(super) fn tell_outcomes(&self) {
        let last_left = self.commit_order.last_left();
        // Set before anything has left the commit order.
        let start = Seqno(self.start.load(Ordering::SeqCst));
        let (asked, different) = self.outcomes.done(last_left, start);
        asked.into_iter().for_each(|seqno| self.vote(seqno, Code::DONE));
        if let Some(seqno) = different {
            let group = self.group();
            let known = format!(
                "Vote 0 (success) on {group}:{} is inconsistent with group. Leaving cluster.",
                seqno.0
            );
            self.differs(&known, "most of the others could not apply it, and this one could");
        }
    }

    /// Whether the outcome here, at the commit position, is that of the majority. After a failure this waits for the
    /// decision.
    pub(super) fn is_right(&self, seqno: Seqno, error: &[u8]) -> bool {
        let code = Code::of(error);
        if code == Code::DONE {
            return true;
        }
        let text = String::from_utf8_lossy(error).replace('\0', " ");
        // A note only: the decision shows how severe it is.
        self.server.note(&format!("write set {}: {}", seqno.0, text.trim()));
        if self.outcomes.failed(seqno).is_none() {
            self.vote(seqno, code);
        }
        match self.outcomes.wait(seqno) {
            Some(decided) if decided == code => {
                self.server.note(&format!(
                    "write set {}: same outcome on a majority of the members, continuing",
                    seqno.0
                ));
                true
            }
            Some(_) => {
                let known = format!(
                    "Inconsistency detected: Inconsistent by consensus on {}:{}",
                    self.group(),
                    seqno.0
                );
                self.differs(&known, "the outcome here differs from the majority");
                false
            }
            None => false,
        }
    }

    fn vote(&self, seqno: Seqno, code: Code) {
        let vote = Action::Vote { seqno, code: code.0 };
        self.send(Input::Propose { body: vote.encode().into(), transaction: None });
    }

    /// `known` is text for which operators search their logs.
    fn differs(&self, known: &str, why: &str) {
        self.mark_as_different();
        self.fail(&format!("{known} ({why}: the data of this server is another one)"));
    }
}

#[cfg(test)]
mod tests;
