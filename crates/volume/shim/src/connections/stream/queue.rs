//! Logged frames that are not durable yet, in the mapped file that outlives this process ([`redoubt_resend_queue`]).
//!
//! Invariants: frames are contiguous (each starts where the previous one ends), `end` is after the last one, and
//! every frame from the oldest not durable one on is kept, so that it can be sent again.

use redoubt_resend_queue::{Full, UnsentRing};
use redoubt_wire::frame::{HEADER_LEN_BYTES, encode_header};
use redoubt_wire::{Seq, WireError};

/// Reason why the node and this library cannot resume at the node's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The node requests frames that were durable.
    #[error(
        "the storage node expects position {wanted}, but everything before {oldest} was acknowledged as durable: \
         the node lost acknowledged data (was an older copy of its directory put back?); \
         check the node before starting the server again"
    )]
    Lost {
        /// Position that the node expects.
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
        /// Position that the node expects.
        wanted: u64,
        /// End of what was sent.
        end: u64,
    },
    /// The node stands inside a frame.
    #[error(
        "the storage node expects position {wanted}, which is inside a frame; it stored only a part of that \
         frame"
    )]
    InsideFrame {
        /// Position that the node expects.
        wanted: u64,
    },
}

/// A frame cannot be kept, so it is not sent either.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// Too long for the wire.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// No room, although there must always be some.
    #[error("{0}")]
    Full(#[from] Full),
}

/// The queue.
#[derive(Debug)]
pub struct FrameQueue {
    ring: UnsentRing,
}

impl FrameQueue {
    /// A queue of the frames in `ring`.
    pub const fn new(ring: UnsentRing) -> Self {
        Self { ring }
    }

    /// Position of the next frame.
    pub const fn end(&self) -> Seq {
        self.ring.end()
    }

    /// Oldest position that can be sent again.
    pub fn oldest(&self) -> Seq {
        self.ring.oldest()
    }

    /// Room in use.
    pub const fn used_bytes(&self) -> u64 {
        self.ring.used_bytes()
    }

    /// Adds a frame; `encode` appends its payload. Leaves the whole frame in `frame`.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn push(
        &mut self,
        kind: u8,
        frame: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), PushError> {
        frame.clear();
        frame.resize(HEADER_LEN_BYTES, 0);
        encode(frame);
        let (head, payload) = frame.split_at_mut(HEADER_LEN_BYTES);
        head.copy_from_slice(&encode_header(kind, self.ring.end().0, payload)?);
        Ok(self.ring.push(frame)?)
    }

    /// Forgets frames that end at or before `durable`.
    pub fn trim(&mut self, durable: Seq) {
        self.ring.trim(durable);
    }

    /// Number of frames, counted from the oldest, that the node does not need if it expects `wanted` next.
    ///
    /// # Errors
    /// [`ResumeError`]: the stream cannot go on.
    pub fn resume(&self, wanted: Seq) -> Result<usize, ResumeError> {
        let (oldest, end) = (self.oldest().0, self.end().0);
        if wanted.0 < oldest {
            return Err(ResumeError::Lost { wanted: wanted.0, oldest });
        }
        if wanted.0 > end {
            return Err(ResumeError::Ahead { wanted: wanted.0, end });
        }
        let starts: Vec<Seq> = self.ring.positions().chain([self.end()]).collect();
        starts.binary_search(&wanted).map_err(|_| ResumeError::InsideFrame { wanted: wanted.0 })
    }

    /// Puts the frame with this number into `out`; false: there is none.
    pub fn copy(&self, number: usize, out: &mut Vec<u8>) -> bool {
        self.ring.copy(number, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::unsent_file::tests::mapped;

    fn filled() -> (FrameQueue, Vec<u64>) {
        let mut queue = FrameQueue::new(mapped().begin(1, 1, Seq(100)));
        let mut starts = Vec::new();
        for len in [1usize, 20, 300] {
            starts.push(queue.end().0);
            queue.push(1, &mut Vec::new(), |out| out.extend(std::iter::repeat_n(7u8, len))).unwrap();
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
        assert_eq!(queue.used_bytes(), 312);
        queue.trim(Seq(445));
        assert_eq!(queue.oldest(), Seq(445));
        assert_eq!(queue.used_bytes(), 0);
    }

    #[test]
    fn resume_sends_what_is_missing_or_says_why_not() {
        let (mut queue, starts) = filled();
        assert_eq!(queue.resume(Seq(starts[1])).unwrap(), 1);
        assert_eq!(queue.resume(queue.end()).unwrap(), 3);
        assert_eq!(queue.resume(Seq(110)), Err(ResumeError::InsideFrame { wanted: 110 }));
        assert_eq!(queue.resume(Seq(446)), Err(ResumeError::Ahead { wanted: 446, end: 445 }));
        queue.trim(Seq(starts[1]));
        assert_eq!(queue.resume(Seq(100)), Err(ResumeError::Lost { wanted: 100, oldest: 109 }));
    }

    #[test]
    fn frame_checks_at_its_position_only() {
        let (queue, starts) = filled();
        let mut frame = Vec::new();
        assert!(queue.copy(1, &mut frame));
        let header = redoubt_wire::FrameHeader::decode(frame[..8].try_into().unwrap());
        assert!(header.check(starts[1], &frame[8..]).is_ok());
        assert!(header.check(starts[0], &frame[8..]).is_err());
    }

    #[test]
    fn a_frame_that_cannot_be_sent_is_not_kept() {
        let (mut queue, _) = filled();
        let too_long = queue.push(1, &mut Vec::new(), |out| out.resize(1 << 25, 0));
        assert!(matches!(too_long, Err(PushError::Wire(_))));
        assert_eq!(queue.end(), Seq(445));
    }
}
