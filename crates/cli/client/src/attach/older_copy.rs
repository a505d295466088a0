//! An older copy of the node's directory (a snapshot put back, a disk from before) is refused: it lacks transactions that
//! were acknowledged.
//!
//! The server's host knows better: the marker of the data directory has the generation of its last attach, and
//! `.redoubt-unsent` the position up to which the node had confirmed the stream. Neither ever falls on one volume. With an
//! empty data directory there is nothing to compare with.

use crate::error::{ClientError, Result};
use redoubt_resend_queue::layout::Confirmed;
use redoubt_wire::control::VolumeStatus;

/// Facts on a volume in a data directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Generation of the last attach from it.
    pub generation: Option<u64>,
    /// The volume has this generation from another attach.
    pub is_of_other_history: bool,
    /// Position that the node has confirmed to the last server on it.
    pub confirmed: Option<Confirmed>,
}

/// The node at `address` must have everything that it has confirmed.
///
/// # Errors
/// [`ClientError::OlderCopy`].
pub fn check(volume: &VolumeStatus, known: Known, address: &str) -> Result<()> {
    let newest = known.generation.max(known.confirmed.map(|confirmed| confirmed.generation));
    let why = match (newest, known.confirmed, volume.d_seq) {
        (Some(newest), _, _) if newest > volume.generation => format!(
            "its generation is {}, but this data directory was attached in generation {newest}",
            volume.generation
        ),
        (Some(newest), _, _) if known.is_of_other_history => format!(
            "its generation {newest} was given to {}, but this data directory had it, too, on a newer copy",
            volume.attached_by
        ),
        (_, Some(confirmed), Some(durable)) if confirmed.durable.0 > durable => format!(
            "its log ends at byte {durable}, but the node confirmed byte {} to the server here",
            confirmed.durable
        ),
        _ => return Ok(()),
    };
    Err(ClientError::OlderCopy(format!(
        "the storage node at {address} has an older copy of volume {}: {why}. Transactions that were acknowledged are \
         missing on it, and nothing was attached. Start the node on its newest directory. To continue from the older \
         state and lose what came after it: --accept-older",
        volume.name
    )))
}

#[cfg(test)]
#[path = "older_copy_tests.rs"]
mod tests;
