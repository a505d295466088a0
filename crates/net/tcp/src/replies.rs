//! Segments without data that belong to no open connection: answers to SYNs, resets, the last ACK in TIME-WAIT. The
//! queue has a limit; beyond it they are not sent, and the peer retransmits.

use std::collections::VecDeque;

use crate::segment::Header;

/// Limit of waiting segments.
const MAX_REPLIES: usize = 1024;

/// Queue of segments to be sent.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    queue: VecDeque<Header>,
}

impl Replies {
    /// `false`: the queue is full.
    pub(crate) fn push(&mut self, header: Header) -> bool {
        if self.queue.len() >= MAX_REPLIES {
            return false;
        }
        self.queue.push_back(header);
        true
    }

    pub(crate) fn first(&self) -> Option<&Header> {
        self.queue.front()
    }

    pub(crate) fn pop(&mut self) {
        self.queue.pop_front();
    }
}
