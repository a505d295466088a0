//! A hierarchical timer wheel (Varghese, Lauck, SOSP 1987): setting, moving and firing a timer costs the same for one
//! and for all.
//!
//! Each owner of timers has one entry, the earliest. The entry is set again only when that timer becomes earlier. If it
//! becomes later, the entry fires once without effect and is set again then. So a timer that moves with each segment,
//! such as the retransmission timer, costs nothing here.
//!
//! Level `l` has 64 places of 64^l ticks each; an entry lies in the level of the highest digit in which its tick differs
//! from now's. Entries are linked through a table by number, so that nothing is allocated but that table.
//!
//! Invariant: an entry fires at its tick or later, never earlier, and a tick begins at or after the time asked for.

use crate::time::Micros;

const TICK_BITS: u32 = 10;
const PLACE_BITS: u32 = 6;
const PLACES: usize = 1 << PLACE_BITS;
const LEVELS: usize = 6;
/// Two years. Beyond that, an entry fires early and is set again. One slot of the highest level is never used ahead: it
/// would be that of the current tick.
const MAX_AHEAD_TICKS: u64 = (PLACES as u64 - 1) << (PLACE_BITS as u64 * (LEVELS as u64 - 1));
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    next: u32,
    previous: u32,
    tick: u64,
    /// Level and place; `NONE` if it is not set.
    home: u32,
}

const UNSET: Node = Node { next: NONE, previous: NONE, tick: 0, home: NONE };

/// Timer wheel; an entry is addressed by its number.
#[derive(Debug)]
pub(crate) struct Timers {
    nodes: Vec<Node>,
    heads: [[u32; PLACES]; LEVELS],
    /// A bit for each place that is not empty.
    used: [u64; LEVELS],
    /// All ticks up to this one have fired.
    tick: u64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), heads: [[NONE; PLACES]; LEVELS], used: [0; LEVELS], tick: 0 }
    }

    fn tick_at(at: Micros) -> u64 {
        (at.0 >> TICK_BITS) + u64::from(at.0 & ((1 << TICK_BITS) - 1) != 0)
    }

    /// Sets the timer of a number, unless that fires by then anyway.
    pub(crate) fn set_by(&mut self, index: u32, at: Micros) {
        let tick = Self::tick_at(at);
        match self.nodes.get(index as usize) {
            Some(node) if node.home != NONE && node.tick <= tick => return,
            Some(_) => {}
            None => self.nodes.resize(index as usize + 1, UNSET),
        }
        self.clear(index);
        self.link(index, tick.max(self.tick + 1));
    }

    /// Clears the timer of a number.
    pub(crate) fn clear(&mut self, index: u32) {
        let Some(node) = self.nodes.get_mut(index as usize) else { return };
        if node.home == NONE {
            return;
        }
        let Node { next, previous, home, .. } = *node;
        node.home = NONE;
        let (level, place) = (home as usize / PLACES, home as usize % PLACES);
        match self.nodes.get_mut(previous as usize) {
            Some(node) => node.next = next,
            None => self.heads[level][place] = next,
        }
        if let Some(node) = self.nodes.get_mut(next as usize) {
            node.previous = previous;
        }
        if self.heads[level][place] == NONE {
            self.used[level] &= !(1 << place);
        }
    }

    fn link(&mut self, index: u32, tick: u64) {
        let tick = tick.min(self.tick + MAX_AHEAD_TICKS);
        let differs = (tick ^ self.tick) | 1;
        let level = ((63 - differs.leading_zeros()) / PLACE_BITS).min(LEVELS as u32 - 1) as usize;
        let place = (tick >> (level as u32 * PLACE_BITS)) as usize % PLACES;
        let head = self.heads[level][place];
        let home = (level * PLACES + place) as u32;
        self.nodes[index as usize] = Node { next: head, previous: NONE, tick, home };
        if let Some(node) = self.nodes.get_mut(head as usize) {
            node.previous = index;
        }
        self.heads[level][place] = index;
        self.used[level] |= 1 << place;
    }

    /// The next tick with work to do, and its level and slot.
    fn next_place(&self) -> Option<(u64, usize, usize)> {
        // A lower level's entries come before a higher level's: they share more digits with now.
        for level in 0..LEVELS {
            if self.used[level] == 0 {
                continue;
            }
            let shift = level as u32 * PLACE_BITS;
            let digit = (self.tick >> shift) as u32 % PLACES as u32;
            let ahead = self.used[level].rotate_right(digit).trailing_zeros();
            let tick = ((self.tick >> shift) + u64::from(ahead)) << shift;
            return Some((tick.max(self.tick), level, ((digit + ahead) as usize) % PLACES));
        }
        None
    }

    /// The time at which [`Timers::fired`] has work: never later than the first timer.
    pub(crate) fn next(&self) -> Option<Micros> {
        self.next_place().map(|(tick, ..)| Micros(tick << TICK_BITS))
    }

    /// The next number whose timer fires by now; that timer is cleared.
    pub(crate) fn fired(&mut self, now: Micros) -> Option<u32> {
        let end = now.0 >> TICK_BITS;
        loop {
            let Some((tick, level, place)) = self.next_place().filter(|(tick, ..)| *tick <= end) else {
                self.tick = self.tick.max(end);
                return None;
            };
            self.tick = tick;
            if level == 0 {
                let index = self.heads[0][place];
                self.clear(index);
                return Some(index);
            }
            // Takes the whole slot at once: while entries are left in it, a lower level's entries need not come first.
            while let Some(node) = self.nodes.get(self.heads[level][place] as usize).copied() {
                let index = self.heads[level][place];
                self.clear(index);
                self.link(index, node.tick);
            }
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory_len_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Random sets, moves and steps of time: all timers fire, none early, none a tick late.
    #[test]
    fn fires_what_a_sorted_map_says() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut timers = Timers::new();
            let mut model = BTreeMap::new();
            let mut now = rng.u64(..1 << 40);
            timers.fired(Micros(now));
            for _ in 0..2000 {
                match rng.u32(..10) {
                    0..5 => {
                        let index = rng.u32(..50);
                        let at = now + (rng.u64(..) >> rng.u32(20..64));
                        timers.set_by(index, Micros(at));
                        let known = model.entry(index).or_insert(at);
                        *known = at.min(*known);
                    }
                    5 => {
                        let index = rng.u32(..50);
                        timers.clear(index);
                        model.remove(&index);
                    }
                    _ => {
                        let step = rng.u64(..) >> rng.u32(24..64);
                        // Not beyond what one look costs little.
                        now += step.min(1 << 38);
                        let mut fired = Vec::new();
                        while let Some(index) = timers.fired(Micros(now)) {
                            let at = model.remove(&index).expect("a timer that is set");
                            assert!(at <= now, "seed {seed}: early");
                            fired.push(index);
                        }
                        let tick = 1 << TICK_BITS;
                        // A timer set for a time within this tick or the last fires a tick later.
                        let late = model.values().filter(|at| **at + 2 * tick <= now).count();
                        assert_eq!(late, 0, "seed {seed}: late");
                        let first = model.values().min().map(|at| Micros(at + 2 * tick));
                        assert!(timers.next() <= first || first.is_none());
                        assert_eq!(timers.next().is_none(), model.is_empty());
                    }
                }
            }
        }
    }
}
