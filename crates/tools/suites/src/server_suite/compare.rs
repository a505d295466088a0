//! Two runs, case by case.

use super::log::{Case, Log, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// The outcome of a case in both runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Passed on both.
    Both,
    /// Failed on Redoubt; passed on the plain server, or was skipped there.
    OnlyRedoubtFailed,
    /// The other way round.
    OnlyPlainFailed,
    /// Failed on both.
    BothFailed,
    /// Skipped on both.
    Skipped,
    /// Ran on the plain server, skipped on Redoubt.
    SkippedOnRedoubt,
    /// Passed on Redoubt, skipped on the plain server.
    SkippedOnPlain,
    /// In one of the runs only.
    NotCompared,
}

/// Two runs, case by case.
#[derive(Debug)]
pub struct Comparison {
    /// By case.
    pub verdicts: BTreeMap<Case, Verdict>,
    /// Passed on Redoubt, but not the first time.
    pub again: BTreeSet<Case>,
    /// Reasons of cases that were skipped, from the plain run if it has one.
    pub reasons: BTreeMap<Case, String>,
}

impl Comparison {
    /// Compares.
    #[must_use]
    pub fn new(plain: &Log, redoubt: &Log) -> Self {
        let mut comparison =
            Self { verdicts: BTreeMap::new(), again: BTreeSet::new(), reasons: BTreeMap::new() };
        let cases: BTreeSet<&Case> = plain.outcomes.keys().chain(redoubt.outcomes.keys()).collect();
        for case in cases {
            let (left, right) = (plain.outcomes.get(case), redoubt.outcomes.get(case));
            comparison.verdicts.insert(case.clone(), verdict(left, right));
            if matches!(right, Some(Outcome::Passed { again: true })) {
                comparison.again.insert(case.clone());
            }
            let reason = [left, right].into_iter().flatten().find_map(|outcome| match outcome {
                Outcome::Skipped { reason } => Some(reason),
                _ => None,
            });
            if let Some(reason) = reason {
                comparison.reasons.insert(case.clone(), reason.clone());
            }
        }
        comparison
    }

    /// Suites in order.
    #[must_use]
    pub fn suites(&self) -> BTreeSet<&str> {
        self.verdicts.keys().map(Case::suite).collect()
    }

    /// Number of cases of a suite with a verdict.
    #[must_use]
    pub fn count(&self, suite: &str, wanted: Verdict) -> usize {
        self.verdicts.iter().filter(|(case, verdict)| case.suite() == suite && **verdict == wanted).count()
    }

    /// Cases with a verdict.
    pub fn with(&self, wanted: Verdict) -> impl Iterator<Item = &Case> {
        self.verdicts.iter().filter(move |(_, verdict)| **verdict == wanted).map(|(case, _)| case)
    }

    /// The cases that matter most.
    pub fn failed_only_on_redoubt(&self) -> impl Iterator<Item = &Case> {
        self.with(Verdict::OnlyRedoubtFailed)
    }

    /// Cases that need a cause: failures and skipped cases of Redoubt alone.
    pub fn needs_cause(&self) -> impl Iterator<Item = &Case> {
        self.failed_only_on_redoubt().chain(self.with(Verdict::SkippedOnRedoubt))
    }
}

fn verdict(plain: Option<&Outcome>, redoubt: Option<&Outcome>) -> Verdict {
    use Outcome::{Failed, Passed, Skipped};
    match (plain, redoubt) {
        (None, _) | (_, None) => Verdict::NotCompared,
        (Some(Skipped { .. }), Some(Skipped { .. })) => Verdict::Skipped,
        (Some(_), Some(Skipped { .. })) => Verdict::SkippedOnRedoubt,
        (Some(Skipped { .. }), Some(Passed { .. })) => Verdict::SkippedOnPlain,
        (Some(Passed { .. }), Some(Passed { .. })) => Verdict::Both,
        (Some(Passed { .. } | Skipped { .. }), Some(Failed { .. })) => Verdict::OnlyRedoubtFailed,
        (Some(Failed { .. }), Some(Passed { .. })) => Verdict::OnlyPlainFailed,
        (Some(Failed { .. }), Some(Failed { .. })) => Verdict::BothFailed,
    }
}
