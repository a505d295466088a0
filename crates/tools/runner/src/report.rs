//! The end of a run in words: failures with their output, what was killed, what did not run, the stages, the slowest.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::outcome::{Outcome, Verdict};
use crate::plan::{STAGES, guard};

/// How many of the slowest jobs are listed.
const SLOWEST: usize = 15;
/// Of the output of a failed job this many lines are shown, each so long at most.
const LINES: usize = 200;
const LINE_LEN: usize = 2000;
/// Shorter jobs are not in the list of durations.
const LISTED: Duration = Duration::from_secs(8);

/// Numbers of tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: usize,
    /// Everything else that was to run.
    pub failed: usize,
    /// Ignored by their authors.
    pub ignored: usize,
}

impl Counts {
    /// Over all outcomes.
    pub fn of<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Self {
        outcomes.into_iter().fold(Self::default(), |counts, outcome| {
            // A job that failed has a failure, even if all of its tests passed before it crashed.
            let failed = match outcome.verdict {
                Verdict::Passed => 0,
                _ => outcome.others.len().max(1),
            };
            Self {
                passed: counts.passed + outcome.passed,
                failed: counts.failed + failed,
                ignored: counts.ignored + outcome.job.ignored,
            }
        })
    }

    /// The lines that programs look for.
    pub fn result(self, is_ok: bool, elapsed: Duration) -> String {
        let Self { passed, failed, ignored } = self;
        let word = if is_ok { "ok" } else { "FAILED" };
        format!(
            "test result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out; \
             finished in {:.2}s\n{passed} passed, {failed} failed\n",
            elapsed.as_secs_f64()
        )
    }
}

/// Output of the jobs that failed or were killed. `logs` is where it is whole.
pub fn failures(outcomes: &[Outcome], output: impl Fn(&Outcome) -> String) -> String {
    let mut text = String::new();
    for outcome in
        outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Failed | Verdict::Killed))
    {
        let output = output(outcome);
        let shown: Vec<&str> = output.lines().filter(|line| !line.ends_with(" ... ok")).collect();
        let _ = writeln!(text, "---- {} ----", outcome.job.name());
        if let Some(reason) = &outcome.reason {
            let _ = writeln!(text, "not started: {reason}");
        }
        // A panic is at the end of a long capture, its first lines at the beginning.
        let skipped = shown.len().saturating_sub(LINES);
        if skipped > 0 {
            let _ = writeln!(text, "({skipped} lines are left out)");
        }
        for line in shown.into_iter().skip(skipped) {
            let _ = writeln!(text, "{}", line.chars().take(LINE_LEN).collect::<String>());
        }
    }
    text
}

/// Names of what did not pass, by the reason.
pub fn not_passed(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let mut list = |verdict: Verdict, title: &str, with_tests: bool| {
        let found: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.verdict == verdict).collect();
        if found.is_empty() {
            return;
        }
        let _ = writeln!(text, "{title}: {}", found.len());
        for outcome in found {
            let _ = write!(text, "  {}", outcome.job.name());
            if verdict == Verdict::Killed {
                let _ = write!(text, " after {} s", outcome.wall.as_secs());
            }
            let _ = writeln!(text);
            if with_tests && outcome.job.test.ends_with('*') {
                for test in &outcome.others {
                    let _ = writeln!(text, "    {test}");
                }
            }
            for (id, command) in outcome.left.iter().filter(|_| verdict == Verdict::Killed) {
                let _ = writeln!(text, "    process {id}: {command}");
            }
        }
    };
    list(Verdict::Failed, "Failed", true);
    list(Verdict::Killed, "Killed by the guard against a hang", true);
    list(Verdict::Interrupted, "Ended with the run, by an interrupt or at its limit", true);
    list(Verdict::NotRun, "Not run", false);
    text
}

/// Processes that tests have left behind which ended by themselves.
pub fn left_behind(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let ended = |outcome: &&Outcome| matches!(outcome.verdict, Verdict::Passed | Verdict::Failed);
    for outcome in outcomes.iter().filter(ended) {
        for (id, command) in &outcome.left {
            let name = outcome.job.name();
            let _ = writeln!(text, "note: {name} left process {id} behind, which was killed: {command}");
        }
    }
    text
}

/// Steps before the tests that have failed, a line each.
pub fn failed_steps(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let list: String = lines.iter().map(|line| format!("  {line}\n")).collect();
    format!("Failed beside the tests: {}\n{list}", lines.len())
}

/// Seconds, tests and CPU time of each stage. `before` has those of the steps before the tests.
pub fn stages(outcomes: &[Outcome], before: &[(String, u64)]) -> String {
    let mut text = format!(
        "{:<12}{:>9}{:>8}{:>8}{:>8}{:>14}\n",
        "stage", "seconds", "tests", "passed", "failed", "CPU seconds"
    );
    for (name, seconds) in before {
        let _ = writeln!(text, "{name:<12}{seconds:>9}");
    }
    for (stage, name) in STAGES.iter().enumerate() {
        let of: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.job.stage == stage).collect();
        let ran = || of.iter().filter(|outcome| outcome.verdict != Verdict::NotRun);
        if of.is_empty() {
            continue;
        }
        let start = ran().map(|outcome| outcome.start).min().unwrap_or_default();
        let end = ran().map(|outcome| outcome.start + outcome.wall).max().unwrap_or_default();
        let processor: Duration = of.iter().map(|outcome| outcome.processor).sum();
        let counts = Counts::of(of.iter().copied());
        let (seconds, tests) = ((end - start).as_secs(), counts.passed + counts.failed);
        let _ = writeln!(
            text,
            "{name:<12}{seconds:>9}{tests:>8}{:>8}{:>8}{:>14}",
            counts.passed,
            counts.failed,
            processor.as_secs()
        );
    }
    text
}

/// The jobs that took longest.
pub fn slowest(outcomes: &[Outcome]) -> String {
    let mut sorted: Vec<&Outcome> =
        outcomes.iter().filter(|outcome| outcome.verdict != Verdict::NotRun).collect();
    if sorted.is_empty() {
        return String::new();
    }
    sorted.sort_by_key(|outcome| std::cmp::Reverse(outcome.wall));
    let mut text = format!("{:>9}{:>7}{:>9}  slowest\n", "seconds", "CPU", "guard");
    for outcome in sorted.into_iter().take(SLOWEST) {
        let (wall, processor) = (outcome.wall.as_secs(), outcome.processor.as_secs());
        let guard = guard(outcome.job.usual).as_secs();
        let _ = writeln!(text, "{wall:>9}{processor:>7}{guard:>9}  {}", outcome.job.name());
    }
    text
}

/// The list of usual durations, as this run found them, with the CPU seconds as comments.
pub fn durations(outcomes: &[Outcome]) -> String {
    let listed = |outcome: &&Outcome| outcome.verdict == Verdict::Passed && outcome.wall >= LISTED;
    let line = |outcome: &Outcome| {
        let (seconds, processor) = (outcome.wall.as_secs_f64(), outcome.processor.as_secs_f64());
        let (program, test) = (&outcome.job.program.name, &outcome.job.test);
        (format!("{program} {test}"), format!("{seconds:.0} {program} {test} # CPU {processor:.0}\n"))
    };
    let mut lines: Vec<(String, String)> = outcomes.iter().filter(listed).map(line).collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Where the whole output is.
pub fn place(log: &Path) -> String {
    format!("The whole output is in {}\n", log.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use crate::programs::Program;

    fn outcome(verdict: Verdict, passed: usize, others: &[&str]) -> Outcome {
        let program = Program {
            name: "a/t".into(),
            is_unit: false,
            is_checked: false,
            path: "/x".into(),
            directory: "/".into(),
        };
        let job = Job {
            program,
            test: "*".into(),
            tests: Vec::new(),
            is_program: true,
            ignored: 1,
            stage: 2,
            alone: false,
            usual: Duration::from_secs(5),
        };
        let others = others.iter().map(|test| (*test).to_owned()).collect();
        let start = Duration::from_secs(3);
        let wall = Duration::from_secs(20);
        let (processor, left) = (Duration::from_secs(7), vec![(12, "mariadbd --x".to_owned())]);
        Outcome { job, verdict, passed, others, start, wall, processor, left, reason: None }
    }

    #[test]
    fn counts_take_whatever_did_not_pass_as_failed() {
        let outcomes = [
            outcome(Verdict::Passed, 3, &[]),
            outcome(Verdict::Failed, 1, &["x", "y"]),
            outcome(Verdict::Failed, 2, &[]),
            outcome(Verdict::Killed, 0, &["z"]),
            outcome(Verdict::NotRun, 0, &["v", "w"]),
        ];
        let counts = Counts::of(&outcomes);
        assert_eq!(counts, Counts { passed: 6, failed: 6, ignored: 5 });
        let text = counts.result(false, Duration::from_millis(1500));
        assert!(text.starts_with("test result: FAILED. 6 passed; 6 failed; 5 ignored;"), "{text}");
        assert!(text.ends_with("finished in 1.50s\n6 passed, 6 failed\n"), "{text}");
        let text = not_passed(&outcomes);
        for part in [
            "Failed: 2",
            "    x\n",
            "Killed by the guard against a hang: 1\n  a/t after 20 s",
            "12: mariadbd",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(text.contains("Not run: 1\n  a/t\n") && !text.contains("Ended with"), "{text}");
    }

    #[test]
    fn tables_have_stages_and_durations() {
        let outcomes = [outcome(Verdict::Passed, 3, &[])];
        let text = stages(&outcomes, &[("build".to_owned(), 300)]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1..], [vec!["build", "300"], vec!["volume", "20", "3", "3", "0", "7"]]);
        assert_eq!(durations(&outcomes), "20 a/t * # CPU 7\n");
        assert!(slowest(&outcomes).ends_with("20      7      900  a/t\n"));
        assert!(left_behind(&outcomes).contains("a/t left process 12 behind"));
        assert_eq!(slowest(&[]), "");
        assert_eq!(failed_steps(&[]), "");
        assert_eq!(failed_steps(&["clippy: x".to_owned()]), "Failed beside the tests: 1\n  clippy: x\n");
    }
}
