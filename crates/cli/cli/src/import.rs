//! `redoubt volume import`: a data directory becomes a volume.

pub mod args;

use crate::args::ImportArguments;
use crate::error::Result;
use crate::show::{Terminal, bytes};
use crate::volume::say_key;
use redoubt_client::import::{Layout, Source, import};

/// Imports a data directory.
///
/// # Errors
/// As [`Source::open`] and [`import`].
pub fn run(arguments: &ImportArguments) -> Result<()> {
    let volume = &arguments.volume.name;
    let layout = Layout::of(&arguments.from, &arguments.layout.places())?;
    let source = Source::open(&arguments.from, layout, &Terminal)?;
    let connector = arguments.volume.address.connector()?;
    let imported = import(&connector, volume, &source, arguments.encryption.encrypted, &Terminal)?;
    say!(
        "imported {} into volume {volume}: {} files, {}, {} of redo{}",
        arguments.from.display(),
        imported.files,
        bytes(imported.total_bytes),
        bytes(imported.redo_bytes),
        imported.pages
    );
    say_key(&imported.begun);
    Ok(())
}
