//! Which connections have a lane.
//!
//! Invariant: a slot has a lane only if the lane has the slot; its socket then has the same, and the program in the
//! driver knows of it. A lane to which a thread still attends for a connection that has gone is given to nobody.

use super::{Inner, Stack};
use crate::user_tcp::ahead;
use crate::user_tcp::lane::Lane;
use crate::user_tcp::link::{MadeLane, MakeLane};
use crate::user_tcp::report;
use crate::user_tcp::socket::Socket;
use redoubt_tcp::Micros;

/// Lanes at most.
const MOST: u64 = 1024;
/// A lane has two descriptors; a server is left most of those that it may have.
const SHARE: u64 = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Lanes {
    all: Vec<Place>,
    /// Numbers of those that nobody has.
    free: Vec<u32>,
    /// The kernel does not make them, or not use them.
    is_broken: bool,
}

struct Place {
    lane: &'static Lane,
    slot: Option<u32>,
}

impl Lanes {
    pub(super) fn is_any_used(&self) -> bool {
        self.free.len() < self.all.len()
    }

    fn take(&mut self, slot: u32) -> Option<&'static Lane> {
        let is_left =
            |number: &u32| self.all.get(*number as usize).is_some_and(|place| !place.lane.is_attended());
        let at = self.free.iter().rposition(is_left)?;
        let place = self.all.get_mut(self.free.swap_remove(at) as usize)?;
        place.slot = Some(slot);
        Some(place.lane)
    }

    fn give_back(&mut self, lane: &Lane) {
        if let Some(place) = self.all.get_mut(lane.number as usize) {
            place.slot = None;
            self.free.push(lane.number);
        }
    }
}

/// What this process may have of them.
fn most() -> u32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the limit.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result == 0 { (limit.rlim_cur / SHARE).min(MOST) as u32 } else { 0 }
}

impl Stack {
    /// Has a connection's frames come by a lane from now on, if there is one to be had.
    pub fn give_lane(&'static self, socket: &'static Socket) {
        if socket.lane().is_some() {
            return;
        }
        let generation = socket.generation();
        let make = self.with(|inner, now| inner.give_lane(socket, generation, now));
        let Some(make) = make else { return };
        // The kernel may have to wait for others who change its interfaces.
        let made = make();
        self.with(|inner, now| {
            inner.add_lane(made);
            inner.give_lane(socket, generation, now);
        });
    }
}

impl Inner {
    /// Gives a connection a lane. How one is to be made, if there is none.
    fn give_lane(&mut self, socket: &'static Socket, generation: u32, now: Micros) -> Option<MakeLane> {
        let slot = self.slots.get(socket.slot as usize)?;
        let is_it = slot.id.is_some() && socket.generation() == generation;
        if !is_it || slot.is_armed || slot.lane.is_some() || self.lanes.is_broken {
            return None;
        }
        let ends = [slot.local, slot.peer];
        let Some(lane) = self.lanes.take(socket.slot) else { return self.link.make_lane(most()) };
        if let Err(error) = self.link.steer_connection(ends, Some(lane.number)) {
            report(&format!("connections cannot be told apart in the driver: {error}"));
            self.lanes.give_back(lane);
            self.lanes.is_broken = true;
            return None;
        }
        if let Some(slot) = self.slots.get_mut(socket.slot as usize) {
            slot.lane = Some(lane);
        }
        socket.set_lane(Some(lane));
        // What has come before.
        self.receive(None, now);
        None
    }

    fn add_lane(&mut self, made: std::io::Result<MadeLane>) {
        match made.and_then(|made| self.link.add_lane(made)) {
            Ok(lane) => {
                self.lanes.all.push(Place { lane, slot: None });
                self.lanes.free.push(lane.number);
            }
            Err(error) => {
                report(&format!("no socket of AF_XDP for each connection, statements are slower: {error}"));
                self.lanes.is_broken = true;
            }
        }
    }

    /// A connection's frames come by the link itself again.
    pub(super) fn take_lane_away(&mut self, number: u32, now: Micros) {
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        let Some(lane) = slot.lane.take() else { return };
        let (socket, ends) = (slot.socket, [slot.local, slot.peer]);
        // It is there, so there is nothing that could fail.
        let _ = self.link.steer_connection(ends, None);
        while self.receive(Some(lane.number), now) > 0 {}
        socket.set_lane(None);
        if lane.is_polled() {
            lane.ring();
        }
        self.lanes.give_back(lane);
    }

    /// Takes what has come by the lane of a connection.
    pub fn take_from(&mut self, socket: &Socket, now: Micros) {
        if let Some(lane) = socket.lane().filter(|lane| lane.has_frames()) {
            self.receive(Some(lane.number), now);
            if self.link.is_pressed() {
                self.receive_all(now, |_| true);
            }
        }
    }

    /// The same, and reads ahead.
    pub fn read_ahead(&mut self, socket: &Socket, now: Micros) {
        self.take_from(socket, now);
        let id = self.slots.get(socket.slot as usize).and_then(|slot| slot.id);
        let Some(id) = id else { return };
        let mut ahead = socket.ahead();
        if ahead.is_empty() && self.engine.state(id).is_ok_and(|state| state.readable_bytes > 0) {
            // What there is was seen, so that there is nothing that could fail.
            ahead.fill(ahead::LEN_BYTES, |space| self.engine.read(now, id, space).unwrap_or(0));
        }
        drop(ahead);
        self.refresh(socket.slot);
    }

    /// Takes what has come by lanes to which nobody attends.
    pub(super) fn receive_unattended(&mut self, now: Micros) -> usize {
        self.receive_all(now, |lane| !lane.is_attended())
    }

    fn receive_all(&mut self, now: Micros, is_meant: impl Fn(&Lane) -> bool) -> usize {
        let mut count = 0;
        for at in 0..self.lanes.all.len() {
            let lane = self.lanes.all.get(at).map(|place| place.lane);
            if let Some(lane) = lane.filter(|lane| lane.has_frames() && is_meant(lane)) {
                count += self.receive(Some(lane.number), now);
            }
        }
        count
    }

    /// Something waits to be sent in a connection to whose lane nobody attends.
    pub(super) fn has_unattended_work(&self) -> bool {
        let unsent = |slot: u32| {
            let id = self.slots.get(slot as usize)?.id?;
            Some(self.engine.state(id).ok()?.unsent_bytes > 0)
        };
        let is_work = |slot| unsent(slot).unwrap_or(false);
        self.lanes.all.iter().any(|place| !place.lane.is_attended() && place.slot.is_some_and(is_work))
    }
}
