//! `redoubt status`.

use crate::args::StatusArguments;
use crate::error::Result;
use crate::show::{bytes, print_json};
use crate::watch::Watch;
use redoubt_client::volumes;
use redoubt_transport::certificate::time_text;
use redoubt_wire::control::{NodeStatus, VolumeStatus};
use std::time::Duration;

/// Shows a node and its volumes.
///
/// # Errors
/// Errors of the node.
pub fn run(arguments: &StatusArguments) -> Result<()> {
    if let Some(datadir) = arguments.datadir.as_deref().filter(|_| arguments.local_log) {
        return crate::run::local_log::status::run(datadir, arguments.json);
    }
    let connector = arguments.address.connector()?;
    let look = || -> Result<NodeStatus> {
        let mut node = volumes::status(&connector)?;
        if let Some(name) = &arguments.volume {
            node.volumes.retain(|volume| volume.name == *name);
            if node.volumes.is_empty() {
                return Err(volumes::missing(name).into());
            }
        }
        Ok(node)
    };
    if arguments.watch {
        let interval = Duration::from_secs(arguments.interval);
        let watch = Watch { interval, limit: arguments.count, json: arguments.json };
        return crate::watch::run(look, &watch);
    }
    let node = look()?;
    if arguments.json {
        return print_json(&node);
    }
    say!("node {} (version {})", node.listen, node.version);
    if let Some(name) = &node.local_socket {
        say!("  local socket    @{name}");
    }
    say!("  data directory  {}", node.data_directory);
    if let Some(address) = &node.status_page {
        say!("  status page     http://{address}/");
    }
    say!("  up              {} s", node.uptime_seconds);
    let (used, limit) = (bytes(node.memory_used_bytes), bytes(node.memory_limit_bytes));
    say!("  memory          {used} of {limit} for redo that is not applied yet (--memory)");
    for room in &node.room {
        let (free, total) = (bytes(room.free_bytes), bytes(room.total_bytes));
        say!("  room            {free} of {total} free at {}", room.directory);
    }
    if let Some(expires_s) = node.certificate_expires_s {
        say!("  certificate     valid until {}", time_text(expires_s));
    }
    for volume in &node.volumes {
        say!();
        print_volume(volume);
    }
    Ok(())
}

fn print_page_store(volume: &VolumeStatus) {
    let store = &volume.page_store;
    say!("  page store      {} in {} ({})", store.protection, store.pages, store.reason);
    say!(
        "                  journal {} in {}: {} in use, {} pages wait in it",
        bytes(store.journal_len_bytes),
        store.journal,
        bytes(store.journal_live_bytes),
        store.pending_pages
    );
    if let Some([min, max]) = store.untorn_len_bytes {
        say!("                  writes of {} to {} are never torn", bytes(min), bytes(max));
    }
    if store.home_bytes_per_redo_byte + store.journal_bytes_per_redo_byte > 0.0 {
        say!(
            "                  page bytes written per redo byte applied: {:.2} (home {:.2}, journal {:.2})",
            store.home_bytes_per_redo_byte + store.journal_bytes_per_redo_byte,
            store.home_bytes_per_redo_byte,
            store.journal_bytes_per_redo_byte
        );
    }
    for warning in &store.warnings {
        say!("                  warning: {warning}");
    }
}

/// Prints a volume for people.
pub fn print_volume(volume: &VolumeStatus) {
    say!("volume {} ({})", volume.name, volume.volume_id);
    let reason = if volume.reason.is_empty() { String::new() } else { format!(": {}", volume.reason) };
    say!("  state           {}{reason}", volume.state);
    let by = if volume.attached_by.is_empty() { "never attached" } else { &volume.attached_by };
    say!("  generation      {} ({by})", volume.generation);
    if let Some(newest) = volume.newest_server {
        say!("  newest server   {newest}");
    }
    if let Some(expires_s) = volume.server_certificate_expires_s {
        say!("  certificate     the server's is valid until {}", time_text(expires_s));
    }
    if volume.connections > 0 {
        say!(
            "  connections     {}, of which {} over the local socket",
            volume.connections,
            volume.local_connections
        );
    }
    if let Some(key) = &volume.encrypted_with {
        say!("  encrypted       with key {key}");
    }
    say!("  W received      {}", volume.w_lsn);
    say!("  D durable       {}", volume.d_lsn);
    say!("  P parsed        {}", volume.p_lsn);
    say!("  A applied       {}", volume.a_lsn);
    say!("  server's checkpoint {}", volume.server_checkpoint_lsn);
    let waits = if volume.ring_waits_for.is_empty() {
        String::new()
    } else {
        format!(", full: waits for {}", volume.ring_waits_for)
    };
    say!("  log buffer      {} of {}{waits}", bytes(volume.ring_used_bytes), bytes(volume.ring_len_bytes));
    let log = &volume.log_device;
    say!(
        "  log device      {} in {} ({}; units of {} B, up to {} writes in flight)",
        log.kind,
        log.directory,
        log.detail,
        log.write_unit_bytes,
        log.max_in_flight
    );
    if log.written_per_appended_byte > 0.0 {
        say!("                  {:.3} bytes written per byte of the stream", log.written_per_appended_byte);
    }
    for warning in &log.warnings {
        say!("                  warning: {warning}");
    }
    print_page_store(volume);
    say!(
        "  log index       {} pages, {} runs, {} tables",
        volume.index_pages,
        volume.index_runs,
        volume.index_tables
    );
    say!("  files           {}", volume.files);
    for (title, counters) in
        [("node counters", &volume.counters), ("server counters", &volume.server_counters)]
    {
        say!("  {title}");
        for (name, value) in counters.iter().filter(|(_, value)| **value != 0) {
            let readable = if name.ends_with("_bytes") || name.contains("bytes_") {
                format!(" ({})", bytes(*value))
            } else {
                String::new()
            };
            say!("    {name:<28} {value}{readable}");
        }
    }
}
