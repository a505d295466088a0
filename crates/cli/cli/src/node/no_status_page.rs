//! In place of `status_page.rs` in a build without the feature `status-page`: there is no page.

use crate::args::StatusPageArguments;
use crate::error::Result;
use redoubt_client::ClientError;
use redoubt_node::Node;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

/// No page.
pub struct StatusPage(Infallible);

impl StatusPage {
    /// Of no page.
    pub fn address(&self) -> SocketAddr {
        match self.0 {}
    }
}

/// Refuses the option.
///
/// # Errors
/// [`ClientError::NotBuiltIn`] if there is one.
pub fn bind(arguments: &StatusPageArguments) -> Result<Option<StatusPage>> {
    match arguments.status_listen {
        None => Ok(None),
        Some(_) => Err(ClientError::left_out("status page (--status-listen)", "status-page").into()),
    }
}

/// Never called.
///
/// # Errors
/// None.
pub fn start(page: StatusPage, _: &Arc<Node>) -> Result<StatusPage> {
    match page.0 {}
}
