//! Opening a volume again that has stopped to be frozen ([`crate::volume`]): by the first request that needs it.
//!
//! The old object holds the files until its last user lets go of it. Connections of its server are closed; moments, traces
//! and followers do not hold it. An export that is under way reads to its end first; until then the old object stays in the
//! list, and other requests get an error to try later.
//!
//! Invariant: the name is reserved, so no other command creates, deletes or opens the volume meanwhile; it is in the node's
//! list or among those that are being opened.
//!
//! Lock order: the list of volumes, then the state of [`super::opening`].

use super::Node;
use crate::error::NodeError;
use crate::volume::Volume;
use redoubt_sync::{thread, time};
use std::sync::Arc;
use std::time::Duration;

const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// References to a volume that is not in use: the list's and this module's.
const REFERENCES_UNUSED: usize = 2;

impl Node {
    /// The volume of this name, opened again if `volume` has stopped for that.
    ///
    /// # Errors
    /// [`NodeError::NotNow`] if the old object is still in use after `patience`; those of opening it.
    pub(super) fn reopened(
        &self,
        name: &str,
        volume: Arc<Volume>,
        patience: Duration,
    ) -> Result<Arc<Volume>, NodeError> {
        if !volume.freezes() {
            return Ok(volume);
        }
        drop(volume);
        let deadline = time::now() + patience;
        let _reserved = self.reserve(name, patience)?;
        let Some(old) = self.volumes.lock().get(name).cloned() else {
            return Err(NodeError::Refused(self.why_no_volume(name)));
        };
        if !old.freezes() {
            return Ok(old);
        }
        old.shut_down();
        self.admission.end_connections_of(name);
        while !self.take_out(name, &old) {
            if self.opening.is_stopping() {
                return Err(NodeError::NotNow("the node is shutting down".to_owned()));
            }
            if time::now() >= deadline {
                return Err(NodeError::NotNow(format!(
                    "volume {name} is being frozen, and an export still reads it; try again"
                )));
            }
            thread::sleep(LOOK_INTERVAL);
        }
        drop(old);
        self.opening.open_again(self, name);
        let opened = self.volumes.lock().get(name).cloned();
        opened.ok_or_else(|| NodeError::Refused(self.why_no_volume(name)))
    }

    /// Moves a volume that nothing else uses from the list to those that are being opened.
    fn take_out(&self, name: &str, old: &Arc<Volume>) -> bool {
        let mut volumes = self.volumes.lock();
        let is_unused = Arc::strong_count(old) <= REFERENCES_UNUSED;
        if is_unused && self.opening.enter(name, old.closed(false)) {
            volumes.remove(name);
            return true;
        }
        false
    }
}
