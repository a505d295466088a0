//! Names that are being created, imported, deleted or opened again: one command at a time uses a name.

use super::Node;
use crate::error::NodeError;
use redoubt_sync::time;
use redoubt_transport::check_volume_name;
use std::time::Duration;

/// A volume name that no other command may create, import, delete or open again meanwhile.
pub(super) struct BusyName<'n> {
    node: &'n Node,
    /// The name.
    pub name: String,
}

impl Drop for BusyName<'_> {
    fn drop(&mut self) {
        self.node.busy.lock().retain(|name| *name != self.name);
        self.node.name_freed.notify_all();
    }
}

impl Node {
    /// Reserves a name; waits for another command that uses it, but no longer than `patience`.
    ///
    /// # Errors
    /// [`NodeError::Refused`] for an invalid name; [`NodeError::NotNow`] if another command uses it, or if its volume is
    /// being opened.
    pub(super) fn reserve(&self, name: &str, patience: Duration) -> Result<BusyName<'_>, NodeError> {
        check_volume_name(name).map_err(NodeError::Refused)?;
        if self.opening.contains(name) {
            return Err(self.opening.not_now(name));
        }
        let deadline = time::now() + patience;
        let mut busy = self.busy.lock();
        while busy.iter().any(|other| other == name) {
            if self.name_freed.wait_until(&mut busy, deadline).timed_out() {
                return Err(NodeError::NotNow(format!(
                    "volume {name} is being created, imported, deleted or opened again"
                )));
            }
        }
        // The former holder of the name may have begun to open the volume.
        if self.opening.contains(name) {
            return Err(self.opening.not_now(name));
        }
        busy.push(name.to_owned());
        Ok(BusyName { node: self, name: name.to_owned() })
    }
}
