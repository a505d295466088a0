//! Planted bugs: mistakes that a test turns on, one at a time, to prove that it would find them.
//!
//! The engine asks [`Config::is_planted`](crate::Config) at the one place where each mistake would be. Only the cargo
//! feature `planted-bugs` compiles the mistakes in. Without the feature, which no shipped build enables, the answer is
//! a constant `false`. A build with the feature contains [`MARKER`]; the packaging test searches the shipped files for it.

/// A mistake that can be turned on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The buffers of a closed connection are not returned to the pool.
    MemoryLeaked,
    /// Segments with a wrong checksum are accepted.
    ChecksumNotVerified,
    /// An old SYN reopens a connection in TIME-WAIT.
    OldSynReopens,
    /// A peer that closed its window is not probed.
    ClosedWindowNotProbed,
    /// The retransmission timeout does not double.
    TimeoutNotDoubled,
    /// A reported block starts one segment before what has arrived.
    BlockReportedEarly,
    /// The advertised window shrinks.
    WindowShrunk,
    /// A retransmission carries other bytes.
    WrongBytesRetransmitted,
    /// A SYN within a connection gets no challenge.
    SynNotChallenged,
    /// Segments with old timestamps are accepted.
    OldTimestampsAccepted,
    /// A reset with any sequence number in the window ends the connection.
    ResetAnywhereInWindow,
    /// Sequence numbers are compared as plain integers.
    ComparedWithoutWrapping,
    /// A window update after a closed window is ignored.
    WindowUpdateLost,
    /// A FIN counts as acknowledged with the last byte before it.
    FinAcknowledgedEarly,
    /// A block of a selective acknowledgement counts as one segment longer.
    BlockOneSegmentTooLong,
    /// A received FIN takes two sequence numbers.
    FinCountedTwice,
    /// Of a segment that overlaps, the first bytes are taken instead of the new ones.
    OverlapCopiedFromStart,
    /// A delayed acknowledgement is never sent.
    DelayedAckNeverSent,
}

/// Bytes of every program that has planted bugs.
#[cfg(feature = "planted-bugs")]
pub const MARKER: &str = "redoubt-tcp: planted bugs are compiled in";
