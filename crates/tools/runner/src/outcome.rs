//! How a job ended, from its exit status and the output of libtest.

use std::process::ExitStatus;
use std::time::Duration;

use crate::job::Job;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All of its tests passed.
    Passed,
    /// One failed, or the program did.
    Failed,
    /// It ran longer than its guard, and was killed.
    Killed,
    /// The run was interrupted, or at its limit, while it ran.
    Interrupted,
    /// It was not started.
    NotRun,
}

/// The end of a job.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Which job.
    pub job: Job,
    /// How it ended.
    pub verdict: Verdict,
    /// Tests that passed.
    pub passed: usize,
    /// Names of the others.
    pub others: Vec<String>,
    /// When it started, from the start of the run.
    pub start: Duration,
    /// How long it ran.
    pub wall: Duration,
    /// CPU time of it and its children.
    pub processor: Duration,
    /// Processes that it left behind, and that were killed: ids and command lines.
    pub left: Vec<(u32, String)>,
    /// Why it could not be started.
    pub reason: Option<String>,
}

/// Passed tests, and the names of the others, in `output` of `job`.
pub fn judge(job: &Job, status: ExitStatus, output: &str) -> (Verdict, usize, Vec<String>) {
    let is_ok = |test: &str| {
        output.lines().any(|line| {
            let rest = line.strip_prefix("test ").and_then(|line| line.strip_prefix(test));
            rest.is_some_and(|rest| rest == " ... ok" || rest == " - should panic ... ok")
        })
    };
    let summary = output.lines().rev().find_map(|line| line.strip_prefix("test result: ok. "));
    let passed = summary.and_then(|text| text.split_once(" passed; 0 failed;")?.0.parse::<usize>().ok());
    if status.success() && passed == Some(job.tests.len()) {
        return (Verdict::Passed, job.tests.len(), Vec::new());
    }
    // Output past the capture can stand between a test's name and "ok", but not in the list at the end.
    let listed = output.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    let is_listed = |test: &str| listed.lines().any(|line| line.strip_prefix("    ") == Some(test));
    let has_list = job.tests.iter().any(|test| is_listed(test));
    let has_passed = |test: &String| if has_list { !is_listed(test) } else { is_ok(test) };
    let (ok, others): (Vec<_>, Vec<_>) = job.tests.iter().cloned().partition(has_passed);
    (Verdict::Failed, ok.len(), others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Program;
    use std::os::unix::process::ExitStatusExt;

    fn job(tests: &[&str]) -> Job {
        Job {
            program: Program {
                name: "a/t".into(),
                is_unit: false,
                is_checked: false,
                path: "/x".into(),
                directory: "/".into(),
            },
            test: "*".into(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
            is_program: true,
            ignored: 0,
            stage: 0,
            alone: false,
            usual: Duration::ZERO,
        }
    }

    #[test]
    fn success_needs_status_and_all_tests() {
        let ok = ExitStatus::from_raw(0);
        let output =
            "test a ... ok\ntest b ... ok\n\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured;\n";
        assert_eq!(judge(&job(&["a", "b"]), ok, output), (Verdict::Passed, 2, vec![]));
        // A name that matches no test, a signal, a program that ends early.
        let fewer = judge(&job(&["a", "b", "c"]), ok, output);
        assert_eq!(fewer, (Verdict::Failed, 2, vec!["c".to_owned()]));
        assert_eq!(judge(&job(&["a"]), ExitStatus::from_raw(9), output).0, Verdict::Failed);
        assert_eq!(judge(&job(&["a"]), ok, "").0, Verdict::Failed);
    }

    #[test]
    fn tests_that_did_not_pass_are_named() {
        let output = "test a ... ok\ntest b ... FAILED\ntest c - should panic ... ok\n\
                      test result: FAILED. 2 passed; 1 failed;\n";
        let judged = judge(&job(&["a", "b", "c", "d"]), ExitStatus::from_raw(101 << 8), output);
        assert_eq!(judged, (Verdict::Failed, 2, vec!["b".to_owned(), "d".to_owned()]));
        let output = "test a ... \nSKIP x: y\nok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\n\
                      failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed;\n";
        let judged = judge(&job(&["a", "b"]), ExitStatus::from_raw(101 << 8), output);
        assert_eq!(judged, (Verdict::Failed, 1, vec!["b".to_owned()]));
    }
}
