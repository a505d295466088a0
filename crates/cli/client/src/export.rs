//! A volume as a plain data directory.

mod file;

use crate::beneath::{Beneath, check_name};
use crate::control::Client;
use crate::credentials::check_volume;
use crate::error::{ClientError, Result};
use crate::events::Events;
use crate::files::make_directory;
use file::ExportedFile;
use redoubt_transport::Connector;
use redoubt_wire::control::{EntryKind, Reply, Request};
use std::path::Path;

/// Files asked for that have not come. Requests are short: the node can always take this many.
const ASKED_FILES: usize = 64;

/// The written directory.
pub struct Exported {
    /// Number of files.
    pub files: usize,
    /// Their length.
    pub total_bytes: u64,
}

/// Writes a volume into a directory that is new or empty.
///
/// # Errors
/// [`ClientError::Usage`] if the directory is not empty; errors of the node; [`ClientError::Io`].
pub fn write(connector: &Connector, volume: &str, to: &Path, events: &dyn Events) -> Result<Exported> {
    check_volume(connector, volume)?;
    let mut client = Client::connect(connector)?;
    let attachment = match client.call(&Request::ExportBegin { volume: volume.to_owned() })? {
        Reply::Attached(attachment) => attachment,
        other => return Err(client.unexpected(&other)),
    };
    if attachment.empty {
        return Err(ClientError::Usage(format!("volume {volume} is empty: no server has written to it yet")));
    }
    for entry in &attachment.entries {
        check_name(&entry.path)?;
    }
    prepare(to)?;
    let total_bytes = attachment.entries.iter().map(|entry| entry.len_bytes).sum();
    let mut progress = events.begin("exporting", total_bytes);
    let beneath = Beneath::open(to, None)?;
    let (directories, files): (Vec<_>, Vec<_>) =
        attachment.entries.iter().partition(|entry| entry.kind == EntryKind::Directory);
    for entry in directories {
        let directory = beneath.directory(&entry.path)?;
        beneath.finish(&entry.path, &directory, entry.mode, 0o700)?;
    }
    // Each file is requested before the previous ones have arrived; the answers come in the same order.
    let mut to_ask = files.iter();
    let mut encrypted = 0;
    for (number, entry) in files.iter().enumerate() {
        let asked = if number == 0 { ASKED_FILES } else { 1 };
        for entry in to_ask.by_ref().take(asked) {
            client.request(&Request::ExportFile { volume: volume.to_owned(), path: entry.path.clone() })?;
        }
        let target = to.join(&entry.path);
        let failed = |error| ClientError::io("write", &target, error);
        let mut file = ExportedFile::new(beneath.create_new(&entry.path)?);
        let len_bytes = client.receive_file(|offset, piece| file.write(offset, piece).map_err(failed))?;
        encrypted += usize::from(file.is_encrypted());
        let (file, note) = file.finish(len_bytes).map_err(failed)?;
        if let Some(note) = note {
            events.note(&format!("{} {note}", target.display()));
        }
        beneath.finish(&entry.path, &file, entry.mode, 0o660)?;
        progress.add(len_bytes);
    }
    beneath.sync()?;
    client.call(&Request::ExportEnd { volume: volume.to_owned() })?;
    progress.finish();
    if encrypted > 0 {
        events.note(&format!(
            "{encrypted} encrypted tablespaces are in clear in this directory. Start a server with their keys on it, which \
             encrypts what it writes; to have all encrypted again: ALTER TABLE ... FORCE, or innodb_encryption_threads (see \
             docs/volume/how-to/encryption.md)"
        ));
    }
    Ok(Exported { files: files.len(), total_bytes })
}

fn prepare(directory: &Path) -> Result<()> {
    make_directory(directory)?;
    let mut entries =
        std::fs::read_dir(directory).map_err(|error| ClientError::io("list", directory, error))?;
    if entries.next().is_some() {
        return Err(ClientError::Usage(format!(
            "{} is not empty; export into a new or empty directory",
            directory.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
