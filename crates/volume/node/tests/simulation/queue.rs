//! Logged frames that are not durable yet.
//!
//! Invariants: frames are contiguous (each starts at the end of the previous one), and `end` is the end of the last
//! one. Every frame from the oldest not durable one on is kept, so that it can be sent again.

use redoubt_wire::frame::{HEADER_LEN_BYTES, encode_header};
use redoubt_wire::{Seq, WireError};
use std::collections::VecDeque;
use std::sync::Arc;

/// Reasons why the node and this library cannot resume at the node's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The node requests frames that were durable.
    #[error(
        "the storage node expects position {wanted}, but everything before {oldest} was acknowledged as durable: \
         the node lost acknowledged data (was an older copy of its directory put back?); \
         check the node before starting the server again"
    )]
    Lost {
        /// Position of the node.
        wanted: u64,
        /// Oldest frame kept here.
        oldest: u64,
    },
    /// The node has more than was sent.
    #[error(
        "the storage node stands at position {wanted}, but this server sent only up to {end}: \
         another server wrote to the volume"
    )]
    Ahead {
        /// Position of the node.
        wanted: u64,
        /// End of the sent frames.
        end: u64,
    },
    /// The node's position is inside a frame.
    #[error("the storage node expects position {wanted}, which is inside a frame; it stored a part of one")]
    InsideFrame {
        /// Position of the node.
        wanted: u64,
    },
}

/// The queue.
#[derive(Debug, Default)]
pub struct FrameQueue {
    frames: VecDeque<(u64, Arc<Vec<u8>>)>,
    end: u64,
    len_bytes: u64,
}

impl FrameQueue {
    /// An empty queue that starts at `start`.
    pub fn new(start: Seq) -> Self {
        Self { frames: VecDeque::new(), end: start.0, len_bytes: 0 }
    }

    /// Position of the next frame.
    pub const fn end(&self) -> Seq {
        Seq(self.end)
    }

    /// Oldest position that can be sent again.
    pub fn oldest(&self) -> Seq {
        Seq(self.frames.front().map_or(self.end, |(start, _)| *start))
    }

    /// Bytes kept.
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Adds a frame; `encode` appends its payload. Returns the whole frame.
    ///
    /// # Errors
    /// [`WireError::TooLong`] for a payload over the limit.
    pub fn push(&mut self, kind: u8, encode: impl FnOnce(&mut Vec<u8>)) -> Result<Arc<Vec<u8>>, WireError> {
        let mut bytes = vec![0; HEADER_LEN_BYTES];
        encode(&mut bytes);
        let (head, payload) = bytes.split_at_mut(HEADER_LEN_BYTES);
        head.copy_from_slice(&encode_header(kind, self.end, payload)?);
        let frame = Arc::new(bytes);
        self.frames.push_back((self.end, Arc::clone(&frame)));
        self.end += frame.len() as u64;
        self.len_bytes += frame.len() as u64;
        Ok(frame)
    }

    /// Forgets frames that end at or before `durable`.
    pub fn trim(&mut self, durable: Seq) {
        while let Some((start, frame)) = self.frames.front() {
            let len_bytes = frame.len() as u64;
            if start + len_bytes > durable.0 {
                return;
            }
            self.len_bytes -= len_bytes;
            self.frames.pop_front();
        }
    }

    /// The frames to send again if the node expects `wanted` next.
    ///
    /// # Errors
    /// [`ResumeError`]: the stream cannot go on.
    pub fn resume(&self, wanted: Seq) -> Result<Vec<Arc<Vec<u8>>>, ResumeError> {
        let (wanted, oldest) = (wanted.0, self.oldest().0);
        if wanted < oldest {
            return Err(ResumeError::Lost { wanted, oldest });
        }
        if wanted > self.end {
            return Err(ResumeError::Ahead { wanted, end: self.end });
        }
        let first = self.frames.partition_point(|(start, _)| *start < wanted);
        let starts_there = self.frames.get(first).map_or(self.end, |(start, _)| *start) == wanted;
        if !starts_there {
            return Err(ResumeError::InsideFrame { wanted });
        }
        Ok(self.frames.iter().skip(first).map(|(_, frame)| Arc::clone(frame)).collect())
    }
}
