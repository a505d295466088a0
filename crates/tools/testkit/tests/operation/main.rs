//! The operator's side: commands and their messages, packages, status page, metrics.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod command_line;
mod doctor;
mod packaging;
mod prometheus;
mod status_page;

#[path = "../../../../cli/statuspage/tests/support/browser.rs"]
mod browser;
#[path = "../../../../cli/statuspage/tests/support/http.rs"]
mod http;
#[path = "../../../../cli/statuspage/tests/support/strict.rs"]
mod strict;
