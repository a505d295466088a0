//! Queue of indices in the order of arrival, each at most once.

use std::collections::VecDeque;

/// Indices in the order of arrival, each at most once.
#[derive(Debug, Default)]
pub(super) struct Queue {
    queue: VecDeque<u32>,
    is_in: Vec<bool>,
}

impl Queue {
    pub(super) fn push(&mut self, index: u32) {
        let place = index as usize;
        if place >= self.is_in.len() {
            self.is_in.resize(place + 1, false);
        }
        if let Some(is_in) = self.is_in.get_mut(place)
            && !std::mem::replace(is_in, true)
        {
            self.queue.push_back(index);
        }
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        let index = self.queue.pop_front()?;
        if let Some(is_in) = self.is_in.get_mut(index as usize) {
            *is_in = false;
        }
        Some(index)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.is_in.get(index as usize).copied().unwrap_or(false)
    }
}
