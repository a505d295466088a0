//! Which test belongs to which stage, and how long it usually takes.
//!
//! The plan is a text file. A line is `STAGE PROGRAM PREFIX [alone] [whole]`: tests of PROGRAM (`package/target`,
//! without `redoubt-`) whose names begin with PREFIX (`*`: all) belong to STAGE. The longest prefix wins. `alone`: no
//! other test runs meanwhile. `whole`: one process runs all tests of the line together; otherwise each test has a
//! process of its own. Unit tests (`package/lib`, `package/bin:NAME`) without a line are in stage `unit`, `whole`;
//! programs of `scripts/checked` (`checked:package/target`) in stage `checked`, `whole`.
//!
//! Invariant: a test program without a line is an error, and so is a line without a test, so that no test is lost.
//! Tests that are not run unless asked for (`#[ignore]`) do not count: a program that has no others has no line.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};

/// The stages in the order in which they run. `./test` itself runs `lint`, which has no tests; here it stands for a
/// section of the list of what may be left out.
pub const STAGES: [&str; 12] = [
    LINT,
    "unit",
    "volume",
    "smoke",
    "formats",
    "group",
    "net",
    "mysql",
    "versions",
    "devices",
    "packaging",
    "checked",
];

/// The stage without tests.
const LINT: &str = "lint";

/// The stages without `--stage`.
pub const DEFAULT_STAGES: [&str; 4] = [LINT, "unit", "volume", "smoke"];

/// A guard is this many times the usual duration, so that neither a slow machine nor a second build is a hang.
const GUARD_FACTOR: u32 = 10;
/// And no guard is shorter.
const GUARD_MINIMUM: Duration = Duration::from_secs(900);
/// Usual duration of tests that are not in the list.
const USUAL: Duration = Duration::from_secs(5);

/// A line of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Index into [`STAGES`].
    pub stage: usize,
    /// `package/target`.
    pub program: String,
    /// Beginning of the tests' names; empty: all.
    pub prefix: String,
    /// Nothing else runs meanwhile.
    pub alone: bool,
    /// One process for all tests of the line.
    pub whole: bool,
    /// Line in the file, from 1; 0 for the rule of unit tests.
    pub line: usize,
}

/// The plan.
#[derive(Debug, Default)]
pub struct Plan {
    rules: Vec<Rule>,
}

/// Whether stages have tests at all.
pub fn have_tests(stages: &[usize]) -> bool {
    stages.iter().any(|stage| STAGES[*stage] != LINT)
}

/// Index of a stage.
pub fn stage_named(name: &str) -> Option<usize> {
    STAGES.iter().position(|stage| *stage == name)
}

impl Plan {
    /// Reads the plan.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Line`].
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        Self::parse(&text).map_err(|(line, reason)| Error::Line { path: path.to_owned(), line, reason })
    }

    /// The plan in `text`, or the number of a line and what is wrong with it.
    pub fn parse(text: &str) -> std::result::Result<Self, (usize, String)> {
        let mut rules: Vec<Rule> = Vec::new();
        for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(stage) = words.next() else { continue };
            let stage = stage_named(stage)
                .filter(|stage| STAGES[*stage] != LINT)
                .ok_or_else(|| (number, format!("unknown stage of tests {stage:?}")))?;
            let (Some(program), Some(prefix)) = (words.next(), words.next()) else {
                return Err((number, "expected STAGE PROGRAM PREFIX".to_owned()));
            };
            let prefix = if prefix == "*" { "" } else { prefix };
            let mut rule = Rule {
                stage,
                program: program.to_owned(),
                prefix: prefix.to_owned(),
                alone: false,
                whole: false,
                line: number,
            };
            for word in words {
                match word {
                    "alone" => rule.alone = true,
                    "whole" => rule.whole = true,
                    other => return Err((number, format!("unknown word {other:?}"))),
                }
            }
            if rules.iter().any(|other| other.program == rule.program && other.prefix == rule.prefix) {
                return Err((number, format!("a second line for {} {}", rule.program, rule.prefix)));
            }
            rules.push(rule);
        }
        Ok(Self { rules })
    }

    /// The rule for a test.
    pub fn rule(&self, program: &str, test: &str) -> Option<&Rule> {
        let of_program = self.rules.iter().filter(|rule| rule.program == program);
        of_program.filter(|rule| test.starts_with(&rule.prefix)).max_by_key(|rule| rule.prefix.len())
    }

    /// All rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

/// How long programs and tests usually take: lines `SECONDS PROGRAM TEST`, TEST `*` for a whole program.
#[derive(Debug, Default)]
pub struct Durations(BTreeMap<(String, String), Duration>);

impl Durations {
    /// Reads the list.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Line`].
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        let mut durations = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let (seconds, program, test) = match words[..] {
                [] => continue,
                [seconds, program, test] => (seconds.parse::<u32>().ok(), program, test),
                _ => (None, "", ""),
            };
            let seconds = seconds.ok_or_else(|| Error::Line {
                path: path.to_owned(),
                line: index + 1,
                reason: "expected SECONDS PROGRAM TEST".to_owned(),
            })?;
            let key = (program.to_owned(), test.to_owned());
            durations.insert(key, Duration::from_secs(seconds.into()));
        }
        Ok(Self(durations))
    }

    /// The usual duration.
    pub fn usual(&self, program: &str, test: &str) -> Duration {
        self.0.get(&(program.to_owned(), test.to_owned())).copied().unwrap_or(USUAL)
    }
}

/// The time after which a job of this usual duration counts as hanging.
pub fn guard(usual: Duration) -> Duration {
    GUARD_MINIMUM.max(usual * GUARD_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_prefix_of_the_program_wins() {
        let plan = Plan::parse(
            "# comment\nvolume testkit/volume * # all\nmysql testkit/volume at_rest::mysql alone\n\
             group testkit/group * whole\n",
        )
        .unwrap();
        let rule = plan.rule("testkit/volume", "at_rest::keys::a").unwrap();
        assert_eq!((STAGES[rule.stage], rule.alone, rule.whole, rule.line), ("volume", false, false, 2));
        let rule = plan.rule("testkit/volume", "at_rest::mysql_b").unwrap();
        assert_eq!((STAGES[rule.stage], rule.alone), ("mysql", true));
        assert!(plan.rule("testkit/group", "x").unwrap().whole);
        assert_eq!(plan.rule("testkit/net", "x"), None);
    }

    #[test]
    fn malformed_lines_are_named() {
        for (text, line, part) in [
            ("\nnowhere a/b *", 2, "unknown stage of tests \"nowhere\""),
            ("lint a/b *", 1, "unknown stage of tests \"lint\""),
            ("unit a/b", 1, "expected STAGE"),
            ("unit a/b * fast", 1, "unknown word \"fast\""),
            ("unit a/b *\nvolume a/b *", 2, "second line"),
        ] {
            let (number, reason) = Plan::parse(text).unwrap_err();
            assert_eq!(number, line, "{text}");
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn stages_are_those_of_the_script() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../test");
        let text = std::fs::read_to_string(script).unwrap();
        let line = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            found.trim_matches('"').to_owned()
        };
        assert_eq!(line("STAGES="), STAGES.join(" "));
        assert_eq!(line("DEFAULT_STAGES="), DEFAULT_STAGES.join(" "));
    }

    #[test]
    fn guard_is_many_times_the_usual_duration() {
        assert_eq!(guard(Duration::from_secs(3)), GUARD_MINIMUM);
        assert_eq!(guard(Duration::from_secs(200)), Duration::from_secs(2000));
    }
}
