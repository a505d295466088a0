//! Planted bugs: mistakes that the simulation turns on, one at a time, to prove that it would find them.
//!
//! A member asks `is_planted` at the one place where each mistake would be. Only the cargo feature `planted-bugs`
//! compiles the mistakes in. Without the feature, which no shipped build enables, the answer is a constant `false`. A
//! build with the feature contains [`MARKER`]; the packaging test searches the shipped files for it.

/// A mistake that can be turned on. Each breaks what the simulation checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A member answers before its records are durable.
    AnsweredBeforeDurable,
    /// An owner proposes in its epoch after it promised a later one.
    OwnerContinuesAfterPromise,
    /// A restarted member uses the slots of its previous incarnation.
    RestartedOwnerContinues,
    /// A member accepts in its epoch after it promised a later one.
    AcceptedAfterPromise,
    /// An epoch counts as begun with a majority of the new members only.
    NewMembersAlone,
    /// Skipped slots at the end of the log are delivered before they are chosen.
    TrailingSkipsDelivered,
    /// A proposal that was delivered before is delivered again.
    DeliveredTwice,
    /// A promise is not recorded.
    PromiseForgotten,
    /// The frontiers of a question count for this epoch although they belong to another.
    QuestionOfOtherEpoch,
    /// A candidate ignores the epochs that other members report.
    EpochsOfOthersIgnored,
    /// A candidate begins an epoch without a majority of promises.
    NoMajorityAsked,
    /// A barrier is reached without answers of a majority.
    BarrierWithoutMajority,
    /// A member that learns entries of a later epoch does not promise that epoch.
    ChosenByOthersAcknowledged,
    /// A member reports more entries to one that is behind than it read.
    MoreReportedThanRead,
}

/// Bytes of every program that has planted bugs.
#[cfg(feature = "planted-bugs")]
pub const MARKER: &str = "redoubt-consensus: planted bugs are compiled in";
