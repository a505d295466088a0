//! The start of a storage node: `redoubt node` says its address when it can be reached.

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::process::Process;

/// Prefix of the line in which the node prints its address when it is ready.
const READY_PREFIX: &str = "listening on ";

/// Waits until the node, a process with a log, says that it listens, and returns the address. Its volumes are perhaps
/// still being opened.
///
/// # Errors
/// Those of [`Process::wait_until_logged`], [`Error::Parse`] if what it says is no address.
pub fn wait_until_listening(node: &mut Process, timeout: Duration) -> Result<SocketAddr> {
    let address = node.wait_until_logged(READY_PREFIX, timeout)?;
    let what = || "the node's address".to_owned();
    address.parse().map_err(|error| Error::Parse { what: what(), detail: format!("{address:?}: {error}") })
}
