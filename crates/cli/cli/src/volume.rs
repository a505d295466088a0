//! `redoubt volume create | list | show | delete`.

use crate::args::{CreateArguments, DeleteArguments, ListArguments, ShowArguments};
use crate::error::{CliError, Result};
use crate::show::{Table, bytes, confirm, print_json};
use crate::status;
use redoubt_client::control::Client;
use redoubt_client::volumes;
use redoubt_wire::control::{Reply, Request};

/// Creates an empty volume.
///
/// # Errors
/// Errors of the node.
pub fn create(arguments: &CreateArguments) -> Result<()> {
    let (name, encrypted) = (&arguments.volume.name, arguments.encryption.encrypted);
    let mut client = Client::connect(&arguments.volume.address.connector()?)?;
    let reply = client.call(&Request::VolumeCreate { volume: name.clone(), encrypted })?;
    say!("created volume {name}");
    say_key(&reply);
    Ok(())
}

/// Says where the key of a new volume is, if it is encrypted.
pub fn say_key(reply: &Reply) {
    if let Reply::Encrypted { key_file, key_is_new } = reply {
        let made = if *key_is_new { "a new key" } else { "the key that was there" };
        say!("its files are encrypted with {made}, on the node's host: {key_file}");
        say!("without this key the volume is lost: keep a copy in another place");
    }
}

/// Lists volumes.
///
/// # Errors
/// Errors of the node.
pub fn list(arguments: &ListArguments) -> Result<()> {
    let node = volumes::status(&arguments.address.connector()?)?;
    if arguments.json {
        return print_json(&node.volumes);
    }
    if node.volumes.is_empty() {
        say!("no volumes; create one with `redoubt volume create NAME`");
        return Ok(());
    }
    let mut table = Table::new(&[
        "NAME",
        "STATE",
        "GENERATION",
        "FILES",
        "REDO LSN",
        "NOT APPLIED",
        "ENCRYPTED",
        "ATTACHED BY",
    ]);
    for volume in &node.volumes {
        table.row(&[
            volume.name.clone(),
            volume.state.clone(),
            volume.generation.to_string(),
            volume.files.to_string(),
            volume.w_lsn.to_string(),
            bytes(volume.ring_used_bytes),
            if volume.encrypted_with.is_some() { "yes" } else { "no" }.to_owned(),
            volume.attached_by.clone(),
        ]);
    }
    table.print();
    Ok(())
}

/// Shows one volume.
///
/// # Errors
/// Errors of the node.
pub fn show(arguments: &ShowArguments) -> Result<()> {
    let volume = volumes::volume(&arguments.volume.address.connector()?, &arguments.volume.name)?;
    if arguments.json {
        return print_json(&volume);
    }
    status::print_volume(&volume);
    Ok(())
}

/// Deletes a volume.
///
/// # Errors
/// Errors of the node; [`CliError::Usage`] if it is not confirmed.
pub fn delete(arguments: &DeleteArguments) -> Result<()> {
    let name = &arguments.volume.name;
    let mut client = Client::connect(&arguments.volume.address.connector()?)?;
    let question = format!("Delete volume {name} and everything in it? Type its name: ");
    if !arguments.yes && !confirm("deleting", &question, name)? {
        return Err(CliError::Usage("not deleted".to_owned()));
    }
    client.call(&Request::VolumeDelete { volume: name.clone(), force: arguments.force })?;
    say!("deleted volume {name}");
    Ok(())
}
