//! `redoubt status`.

use crate::args::StatusArguments;
use crate::error::Result;
use crate::show::{bytes, print_json};
use crate::watch::Watch;
use redoubt_client::volumes;
use redoubt_transport::certificate::time_text;
use redoubt_wire::control::{LogDeviceStatus, NodeStatus, QuarantinedPage, ScrubStatus, VolumeStatus};
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

fn print_unknown_files(volume: &VolumeStatus) {
    let Some((first, others)) = volume.unknown_files.split_first() else { return };
    say!("  unknown files   written by the server, and not in the volume; see the server's error log");
    say!("                  {first}");
    for file in others {
        say!("                  {file}");
    }
}

fn print_quarantine(volume: &VolumeStatus) {
    if volume.quarantined == 0 {
        return;
    }
    say!("  quarantine      {} damaged pages or files", volume.quarantined);
    for line in quarantine_lines(&volume.quarantine) {
        say!("                  {line}");
    }
    let shown = volume.quarantine.len() as u64;
    if volume.quarantined > shown {
        say!("                  and {} more", volume.quarantined - shown);
    }
}

fn print_scrub(volume: &VolumeStatus) {
    if let Some(scrub) = &volume.scrub {
        scrub_lines(scrub).iter().for_each(|line| say!("{line}"));
    }
}

fn scrub_lines(scrub: &ScrubStatus) -> Vec<String> {
    let last = match (scrub.has_completed, scrub.age_s) {
        (true, age_s) => format!("complete {} ago", age_text(age_s)),
        (false, _) if scrub.period_s.is_none() => "never complete".to_owned(),
        (false, age_s) => format!("not complete since {}", age_text(age_s)),
    };
    let every = scrub.period_s.map_or("off".to_owned(), |period_s| format!("every {}", age_text(period_s)));
    let mut lines = vec![format!("  scrub           {last}; {every} (--scrub-days)")];
    if !scrub.stage.is_empty() {
        let (checked, total) = (bytes(scrub.checked_bytes), bytes(scrub.total_bytes));
        lines.push(format!("                  reads {}: {checked} of about {total}", scrub.stage));
    }
    if scrub.unchecked > 0 {
        let first = &scrub.first_unchecked;
        lines.push(format!(
            "                  {} places were not checked, the first: {first}",
            scrub.unchecked
        ));
    }
    if let Some(damage) = &scrub.log_damage {
        lines.push(format!("                  the log is damaged: {damage}"));
    }
    lines
}

/// `3 days`, `5 h` or `40 min`.
fn age_text(seconds: u64) -> String {
    match seconds {
        172_800.. => format!("{} days", seconds / 86_400),
        7200.. => format!("{} h", seconds / 3600),
        _ => format!("{} min", seconds / 60),
    }
}

/// The entries, and the ways to end them.
pub fn quarantine_lines(quarantine: &[QuarantinedPage]) -> Vec<String> {
    let mut lines: Vec<_> = quarantine.iter().map(entry_line).collect();
    let pages = quarantine.iter().filter(|page| page.restore_from.is_none());
    let (needed, others): (Vec<_>, Vec<_>) =
        pages.map(|page| page.file.as_str()).partition(|file| cannot_be_dropped(file));
    if !others.is_empty() {
        lines.push("to end it: drop these tables, and load them from a backup".to_owned());
    }
    if let Some(first) = needed.first() {
        lines.push(format!(
            "{first} cannot be dropped: dump all tables (innodb_force_recovery), and load them into a new volume"
        ));
    }
    lines
}

fn entry_line(page: &QuarantinedPage) -> String {
    let QuarantinedPage { file, reason, .. } = page;
    if let Some(copy) = &page.restore_from {
        return format!("file {file}: {reason}; stop the server, put a copy at {copy}, and start it");
    }
    let which = page.page_no.map_or("all pages".to_owned(), |page_no| format!("page {page_no}"));
    let since = if page.lsn == 0 { String::new() } else { format!(", since LSN {}", page.lsn) };
    format!("{} ({file}), {which}{since}: {reason}", table_of(file))
}

/// Of a file that is in quarantine: no statement removes it.
fn cannot_be_dropped(file: &str) -> bool {
    file.starts_with("mysql/") || file == "mysql.ibd" || !(file.contains('/') || file.ends_with(".ibd"))
}

/// Table, or tablespace, with this file: `shop.orders` for `shop/orders.ibd` and for its partitions.
fn table_of(file: &str) -> String {
    let stem = file.strip_suffix(".ibd").unwrap_or(file);
    let name =
        stem.split(['#']).next().filter(|name| !name.is_empty() && !name.ends_with('/')).unwrap_or(stem);
    match name.rsplit_once('/') {
        Some((schema, table)) => format!("table {schema}.{table}"),
        None => format!("tablespace {name}"),
    }
}

fn print_log_device(log: &LogDeviceStatus) {
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
    print_log_device(&volume.log_device);
    print_page_store(volume);
    say!(
        "  log index       {} pages, {} runs, {} tables",
        volume.index_pages,
        volume.index_runs,
        volume.index_tables
    );
    say!("  files           {}", volume.files);
    print_quarantine(volume);
    print_unknown_files(volume);
    print_scrub(volume);
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

#[cfg(test)]
mod tests {
    use super::{quarantine_lines, scrub_lines, table_of};
    use redoubt_wire::control::{QuarantinedPage, ScrubStatus};

    #[test]
    fn file_of_a_quarantined_page_names_its_table() {
        for (file, table) in [
            ("shop/orders.ibd", "table shop.orders"),
            ("shop/orders#P#p0.ibd", "table shop.orders"),
            ("shop/#sql-1.ibd", "table shop.#sql-1"),
            ("ibdata1", "tablespace ibdata1"),
            ("undo001", "tablespace undo001"),
        ] {
            assert_eq!(table_of(file), table);
        }
    }

    #[test]
    fn scrub_of_a_volume_shows_age_and_findings() {
        let mut scrub = ScrubStatus { period_s: Some(604_800), age_s: 200_000, ..ScrubStatus::default() };
        assert_eq!(
            scrub_lines(&scrub),
            ["  scrub           not complete since 2 days; every 7 days (--scrub-days)"]
        );
        scrub.has_completed = true;
        scrub.stage = "pages".to_owned();
        scrub.log_damage = Some("cut".to_owned());
        let lines = scrub_lines(&scrub).join("\n");
        for part in ["complete 2 days ago", "reads pages", "the log is damaged: cut"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
    }

    #[test]
    fn files_of_the_server_itself_cannot_be_dropped() {
        for (file, cannot) in [
            ("shop/orders.ibd", false),
            ("archive.ibd", false),
            ("mysql.ibd", true),
            ("mysql/innodb_index_stats.ibd", true),
            ("ibdata1", true),
            ("undo001", true),
        ] {
            assert_eq!(super::cannot_be_dropped(file), cannot, "{file}");
        }
    }

    #[test]
    fn lost_plain_files_are_put_back_and_not_dropped() {
        let lost = |file: &str| QuarantinedPage {
            file: file.to_owned(),
            reason: "missing".to_owned(),
            restore_from: Some("/data/plain/0000000a.restored".to_owned()),
            ..QuarantinedPage::default()
        };
        let page = |file: &str| QuarantinedPage {
            file: file.to_owned(),
            page_no: Some(4),
            ..QuarantinedPage::default()
        };
        for file in ["binlog.index", "mysql/global_priv.MAD", "d/t.frm"] {
            let lines = quarantine_lines(&[lost(file)]);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains(file) && lines[0].contains("0000000a.restored"), "{lines:?}");
        }
        let lines = quarantine_lines(&[lost("d/t.frm"), page("d/t.ibd"), page("ibdata1")]);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines[3].contains("drop these tables") && lines[4].contains("ibdata1 cannot"), "{lines:?}");
    }
}
