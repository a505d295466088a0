//! In place of `device.rs` in a build without the feature `experimental-devices`.

use crate::args::DeviceCommand;
use crate::error::Result;
use redoubt_client::experimental::refused;

/// Refuses every sub-command.
///
/// # Errors
/// [`ClientError::NotBuiltIn`](redoubt_client::ClientError::NotBuiltIn), always.
pub fn run(command: &DeviceCommand) -> Result<()> {
    let (DeviceCommand::Format(crate::args::FormatArguments { device, .. })
    | DeviceCommand::Show(crate::args::DeviceShowArguments { device, .. })) = command;
    Err(refused(&format!("the raw block device {}", device.display())).into())
}
