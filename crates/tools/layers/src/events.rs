//! Names of log events in the source of the node, and on their page.
//!
//! Each call of `tracing::error!`, `warn!` or `info!` begins with `event = "name"`. A name stands for one call and one
//! level, because alerts match on it. `debug!` and `trace!` need no name: they are for developers.

use std::collections::BTreeMap;

/// Events by name, with the level of each.
pub type Events = BTreeMap<String, String>;

/// Adds the events of one source file.
///
/// # Errors
/// The line and the fault: a call without a name, a name that is not in snake case, a name that is used twice.
pub fn add_source(file: &str, source: &str, events: &mut Events) -> Result<(), String> {
    for level in ["error", "warn", "info"] {
        let call = format!("tracing::{level}!(");
        for (at, _) in source.match_indices(&call) {
            let line = source.get(..at).unwrap_or_default().matches('\n').count() + 1;
            let rest = source.get(at + call.len()..).unwrap_or_default().trim_start();
            let name = rest.strip_prefix("event = \"").and_then(|rest| rest.split('"').next());
            let fault = match name {
                None => Some("a log call does not begin with `event = \"name\"`".to_owned()),
                Some(name)
                    if name.is_empty() || !name.chars().all(|of| of.is_ascii_lowercase() || of == '_') =>
                {
                    Some(format!("event name `{name}` is not in snake case"))
                }
                Some(name) => events
                    .insert(name.to_owned(), level.to_owned())
                    .map(|_| format!("event name `{name}` is used twice")),
            };
            if let Some(fault) = fault {
                return Err(format!("{file}:{line}: {fault}"));
            }
        }
    }
    Ok(())
}

/// Events in the table of the page.
pub fn of_page(page: &str) -> Events {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let name = cells.next()?.trim().trim_end_matches('`').to_owned();
        Some((name, cells.next()?.trim().to_owned()))
    };
    page.lines().filter_map(row).collect()
}
