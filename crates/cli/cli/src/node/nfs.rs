//! The volumes of a node over NFS.

use crate::args::NfsArguments;
use crate::error::{CliError, Result};
use crate::logging;
use redoubt_node::Node;
use redoubt_readers::nfs::{Limits, Listed, Nfs, NfsError, Running, Settings, Volumes};
use redoubt_readers::{ViewError, ViewSource};
use std::sync::Arc;
use std::time::Duration;

/// Listens, if the options name an address.
///
/// # Errors
/// [`CliError::Usage`] if the address cannot be used.
pub fn bind(arguments: &NfsArguments) -> Result<Option<Nfs>> {
    let Some(listen) = arguments.nfs.clone() else { return Ok(None) };
    let limits = Limits { moment_idle: Duration::from_secs(arguments.nfs_moment_idle) };
    Ok(Some(Nfs::bind(&Settings { listen, allow_remote: arguments.nfs_allow_remote, limits })?))
}

/// Serves them.
///
/// # Errors
/// Errors of the system.
pub fn start(nfs: Nfs, node: &Arc<Node>) -> Result<Running> {
    let address = nfs.address();
    let running = nfs.start(Arc::new(NodeVolumes(Arc::clone(node))))?;
    logging::announce(&format!("NFS on {address}"));
    Ok(running)
}

impl From<NfsError> for CliError {
    fn from(error: NfsError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// A node's volumes, for NFS.
struct NodeVolumes(Arc<Node>);

impl Volumes for NodeVolumes {
    fn list(&self) -> Vec<Listed> {
        let listed = |(name, id): (String, String)| {
            Some(Listed { name, volume_id: u128::from_str_radix(&id, 16).ok()? })
        };
        self.0.readable_volumes().into_iter().filter_map(listed).collect()
    }

    fn is_opening(&self) -> bool {
        self.0.is_opening()
    }

    fn has_unusable(&self) -> bool {
        self.0.has_unusable_volumes()
    }

    fn open(
        &self,
        name: &str,
        is_moment: bool,
    ) -> std::result::Result<(u128, Arc<dyn ViewSource>), ViewError> {
        let reader = self.0.reader(name, is_moment)?;
        let volume_id = u128::from_str_radix(reader.volume_id(), 16)
            .map_err(|_| ViewError::Failed(format!("volume {name} has an id that is none")))?;
        Ok((volume_id, Arc::new(reader)))
    }
}
