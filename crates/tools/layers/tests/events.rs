//! Log events of the node: every call has a name, and the page lists the same names and levels.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use redoubt_layers::events::{Events, add_source, of_page};
use std::path::{Path, PathBuf};

/// Folders whose programs log with `tracing`.
const PARTS: [&str; 3] = ["base", "cli", "volume"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

fn add_folder(folder: &Path, events: &mut Events) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_folder(&path, events);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            add_source(&path.display().to_string(), &source, events).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

#[test]
fn page_lists_every_log_event_with_its_level() {
    let mut events = Events::new();
    for part in PARTS {
        for entry in std::fs::read_dir(repository().join("crates").join(part)).unwrap() {
            let source = entry.unwrap().path().join("src");
            if source.is_dir() {
                add_folder(&source, &mut events);
            }
        }
    }
    assert!(events.contains_key("volume_stopped"), "the source was not read: {events:?}");
    let page = std::fs::read_to_string(repository().join("docs/reference/events.md")).unwrap();
    assert_eq!(of_page(&page), events);
}

#[test]
fn call_without_event_name_is_reported_with_its_line() {
    let mut events = Events::new();
    let why = add_source("a.rs", "\n    tracing::warn!(%error, \"x\");", &mut events).unwrap_err();
    assert_eq!(why, "a.rs:2: a log call does not begin with `event = \"name\"`");
}

#[test]
fn event_name_used_twice_is_reported() {
    let call = "tracing::info!(event = \"started\", \"x\");\n";
    let why = add_source("a.rs", &call.repeat(2), &mut Events::new()).unwrap_err();
    assert_eq!(why, "a.rs:2: event name `started` is used twice");
    let mut events = Events::new();
    add_source("a.rs", call, &mut events).unwrap();
    assert!(add_source("b.rs", &call.replace("info", "error"), &mut events).is_err());
}

#[test]
fn event_name_with_space_or_capital_is_reported() {
    for name in ["Volume", "volume stopped", ""] {
        let call = format!("tracing::error!(\n    event = \"{name}\",\n    \"x\"\n);");
        assert!(add_source("a.rs", &call, &mut Events::new()).is_err(), "{name}");
    }
}

#[test]
fn page_with_other_level_differs_from_source() {
    let mut events = Events::new();
    add_source("a.rs", "tracing::error!(event = \"x\", \"y\");", &mut events).unwrap();
    assert_eq!(of_page("| event | level | meaning |\n|---|---|---|\n| `x` | error | Z. |\n"), events);
    assert_ne!(of_page("| `x` | warn | Z. |\n"), events);
}
