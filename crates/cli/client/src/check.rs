//! A check of a volume: the node reads everything that it stores of it.

use crate::control::Client;
use crate::credentials::check_volume;
use crate::error::Result;
use crate::events::Events;
use redoubt_transport::Connector;
use redoubt_wire::control::{CheckProgress, Reply, Request};
use redoubt_wire::greeting::VOLUME_CHECK;

/// Checks a volume to the end. It ends early with the connection.
///
/// # Errors
/// Errors of the node, for example if another check is under way.
pub fn run(connector: &Connector, volume: &str, events: &dyn Events) -> Result<CheckProgress> {
    check_volume(connector, volume)?;
    let mut client = Client::connect(connector)?;
    client.require(VOLUME_CHECK, || "a check of a volume".to_owned())?;
    let mut shown = None;
    let mut shown_bytes = 0;
    loop {
        let progress = match client.call(&Request::VolumeCheck { volume: volume.to_owned() })? {
            Reply::Checked(progress) => progress,
            other => return Err(client.unexpected(&other)),
        };
        let bar = shown.get_or_insert_with(|| events.begin("checking", progress.total_bytes));
        bar.add(progress.checked_bytes.saturating_sub(shown_bytes));
        shown_bytes = progress.checked_bytes;
        if progress.is_complete {
            if let Some(bar) = shown {
                bar.finish();
            }
            return Ok(progress);
        }
    }
}
