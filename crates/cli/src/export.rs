//! `redoubt volume export`: a volume as a plain data directory.

use crate::args::ExportArguments;
use crate::client::Client;
use crate::error::{CliError, Result};
use crate::show::{Progress, bytes};
use redoubt_wire::control::{EntryKind, Reply, Request};
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// Writes the volume into a new directory.
///
/// # Errors
/// [`CliError::Usage`] if the directory holds something; what the node answers; [`CliError::Io`].
pub fn run(arguments: &ExportArguments) -> Result<()> {
    let volume = &arguments.volume.name;
    let mut client = Client::connect(&arguments.volume.address.node)?;
    let attachment = match client.call(&Request::ExportBegin { volume: volume.clone() })? {
        Reply::Attached(attachment) => attachment,
        other => return Err(client.unexpected(&other)),
    };
    if attachment.empty {
        return Err(CliError::Usage(format!("volume {volume} is empty: no server has written to it yet")));
    }
    prepare(&arguments.to)?;
    let total_bytes = attachment.entries.iter().map(|entry| entry.len_bytes).sum();
    let mut progress = Progress::new("exporting", total_bytes);
    for entry in &attachment.entries {
        let target = arguments.to.join(&entry.path);
        if entry.kind == EntryKind::Directory {
            std::fs::create_dir_all(&target).map_err(|error| CliError::io("create", &target, error))?;
            set_mode(&target, entry.mode)?;
            continue;
        }
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(|error| CliError::io("create", parent, error))?;
        }
        let file = File::create_new(&target).map_err(|error| CliError::io("create", &target, error))?;
        let request = Request::ExportFile { volume: volume.clone(), path: entry.path.clone() };
        let len_bytes = client.download(&request, |offset, piece| {
            file.write_all_at(piece, offset).map_err(|error| CliError::io("write", &target, error))
        })?;
        file.set_len(len_bytes)
            .and_then(|()| file.sync_all())
            .map_err(|error| CliError::io("write", &target, error))?;
        set_mode(&target, entry.mode)?;
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

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    let mode = if mode & 0o777 == 0 { 0o660 } else { mode & 0o777 };
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| CliError::io("set permissions of", path, error))
}
