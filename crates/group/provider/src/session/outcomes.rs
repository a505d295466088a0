//! How applying went here, for votes about it ([`crate::ballots`]).
//!
//! Who could not do something says so, and waits in its turn to commit until it is decided; all others say how it went
//! when they are asked, as soon as they have done it. While nobody is asked this costs a look at a flag.
//!
//! The lock is a leaf. Whoever has done something looks at the flag after its turn is passed on, and whoever is asked
//! looks at the turns after the flag is set: so one of the two sees the other.

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
    /// What others want to know, and is not done here.
    asked: BTreeSet<Seqno>,
    /// What was decided, and is not done here.
    decided: BTreeMap<Seqno, Code>,
    /// What could not be done here.
    failed: BTreeSet<Seqno>,
    is_over: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Outcomes {
    state: Mutex<State>,
    changed: Condvar,
    /// There is something in the state that concerns those who have done something.
    is_asked: AtomicBool,
}

impl Outcomes {
    /// Notes that something could not be done here; what was decided about it, if that is known already.
    fn failed(&self, seqno: Seqno) -> Option<Code> {
        let mut state = lock(&self.state);
        state.asked.remove(&seqno);
        state.failed.insert(seqno);
        state.decided.get(&seqno).copied()
    }

    /// Waits for the decision about something that could not be done here; none: nothing is decided any more.
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

    /// It could not be done here, and it ended before anything was decided about that.
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

    /// What others want to know of all that is done up to here, and whether it was decided that one of these fails. Not
    /// one up to `start`: the server's data had it when it started, and if that came from another one, as it was there.
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

    /// Nothing is decided any more.
    pub fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

impl Session {
    /// What a vote, or the end of a member, has brought.
    pub(super) fn on_ballot(&self, news: News) {
        match news {
            News::Opened(seqno) => self.outcomes.ask(seqno),
            News::Decided(seqno, code) => self.outcomes.decide(seqno, code),
        }
        self.tell_outcomes();
    }

    /// To be called after something was done: others may want to know, or it may have been decided that it fails.
    pub(super) fn tell_outcomes(&self) {
        let last_left = self.commit_order.last_left();
        // Known before anything has left.
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

    /// Something went this way here, in its turn to commit: whether it went so elsewhere. If it failed, this waits
    /// until that is known.
    pub(super) fn is_right(&self, seqno: Seqno, error: &[u8]) -> bool {
        let code = Code::of(error);
        if code == Code::DONE {
            return true;
        }
        let text = String::from_utf8_lossy(error).replace('\0', " ");
        // How bad that is will be known in a moment.
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

    /// `known`: the words that people have their logs searched for.
    fn differs(&self, known: &str, why: &str) {
        self.mark_as_different();
        self.fail(&format!("{known} ({why}: the data of this server is another one)"));
    }
}

#[cfg(test)]
mod tests;
