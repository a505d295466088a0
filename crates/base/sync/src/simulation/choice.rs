//! Choice of the next thread, and of the times when deadlines pass.

use fastrand::Rng;

/// One of `1 << shift` points switches the thread.
const SHIFTS: [u32; 6] = [0, 1, 2, 4, 6, 8];
/// Maximum number of points until the parameters are chosen again.
const LONGEST_PHASE: u64 = 5_000;
/// Maximum number of points for which a thread is lazy.
const LONGEST_LAZINESS: u64 = 3_000;
/// One of so many points lets a deadline pass early.
const EARLY: u32 = 2_000;

/// The current parameters of the choices.
pub(super) struct Choice {
    pub rng: Rng,
    shift: u32,
    phase_ends: u64,
    /// A thread that does not run while any other can, and the end of its laziness.
    lazy: Option<(usize, u64)>,
    pub is_calm: bool,
}

impl Choice {
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), shift: 2, phase_ends: 0, lazy: None, is_calm: false }
    }

    /// Whether the thread switches at this point.
    pub fn wants_change(&mut self, step: u64) -> bool {
        if step >= self.phase_ends {
            self.shift = SHIFTS[self.rng.usize(..SHIFTS.len())];
            self.phase_ends = step + self.rng.u64(1..LONGEST_PHASE);
        }
        self.rng.u64(..) & ((1 << self.shift) - 1) == 0
    }

    pub fn wants_early_deadline(&mut self) -> bool {
        !self.is_calm && self.rng.u32(..EARLY) == 0
    }

    /// Selects one of the threads that can run, of which there is at least one.
    pub fn one_of(&mut self, ready: &[usize], step: u64) -> usize {
        if self.is_calm {
            self.lazy = None;
        } else if self.lazy.is_none_or(|(_, until)| until <= step) {
            self.lazy = None;
            if self.rng.u32(..400) == 0 {
                let thread = ready[self.rng.usize(..ready.len())];
                self.lazy = Some((thread, step + self.rng.u64(1..LONGEST_LAZINESS)));
            }
        }
        let at = self.rng.usize(..ready.len());
        match self.lazy {
            Some((lazy, _)) if ready[at] == lazy => ready[(at + 1) % ready.len()],
            _ => ready[at],
        }
    }
}
