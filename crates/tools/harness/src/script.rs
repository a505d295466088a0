//! SQL scripts with three directives, each a comment line of its own, carried out in order:
//!
//! * `-- expect: QUERY`: the answer must be 1 now, or the script did not do what it is for;
//! * `-- until: QUERY`: asked again and again until the answer is 1 (background work of the server);
//! * `-- probe: QUERY`: remembered; its answer must be the same before and after a restart.
//!
//! Other comment lines are skipped. A statement ends with `;` at the end of a line. `$NAME` is replaced
//! from the variables given.

use std::time::Duration;

use mysql::Conn;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::process::poll_until;
use redoubt_workload::sql::{execute, query_text};

const UNTIL_TIMEOUT: Duration = Duration::from_secs(90);

/// One thing a script does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Run a statement and throw its rows away.
    Statement(String),
    /// The answer must be 1.
    Expect(String),
    /// Ask until the answer is 1.
    Until(String),
    /// Remember a query.
    Probe(String),
}

/// Splits a script into its items.
///
/// # Errors
/// [`Error::Parse`] for a statement without its end, or a directive inside a statement.
pub fn parse(text: &str, variables: &[(&str, &str)]) -> Result<Vec<Item>> {
    let mut text = text.to_owned();
    for (name, value) in variables {
        text = text.replace(&format!("${name}"), value);
    }
    let mut items = Vec::new();
    let mut statement = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("--") {
            if let Some(item) = directive(comment.trim()) {
                if !statement.is_empty() {
                    return Err(unfinished(&statement));
                }
                items.push(item);
            }
            continue;
        }
        if !statement.is_empty() {
            statement.push(' ');
        }
        statement.push_str(line);
        if let Some(complete) = statement.strip_suffix(';') {
            items.push(Item::Statement(complete.to_owned()));
            statement.clear();
        }
    }
    if statement.is_empty() { Ok(items) } else { Err(unfinished(&statement)) }
}

fn directive(comment: &str) -> Option<Item> {
    let (word, query) = comment.split_once(':')?;
    let query = query.trim().to_owned();
    match word {
        "expect" => Some(Item::Expect(query)),
        "until" => Some(Item::Until(query)),
        "probe" => Some(Item::Probe(query)),
        _ => None,
    }
}

fn unfinished(statement: &str) -> Error {
    Error::Parse { what: "an SQL script".into(), detail: format!("no `;` ends this statement: {statement}") }
}

/// Carries a script out and returns its probes.
///
/// # Errors
/// [`Error::Sql`], [`Error::Violation`] for a failed expectation, [`Error::Deadline`] for an `until`.
pub fn run(conn: &mut Conn, text: &str, variables: &[(&str, &str)]) -> Result<Vec<String>> {
    let mut probes = Vec::new();
    for item in parse(text, variables)? {
        match item {
            Item::Statement(statement) => execute(conn, &statement)?,
            Item::Expect(query) => {
                if !is_one(conn, &query)? {
                    let rows = query_text(conn, &query)?;
                    return Err(Error::Violation(format!("expected 1 from {query}, got {rows:?}")));
                }
            }
            Item::Until(query) => {
                poll_until(&query, UNTIL_TIMEOUT, || Ok(is_one(conn, &query)?.then_some(())))?;
            }
            Item::Probe(query) => probes.push(query),
        }
    }
    Ok(probes)
}

fn is_one(conn: &mut Conn, query: &str) -> Result<bool> {
    let rows = query_text(conn, query)?;
    Ok(matches!(rows.as_slice(), [row] if row.first().is_some_and(|value| value == "1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_statements_and_directives_in_order() {
        let text = "-- about: a comment\nCREATE TABLE $T (a INT,\n  b INT);\n-- expect: SELECT 1\n\nDO 1;\n\
                    -- until: SELECT 2\n-- probe: SELECT a FROM $T\n";
        let items = parse(text, &[("T", "x")]).unwrap();
        assert_eq!(
            items,
            [
                Item::Statement("CREATE TABLE x (a INT, b INT)".into()),
                Item::Expect("SELECT 1".into()),
                Item::Statement("DO 1".into()),
                Item::Until("SELECT 2".into()),
                Item::Probe("SELECT a FROM x".into()),
            ]
        );
    }

    #[test]
    fn refuses_a_statement_without_end() {
        assert!(matches!(parse("DO 1;\nDO 2\n", &[]), Err(Error::Parse { .. })));
        assert!(matches!(parse("DO 2\n-- expect: SELECT 1\n", &[]), Err(Error::Parse { .. })));
    }
}
