//! Planted bugs: mistakes that a simulation turns on, one at a time, to prove that it would find them.
//!
//! Product code asks [`is_planted`] at the one place where each mistake would be. Only the cargo feature
//! `planted-bugs` compiles the mistakes in. Without the feature, which no shipped build enables, [`is_planted`] is a
//! constant `false` and the compiler removes both the question and the mistake. With the feature, a bug is on only in
//! threads of a simulation whose options name it.
//!
//! A build with the feature contains [`MARKER`]. The packaging test searches the shipped files for it.

/// A mistake that can be turned on. Each breaks one invariant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The node answers a log append before the log device is durable.
    AnsweredBeforeDurable,
    /// The log device continues after a failed sync.
    FailedSyncIgnored,
    /// A page is built to records that are not durable.
    ReadAboveDurable,
    /// A read does not wait until the required records are parsed.
    ReadTooOld,
    /// A read does not wait until the required records are durable.
    ReadOlderThanReleased,
    /// The node skips redo that it cannot parse.
    UnknownInputSkipped,
    /// An export sees changes that came after its snapshot.
    SnapshotMoves,
    /// The log ends at a clean shutdown although file operations have to be recovered.
    LogEndedTooEarly,
    /// Pages get records that are not durable.
    AppliedBeforeDurable,
    /// Plain files get changes that are not durable.
    PlainChangeBeforeDurable,
    /// The checkpoint is written before plain files are synced.
    CheckpointBeforePlainFiles,
    /// The names file is not synced.
    NamesNotDurable,
    /// The previous names file is removed before the checkpoint refers to the new one.
    NamesRemovedEarly,
    /// A tablespace is missing from the dying ones for a while after its removal.
    TablespaceEndNotedLate,
    /// A connection that was replaced may still append.
    AnyConnectionAppends,
    /// A server with an older generation passes the fence.
    OldGenerationAdmitted,
    /// Page reads do not check the generation.
    ReadsNotFenced,
    /// A fenced server receives an error for a page, instead of a closed connection.
    RefusalAnswered,
    /// A new generation is not written to disk.
    GenerationNotWritten,
}

/// Whether the bug is turned on: never outside of a simulation.
#[cfg(feature = "planted-bugs")]
pub fn is_planted(bug: Bug) -> bool {
    crate::simulation::planted() == Some(bug) && !std::hint::black_box(MARKER).is_empty()
}

/// Whether the bug is turned on: never, as this build has no planted bugs.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}

/// Bytes of every program that has planted bugs.
#[cfg(feature = "planted-bugs")]
pub const MARKER: &str = "redoubt-sync: planted bugs are compiled in";
