//! The status page of a node.

use crate::args::StatusPageArguments;
use crate::error::{CliError, Result};
use crate::logging;
use redoubt_node::Node;
pub use redoubt_statuspage::StatusPage;
use redoubt_statuspage::{PageSettings, Running, StatusPageError};
use std::sync::Arc;

/// Listens, if the options name an address.
///
/// # Errors
/// [`CliError::Usage`] if the address cannot be used.
pub fn bind(arguments: &StatusPageArguments) -> Result<Option<StatusPage>> {
    let Some(listen) = arguments.status_listen.clone() else { return Ok(None) };
    let (allow_remote, host_names) = (arguments.status_allow_remote, arguments.status_host.clone());
    Ok(Some(StatusPage::bind(&PageSettings { listen, allow_remote, host_names, ..PageSettings::default() })?))
}

/// Serves the page.
///
/// # Errors
/// Errors of the system.
pub fn start(page: StatusPage, node: &Arc<Node>) -> Result<Running> {
    let (address, of) = (page.address(), Arc::clone(node));
    let running = page.start(Arc::new(move || of.status()))?;
    let text = format!("status page on http://{address}/");
    tracing::info!(event = "status_page_listening", address = address.to_string(), "{text}");
    logging::announce(&text);
    Ok(running)
}

impl From<StatusPageError> for CliError {
    fn from(error: StatusPageError) -> Self {
        Self::Usage(error.to_string())
    }
}
