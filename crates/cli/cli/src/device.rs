//! `redoubt device format | show`: raw block devices.

use crate::args::{DeviceCommand, DeviceShowArguments, FormatArguments};
use crate::error::{CliError, Result};
use crate::show::{bytes, confirm, print_json};
use redoubt_storage::Stream;
use redoubt_storage::raw_device::{RawDevice, RawDeviceInfo, RawFormatOptions};
use serde::Serialize;
use std::path::Path;

/// Runs a sub-command.
///
/// # Errors
/// [`CliError::Usage`] saying why the device cannot be used.
pub fn run(command: &DeviceCommand) -> Result<()> {
    match command {
        DeviceCommand::Format(arguments) => format(arguments),
        DeviceCommand::Show(arguments) => show(arguments),
    }
}

fn format(arguments: &FormatArguments) -> Result<()> {
    let device = &arguments.device;
    if !redoubt_node::place::is_block_device(device) {
        return Err(CliError::Usage(format!(
            "{} is not a block device; a directory needs no preparation",
            device.display()
        )));
    }
    let question = format!("Format {} and lose everything on it? Type its name: ", device.display());
    if !arguments.yes && !confirm("formatting", &question, &device.display().to_string())? {
        return Err(CliError::Usage("not formatted".to_owned()));
    }
    let options = RawFormatOptions { force: arguments.force, ..RawFormatOptions::default() };
    RawDevice::format(device, options).map_err(|error| CliError::Usage(error.to_string()))?;
    let info = open(device)?.info();
    say!("formatted {}: {}", device.display(), describe(&info));
    Ok(())
}

fn open(device: &Path) -> Result<std::sync::Arc<RawDevice>> {
    RawDevice::open(device).map_err(|error| CliError::Usage(error.to_string()))
}

/// Output of `show`.
#[derive(Serialize)]
struct Shown {
    path: String,
    size_bytes: u64,
    used_bytes: u64,
    chunk_len_bytes: u64,
    write_streams: u32,
    directories: Vec<String>,
}

fn show(arguments: &DeviceShowArguments) -> Result<()> {
    let device = open(&arguments.device)?;
    let info = device.info();
    if arguments.json {
        return print_json(&Shown {
            path: info.path.display().to_string(),
            size_bytes: info.size_bytes,
            used_bytes: info.used_bytes,
            chunk_len_bytes: info.chunk_len_bytes,
            write_streams: info.streams,
            directories: device.dirs(),
        });
    }
    say!("{}: {}", info.path.display(), describe(&info));
    for (name, stream) in [
        ("metadata", Stream::Metadata),
        ("redo", Stream::Redo),
        ("page journal", Stream::Journal),
        ("hot pages", Stream::HotPages),
        ("cold pages", Stream::ColdPages),
    ] {
        let number = device.stream_of(stream);
        if number > 0 {
            say!("  write stream {number}  {name}");
        }
    }
    for directory in device.dirs() {
        say!("  directory       {directory}");
    }
    Ok(())
}

fn describe(info: &RawDeviceInfo) -> String {
    let streams = match (&info.streams_refused, info.streams) {
        (Some(reason), _) => format!("write streams not used: {reason}"),
        (None, 0) => "no data placement: log, journal and pages are not kept apart by the drive".to_owned(),
        (None, count) => format!("{count} write streams"),
    };
    format!("{} of {} used, {streams}", bytes(info.used_bytes), bytes(info.size_bytes))
}
