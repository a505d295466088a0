//! Logged frames that are not durable yet.
//!
//! Invariants: frames are contiguous (each starts where the one before ends), `end` is behind the last one,
//! and every frame from the oldest not durable one on is kept, so that it can be sent again.

use redoubt_wire::frame::{HEADER_LEN_BYTES, encode_header};
use redoubt_wire::{Seq, WireError};
use std::collections::VecDeque;
use std::sync::Arc;

/// Why the node and this library cannot go on from where the node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The node wants frames that were durable.
    #[error(
        "the storage node expects position {wanted}, but everything before {oldest} was acknowledged as durable: \
         the node lost acknowledged data (was an older copy of its directory put back?); \
         check the node before starting the server again"
    )]
    Lost {
        /// Where the node stands.
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
        /// Where the node stands.
        wanted: u64,
        /// End of what was sent.
        end: u64,
    },
    /// The node stands inside a frame.
    #[error("the storage node expects position {wanted}, which is inside a frame; it stored a part of one")]
    InsideFrame {
        /// Where the node stands.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> (FrameQueue, Vec<u64>) {
        let mut queue = FrameQueue::new(Seq(100));
        let mut starts = Vec::new();
        for len in [1usize, 20, 300] {
            starts.push(queue.end().0);
            queue.push(1, |out| out.extend(std::iter::repeat_n(7u8, len))).unwrap();
        }
        (queue, starts)
    }

    #[test]
    fn frames_are_contiguous_and_kept_until_durable() {
        let (mut queue, starts) = filled();
        assert_eq!(starts, [100, 109, 137]);
        assert_eq!(queue.end(), Seq(445));
        queue.trim(Seq(136));
        assert_eq!(queue.oldest(), Seq(109));
        queue.trim(Seq(137));
        assert_eq!(queue.oldest(), Seq(137));
        assert_eq!(queue.len_bytes(), 308);
        queue.trim(Seq(445));
        assert_eq!(queue.oldest(), Seq(445));
        assert_eq!(queue.len_bytes(), 0);
    }

    #[test]
    fn resume_sends_what_is_missing_or_says_why_not() {
        let (mut queue, starts) = filled();
        assert_eq!(queue.resume(Seq(starts[1])).unwrap().len(), 2);
        assert_eq!(queue.resume(queue.end()).unwrap().len(), 0);
        assert_eq!(queue.resume(Seq(110)), Err(ResumeError::InsideFrame { wanted: 110 }));
        assert_eq!(queue.resume(Seq(446)), Err(ResumeError::Ahead { wanted: 446, end: 445 }));
        queue.trim(Seq(starts[1]));
        assert_eq!(queue.resume(Seq(100)), Err(ResumeError::Lost { wanted: 100, oldest: 109 }));
    }

    #[test]
    fn frame_checks_at_its_position_only() {
        let (queue, starts) = filled();
        let frames = queue.resume(Seq(starts[0])).unwrap();
        let frame = &frames[1];
        let header = redoubt_wire::FrameHeader::decode(frame[..8].try_into().unwrap());
        assert!(header.check(starts[1], &frame[8..]).is_ok());
        assert!(header.check(starts[0], &frame[8..]).is_err());
    }
}
