//! `redoubt volume create | list | show | delete`.

use crate::args::{DeleteArguments, ListArguments, ShowArguments, VolumeName};
use crate::client::Client;
use crate::error::{CliError, Result};
use crate::show::{Table, bytes, confirm, print_json};
use crate::status;
use redoubt_wire::control::Request;

/// Creates an empty volume.
///
/// # Errors
/// What the node answers.
pub fn create(arguments: &VolumeName) -> Result<()> {
    let mut client = Client::connect(&arguments.address.connector()?)?;
    client.call(&Request::VolumeCreate { volume: arguments.name.clone() })?;
    println!("created volume {}", arguments.name);
    Ok(())
}

/// Lists volumes.
///
/// # Errors
/// What the node answers.
pub fn list(arguments: &ListArguments) -> Result<()> {
    let node = status::fetch(&arguments.address.connector()?)?;
    if arguments.json {
        return print_json(&node.volumes);
    }
    if node.volumes.is_empty() {
        println!("no volumes; create one with `redoubt volume create NAME`");
        return Ok(());
    }
    let mut table =
        Table::new(&["NAME", "STATE", "GENERATION", "FILES", "REDO LSN", "NOT APPLIED", "ATTACHED BY"]);
    for volume in &node.volumes {
        table.row(&[
            volume.name.clone(),
            volume.state.clone(),
            volume.generation.to_string(),
            volume.files.to_string(),
            volume.w_lsn.to_string(),
            bytes(volume.ring_used_bytes),
            volume.attached_by.clone(),
        ]);
    }
    table.print();
    Ok(())
}

/// Shows one volume.
///
/// # Errors
/// What the node answers.
pub fn show(arguments: &ShowArguments) -> Result<()> {
    let volume = status::fetch_volume(&arguments.volume.address.connector()?, &arguments.volume.name)?;
    if arguments.json {
        return print_json(&volume);
    }
    status::print_volume(&volume);
    Ok(())
}

/// Deletes a volume.
///
/// # Errors
/// What the node answers; [`CliError::Usage`] if it is not confirmed.
pub fn delete(arguments: &DeleteArguments) -> Result<()> {
    let name = &arguments.volume.name;
    let mut client = Client::connect(&arguments.volume.address.connector()?)?;
    let question = format!("Delete volume {name} and everything in it? Type its name: ");
    if !arguments.yes && !confirm("deleting", &question, name)? {
        return Err(CliError::Usage("not deleted".to_owned()));
    }
    client.call(&Request::VolumeDelete { volume: name.clone(), force: arguments.force })?;
    println!("deleted volume {name}");
    Ok(())
}
