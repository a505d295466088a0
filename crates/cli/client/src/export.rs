//! A volume as a plain data directory.
//!
//! Each file is requested with its damaged pages, as they are stored, and the node reports them at the end. Unless damaged
//! files are wanted, such a file is removed again, except if the server cannot start without it.

mod binary_logs;
mod damaged;
mod file;

use crate::beneath::{Beneath, check_name};
use crate::control::Client;
use crate::credentials::check_volume;
use crate::error::{ClientError, Result};
use crate::events::Events;
use crate::files::make_directory;
pub use damaged::DamagedFiles;
use file::ExportedFile;
use redoubt_transport::Connector;
use redoubt_wire::control::{EntryKind, FrozenEnd, Reply, Request};
use redoubt_wire::greeting::DAMAGED_PAGES;
use std::path::Path;

/// Files asked for that have not come. Requests are short: the node can always take this many.
const ASKED_FILES: usize = 64;

/// The written directory.
pub struct Exported {
    /// Number of files.
    pub files: usize,
    /// Their length.
    pub total_bytes: u64,
    /// Files with damaged pages.
    pub damaged: DamagedFiles,
}

/// Refuses a frozen volume that may have changes from after its position, and ends the export.
fn require_exact(client: &mut Client, volume: &str, frozen: Option<&FrozenEnd>) -> Result<()> {
    let Some(end) = frozen.filter(|end| end.changes_end.is_some()) else { return Ok(()) };
    // The next attempt may follow at once.
    client.call(&Request::ExportEnd { volume: volume.to_owned() })?;
    Err(ClientError::Usage(format!(
        "volume {volume} is frozen at LSN {} and not exact: its plain files and pages may have later changes. An earlier \
         export or a backup may be better; --with-damaged exports the volume as it is stored",
        end.lsn
    )))
}

/// Writes a volume into a directory that is new or empty. Files with damaged pages are left out unless `with_damaged`.
///
/// # Errors
/// [`ClientError::Usage`] if the directory is not empty, or if the volume is frozen and not exact, unless `with_damaged`;
/// errors of the node; [`ClientError::Io`].
pub fn write(
    connector: &Connector,
    volume: &str,
    to: &Path,
    with_damaged: bool,
    events: &dyn Events,
) -> Result<Exported> {
    check_volume(connector, volume)?;
    let mut client = Client::connect(connector)?;
    let reports_damage = client.has(DAMAGED_PAGES);
    if with_damaged && !reports_damage {
        events.note("the node is of an older version: the export ends at the first damaged page");
    }
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
    if !with_damaged {
        require_exact(&mut client, volume, attachment.frozen.as_ref())?;
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
    let (mut encrypted, mut damaged) = (0, DamagedFiles::of(attachment.frozen.clone()));
    for (number, entry) in files.iter().enumerate() {
        let asked = if number == 0 { ASKED_FILES } else { 1 };
        for entry in to_ask.by_ref().take(asked) {
            let (volume, path) = (volume.to_owned(), entry.path.clone());
            client.request(&Request::ExportFile { volume, path, with_damaged: reports_damage })?;
        }
        let target = to.join(&entry.path);
        let failed = |error| ClientError::io("write", &target, error);
        let mut file = ExportedFile::new(beneath.create_new(&entry.path)?);
        let (len_bytes, reply) =
            client.receive_file_and_reply(|offset, piece| file.write(offset, piece).map_err(failed))?;
        if damaged.leaves_out(entry, &reply, with_damaged, events) {
            beneath.remove(&entry.path)?;
            progress.add(len_bytes);
            continue;
        }
        encrypted += usize::from(file.is_encrypted());
        let (file, note) = file.finish(len_bytes).map_err(failed)?;
        if let Some(note) = note {
            events.note(&format!("{} {note}", target.display()));
        }
        beneath.finish(&entry.path, &file, entry.mode, 0o660)?;
        progress.add(len_bytes);
    }
    beneath.sync()?;
    damaged.note_missing_binary_logs(to, &attachment.entries);
    client.call(&Request::ExportEnd { volume: volume.to_owned() })?;
    progress.finish();
    if encrypted > 0 {
        events.note(&format!(
            "{encrypted} encrypted tablespaces are in clear in this directory. Start a server with their keys on it, which \
             encrypts what it writes; to have all encrypted again: ALTER TABLE ... FORCE, or innodb_encryption_threads (see \
             docs/volume/how-to/encryption.md)"
        ));
    }
    Ok(Exported { files: files.len() - damaged.left_out(), total_bytes, damaged })
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
