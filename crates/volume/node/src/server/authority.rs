//! Rights of peers: requests that each may send.
//!
//! | | certificate of the volume | of another volume | administrator |
//! |---|---|---|---|
//! | log and page connections | yes | no | yes |
//! | attach, plain checksums, fetch, export, view | yes | no | yes |
//! | trace, check | yes | no | yes |
//! | status | of its volume | of its volume | of all |
//! | create, delete, import | no | no | yes |
//!
//! Invariant: a refusal is the same whether its volume exists or not. On a connection in plain text everything is
//! allowed; a node offers those on its own host only, unless it is configured to trust its network.

use crate::error::NodeError;
use redoubt_transport::Identity;
use redoubt_wire::control::{NodeStatus, Request};

/// Checks a log or page connection, or any request about a volume.
///
/// # Errors
/// The refusal, for the user.
pub fn check_volume(identity: &Identity, volume: &str) -> Result<(), String> {
    if identity.may_use(volume) {
        return Ok(());
    }
    Err(format!(
        "this certificate is for {identity}; for volume {volume:?} use that volume's certificate or the administrator's"
    ))
}

/// Checks a control request.
///
/// # Errors
/// [`NodeError::Refused`].
pub fn check_request(identity: &Identity, request: &Request) -> Result<(), NodeError> {
    let checked = match request {
        Request::Attach { volume, .. }
        | Request::List { volume }
        | Request::Fetch { volume, .. }
        | Request::FetchTail { volume, .. }
        | Request::ExportBegin { volume }
        | Request::ExportFile { volume, .. }
        | Request::ExportEnd { volume }
        | Request::TraceBegin { volume, .. }
        | Request::TraceTake { volume }
        | Request::VolumeCheck { volume }
        | Request::View { volume, .. } => check_volume(identity, volume),
        Request::Status => Ok(()),
        Request::VolumeCreate { .. } => check_administrator(identity, "creating a volume"),
        Request::VolumeDelete { .. } => check_administrator(identity, "deleting a volume"),
        Request::ImportBegin { .. }
        | Request::ImportDirectory { .. }
        | Request::ImportFile { .. }
        | Request::ImportLog { .. }
        | Request::ImportLogSet { .. }
        | Request::ImportEnd => check_administrator(identity, "importing a volume"),
    };
    checked.map_err(NodeError::Refused)
}

fn check_administrator(identity: &Identity, what: &str) -> Result<(), String> {
    if identity.is_administrator() {
        return Ok(());
    }
    Err(format!("{what} needs the administrator's certificate; this one is for {identity}"))
}

/// Removes everything from a status that the peer may not see.
pub fn restrict(identity: &Identity, status: &mut NodeStatus) {
    status.volumes.retain(|volume| identity.may_use(&volume.name));
}

#[cfg(test)]
mod tests;
