//! Names that a page of the documentation lists, for tests that compare them with the names the code has.

use std::collections::BTreeSet;

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

#[cfg(test)]
mod tests {
    use super::{names, rows};

    const PAGE: &str = "# Page\n\n## First\n\n| name | meaning |\n|---|---|\n| `a`, `b` | `c` |\n\ntext\n\n\
        | other |\n|--|\n| `d` |\n\n## Second\n\n| `e` |\n|--|\n| `f` |\n";

    #[test]
    fn tables_below_a_heading_are_read_up_to_the_next() {
        assert_eq!(rows(PAGE, "First"), ["| `a`, `b` | `c` |", "| `d` |"]);
        assert_eq!(names(PAGE, "First").into_iter().collect::<Vec<_>>(), ["a", "b", "d"]);
        assert_eq!(names(PAGE, "Second").into_iter().collect::<Vec<_>>(), ["f"]);
    }

    #[test]
    #[should_panic(expected = "no table below")]
    fn missing_heading_is_an_error() {
        names(PAGE, "Third");
    }
}
