//! `redoubt volume export`: a volume as a plain data directory.

use crate::args::ExportArguments;
use crate::beneath::{Beneath, check_name};
use crate::client::Client;
use crate::error::{CliError, Result};
use crate::show::{Progress, bytes};
use redoubt_wire::control::{EntryKind, Reply, Request};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writes the volume into a new directory.
///
/// # Errors
/// [`CliError::Usage`] if the directory holds something; what the node answers; [`CliError::Io`].
pub fn run(arguments: &ExportArguments) -> Result<()> {
    let volume = &arguments.volume.name;
    let mut client = connect(arguments)?;
    let attachment = match client.call(&Request::ExportBegin { volume: volume.clone() })? {
        Reply::Attached(attachment) => attachment,
        other => return Err(client.unexpected(&other)),
    };
    if attachment.empty {
        return Err(CliError::Usage(format!("volume {volume} is empty: no server has written to it yet")));
    }
    for entry in &attachment.entries {
        check_name(&entry.path)?;
    }
    prepare(&arguments.to)?;
    let total_bytes = attachment.entries.iter().map(|entry| entry.len_bytes).sum();
    let mut progress = Progress::new("exporting", total_bytes);
    let beneath = Beneath::open(&arguments.to, None)?;
    for entry in &attachment.entries {
        if entry.kind == EntryKind::Directory {
            let directory = beneath.directory(&entry.path)?;
            beneath.finish(&entry.path, &directory, entry.mode, 0o700)?;
            continue;
        }
        let target = arguments.to.join(&entry.path);
        let file = beneath.create_new(&entry.path)?;
        let request = Request::ExportFile { volume: volume.clone(), path: entry.path.clone() };
        let len_bytes = client.download(&request, |offset, piece| {
            file.write_all_at(piece, offset).map_err(|error| CliError::io("write", &target, error))
        })?;
        file.set_len(len_bytes)
            .and_then(|()| file.sync_all())
            .map_err(|error| CliError::io("write", &target, error))?;
        beneath.finish(&entry.path, &file, entry.mode, 0o660)?;
        progress.add(len_bytes);
    }
    client.call(&Request::ExportEnd { volume: volume.clone() })?;
    progress.finish();
    println!(
        "exported volume {volume} to {} ({} files, {}); start a stock server on it with --datadir={}",
        arguments.to.display(),
        attachment.entries.iter().filter(|entry| entry.kind != EntryKind::Directory).count(),
        bytes(total_bytes),
        arguments.to.display()
    );
    Ok(())
}

fn prepare(directory: &Path) -> Result<()> {
    crate::show::make_directory(directory)?;
    let mut entries = std::fs::read_dir(directory).map_err(|error| CliError::io("list", directory, error))?;
    if entries.next().is_some() {
        return Err(CliError::Usage(format!(
            "{} is not empty; export into a new or empty directory",
            directory.display()
        )));
    }
    Ok(())
}

fn connect(arguments: &ExportArguments) -> Result<Client> {
    let connector = arguments.volume.address.connector()?;
    crate::tls::check_volume(&connector, &arguments.volume.name)?;
    Client::connect(&connector)
}

#[cfg(test)]
mod tests;
