//! In place of `nfs.rs` in a build without the feature `readers`: NFS is not served.

use crate::args::NfsArguments;
use crate::error::Result;
use redoubt_client::ClientError;
use redoubt_node::Node;
use std::convert::Infallible;
use std::sync::Arc;

/// No NFS.
pub struct Nfs(Infallible);

impl Nfs {
    /// Of no NFS.
    pub fn stop(&self) {
        match self.0 {}
    }
}

/// Refuses the option.
///
/// # Errors
/// [`ClientError::NotBuiltIn`] if there is one.
pub fn bind(arguments: &NfsArguments) -> Result<Option<Nfs>> {
    match arguments.nfs {
        None => Ok(None),
        Some(_) => Err(ClientError::left_out("NFS (--nfs)", "readers").into()),
    }
}

/// Never called.
///
/// # Errors
/// None.
pub fn start(nfs: Nfs, _: &Arc<Node>) -> Result<Nfs> {
    match nfs.0 {}
}
