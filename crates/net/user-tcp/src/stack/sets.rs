//! Connections that are in an epoll set: their frames come by the set's lane. While a thread waits for one of them
//! alone, its frames come by its own lane.

use super::lanes::User;
use super::{Inner, Stack};
use crate::lane::Lane;
use crate::sets::Set;
use crate::socket::Socket;
use libc::epoll_event;
use redoubt_tcp::Micros;

impl Stack {
    /// A lane for a set, if one is available.
    pub fn lane_for_set(&'static self, set: &'static Set) -> Option<&'static Lane> {
        self.take_or_make_lane(User::Set(set))
    }

    /// Releases the lane of a set.
    pub fn take_lane_back(&'static self, lane: &'static Lane) {
        self.with(|inner, now| {
            inner.drain(lane, now);
            inner.lanes.give_back(lane);
        });
    }
}

impl Inner {
    /// Adds a connection to a set. `false`: it is left to the kernel.
    pub fn join_set(
        &mut self,
        socket: &'static Socket,
        generation: u32,
        (set, lane): (&'static Set, &'static Lane),
        asked: epoll_event,
        now: Micros,
    ) -> bool {
        // The bytes read ahead may have been read since.
        self.refresh(socket.slot);
        let Some((_, slot)) = self.slot(socket, generation) else { return false };
        if slot.is_armed || !socket.may_join() || !set.join(socket, asked) {
            return false;
        }
        if self.move_to(socket, Some(lane), now) {
            return true;
        }
        set.quit(socket, false);
        false
    }

    /// The server removes a connection from its set.
    pub fn leave_set(&mut self, socket: &'static Socket, now: Micros) {
        if let Some(set) = socket.set() {
            set.quit(socket, false);
            self.take_lane_away(socket.slot, now);
        }
    }

    /// Leaves a connection in its set to the kernel.
    pub(super) fn expel(&mut self, number: u32) {
        let Some(socket) = self.slots.get(number as usize).map(|slot| slot.socket) else { return };
        if let Some(set) = socket.set() {
            set.quit(socket, true);
        }
    }

    /// A thread begins to wait for a connection alone.
    pub fn take_apart(&mut self, socket: &'static Socket, generation: u32, now: Micros) {
        let Some((_, slot)) = self.slot(socket, generation) else { return };
        slot.apart += 1;
        if slot.apart > 1 || socket.set().is_none() {
            return;
        }
        match self.lanes.take(User::Slot(socket.slot)) {
            Some(lane) => {
                if !self.move_to(socket, Some(lane), now) {
                    self.lanes.give_back(lane);
                }
            }
            // `give_lane` may create one, without the lock.
            None => self.take_lane_away(socket.slot, now),
        }
    }

    /// The thread does not wait any more.
    pub fn put_together(&mut self, socket: &'static Socket, generation: u32, now: Micros) {
        let Some((_, slot)) = self.slot(socket, generation) else { return };
        slot.apart = slot.apart.saturating_sub(1);
        if slot.apart > 0 {
            return;
        }
        if let Some(lane) = socket.set().and_then(|set| set.lane(socket.stack.number())) {
            self.move_to(socket, Some(lane), now);
            self.refresh(socket.slot);
        }
    }
}
