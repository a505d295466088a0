//! Why tests fail on Redoubt, as a file kept beside the script.
//!
//! One cause per line: `TEST | KIND | REASON`, or `TEST 'COMBINATION' | KIND | REASON` for one of a test's settings
//! alone. `#` begins a comment.
//!
//! Invariant: a cause is about one test by its whole name. There are no patterns: they would excuse tests that were
//! never investigated, and future ones.

use std::path::Path;

use redoubt_workload::error::{Error, Result};

use super::log::{Case, is_test_name};

/// The kind of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A documented limit of Redoubt.
    Limit,
    /// The test reads or changes files of the data directory without the server.
    Files,
    /// The test expects output or a setting that Redoubt changes on purpose.
    Setting,
    /// The time it takes, or the order of events.
    Timing,
    /// A known fault of Redoubt that is not fixed.
    Fault,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Limit, "limit"),
    (Kind::Files, "files"),
    (Kind::Setting, "setting"),
    (Kind::Timing, "timing"),
    (Kind::Fault, "fault"),
];

impl Cause {
    /// Its test and combination, as in the file.
    #[must_use]
    pub fn subject(&self) -> String {
        match &self.combination {
            Some(combination) => format!("{} '{combination}'", self.test),
            None => self.test.clone(),
        }
    }

    /// Whether it is about this case.
    #[must_use]
    pub fn is_about(&self, case: &Case) -> bool {
        self.test == case.test && self.combination.as_ref().is_none_or(|named| *named == case.combination)
    }
}

impl Kind {
    /// Its word in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    test: String,
    combination: Option<String>,
    /// Its kind.
    pub kind: Kind,
    /// In words.
    pub reason: String,
}

/// All of them. One for a combination goes before one for the whole test.
#[derive(Debug, Default)]
pub struct Causes {
    causes: Vec<Cause>,
}

impl Causes {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Parse`] with the line's number.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))?;
        Self::parse(&text).map_err(|detail| Error::Parse { what: path.display().to_string(), detail })
    }

    /// Reads a text.
    ///
    /// # Errors
    /// The defect, with its line number.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut causes = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |detail: &str| format!("line {}: {detail}: {line:?}", at + 1);
            let mut fields = line.splitn(3, '|').map(str::trim);
            let (Some(case), Some(kind), Some(reason)) = (fields.next(), fields.next(), fields.next()) else {
                return Err(wrong("not TEST | KIND | REASON"));
            };
            let kind = KINDS.iter().find(|(_, name)| *name == kind).map(|(kind, _)| *kind);
            let kind =
                kind.ok_or_else(|| wrong("the kind is none of limit, files, setting, timing, fault"))?;
            if case.is_empty() || reason.is_empty() {
                return Err(wrong("a field is empty"));
            }
            let (test, combination) = match case.split_once(char::is_whitespace) {
                Some((test, rest)) => (test, Some(quoted(rest.trim()).ok_or_else(|| wrong(COMBINATION))?)),
                None => (case, None),
            };
            if !is_test_name(test) {
                return Err(wrong("not the whole name of one test, suite.test"));
            }
            let cause = Cause {
                test: test.to_owned(),
                combination: combination.map(str::to_owned),
                kind,
                reason: reason.to_owned(),
            };
            if causes.iter().any(|earlier: &Cause| {
                (&earlier.test, &earlier.combination) == (&cause.test, &cause.combination)
            }) {
                return Err(wrong("there is a cause for it already"));
            }
            causes.push(cause);
        }
        Ok(Self { causes })
    }

    /// The cause that fits a case.
    #[must_use]
    pub fn of(&self, case: &Case) -> Option<&Cause> {
        let mut of_test = self.causes.iter().filter(|cause| cause.test == case.test);
        let of_case = of_test.clone().find(|cause| cause.combination.as_ref() == Some(&case.combination));
        of_case.or_else(|| of_test.find(|cause| cause.combination.is_none()))
    }

    /// All, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Cause> {
        self.causes.iter()
    }
}

const COMBINATION: &str = "no combination in single quotes after the test";

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.strip_suffix('\'').filter(|inside| !inside.is_empty() && !inside.contains('\''))
}
