//! Connections that are in an epoll set: their frames come by the set's lane, but while a thread waits for one alone
//! they come by a lane of its own.

use super::lanes::User;
use super::{Inner, Stack};
use crate::user_tcp::lane::Lane;
use crate::user_tcp::sets::Set;
use crate::user_tcp::socket::Socket;
use libc::epoll_event;
use redoubt_tcp::Micros;

impl Stack {
    /// A lane for a set, if there is one to be had.
    pub fn lane_for_set(&'static self, set: &'static Set) -> Option<&'static Lane> {
        self.take_or_make_lane(User::Set(set))
    }

    /// The set does not have it any more.
    pub fn take_lane_back(&'static self, lane: &'static Lane) {
        self.with(|inner, now| {
            inner.drain(lane, now);
            inner.lanes.give_back(lane);
        });
    }
}

impl Inner {
    /// Takes a connection into a set. `false`: it is left to the kernel.
    pub fn join_set(
        &mut self,
        socket: &'static Socket,
        generation: u32,
        (set, lane): (&'static Set, &'static Lane),
        asked: epoll_event,
        now: Micros,
    ) -> bool {
        // It may have been read from what was read ahead.
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

    /// The server takes a connection out of its set.
    pub fn leave_set(&mut self, socket: &'static Socket, now: Micros) {
        if let Some(set) = socket.set() {
            set.quit(socket, false);
            self.take_lane_away(socket.slot, now);
        }
    }

    /// From now on the kernel looks after a connection in its set.
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
            // There may be one when it was made, without the lock.
            None => self.take_lane_away(socket.slot, now),
        }
    }

    /// It does not wait any more.
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
