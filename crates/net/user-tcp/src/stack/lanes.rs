//! Assignment of lanes to connections and epoll sets.
//!
//! Invariant: a slot has a lane only if the lane has the slot, or the set in which its socket is. The socket then has
//! the same lane, and so does the map of the program in the driver. A lane that a thread still attends for a closed
//! connection is not assigned again.

use super::{Inner, Slot, Stack};
use crate::ahead;
use crate::lane::Lane;
use crate::link::MadeLane;
use crate::report;
use crate::sets::Set;
use crate::socket::Socket;
use redoubt_tcp::Micros;

/// Maximum number of lanes.
const MOST: u64 = 1024;
/// A lane has two descriptors; most of the process's limit is left to the server.
const SHARE: u64 = 16;

/// Assignment of lanes to connections and epoll sets.
#[derive(Default)]
pub(super) struct Lanes {
    all: Vec<Place>,
    /// Numbers of the unassigned lanes.
    free: Vec<u32>,
    /// The kernel does not create or does not use lanes.
    is_broken: bool,
}

pub(super) struct Place {
    lane: &'static Lane,
    user: User,
}

#[derive(Clone, Copy)]
pub(super) enum User {
    Nobody,
    Slot(u32),
    Set(&'static Set),
}

impl Place {
    /// A thread waits for its frames.
    fn is_attended(&self) -> bool {
        match self.user {
            User::Set(set) => set.has_waiters(),
            User::Nobody | User::Slot(_) => self.lane.is_attended(),
        }
    }
}

impl Lanes {
    pub(super) fn is_any_used(&self) -> bool {
        self.free.len() < self.all.len()
    }

    pub(super) fn take(&mut self, user: User) -> Option<&'static Lane> {
        let is_left =
            |number: &u32| self.all.get(*number as usize).is_some_and(|place| !place.lane.is_attended());
        let at = self.free.iter().rposition(is_left)?;
        let place = self.all.get_mut(self.free.swap_remove(at) as usize)?;
        place.user = user;
        place.lane.set_shared(matches!(user, User::Set(_)));
        Some(place.lane)
    }

    pub(super) fn give_back(&mut self, lane: &Lane) {
        if let Some(place) = self.all.get_mut(lane.number as usize) {
            place.user = User::Nobody;
            self.free.push(lane.number);
        }
    }
}

/// Maximum number of lanes of this process.
fn most() -> u32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the limit.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result == 0 { (limit.rlim_cur / SHARE).min(MOST) as u32 } else { 0 }
}

impl Stack {
    /// Assigns a lane to a connection, if one is available.
    pub fn give_lane(&'static self, socket: &'static Socket) {
        let generation = socket.generation();
        let may_have = |inner: &mut Inner| {
            let is_apart_or_alone = |slot: &Slot| socket.set().is_none() || slot.apart > 0;
            let slot = inner.slot(socket, generation).map(|(_, slot)| slot);
            slot.is_some_and(|slot| !slot.is_armed && slot.lane.is_none() && is_apart_or_alone(slot))
        };
        if socket.lane().is_some() || !self.with(|inner, _| may_have(inner)) {
            return;
        }
        let Some(lane) = self.take_or_make_lane(User::Slot(socket.slot)) else { return };
        self.with(|inner, now| {
            if !may_have(inner) || !inner.move_to(socket, Some(lane), now) {
                inner.lanes.give_back(lane);
            }
        });
    }

    /// An unassigned lane, if one is available.
    pub(super) fn take_or_make_lane(&'static self, user: User) -> Option<&'static Lane> {
        let make = self.with(|inner, _| match inner.lanes.take(user) {
            Some(lane) => Ok(lane),
            None if inner.lanes.is_broken => Err(None),
            None => Err(inner.link.make_lane(most())),
        });
        let make = match make {
            Ok(lane) => return Some(lane),
            Err(make) => make?,
        };
        // The kernel may block on other changes of its interfaces.
        let made = make();
        self.with(|inner, _| {
            inner.add_lane(made);
            inner.lanes.take(user)
        })
    }
}

impl Inner {
    /// Moves a connection's frames to another lane, or to the link itself. `false`: they come as before.
    pub(super) fn move_to(
        &mut self,
        socket: &'static Socket,
        to: Option<&'static Lane>,
        now: Micros,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(socket.slot as usize) else { return false };
        let ends = [slot.local, slot.peer];
        if let Err(error) = self.link.steer_connection(ends, to.map(|lane| lane.number)) {
            // A removal fails only where the entry or its address is gone already.
            if to.is_some() {
                report(&format!("the driver cannot separate connections: {error}"));
                self.lanes.is_broken = true;
                return false;
            }
        }
        let from = std::mem::replace(&mut slot.lane, to);
        socket.set_lane(to);
        // Frames that have arrived before the move.
        match from {
            Some(lane) => self.drain(lane, now),
            None => {
                self.receive(None, now);
            }
        }
        if let Some(lane) = from {
            if lane.is_polled() {
                lane.ring();
            }
            if !lane.is_shared() {
                self.lanes.give_back(lane);
            }
        }
        true
    }

    /// Receives all frames of a lane.
    pub(super) fn drain(&mut self, lane: &Lane, now: Micros) {
        while self.receive(Some(lane.number), now) > 0 {}
    }

    fn add_lane(&mut self, made: std::io::Result<MadeLane>) {
        match made.and_then(|made| self.link.add_lane(made)) {
            Ok(lane) => {
                self.lanes.all.push(Place { lane, user: User::Nobody });
                self.lanes.free.push(lane.number);
            }
            Err(error) => {
                report(&format!("no AF_XDP socket per connection, statements are slower: {error}"));
                self.lanes.is_broken = true;
            }
        }
    }

    /// A connection's frames come by the link itself again.
    pub(super) fn take_lane_away(&mut self, number: u32, now: Micros) {
        let slot = self.slots.get(number as usize).filter(|slot| slot.lane.is_some());
        if let Some(socket) = slot.map(|slot| slot.socket) {
            self.move_to(socket, None, now);
        }
    }

    /// Receives the frames of a connection's lane.
    pub fn take_from(&mut self, socket: &Socket, now: Micros) {
        if let Some(lane) = socket.lane().filter(|lane| lane.has_frames()) {
            self.take_by(lane, now);
        }
    }

    /// Receives the frames of a lane, and updates the readiness of their connections before a read.
    pub fn take_by(&mut self, lane: &Lane, now: Micros) {
        self.receive(Some(lane.number), now);
        if self.link.is_pressed() {
            self.receive_all(now, |_| true);
        }
        self.refresh_changed();
    }

    /// Receives the frames of a connection's lane, and reads ahead.
    pub fn look_at(&mut self, socket: &Socket, now: Micros) {
        self.take_from(socket, now);
        if !socket.reads_ahead() {
            return;
        }
        let id = self.slots.get(socket.slot as usize).and_then(|slot| slot.id);
        let Some(id) = id else { return };
        let mut ahead = socket.ahead();
        if ahead.is_empty() && self.engine.state(id).is_ok_and(|state| state.readable_bytes > 0) {
            // The bytes are available, so this cannot fail.
            ahead.fill(ahead::LEN_BYTES, |space| self.engine.read(now, id, space).unwrap_or(0));
        }
        drop(ahead);
        self.refresh(socket.slot);
    }

    /// Receives the frames of unattended lanes.
    pub(super) fn receive_unattended(&mut self, now: Micros) -> usize {
        self.receive_all(now, |place| !place.is_attended())
    }

    fn receive_all(&mut self, now: Micros, is_meant: impl Fn(&Place) -> bool) -> usize {
        let mut count = 0;
        for at in 0..self.lanes.all.len() {
            let place = self.lanes.all.get(at).filter(|place| place.lane.has_frames() && is_meant(place));
            if let Some(number) = place.map(|place| place.lane.number) {
                count += self.receive(Some(number), now);
            }
        }
        count
    }

    /// A connection of an unattended lane has unsent bytes.
    pub(super) fn has_unattended_work(&self) -> bool {
        let is_unsent = |slot: u32| {
            let id = self.slots.get(slot as usize).and_then(|slot| slot.id);
            id.and_then(|id| self.engine.state(id).ok()).is_some_and(|state| state.unsent_bytes > 0)
        };
        let is_work = |place: &Place| match place.user {
            User::Nobody => false,
            User::Slot(slot) => is_unsent(slot),
            // It may have members of other stacks.
            User::Set(set) => set.sockets().into_iter().any(|socket| {
                let slot = self.slots.get(socket.slot as usize);
                slot.is_some_and(|slot| std::ptr::eq(slot.socket, socket)) && is_unsent(socket.slot)
            }),
        };
        self.lanes.all.iter().any(|place| !place.is_attended() && is_work(place))
    }
}
