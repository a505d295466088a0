//! State transfers between servers, by the server's own scripts.
//!
//! A file marks a transfer that has begun and not ended. The data directory is incomplete then, and the next start
//! requests another transfer. The mark is made durable before the request, and removed after the server has the state.

use super::begin::{ConnectError, Data};
use super::{Session, lock};
use crate::frame::{Frame, Refusal};
use crate::order::Input;
use crate::order::roster::Seen;
use crate::position;
use crate::replica::{Known, View};
use crate::server::{Receiver, Refused};
use crate::write_set::Seqno;
use redoubt_consensus::types::{Incarnation, MemberId};
use redoubt_locks::IgnorePoison;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two checks for reachable members.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum time since the last contact with a donor.
const HEARD: Duration = Duration::from_secs(1);
const MARK: &str = "redoubt_group.transfer.log";
/// How long all members must be reachable and without a state, so that this is not only due to their own start.
const NO_STATE: Duration = Duration::from_secs(5);

/// Progress of this server's state transfers.
pub(super) struct Transfer {
    pub(super) data: Data,
    /// Incarnations whose parts of transactions the data may contain.
    lives: Vec<Known>,
    /// The first view with this incarnation.
    view: Option<View>,
    /// The newest view.
    newest: Option<View>,
    /// Member and incarnation of the current donor.
    donor: Option<(MemberId, Incarnation)>,
    refused: BTreeSet<MemberId>,
    /// Members that have tried to send their state and failed.
    failed: BTreeSet<MemberId>,
    /// Members whose refusal was logged.
    said_refused: BTreeSet<MemberId>,
    received: Option<Result<Seqno, String>>,
    /// Member to which this server sends its state.
    pub(super) donating_to: Option<MemberId>,
    pub(super) is_over: bool,
}

impl Transfer {
    pub(super) const fn new(data: Data, lives: Vec<Known>) -> Self {
        Self {
            data,
            lives,
            view: None,
            newest: None,
            donor: None,
            refused: BTreeSet::new(),
            failed: BTreeSet::new(),
            said_refused: BTreeSet::new(),
            received: None,
            donating_to: None,
            is_over: false,
        }
    }
}

/// Reason why this server does not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{0}")]
    Transfer(String),
    #[error(transparent)]
    Mark(#[from] ConnectError),
    /// It has left before.
    #[error("it is over")]
    Over,
}

fn mark(directory: &Path) -> PathBuf {
    directory.join(MARK)
}

/// Whether a transfer has begun and not ended.
pub fn is_marked(directory: &Path) -> bool {
    mark(directory).exists()
}

pub(super) fn set_mark(directory: &Path, is_on: bool) -> Result<(), ConnectError> {
    let change = if is_on {
        File::create(mark(directory)).and_then(|file| file.sync_all())
    } else {
        match std::fs::remove_file(mark(directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    };
    let synced = change.and_then(|()| File::open(directory)?.sync_all());
    synced.map_err(|source| ConnectError::System { action: "mark a transfer of the state", source })
}

impl Session {
    pub(super) fn on_view(&self, view: &View) {
        let me = self.uuid();
        let mut transfer = lock(&self.transfer);
        let is_in = view
            .members
            .iter()
            .any(|member| crate::replica::uuid_of(member.member, member.incarnation) == me);
        if transfer.view.is_none() && is_in {
            transfer.view = Some(view.clone());
        }
        let is_donor = |donor| view.members.iter().any(|known| (known.member, known.incarnation) == donor);
        if let Some(donor) = transfer.donor.filter(|donor| !is_donor(*donor)) {
            // It may still be sending, and a second donor must not send to the same destination.
            let gone = format!("member {}, which was to send its state, has gone", donor.0);
            transfer.received.get_or_insert(Err(gone));
        }
        transfer.newest = Some(view.clone());
        drop(transfer);
        self.transferred.notify_all();
    }

    pub(super) fn on_refusal(&self, from: MemberId, refusal: &Refusal) {
        let mut transfer = lock(&self.transfer);
        // The request is repeated. So refusals without an attempt are logged once per member.
        if transfer.said_refused.insert(from) || refusal.has_failed {
            self.server.note(&format!("member {from} does not give its state: {}", refusal.reason));
        }
        if transfer.donor.is_some_and(|(donor, _)| donor == from) {
            transfer.refused.insert(from);
            transfer.donor = None;
            if refusal.has_failed {
                transfer.failed.insert(from);
            }
        }
        drop(transfer);
        self.transferred.notify_all();
    }

    /// First work of a receiver: connects the server, once it has its state.
    pub(super) fn begin(self: &Arc<Self>, receiver: Receiver) -> Result<(), BeginError> {
        let me = self.wait_for(|session, _| session.me())?;
        let data = lock(&self.transfer).data;
        let own = match data {
            Data::Is(seqno) => Some(seqno),
            Data::OfAnother => None,
            Data::Unwanted(seqno) => (!self.some_other_has_a_state()?).then_some(seqno),
        };
        let seqno = match own {
            Some(seqno) => {
                self.start_after(seqno);
                let view = View { seqno, number: 0, members: self.before_all_views(me) };
                self.server.connected(self.group(), &view, self.uuid())?;
                lock(&self.shown).lives =
                    Some(view.members.iter().map(|known| (known.member, known.incarnation)).collect());
                // The server opens its data during this call.
                self.server.view(receiver, self.group(), &view, self.uuid())?;
                seqno
            }
            None => {
                let view = self.wait_for(|_, transfer| transfer.view.clone())?;
                self.server.connected(self.group(), &view, self.uuid())?;
                set_mark(&self.server.data_directory, true)?;
                let seqno = self.get_state(&view)?;
                set_mark(&self.server.data_directory, false)?;
                self.start_after(seqno);
                seqno
            }
        };
        if let Err(error) = super::saved_state::write(&self.server.data_directory, self.group()) {
            self.server.warn(&format!("cannot write grastate.dat: {error}; nothing needs it"));
        }
        self.server.note(&format!("applying write sets after {}", seqno.0));
        self.appliers.begun(seqno);
        self.ask_to_be_synced();
        Ok(())
    }

    /// This incarnation, and all with transactions that may be unfinished in the data: later views show which have
    /// ended.
    fn before_all_views(&self, me: Known) -> Vec<Known> {
        let mut members = lock(&self.transfer).lives.clone();
        members.push(me);
        members.sort_by_key(|known| (known.member, known.incarnation));
        members
    }

    fn start_after(&self, seqno: Seqno) {
        self.start.store(seqno.0, std::sync::atomic::Ordering::SeqCst);
        self.finished.start_after(seqno);
        self.commit_order.start_after(seqno);
    }

    /// Waits until `what` returns a value.
    fn wait_for<T>(&self, mut what: impl FnMut(&Self, &mut Transfer) -> Option<T>) -> Result<T, BeginError> {
        let mut transfer = lock(&self.transfer);
        loop {
            if let Some(found) = what(self, &mut transfer) {
                return Ok(found);
            }
            if transfer.is_over {
                return Err(BeginError::Over);
            }
            // Reachability changes without a notification.
            let waited = self.transferred.wait_timeout(transfer, LOOK);
            transfer = waited.ignore_poison().0;
        }
    }

    /// Whether another member has a state. Otherwise all of them may wait for one, as after `grastate.dat` was removed
    /// from all servers, and none would get it.
    fn some_other_has_a_state(&self) -> Result<bool, BeginError> {
        let mut none_since = None;
        let has_any = self.wait_for(|session, transfer| {
            let members = lock(&session.status.members);
            let mut others = members.iter().filter(|seen| !seen.is_self);
            let is_here = |seen: &Seen| seen.is_there && seen.heard_at.is_some_and(|at| at.elapsed() < HEARD);
            let is_known = transfer.view.is_some();
            if is_known && others.clone().any(|seen| is_here(seen) && seen.applied > Some(Seqno(0))) {
                return Some(true);
            }
            let have_none = is_known && others.all(|seen| is_here(seen) && seen.applied == Some(Seqno(0)));
            match have_none {
                true => (none_since.get_or_insert_with(Instant::now).elapsed() >= NO_STATE).then_some(false),
                false => {
                    none_since = None;
                    None
                }
            }
        })?;
        if !has_any {
            self.server.warn(
                "no other member can be the donor (was grastate.dat removed from all?): this server continues \
                 with its own state",
            );
        }
        Ok(has_any)
    }

    /// Requests the state from one member after another until one has sent it and the server has it.
    fn get_state(&self, view: &View) -> Result<Seqno, BeginError> {
        let failed =
            |refused: Refused| BeginError::Transfer(format!("Requesting state transfer failed: {refused}"));
        let request = self.server.state_request().map_err(failed)?;
        if request.is_empty() {
            return Err(BeginError::Transfer("the server did not prepare to receive a state".into()));
        }
        let me = self.me().map(|me| me.member);
        let mut has_said = false;
        loop {
            let candidate = self.wait_for(|_, transfer| {
                if transfer.received.is_some() {
                    return Some(None);
                }
                let newest = transfer.newest.as_ref().unwrap_or(view);
                let candidates = newest.members.iter().map(|known| (known.member, known.incarnation));
                let others: Vec<_> =
                    candidates.filter(|(id, _)| Some(*id) != me && self.is_heard(*id)).collect();
                let candidate = others.iter().find(|(id, _)| !transfer.refused.contains(id)).copied();
                if candidate.is_none() && transfer.donor.is_none() {
                    if !others.is_empty() && others.iter().all(|(id, _)| transfer.failed.contains(id)) {
                        transfer.received =
                            Some(Err("State transfer to this server failed: no member could send it".into()));
                        return Some(None);
                    }
                    // Members that have not tried may be able to by now.
                    transfer.refused.clone_from(&transfer.failed);
                }
                if transfer.donor.is_some() {
                    return None;
                }
                transfer.donor = candidate;
                candidate.map(Some)
            })?;
            match candidate {
                Some((donor, _)) => {
                    if !has_said {
                        self.server.note(&format!("asks member {donor} for the state of its server"));
                        has_said = true;
                    }
                    self.send_frame(
                        donor,
                        Frame::StateRequest { seqno: view.seqno.0, request: request.clone() },
                    );
                }
                None => {
                    let received = self.wait_for(|_, transfer| transfer.received.take())?;
                    return received.map_err(BeginError::Transfer);
                }
            }
        }
    }

    /// Whether there was recent contact with a member. A member that has just gone may still be in the view.
    fn is_heard(&self, member: MemberId) -> bool {
        let members = lock(&self.status.members);
        let id = |seen: &&Seen| seen.member == member;
        members.iter().find(id).and_then(|seen| seen.heard_at).is_some_and(|at| at.elapsed() < HEARD)
    }

    /// Reports the result of a state transfer to this server.
    pub fn state_received(&self, result: Result<(crate::replica::GroupId, Seqno), String>) {
        let group = self.group();
        let received = result.and_then(|(of, seqno)| match of == group {
            true => Ok(seqno),
            false => Err("the state that this server got is not of this group".into()),
        });
        lock(&self.transfer).received = Some(received);
        self.transferred.notify_all();
    }

    /// Marks the data as different from the group's after an inconsistency: the next start requests a state transfer.
    pub(super) fn mark_as_different(&self) {
        if let Err(error) = set_mark(&self.server.data_directory, true) {
            self.server
                .error(&format!("{error}; remove redoubt_group.*.log before this server is started again"));
        }
    }

    /// Sends this server's state to another one, or refuses to.
    pub(super) fn donate(self: &Arc<Self>, receiver: Receiver, to: MemberId, request: &[u8]) {
        let is_free = {
            let mut transfer = lock(&self.transfer);
            let is_clean = !self.transactions.has_broken_off();
            let is_free =
                is_clean && self.is_synced() && self.desynced() == 0 && transfer.donating_to.is_none();
            if is_free {
                transfer.donating_to = Some(to);
            }
            is_free
        };
        if !is_free {
            let reason = "it gives it to another one, has none itself, or has to give up transactions".into();
            return self.send_frame(to, Frame::StateRefused(Refusal { reason, has_failed: false }));
        }
        if let Some(volume) = position::volume() {
            lock(&self.transfer).donating_to = None;
            let reason = format!(
                "its data is on volume {volume}, where the server's scripts find files without content: another member \
                 has to send it"
            );
            self.server.warn(&format!("does not send its state to member {to}: {reason}"));
            return self.send_frame(to, Frame::StateRefused(Refusal { reason, has_failed: true }));
        }
        self.server.note(&format!("sends its state to member {to}"));
        self.is_synced.store(false, std::sync::atomic::Ordering::SeqCst);
        let seqno = self.finished.to();
        if let Err(error) = self.server.donate(receiver, request, self.group(), seqno) {
            self.donated(Err(error.to_string()));
        }
    }

    /// Reports the result of a state transfer to another server.
    pub fn donated(self: &Arc<Self>, result: Result<(), String>) {
        let to = lock(&self.transfer).donating_to.take();
        if let (Some(to), Err(reason)) = (to, result) {
            self.send_frame(to, Frame::StateRefused(Refusal { reason, has_failed: true }));
        }
        if self.desynced() == 0 {
            self.ask_to_be_synced();
        }
    }

    pub(super) fn set_willing(&self, is_willing: bool) {
        self.send(Input::Willing(is_willing));
    }
}
