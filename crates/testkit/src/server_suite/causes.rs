//! Why tests fail on Redoubt, as a file kept beside the script.
//!
//! One cause per line: `TEST | KIND | REASON`. `TEST` may end in `*`. `#` begins a comment.

use super::log::Case;
use crate::error::{Error, Result};
use std::path::Path;

/// What sort of cause it is.
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
    /// A fault of Redoubt that is known and not mended.
    Fault,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Limit, "limit"),
    (Kind::Files, "files"),
    (Kind::Setting, "setting"),
    (Kind::Timing, "timing"),
    (Kind::Fault, "fault"),
];

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
    pattern: String,
    /// What sort it is.
    pub kind: Kind,
    /// In words.
    pub reason: String,
}

/// All of them. The first that fits a test counts.
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
    /// What is wrong with which line.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut causes = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |detail: &str| format!("line {}: {detail}: {line:?}", at + 1);
            let mut fields = line.splitn(3, '|').map(str::trim);
            let (Some(pattern), Some(kind), Some(reason)) = (fields.next(), fields.next(), fields.next())
            else {
                return Err(wrong("not TEST | KIND | REASON"));
            };
            let kind = KINDS.iter().find(|(_, name)| *name == kind).map(|(kind, _)| *kind);
            let kind =
                kind.ok_or_else(|| wrong("the kind is none of limit, files, setting, timing, fault"))?;
            if pattern.is_empty() || reason.is_empty() {
                return Err(wrong("a field is empty"));
            }
            causes.push(Cause { pattern: pattern.to_owned(), kind, reason: reason.to_owned() });
        }
        Ok(Self { causes })
    }

    /// The cause that fits a case.
    #[must_use]
    pub fn of(&self, case: &Case) -> Option<&Cause> {
        self.causes.iter().find(|cause| match cause.pattern.strip_suffix('*') {
            Some(start) => case.test.starts_with(start),
            None => case.test == cause.pattern,
        })
    }
}
