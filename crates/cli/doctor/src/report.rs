//! The report: one entry per check, for people and as JSON.

use serde::Serialize;
use std::fmt::Display;

/// Severity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No problem.
    Ok,
    /// Good to know.
    Note,
    /// It will work, but worse or less safely than it could.
    Warning,
    /// It will not work, or data are in danger.
    Problem,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One check. The names are part of the JSON format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Subject of the check.
    pub name: &'static str,
    /// Severity of the result.
    pub level: Level,
    /// The result, in one line.
    pub found: String,
    /// What to change, and why.
    pub change: Option<String>,
}

impl Check {
    /// A check without a problem.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, level: Level::Ok, found: found.into(), change: None }
    }

    /// Good to know.
    pub fn note(name: &'static str, found: impl Into<String>, change: impl Into<String>) -> Self {
        Self { level: Level::Note, change: Some(change.into()), ..Self::ok(name, found) }
    }

    /// Worse than it could be.
    pub fn warning(name: &'static str, found: impl Into<String>, change: impl Into<String>) -> Self {
        Self { level: Level::Warning, change: Some(change.into()), ..Self::ok(name, found) }
    }

    /// Not working, or dangerous.
    pub fn problem(name: &'static str, found: impl Into<String>, change: impl Into<String>) -> Self {
        Self { level: Level::Problem, change: Some(change.into()), ..Self::ok(name, found) }
    }

    /// A problem from the message of an error; the advice is after the first semicolon of the message.
    pub fn refused(name: &'static str, error: &impl Display, otherwise: &str) -> Self {
        let message = error.to_string();
        let (found, change) = message.split_once("; ").unwrap_or((&message, otherwise));
        Self::problem(name, found, change)
    }
}

/// All checks.
#[derive(Debug, Serialize)]
pub struct Report {
    format: u32,
    /// `server`, `local-log` or `node`.
    side: &'static str,
    problems: usize,
    warnings: usize,
    checks: Vec<Check>,
}

impl Report {
    /// Counts them.
    pub fn new(side: &'static str, checks: Vec<Check>) -> Self {
        let count = |level| checks.iter().filter(|check| check.level == level).count();
        Self { format: 1, side, problems: count(Level::Problem), warnings: count(Level::Warning), checks }
    }

    /// Number of problems.
    pub const fn problems(&self) -> usize {
        self.problems
    }

    /// It, as lines for people.
    pub fn text(&self) -> String {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Check { name, level, found, change } in &self.checks {
            text.push_str(&format!("{:<7}  {name:<width$}  {}\n", level.name(), printable(found)));
            if let Some(change) = change {
                text.push_str(&format!("{:<7}  {:<width$}  -> {}\n", "", "", printable(change)));
            }
        }
        let plural = |count: usize, word: &str| match count {
            0 => format!("no {word}s"),
            1 => format!("1 {word}"),
            count => format!("{count} {word}s"),
        };
        text.push_str(&format!(
            "{}, {}, {}\n",
            plural(self.checks.len(), "check"),
            plural(self.warnings, "warning"),
            plural(self.problems, "problem")
        ));
        text
    }
}

/// One line without control characters, which a terminal would interpret: it may contain text from files and nodes.
fn printable(text: &str) -> String {
    text.trim_end().chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_aligned_and_counts() {
        let report = Report::new(
            "server",
            vec![
                Check::ok("kernel", "Linux 6.1"),
                Check::warning("open_files", "1024", "raise it\nplease"),
                Check::problem("tls", "expired", "renew"),
            ],
        );
        assert_eq!(
            report.text(),
            "ok       kernel      Linux 6.1\n\
             warning  open_files  1024\n                     -> raise it please\n\
             problem  tls         expired\n                     -> renew\n\
             3 checks, 1 warning, 1 problem\n"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["checks"][1]["level"], "warning");
        assert_eq!((&json["format"], &json["problems"]), (&1.into(), &1.into()));
        assert_eq!(report.problems(), 1);
        assert_eq!(Report::new("node", vec![Check::ok("kernel", "")]).problems(), 0);
    }

    #[test]
    fn an_error_is_taken_apart_into_finding_and_advice() {
        let error = "the key is open; run chmod; then again";
        let check = Check::refused("tls", &error, "see the documentation");
        assert_eq!(
            (check.found.as_str(), check.change.as_deref()),
            ("the key is open", Some("run chmod; then again"))
        );
        let check = Check::refused("tls", &"short", "otherwise");
        assert_eq!(check.change.as_deref(), Some("otherwise"));
    }
}
