//! Transactions, savepoints, XA.

use super::model::{Session, Xa};
use super::{CONNECTIONS, Class, Generator};

impl Generator {
    fn session(&mut self) -> &mut Session {
        let at = usize::from(self.turn) % self.sessions.len();
        &mut self.sessions[at]
    }

    pub(super) fn transaction_statement(&mut self) {
        if !self.session().open {
            if self.chance(15) {
                self.start_xa();
            } else {
                self.session().open = true;
                let text = self.pick(&["BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT"]);
                self.emit(Class::Begin, text.to_owned());
            }
            return;
        }
        match self.random.u32(..100) {
            0..45 => self.end_transaction(true),
            45..65 => self.end_transaction(false),
            65..85 => {
                let name = self.fresh("s");
                self.session().savepoints.push(name.clone());
                self.emit(Class::Savepoint, format!("SAVEPOINT {name}"));
            }
            85..95 => {
                if let Some(name) = self.any_savepoint() {
                    self.emit(Class::RollbackTo, format!("ROLLBACK TO SAVEPOINT {name}"));
                }
            }
            _ => {
                if let Some(name) = self.any_savepoint() {
                    self.emit(Class::ReleaseSavepoint, format!("RELEASE SAVEPOINT {name}"));
                }
            }
        }
    }

    /// A savepoint of the connection; those set after it are gone afterwards.
    fn any_savepoint(&mut self) -> Option<String> {
        let count = self.session().savepoints.len();
        if count == 0 {
            return None;
        }
        let at = self.random.usize(..count);
        self.session().savepoints.truncate(at + 1);
        self.session().savepoints.last().cloned()
    }

    pub(super) fn end_transaction(&mut self, commit: bool) {
        let session = self.session();
        session.open = false;
        session.savepoints.clear();
        if commit {
            self.emit(Class::Commit, "COMMIT".to_owned());
        } else {
            self.emit(Class::Rollback, "ROLLBACK".to_owned());
        }
    }

    fn start_xa(&mut self) {
        let name = self.fresh("x");
        self.emit(Class::XaStart, format!("XA START '{name}'"));
        self.session().xa = Some((name, Xa::Active));
    }

    /// Continues the connection's XA transaction, if it has one. Some stay prepared for long.
    pub(super) fn continue_xa(&mut self) -> bool {
        let Some((name, state)) = self.session().xa.clone() else { return false };
        match state {
            Xa::Active if self.chance(75) => self.row_statement(),
            Xa::Active => {
                self.emit(Class::XaEnd, format!("XA END '{name}'"));
                self.session().xa = Some((name, Xa::Ended));
            }
            Xa::Ended if self.chance(20) => {
                self.emit(Class::XaRollback, format!("XA ROLLBACK '{name}'"));
                self.session().xa = None;
            }
            Xa::Ended => {
                self.emit(Class::XaPrepare, format!("XA PREPARE '{name}'"));
                self.session().xa = Some((name, Xa::Prepared));
            }
            // The connection rests, and with it the locks.
            Xa::Prepared if self.chance(90) => return self.pass_turn(),
            Xa::Prepared => self.finish_xa(&name),
        }
        true
    }

    fn pass_turn(&mut self) -> bool {
        for _ in 0..CONNECTIONS {
            self.turn = (self.turn + 1) % CONNECTIONS;
            if self.session().xa.is_none() {
                return false;
            }
        }
        self.finish_all();
        true
    }

    fn finish_xa(&mut self, name: &str) {
        if self.chance(60) {
            self.emit(Class::XaCommit, format!("XA COMMIT '{name}'"));
        } else {
            self.emit(Class::XaRollback, format!("XA ROLLBACK '{name}'"));
        }
        self.session().xa = None;
    }

    /// Ends every transaction, so that a statement on tables meets no locks.
    pub(super) fn finish_all(&mut self) {
        let turn = self.turn;
        for connection in 0..CONNECTIONS {
            self.turn = connection;
            if let Some((name, state)) = self.session().xa.clone() {
                if state == Xa::Active {
                    self.emit(Class::XaEnd, format!("XA END '{name}'"));
                }
                if state == Xa::Prepared {
                    self.finish_xa(&name);
                } else {
                    self.emit(Class::XaRollback, format!("XA ROLLBACK '{name}'"));
                    self.session().xa = None;
                }
            } else if self.session().open {
                let commit = self.chance(75);
                self.end_transaction(commit);
            }
        }
        self.turn = turn;
    }
}
