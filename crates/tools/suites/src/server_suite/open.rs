//! Open points that spoil a comparison of two runs.

use super::causes::Causes;
use super::compare::{Comparison, Verdict};
use super::log::Log;
use std::fmt::Write;

/// The open points, a line for each. There must be none; the module above lists the kinds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Open {
    lines: Vec<String>,
}

impl Open {
    /// Looks for all of it. `runs` are those that were compared.
    #[must_use]
    pub fn new(comparison: &Comparison, causes: &Causes, runs: [&Log; 2]) -> Self {
        let mut lines = Vec::new();
        for path in runs.iter().flat_map(|run| &run.unfinished) {
            lines.push(format!("the driver did not come to its end: {}", path.display()));
        }
        for case in comparison.needs_cause().filter(|case| causes.of(case).is_none()) {
            lines.push(format!("failed or skipped only on Redoubt, without a cause: {case}"));
        }
        for case in comparison.with(Verdict::NotCompared) {
            lines.push(format!("run on one of the servers only: {case}"));
        }
        if runs.iter().any(|run| run.outcomes.is_empty()) {
            lines.push("a run has no result at all".to_owned());
        }
        // A run of some suites has no result for the causes of the others. Neither has a test that only one of the
        // servers ran, or none of them (not as root, only with a debug server).
        let says_nothing = |verdict: Verdict| matches!(verdict, Verdict::Skipped | Verdict::NotCompared);
        let ran = |cause: &super::causes::Cause| {
            let mut verdicts = comparison.verdicts.iter();
            verdicts.any(|(case, verdict)| !says_nothing(*verdict) && cause.is_about(case))
        };
        let needed = |cause: &super::causes::Cause| comparison.needs_cause().any(|case| cause.is_about(case));
        for cause in causes.iter().filter(|cause| ran(cause) && !needed(cause)) {
            lines.push(format!("a cause that nothing needs: {}", cause.subject()));
        }
        Self { lines }
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// As a part of the report; nothing if nothing is open.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        if !self.is_empty() {
            let _ = writeln!(out, "\n## Open\n");
        }
        for line in &self.lines {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "* {line}");
        }
        out
    }
}
