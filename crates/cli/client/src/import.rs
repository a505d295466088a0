//! A data directory becomes a volume.
//!
//! The source is only read. Pages are checked one by one. A torn page is taken from the doublewrite area if a good
//! copy is there, or left empty if redo initialises it; otherwise the import is refused. page_compressed pages are
//! sent uncompressed, because redo describes the uncompressed page.

mod layout;
mod log;
mod pages;
mod source;

use crate::control::Client;
use crate::error::{ClientError, Result};
use crate::events::Events;
pub use layout::{Layout, Places};
use pages::PageSource;
use redoubt_redo::Family;
use redoubt_transport::Connector;
use redoubt_wire::control::{MAX_DATA_LEN_BYTES, Reply, Request};
use redoubt_wire::greeting::MYSQL;
use source::{Kind, SourceFile};
pub use source::{Source, parse_data_file_path};
use std::os::unix::fs::FileExt;

/// The imported files.
pub struct Imported {
    /// Number of files.
    pub files: usize,
    /// Their length.
    pub total_bytes: u64,
    /// Length of the redo from the checkpoint on.
    pub redo_bytes: u64,
    /// Repaired, completed and unpacked pages, in words to be appended to a summary: empty, or it begins with a comma.
    pub pages: String,
    /// The node's reply when the volume was made: [`Reply::Encrypted`] has the place of its key.
    pub begun: Reply,
}

/// Makes `volume` of a data directory.
///
/// # Errors
/// [`ClientError::Usage`] if a page of the source cannot be taken as it is; errors of the node.
pub fn import(
    connector: &Connector,
    volume: &str,
    source: &Source,
    encrypted: bool,
    events: &dyn Events,
) -> Result<Imported> {
    let mut client = Client::connect(connector)?;
    if source.family == Family::MySql {
        client.require(MYSQL, || "a volume of MySQL".to_owned())?;
    }
    let begun = client.call(&Request::ImportBegin {
        volume: volume.to_owned(),
        family: source.family.name().to_owned(),
        system_files: source.system_files.clone(),
        encrypted,
    })?;
    for (path, mode) in &source.directories {
        client.call(&Request::ImportDirectory { path: path.clone(), mode: *mode })?;
    }
    let total_bytes: u64 = source.files.iter().map(|file| file.len_bytes).sum();
    let mut progress = events.begin("importing", total_bytes);
    let mut pages = PageSource::new(source)?;
    for file in &source.files {
        import_file(&mut client, file, &mut pages)?;
        progress.add(file.len_bytes);
    }
    let redo_bytes = import_log(&mut client, source)?;
    client.call(&Request::ImportEnd)?;
    progress.finish();
    Ok(Imported { files: source.files.len(), total_bytes, redo_bytes, pages: pages.summary(), begun })
}

fn import_file(client: &mut Client, file: &SourceFile, pages: &mut PageSource<'_>) -> Result<()> {
    let tablespace = matches!(file.kind, Kind::Tablespace { .. });
    client.request(&Request::ImportFile {
        path: file.path.clone(),
        mode: file.mode,
        len_bytes: file.len_bytes,
        tablespace,
    })?;
    if let Some(text) = &file.text {
        if !text.is_empty() {
            client.upload_piece(0, text.as_bytes())?;
        }
        return client.upload_end().map(drop);
    }
    let path = &file.at;
    let handle = std::fs::File::open(path).map_err(|error| ClientError::io("open", path, error))?;
    let mut buffer = vec![0; MAX_DATA_LEN_BYTES];
    let mut offset = 0;
    let mut checker = pages.checker(file, &handle)?;
    while offset < file.len_bytes {
        let len = (file.len_bytes - offset).min(buffer.len() as u64) as usize;
        let piece = &mut buffer[..len];
        handle.read_exact_at(piece, offset).map_err(|error| ClientError::io("read", path, error))?;
        checker.check(offset, piece)?;
        // The first piece is always sent, so that the node sees page 0.
        if offset == 0 || piece.iter().any(|byte| *byte != 0) {
            client.upload_piece(offset, piece)?;
        }
        offset += len as u64;
    }
    drop(checker);
    client.upload_end()?;
    Ok(())
}

fn import_log(client: &mut Client, source: &Source) -> Result<u64> {
    let log = &source.log;
    client.request(&log.request())?;
    let mut at = log.start_lsn;
    let mut buffer = vec![0; MAX_DATA_LEN_BYTES];
    while at < log.end_lsn {
        let len = (log.end_lsn.0 - at.0).min(buffer.len() as u64) as usize;
        log.read(at, &mut buffer[..len])?;
        client.upload_piece(at.0 - log.start_lsn.0, &buffer[..len])?;
        at = at.advance(len as u64);
    }
    client.upload_end()?;
    Ok(log.end_lsn.0 - log.start_lsn.0)
}
