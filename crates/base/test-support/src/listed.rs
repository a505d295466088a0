//! Names that a page of the documentation lists, for tests that compare them with the names the code has.

use std::collections::{BTreeMap, BTreeSet};

/// Rows of the tables below the heading `heading`, up to the next heading; without the head of each table.
///
/// # Panics
/// The page has no such heading, or no table below it.
pub fn rows<'page>(page: &'page str, heading: &str) -> Vec<&'page str> {
    let below = page.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading).skip(1);
    let lines: Vec<_> = below.take_while(|line| !line.starts_with('#')).collect();
    let is_row = |at: usize| {
        let is_rule = |line: &&str| line.starts_with("|-");
        lines[at].starts_with('|') && !is_rule(&lines[at]) && !lines.get(at + 1).is_some_and(is_rule)
    };
    let rows: Vec<_> = (0..lines.len()).filter(|at| is_row(*at)).map(|at| lines[at]).collect();
    assert!(!rows.is_empty(), "the page has no table below the heading {heading:?}");
    rows
}

/// Names in backticks in the first column of these tables.
///
/// # Panics
/// As [`rows`]; a name is there twice.
pub fn names(page: &str, heading: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for row in rows(page, heading) {
        let first = row.split('|').nth(1).unwrap_or_default();
        for name in first.split('`').skip(1).step_by(2) {
            assert!(names.insert(name.to_owned()), "`{name}` is listed twice below {heading:?}");
        }
    }
    names
}

/// Rows of the table that lists the metrics of a text in the format of Prometheus: name, type, labels of its samples,
/// help; by name.
///
/// # Panics
/// A metric has no type, or no help.
pub fn metric_rows(exposition: &str) -> Vec<String> {
    let mut metrics: BTreeMap<&str, (&str, &str, BTreeSet<&str>)> = BTreeMap::new();
    for line in exposition.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            metrics.entry(name).or_default().1 = help;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            metrics.entry(name).or_default().0 = kind;
        } else if let Some((name, labels)) = line.split_once('{') {
            metrics.entry(name).or_default().2.extend(label_names(labels));
        }
    }
    let row = |(name, (kind, help, labels)): (&str, (&str, &str, BTreeSet<&str>))| {
        assert!(!kind.is_empty() && !help.is_empty(), "{name} has no type or no help");
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {kind} | {} | {help} |", labels.join(", "))
    };
    metrics.into_iter().map(row).collect()
}

/// Names of the labels of a sample; `labels` begins behind the opening brace. A quote in a value is escaped.
fn label_names(mut labels: &str) -> Vec<&str> {
    let mut names = Vec::new();
    while let Some((name, rest)) = labels.split_once("=\"") {
        names.push(name.trim_start_matches(','));
        let is_end = |at: &usize| !rest[..*at].ends_with('\\');
        let Some(end) = rest.match_indices('"').map(|(at, _)| at).find(is_end) else { break };
        labels = &rest[end + 1..];
    }
    names
}

/// The expressions, and the runbooks, of a file with rules for Prometheus.
///
/// # Panics
/// The file has none, or a rule without a runbook.
pub fn alert_rules(rules: &str) -> Vec<(&str, &str)> {
    let values = |key: &str| -> Vec<&str> {
        rules.lines().filter_map(|line| line.trim_start().strip_prefix(key)).collect()
    };
    let (expressions, runbooks) = (values("expr: "), values("runbook: "));
    assert!(!expressions.is_empty() && expressions.len() == runbooks.len(), "{expressions:?} {runbooks:?}");
    expressions.into_iter().zip(runbooks).collect()
}

/// Compares rules for Prometheus with the metrics that exist, and with the page of runbooks. Each rule reads listed
/// metrics only, and names a section that quotes its expression. Each section belongs to a rule.
///
/// # Panics
/// One of these does not hold.
pub fn check_alerts(rules: &str, metrics: &[String], path: &str, page: &str) {
    let known: BTreeSet<&str> = metrics.iter().filter_map(|row| row.split('`').nth(1)).collect();
    let sections: BTreeMap<String, &str> = page
        .split("\n## ")
        .skip(1)
        .map(|section| (section.lines().next().unwrap_or_default().to_lowercase().replace(' ', "-"), section))
        .collect();
    let mut used = BTreeSet::new();
    for (expression, runbook) in alert_rules(rules) {
        let words =
            expression.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        let read: Vec<_> = words.filter(|word| word.starts_with("redoubt_")).collect();
        assert!(
            !read.is_empty() && read.iter().all(|name| known.contains(name)),
            "no such metric: {expression}"
        );
        let anchor = runbook.strip_prefix(path).and_then(|rest| rest.strip_prefix('#')).unwrap_or_default();
        let section = sections.get(anchor).unwrap_or_else(|| panic!("no such section: {runbook}"));
        assert!(section.contains(&format!("`{expression}`")), "{runbook} does not quote {expression}");
        used.insert(anchor);
    }
    assert_eq!(used.len(), sections.len(), "sections without an alert: {sections:?}");
}

#[cfg(test)]
mod tests {
    use super::{alert_rules, check_alerts, metric_rows, names, rows};

    const PAGE: &str = "# Page\n\n## First\n\n| name | meaning |\n|---|---|\n| `a`, `b` | `c` |\n\ntext\n\n\
        | other |\n|--|\n| `d` |\n\n## Second\n\n| `e` |\n|--|\n| `f` |\n";

    #[test]
    fn tables_below_a_heading_are_read_up_to_the_next() {
        assert_eq!(rows(PAGE, "First"), ["| `a`, `b` | `c` |", "| `d` |"]);
        assert_eq!(names(PAGE, "First").into_iter().collect::<Vec<_>>(), ["a", "b", "d"]);
        assert_eq!(names(PAGE, "Second").into_iter().collect::<Vec<_>>(), ["f"]);
    }

    const METRICS: &str = "# HELP b_total Of b.\n# TYPE b_total counter\nb_total{x=\"1\",y=\"a,z=b\"} 2\n\
        # HELP redoubt_a Of a.\n# TYPE redoubt_a gauge\nredoubt_a 1\n";
    const RULES: &str = "  - alert: A\n    expr: redoubt_a == 0\n      runbook: docs/x.md#a-is-gone\n";
    const RUNBOOKS: &str = "# Runbooks\n\n## A is gone\n\n`redoubt_a == 0`\n";

    #[test]
    fn metrics_become_rows_with_type_labels_and_help() {
        assert_eq!(
            metric_rows(METRICS),
            ["| `b_total` | counter | `x`, `y` | Of b. |", "| `redoubt_a` | gauge |  | Of a. |"]
        );
    }

    #[test]
    fn rules_of_known_metrics_with_a_runbook_each_pass() {
        assert_eq!(alert_rules(RULES), [("redoubt_a == 0", "docs/x.md#a-is-gone")]);
        check_alerts(RULES, &metric_rows(METRICS), "docs/x.md", RUNBOOKS);
    }

    #[test]
    #[should_panic(expected = "no such metric")]
    fn rule_of_an_unknown_metric_is_an_error() {
        check_alerts(&RULES.replace("redoubt_a", "redoubt_c"), &metric_rows(METRICS), "docs/x.md", RUNBOOKS);
    }

    #[test]
    #[should_panic(expected = "no such section")]
    fn rule_without_a_runbook_section_is_an_error() {
        check_alerts(RULES, &metric_rows(METRICS), "docs/x.md", &RUNBOOKS.replace("gone", "back"));
    }

    #[test]
    #[should_panic(expected = "sections without an alert")]
    fn runbook_section_without_a_rule_is_an_error() {
        check_alerts(RULES, &metric_rows(METRICS), "docs/x.md", &format!("{RUNBOOKS}\n## B\n"));
    }

    #[test]
    #[should_panic(expected = "no table below")]
    fn missing_heading_is_an_error() {
        names(PAGE, "Third");
    }
}
