//! `redoubt volume export`: a volume as a plain data directory.

use crate::args::ExportArguments;
use crate::error::Result;
use crate::show::{Terminal, bytes};
use redoubt_client::export;
use redoubt_transport::Connector;
use std::path::Path;

/// Writes the volume into a new directory.
///
/// # Errors
/// As [`write`].
pub fn run(arguments: &ExportArguments) -> Result<()> {
    write(&arguments.volume.address.connector()?, &arguments.volume.name, &arguments.to)
}

/// Writes a volume into a directory that is new or empty.
///
/// # Errors
/// As [`export::write`].
pub fn write(connector: &Connector, volume: &str, to: &Path) -> Result<()> {
    let exported = export::write(connector, volume, to, &Terminal)?;
    say!(
        "exported volume {volume} to {} ({} files, {}); start a stock server on it with --datadir={}",
        to.display(),
        exported.files,
        bytes(exported.total_bytes),
        to.display()
    );
    Ok(())
}
