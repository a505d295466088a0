//! `redoubt volume export`: a volume as a plain data directory.

use crate::args::ExportArguments;
use crate::error::{CliError, Result};
use crate::show::{Terminal, bytes};
use redoubt_client::export::{self, DamagedFiles};
use redoubt_transport::Connector;
use std::path::Path;

/// Writes the volume into a new directory.
///
/// # Errors
/// As [`write`].
pub fn run(arguments: &ExportArguments) -> Result<()> {
    let connector = arguments.volume.address.connector()?;
    let damaged = write(&connector, &arguments.volume.name, &arguments.to, arguments.with_damaged)?;
    damaged.summary().map_or(Ok(()), |summary| Err(CliError::LeftOut(summary)))
}

/// Writes a volume into a directory that is new or empty. Returns what is missing: files with damaged pages, which are left
/// out unless `with_damaged`, and the end of a frozen volume.
///
/// # Errors
/// As [`export::write`].
pub fn write(connector: &Connector, volume: &str, to: &Path, with_damaged: bool) -> Result<DamagedFiles> {
    let exported = export::write(connector, volume, to, with_damaged, &Terminal)?;
    say!(
        "exported volume {volume} to {} ({} files, {}); start a stock server on it with --datadir={}",
        to.display(),
        exported.files,
        bytes(exported.total_bytes),
        to.display()
    );
    Ok(exported.damaged)
}
