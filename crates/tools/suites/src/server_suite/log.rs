//! Reading the log of the test driver.
//!
//! A line of a result is `suite.test 'combination' w1 [ outcome ]  comment`; combination and worker may be missing. MySQL's
//! driver says before it how much is done (`[ 25%]`). All other lines are the tests' own output and are passed over. The script names a log `*.part` until the driver has
//! ended as it should.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redoubt_workload::error::{Error, Result};

/// A test with one combination of settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// `suite.test`.
    pub test: String,
    /// The combination, without quotes; empty if the test has none.
    pub combination: String,
}

impl Case {
    /// The suite: what stands before the first point.
    #[must_use]
    pub fn suite(&self) -> &str {
        self.test.split('.').next().unwrap_or(&self.test)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.combination.as_str() {
            "" => f.write_str(&self.test),
            combination => write!(f, "{} '{combination}'", self.test),
        }
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed. `again`: not the first time it was run.
    Passed {
        /// It had failed before.
        again: bool,
    },
    /// It failed, also when run again.
    Failed {
        /// The driver's comment, often empty.
        comment: String,
    },
    /// It was not run.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// Outcomes of one run.
#[derive(Debug, Default)]
pub struct Log {
    /// By case.
    pub outcomes: BTreeMap<Case, Outcome>,
    /// Logs of drivers that did not finish; their contents do not count.
    pub unfinished: Vec<PathBuf>,
}

impl Log {
    /// Reads all `*.log` files of a directory in the order of their names.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Parse`] if there is no result in any of them.
    pub fn read_directory(directory: &Path) -> Result<Self> {
        let list = || format!("list {}", directory.display());
        let (mut paths, mut unfinished) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(directory).map_err(Error::io(list()))? {
            let path = entry.map_err(Error::io(list()))?.path();
            match path.extension().and_then(std::ffi::OsStr::to_str) {
                Some("log") => paths.push(path),
                Some("part") => unfinished.push(path),
                _ => {}
            }
        }
        paths.sort();
        unfinished.sort();
        let mut log = Self { unfinished, ..Self::default() };
        for path in paths {
            // Tests print what they like, also bytes that are no text.
            let bytes = std::fs::read(&path).map_err(Error::io(format!("read {}", path.display())))?;
            log.add(&String::from_utf8_lossy(&bytes));
        }
        if log.outcomes.is_empty() {
            return Err(Error::Parse {
                what: format!("the logs in {}", directory.display()),
                detail: "no result of a test in any *.log file".to_owned(),
            });
        }
        Ok(log)
    }

    /// Adds the results in `text`; they replace earlier ones of the same case.
    pub fn add(&mut self, text: &str) {
        for (case, outcome) in text.lines().filter_map(parse_line) {
            let failed_before = matches!(
                self.outcomes.get(&case),
                Some(Outcome::Failed { .. } | Outcome::Passed { again: true })
            );
            let outcome = match outcome {
                Outcome::Passed { .. } if failed_before => Outcome::Passed { again: true },
                other => other,
            };
            self.outcomes.insert(case, outcome);
        }
    }
}

/// Whether it has a suite and a name, as every test has.
pub(super) fn is_test_name(test: &str) -> bool {
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.+#".contains(c))
    };
    test.split_once('.').is_some_and(|(suite, name)| is_name(suite) && is_name(name))
}

/// A line without the share of the tests that are done: `[ 25%] `.
fn after_share(line: &str) -> &str {
    let rest = line.strip_prefix('[').and_then(|rest| rest.split_once("%] "));
    rest.filter(|(share, _)| share.trim().parse::<u8>().is_ok()).map_or(line, |(_, rest)| rest)
}

fn parse_line(line: &str) -> Option<(Case, Outcome)> {
    let (left, right) = after_share(line).split_once(" [ ")?;
    let (word, comment) = right.split_once(" ]")?;
    let comment = comment.trim();
    let (test, rest) = left.split_once(char::is_whitespace).unwrap_or((left, ""));
    // Anything else in brackets is output of a test.
    if !is_test_name(test) {
        return None;
    }
    let combination = match rest.split_once('\'') {
        Some((_, rest)) => rest.split_once('\'')?.0,
        None => "",
    };
    let outcome = match word {
        "pass" => Outcome::Passed { again: false },
        "retry-pass" => Outcome::Passed { again: true },
        "fail" | "retry-fail" => Outcome::Failed { comment: comment.to_owned() },
        "skipped" => Outcome::Skipped { reason: comment.to_owned() },
        "disabled" => Outcome::Skipped { reason: format!("disabled: {comment}") },
        _ => return None,
    };
    Some((Case { test: test.to_owned(), combination: combination.to_owned() }, outcome))
}
