//! The state of a node and of its volumes.

use crate::control::Client;
use crate::credentials::check_volume;
use crate::error::{ClientError, Result};
use crate::events::Events;
use redoubt_transport::Connector;
use redoubt_wire::ServerVersion;
use redoubt_wire::control::{NodeStatus, VolumeStatus};

/// State of a node.
///
/// # Errors
/// Errors of the node.
pub fn status(connector: &Connector) -> Result<NodeStatus> {
    Client::connect(connector)?.status()
}

/// State of a volume.
///
/// # Errors
/// [`ClientError::Usage`] if there is no such volume.
pub fn volume(connector: &Connector, name: &str) -> Result<VolumeStatus> {
    check_volume(connector, name)?;
    let node = status(connector)?;
    node.volumes.into_iter().find(|volume| volume.name == name).ok_or_else(|| missing(name))
}

/// The error for a volume that does not exist.
pub fn missing(name: &str) -> ClientError {
    ClientError::Usage(format!("node has no volume {name:?}; see `redoubt volume list`"))
}

/// The volume, if this server can start on it.
///
/// # Errors
/// The reason why it is not usable.
pub fn usable(connector: &Connector, name: &str, server: ServerVersion) -> Result<VolumeStatus> {
    let volume = volume(connector, name)?;
    if volume.state == "unusable" {
        let what = format!("volume {} could not be opened: {}", volume.name, volume.reason);
        return Err(ClientError::Usage(what));
    }
    if volume.volume_id.is_empty() {
        let what = format!("the storage node is still opening volume {name}; try again");
        return Err(ClientError::Usage(what));
    }
    if let Some(why) = volume.newest_server.and_then(|newest| server.refused_after(newest)) {
        return Err(ClientError::Usage(format!("volume {name}: {why}")));
    }
    Ok(volume)
}

/// Most looks at a volume whose log the node reads. `redoubt run` looks once a second, so it waits ten minutes.
pub const OPENING_LOOKS_MAX: u32 = 600;
/// State of a volume whose log the node reads.
const RECOVERING: &str = "recovering";

/// The volume that `look` finds, once the node has read its log. Before that the end of the log is not known, and an older
/// copy looks like any other.
///
/// # Errors
/// Those of `look`; [`ClientError::Usage`] after [`OPENING_LOOKS_MAX`] looks.
pub fn opened(
    mut look: impl FnMut() -> Result<VolumeStatus>,
    pause: impl Fn(),
    events: &dyn Events,
) -> Result<VolumeStatus> {
    for number in 0..OPENING_LOOKS_MAX {
        let volume = look()?;
        if volume.state != RECOVERING {
            return Ok(volume);
        }
        if number == 0 {
            events.note(&format!("the storage node reads the log of volume {}; waiting", volume.name));
        }
        pause();
    }
    let why = "the storage node takes long to open the volume; see `redoubt status`. Nothing was attached; start again when \
               the volume is open";
    Err(ClientError::Usage(why.to_owned()))
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
