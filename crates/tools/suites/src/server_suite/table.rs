//! The report as Markdown.

use super::causes::{Causes, Kind};
use super::compare::{Comparison, Verdict};
use super::log::Case;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// In the order of the table; `BESIDE` stands for what the other run was on.
const COLUMNS: [(&str, Verdict); 7] = [
    ("passed on both", Verdict::Both),
    ("failed only on Redoubt", Verdict::OnlyRedoubtFailed),
    ("failed only on BESIDE", Verdict::OnlyPlainFailed),
    ("failed on both", Verdict::BothFailed),
    ("skipped on both", Verdict::Skipped),
    ("skipped only on Redoubt", Verdict::SkippedOnRedoubt),
    ("skipped only on BESIDE", Verdict::SkippedOnPlain),
];

/// `beside`: what the other run was on. Writing to a string cannot fail, so the results of `write!` are dropped here.
pub fn markdown(comparison: &Comparison, causes: &Causes, beside: &str) -> String {
    let mut out = String::new();
    counts(&mut out, comparison, beside);
    by_cause(&mut out, "Failed only on Redoubt", comparison.failed_only_on_redoubt(), causes);
    by_cause(&mut out, "Skipped only on Redoubt", comparison.with(Verdict::SkippedOnRedoubt), causes);
    others(&mut out, &format!("Failed only on {beside}"), comparison, Verdict::OnlyPlainFailed);
    others(&mut out, "Failed on both", comparison, Verdict::BothFailed);
    others(&mut out, &format!("Skipped only on {beside}"), comparison, Verdict::SkippedOnPlain);
    skips(&mut out, comparison);
    out
}

fn counts(out: &mut String, comparison: &Comparison, beside: &str) {
    let _ = write!(out, "| suite | tests run on both |");
    for (title, _) in COLUMNS {
        let _ = write!(out, " {} |", title.replace("BESIDE", beside));
    }
    let _ = writeln!(out, " run on one only |\n|---|{}", "--:|".repeat(COLUMNS.len() + 2));
    let mut sums = [0; COLUMNS.len() + 2];
    for suite in comparison.suites() {
        let mut row = [0; COLUMNS.len() + 2];
        for (cell, (_, verdict)) in row.iter_mut().skip(1).zip(COLUMNS) {
            *cell = comparison.count(suite, verdict);
        }
        row[0] = row[1..5].iter().sum();
        row[COLUMNS.len() + 1] = comparison.count(suite, Verdict::NotCompared);
        line(out, suite, &row);
        for (sum, cell) in sums.iter_mut().zip(row) {
            *sum += cell;
        }
    }
    line(out, "all", &sums);
    let _ = writeln!(
        out,
        "\nA test that is run with several settings counts once for each. On Redoubt, {} passed only when run again.",
        comparison.again.len()
    );
}

fn line(out: &mut String, name: &str, cells: &[usize]) {
    let _ = write!(out, "| {name} |");
    for cell in cells {
        let _ = write!(out, " {cell} |");
    }
    let _ = writeln!(out);
}

/// Tests with the number of their cases.
fn by_test<'a>(cases: impl Iterator<Item = &'a Case>) -> BTreeMap<&'a str, usize> {
    let mut tests = BTreeMap::new();
    for case in cases {
        *tests.entry(case.test.as_str()).or_default() += 1;
    }
    tests
}

fn by_cause<'a>(out: &mut String, title: &str, cases: impl Iterator<Item = &'a Case>, causes: &Causes) {
    let _ = writeln!(out, "\n## {title}\n");
    let mut groups: BTreeMap<(Option<Kind>, &str), Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let key = causes
            .of(case)
            .map_or((None, "not looked into yet"), |cause| (Some(cause.kind), cause.reason.as_str()));
        groups.entry(key).or_default().push(case);
    }
    if groups.is_empty() {
        let _ = writeln!(out, "None.");
        return;
    }
    let _ = writeln!(out, "| kind | cause | runs | tests |\n|---|---|--:|---|");
    for ((kind, reason), cases) in &groups {
        let tests: BTreeSet<_> = cases.iter().map(|case| format!("`{}`", case.test)).collect();
        let tests: Vec<_> = tests.into_iter().collect();
        let kind = kind.map_or("open", Kind::name);
        let _ = writeln!(out, "| {kind} | {reason} | {} | {} |", cases.len(), tests.join(", "));
    }
}

fn others(out: &mut String, title: &str, comparison: &Comparison, verdict: Verdict) {
    let tests = by_test(comparison.with(verdict));
    if tests.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## {title}\n");
    for (test, runs) in tests {
        let _ = writeln!(out, "* `{test}` ({runs})");
    }
}

fn skips(out: &mut String, comparison: &Comparison) {
    let _ = writeln!(out, "\n## Skipped, by reason\n\n| suite | reason | tests |\n|---|---|--:|");
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for case in comparison.with(Verdict::Skipped) {
        let reason = comparison.reasons.get(case).map_or("", String::as_str);
        *reasons.entry((case.suite(), reason)).or_default() += 1;
    }
    for ((suite, reason), count) in reasons {
        let _ = writeln!(out, "| {suite} | {} | {count} |", reason.replace('|', "\\|"));
    }
}
