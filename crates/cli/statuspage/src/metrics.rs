//! The state of a node in the text format of Prometheus (version 0.0.4).
//!
//! Names follow the conventions of Prometheus: units are base units and last, counters end with `_total`. Every
//! counter that the node or the server's library has is there: a counter without an entry in a table here gets a name
//! made from its own.

use crate::exposition::{Kind, head, number, sample};
use redoubt_wire::control::{NodeStatus, Room, VolumeStatus};
use redoubt_wire::figures::{Times, bucket_end_micros};
use std::collections::BTreeMap;

mod scrub;

/// Powers of two of microseconds that are bounds of a histogram: 16 us to 67 s.
const BOUND_POWERS: std::ops::RangeInclusive<u32> = 4..=26;

/// States a volume can be in.
const STATES: [&str; 8] =
    ["ready", "attached", "waiting", "stopped", "frozen", "exporting", "recovering", "unusable"];

/// Samples of one metric: labels besides `volume` and value.
type Values = Vec<(Vec<(&'static str, String)>, f64)>;

/// A metric that every volume has.
struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    values: fn(&VolumeStatus) -> Values,
}

fn one(value: f64) -> Values {
    vec![(Vec::new(), value)]
}

fn labelled(label: &'static str, values: impl IntoIterator<Item = (String, f64)>) -> Values {
    values.into_iter().map(|(of, value)| (vec![(label, of)], value)).collect()
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn of_workers(volume: &VolumeStatus, value: impl Fn(&redoubt_wire::figures::ApplyWorker) -> f64) -> Values {
    let numbered = volume.apply_workers.iter().enumerate();
    labelled("worker", numbered.map(|(number, worker)| (number.to_string(), value(worker))))
}

const GAUGES: &[Metric] = &[
    Metric {
        name: "redoubt_volume_info",
        kind: Kind::Gauge,
        help: "Always 1; labels say what the volume is and what keeps its log and pages.",
        values: |volume| {
            let labels = vec![
                ("volume_id", volume.volume_id.clone()),
                ("log_device", volume.log_device.kind.clone()),
                ("page_protection", volume.page_store.protection.clone()),
            ];
            vec![(labels, 1.0)]
        },
    },
    Metric {
        name: "redoubt_volume_state",
        kind: Kind::Gauge,
        help: "1 for the state the volume is in, 0 for the others.",
        values: |volume| {
            labelled(
                "state",
                STATES.map(|state| (state.to_owned(), f64::from(u8::from(volume.state == state)))),
            )
        },
    },
    Metric {
        name: "redoubt_volume_generation",
        kind: Kind::Gauge,
        help: "How often the volume was taken over by a server.",
        values: |volume| one(volume.generation as f64),
    },
    Metric {
        name: "redoubt_volume_lsn",
        kind: Kind::Gauge,
        help: "Positions in the redo stream, as the server's LSN: what is received (W), durable (D), parsed (P), applied (A), and \
               the server's own checkpoint.",
        values: |volume| {
            let positions = [
                ("received", volume.w_lsn),
                ("durable", volume.d_lsn),
                ("parsed", volume.p_lsn),
                ("applied", volume.a_lsn),
                ("server_checkpoint", volume.server_checkpoint_lsn),
            ];
            labelled("position", positions.map(|(position, lsn)| (position.to_owned(), lsn as f64)))
        },
    },
    Metric {
        name: "redoubt_volume_files",
        kind: Kind::Gauge,
        help: "Files of the volume.",
        values: |volume| one(volume.files as f64),
    },
    Metric {
        name: "redoubt_quarantined_pages",
        kind: Kind::Gauge,
        help: "Damaged pages that are set aside, or that a read or the scrub has found; a file whose pages are all set aside counts as one, and so does a lost plain file.",
        values: |volume| one(volume.quarantined as f64),
    },
    Metric {
        name: "redoubt_unknown_files",
        kind: Kind::Gauge,
        help: "Plain files that the server writes and the volume does not have, at most 100; they were put into the data directory from outside.",
        values: |volume| one(volume.unknown_files.len() as f64),
    },
    Metric {
        name: "redoubt_log_buffer_used_bytes",
        kind: Kind::Gauge,
        help: "Bytes received and not yet applied (W - A).",
        values: |volume| one(volume.ring_used_bytes as f64),
    },
    Metric {
        name: "redoubt_log_buffer_size_bytes",
        kind: Kind::Gauge,
        help: "Length of the log buffer.",
        values: |volume| one(volume.ring_len_bytes as f64),
    },
    Metric {
        name: "redoubt_log_buffer_full",
        kind: Kind::Gauge,
        help: "1 for the stage that a full log buffer waits for just now, 0 otherwise.",
        values: |volume| {
            let is_it = |stage: &str| f64::from(u8::from(volume.ring_waits_for == stage));
            labelled("stage", ["device", "parser", "apply"].map(|stage| (stage.to_owned(), is_it(stage))))
        },
    },
    Metric {
        name: "redoubt_log_buffer_wait_seconds_total",
        kind: Kind::Counter,
        help: "Time the server was held back because the log buffer was full, by the stage that was behind.",
        values: |volume| {
            let stages = volume.ring_wait_micros.iter();
            labelled("stage", stages.map(|(stage, micros)| (stage.clone(), seconds(*micros))))
        },
    },
    Metric {
        name: "redoubt_log_index_pages",
        kind: Kind::Gauge,
        help: "Pages with records that wait in the log index, counted once per table.",
        values: |volume| one(volume.index_pages as f64),
    },
    Metric {
        name: "redoubt_log_index_runs",
        kind: Kind::Gauge,
        help: "Runs of records (what one mini-transaction did to one page) in the log index.",
        values: |volume| one(volume.index_runs as f64),
    },
    Metric {
        name: "redoubt_log_index_tables",
        kind: Kind::Gauge,
        help: "Tables of the log index.",
        values: |volume| one(volume.index_tables as f64),
    },
    Metric {
        name: "redoubt_log_index_chain_pages",
        kind: Kind::Gauge,
        help: "Pages in the log index by the length of their chains: up to `longest` runs, and more than the class before.",
        values: |volume| {
            let bound =
                |longest: Option<u64>| longest.map_or("+Inf".to_owned(), |longest| longest.to_string());
            labelled(
                "longest",
                volume.chain_lengths.iter().map(|class| (bound(class.longest), class.pages as f64)),
            )
        },
    },
    Metric {
        name: "redoubt_page_journal_live_bytes",
        kind: Kind::Gauge,
        help: "Bytes of the page journal that are still needed.",
        values: |volume| one(volume.page_store.journal_live_bytes as f64),
    },
    Metric {
        name: "redoubt_page_journal_size_bytes",
        kind: Kind::Gauge,
        help: "Length of the page journal.",
        values: |volume| one(volume.page_store.journal_len_bytes as f64),
    },
    Metric {
        name: "redoubt_page_journal_pending_pages",
        kind: Kind::Gauge,
        help: "Pages whose newest image is in the page journal only.",
        values: |volume| one(volume.page_store.pending_pages as f64),
    },
    Metric {
        name: "redoubt_apply_worker_pages_total",
        kind: Kind::Counter,
        help: "Pages that an apply worker built.",
        values: |volume| of_workers(volume, |worker| worker.pages as f64),
    },
    Metric {
        name: "redoubt_apply_worker_runs_total",
        kind: Kind::Counter,
        help: "Runs of records that an apply worker applied.",
        values: |volume| of_workers(volume, |worker| worker.runs as f64),
    },
    Metric {
        name: "redoubt_apply_worker_redo_bytes_total",
        kind: Kind::Counter,
        help: "Bytes of redo that an apply worker applied.",
        values: |volume| of_workers(volume, |worker| worker.redo_bytes as f64),
    },
    Metric {
        name: "redoubt_apply_worker_busy_seconds_total",
        kind: Kind::Counter,
        help: "Time an apply worker was at work.",
        values: |volume| of_workers(volume, |worker| seconds(worker.busy_micros)),
    },
    Metric {
        name: "redoubt_server_page_writes_avoided_bytes_total",
        kind: Kind::Counter,
        help: "Bytes of page and doublewrite writes of the server that were neither sent nor written.",
        values: |volume| one(crate::samples::avoided_bytes(volume) as f64),
    },
    Metric {
        name: "redoubt_server_certificate_expiry_timestamp_seconds",
        kind: Kind::Gauge,
        help: "Until when the certificate of the server that is connected is valid. No sample: there is none.",
        values: |volume| {
            volume.server_certificate_expires_s.map_or_else(Vec::new, |expires_s| one(expires_s as f64))
        },
    },
    Metric {
        name: "redoubt_server_page_cache_size_bytes",
        kind: Kind::Gauge,
        help: "Size of the server's own page cache.",
        values: |volume| {
            one(volume.server_counters.get("page_cache_capacity_bytes").map_or(0.0, |size| *size as f64))
        },
    },
];

/// A histogram that every volume has: name, help, times.
type TimesMetric = (&'static str, &'static str, fn(&VolumeStatus) -> &Times);

const HISTOGRAMS: &[TimesMetric] = &[
    (
        "redoubt_page_read_duration_seconds",
        "Time from a page request's arrival on the node to its answer.",
        |volume| &volume.page_read_times,
    ),
    (
        "redoubt_log_write_duration_seconds",
        "Time from handing a batch of the log to the log device to its being durable.",
        |volume| &volume.log_write_times,
    ),
];

/// Counters of the node with another name in Prometheus, or with a help text of their own: counter, metric, help.
const NODE_COUNTERS: &[(&str, &str, &str)] = &[
    (
        "received_bytes",
        "redoubt_received_bytes_total",
        "Bytes of frames received on log connections, not compressed.",
    ),
    ("redo_bytes", "redoubt_redo_bytes_total", "Redo bytes received, uncompressed."),
    ("frames", "redoubt_frames_total", "Frames received on log connections."),
    ("mtrs", "redoubt_mini_transactions_total", "Mini-transactions parsed."),
    ("runs", "redoubt_runs_total", "Runs of records indexed."),
    ("log_syncs", "redoubt_log_syncs_total", "Calls that made bytes of the log durable."),
    ("page_reads", "redoubt_page_reads_total", "Page requests answered."),
    ("page_bytes_sent", "redoubt_page_sent_bytes_total", "Bytes of pages sent."),
    (
        "page_replies_compressed",
        "redoubt_page_replies_compressed_total",
        "Replies to page requests that were sent compressed.",
    ),
    (
        "page_bytes_saved",
        "redoubt_page_saved_bytes_total",
        "Bytes of pages that were not sent because replies were compressed.",
    ),
    ("pages_constructed", "redoubt_pages_constructed_total", "Pages built for reads."),
    (
        "read_wait_micros",
        "redoubt_page_read_parse_wait_seconds_total",
        "Time page reads waited for the parser.",
    ),
    ("pages_applied", "redoubt_pages_applied_total", "Pages applied to the page store."),
    ("tables_applied", "redoubt_tables_applied_total", "Tables of the log index applied."),
    (
        "chains_built_early",
        "redoubt_chains_built_early_total",
        "Chains built early because they had become long.",
    ),
    ("images", "redoubt_page_images_total", "Page writes that redo does not explain, received as images."),
    ("redo_bytes_applied", "redoubt_redo_applied_bytes_total", "Bytes of redo that are applied."),
    ("page_applied_bytes", "redoubt_page_applied_bytes_total", "Bytes of pages built by applying."),
    (
        "pages_rebuilt",
        "redoubt_pages_rebuilt_total",
        "Pages whose stored image was damaged and that were rebuilt.",
    ),
    (
        "outdated_pages_rebuilt",
        "redoubt_outdated_pages_rebuilt_total",
        "Pages of which the drive had an older version, having lost a write, and that were rebuilt.",
    ),
    (
        "scrubbed_bytes",
        "redoubt_scrubbed_bytes_total",
        "Bytes of pages, plain files and log that the scrub has read.",
    ),
    (
        "pages_verified",
        "redoubt_pages_verified_total",
        "Dropped page writes compared with the node's page and found equal.",
    ),
    (
        "page_mismatches",
        "redoubt_page_mismatches_total",
        "Dropped page writes whose page differed from the node's.",
    ),
    (
        "pages_healed",
        "redoubt_pages_healed_total",
        "Pages that differed from the server's, were set aside, and are whole again.",
    ),
    (
        "pages_not_comparable",
        "redoubt_pages_not_comparable_total",
        "Dropped page writes that could not be compared because the node's page was newer already.",
    ),
    (
        "log_device_appended_bytes",
        "redoubt_log_device_appended_bytes_total",
        "Bytes given to the log device.",
    ),
    (
        "log_device_written_bytes",
        "redoubt_log_device_written_bytes_total",
        "Bytes the log device wrote, headers and padding included.",
    ),
    ("log_device_writes", "redoubt_log_device_writes_total", "Durable writes of the log device."),
    (
        "page_home_written_bytes",
        "redoubt_page_home_written_bytes_total",
        "Bytes of pages written to their place.",
    ),
    (
        "page_journal_written_bytes",
        "redoubt_page_journal_written_bytes_total",
        "Bytes of pages written to the page journal.",
    ),
    ("page_home_writes", "redoubt_page_home_writes_total", "Writes of pages to their place."),
    ("pages_written_home", "redoubt_pages_written_home_total", "Pages written to their place."),
    (
        "page_images_superseded",
        "redoubt_page_images_superseded_total",
        "Images in the page journal that a newer one made unnecessary to write home.",
    ),
    ("page_store_syncs", "redoubt_page_store_syncs_total", "Calls that made pages durable."),
    (
        "ring_full_waits",
        "redoubt_log_buffer_full_waits_total",
        "Times the server was held back because the log buffer was full.",
    ),
    // In redoubt_log_buffer_wait_seconds_total by stage.
    ("ring_full_wait_micros", "", ""),
];

/// Counters of the server's library, in the same way. They begin again with each server process.
const SERVER_COUNTERS: &[(&str, &str, &str)] = &[
    ("redo_bytes", "redoubt_server_redo_bytes_total", "Redo bytes the server produced, each once."),
    (
        "log_written_bytes",
        "redoubt_server_log_written_bytes_total",
        "Bytes the server wrote to its redo log, rewritten blocks included.",
    ),
    ("sent_bytes", "redoubt_server_sent_bytes_total", "Bytes sent to the node on all connections."),
    (
        "received_bytes",
        "redoubt_server_received_bytes_total",
        "Bytes received from the node on all connections.",
    ),
    (
        "page_bytes_dropped",
        "redoubt_server_page_dropped_bytes_total",
        "Bytes of page writes dropped because redo explains them.",
    ),
    (
        "pages_dropped",
        "redoubt_server_pages_dropped_total",
        "Page writes dropped because redo explains them.",
    ),
    (
        "doublewrite_bytes_dropped",
        "redoubt_server_doublewrite_dropped_bytes_total",
        "Bytes of the doublewrite buffer dropped.",
    ),
    ("image_bytes", "redoubt_server_image_bytes_total", "Bytes of page writes that were sent as images."),
    ("plain_bytes", "redoubt_server_plain_file_bytes_total", "Bytes of plain files sent."),
    ("page_bytes_read", "redoubt_server_page_read_bytes_total", "Bytes of pages read from the node."),
    ("page_reads", "redoubt_server_page_reads_total", "Page reads sent to the node."),
    (
        "durability_waits",
        "redoubt_server_durability_waits_total",
        "Times a thread of the server waited for its log to become durable.",
    ),
    ("durability_wait_micros", "redoubt_server_durability_wait_seconds_total", "Time spent in these waits."),
    (
        "verify_sent",
        "redoubt_server_pages_sent_for_verification_total",
        "Dropped page writes whose digest was sent for comparison.",
    ),
    (
        "scrub_pages_dropped",
        "redoubt_server_scrub_pages_dropped_total",
        "Page writes dropped because they are all zero.",
    ),
    (
        "pages_scrubbed",
        "redoubt_server_pages_scrubbed_total",
        "Freed pages that the server overwrote with zeros, and the node after it.",
    ),
    (
        "log_writes_compressed",
        "redoubt_server_log_writes_compressed_total",
        "Writes to the log connection that were sent compressed.",
    ),
    (
        "log_bytes_saved",
        "redoubt_server_log_saved_bytes_total",
        "Bytes that were not sent to the node because writes to the log connection were compressed.",
    ),
    ("reconnects", "redoubt_server_reconnects_total", "Times the server connected to the node again."),
    (
        "durability_wakeups",
        "redoubt_server_durability_wakeups_total",
        "Times a thread that waits for its log was woken.",
    ),
    (
        "durability_wakeups_not_reached",
        "redoubt_server_durability_wakeups_not_reached_total",
        "Wake-ups that found their log not durable yet.",
    ),
    (
        "page_cache_hits",
        "redoubt_server_page_cache_hits_total",
        "Page reads answered from the server's own page cache.",
    ),
    (
        "page_cache_misses",
        "redoubt_server_page_cache_misses_total",
        "Page reads looked for there that went to the node.",
    ),
    (
        "page_cache_evictions",
        "redoubt_server_page_cache_evictions_total",
        "Pages that had to leave it for others.",
    ),
    (
        "read_ahead_pages",
        "redoubt_server_read_ahead_pages_total",
        "Pages asked for ahead of sequential reads.",
    ),
    ("read_ahead_used", "redoubt_server_read_ahead_used_pages_total", "Those of them that were read then."),
    // In redoubt_server_page_cache_size_bytes.
    ("page_cache_capacity_bytes", "", ""),
];

/// Renders the metrics of a node whose state was read at this time.
pub fn render(node: &NodeStatus, at_unix_ms: u64) -> String {
    let mut out = String::new();
    let (version, volumes) = (("version", node.version.clone()), &node.volumes);
    head(&mut out, "redoubt_node_info", Kind::Gauge, "Always 1; the label says the node's version.");
    sample(&mut out, "redoubt_node_info", &[version], 1.0);
    head(&mut out, "redoubt_node_uptime_seconds", Kind::Gauge, "Seconds since the node started.");
    sample(&mut out, "redoubt_node_uptime_seconds", &[], node.uptime_seconds as f64);
    let memory = "Memory that all volumes use for redo that is not applied yet and its index.";
    head(&mut out, "redoubt_node_memory_used_bytes", Kind::Gauge, memory);
    sample(&mut out, "redoubt_node_memory_used_bytes", &[], node.memory_used_bytes as f64);
    head(
        &mut out,
        "redoubt_node_memory_limit_bytes",
        Kind::Gauge,
        "Limit of that memory for all volumes \
                                                                    together.",
    );
    sample(&mut out, "redoubt_node_memory_limit_bytes", &[], node.memory_limit_bytes as f64);
    let expiry = "redoubt_node_certificate_expiry_timestamp_seconds";
    head(
        &mut out,
        expiry,
        Kind::Gauge,
        "Until when the node's certificate and its authority's are valid. No sample: it has none.",
    );
    if let Some(expires_s) = node.certificate_expires_s {
        sample(&mut out, expiry, &[], expires_s as f64);
    }
    rooms(&mut out, &node.room);
    let looked_at = "redoubt_node_sampled_timestamp_seconds";
    head(
        &mut out,
        looked_at,
        Kind::Gauge,
        "When these figures were taken. It stands still if the node does.",
    );
    sample(&mut out, looked_at, &[], at_unix_ms as f64 / 1e3);
    for metric in GAUGES.iter().chain(scrub::GAUGES) {
        head(&mut out, metric.name, metric.kind, metric.help);
        for volume in volumes {
            for (labels, value) in (metric.values)(volume) {
                sample(&mut out, metric.name, &with_volume(volume, labels), value);
            }
        }
    }
    for (name, help, times) in HISTOGRAMS {
        head(&mut out, name, Kind::Histogram, help);
        for volume in volumes {
            histogram(&mut out, name, volume, times(volume));
        }
    }
    counters(&mut out, volumes, NODE_COUNTERS, "redoubt_", |volume| &volume.counters);
    counters(&mut out, volumes, SERVER_COUNTERS, "redoubt_server_", |volume| &volume.server_counters);
    out
}

fn rooms(out: &mut String, rooms: &[Room]) {
    let mut gauge = |name: &str, help: &str, value: fn(&Room) -> u64| {
        head(out, name, Kind::Gauge, help);
        for room in rooms {
            sample(out, name, &[("directory", room.directory.clone())], value(room) as f64);
        }
    };
    let size = "Size of a file system that the node writes to.";
    gauge("redoubt_filesystem_size_bytes", size, |room| room.total_bytes);
    let free = "Free space on a file system that the node writes to, for processes other than root's.";
    gauge("redoubt_filesystem_free_bytes", free, |room| room.free_bytes);
}

fn with_volume(volume: &VolumeStatus, labels: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    std::iter::once(("volume", volume.name.clone())).chain(labels).collect()
}

fn histogram(out: &mut String, name: &str, volume: &VolumeStatus, times: &Times) {
    let bucket = format!("{name}_bucket");
    for power in BOUND_POWERS {
        let end = 1u64 << power;
        let labels = with_volume(volume, vec![("le", number(seconds(end)))]);
        sample(out, &bucket, &labels, times.count_up_to(end) as f64);
    }
    sample(out, &bucket, &with_volume(volume, vec![("le", "+Inf".to_owned())]), times.count as f64);
    sample(out, &format!("{name}_sum"), &with_volume(volume, Vec::new()), seconds(times.sum_micros));
    sample(out, &format!("{name}_count"), &with_volume(volume, Vec::new()), times.count as f64);
}

fn counters(
    out: &mut String,
    volumes: &[VolumeStatus],
    known: &[(&str, &str, &str)],
    prefix: &str,
    of: fn(&VolumeStatus) -> &BTreeMap<String, u64>,
) {
    let mut names: Vec<&String> = volumes.iter().flat_map(|volume| of(volume).keys()).collect();
    names.sort_unstable();
    names.dedup();
    // Known counters are there even before a server has reported any, so that dashboards and alerts find them.
    let unknown = names.iter().filter(|name| !known.iter().any(|(counter, ..)| counter == *name));
    let made: Vec<_> =
        unknown.map(|counter| (counter.as_str(), made_name(prefix, counter), made_help(counter))).collect();
    let known = known.iter().map(|&(counter, name, help)| (counter, name.to_owned(), help.to_owned()));
    for (counter, name, help) in known.chain(made).filter(|(_, name, _)| !name.is_empty()) {
        head(out, &name, Kind::Counter, &help);
        for volume in volumes {
            let Some(value) = of(volume).get(counter) else { continue };
            let value = if counter.ends_with("_micros") { seconds(*value) } else { *value as f64 };
            sample(out, &name, &with_volume(volume, Vec::new()), value);
        }
    }
}

fn made_name(prefix: &str, counter: &str) -> String {
    match counter.strip_suffix("_micros") {
        Some(stem) => format!("{prefix}{stem}_seconds_total"),
        None => format!("{prefix}{counter}_total"),
    }
}

fn made_help(counter: &str) -> String {
    format!("Counter {counter} of `redoubt status`.")
}

/// The largest bound of the histograms is the end of a bucket of the node's.
const _: () = {
    let last = 1u64 << *BOUND_POWERS.end();
    assert!(
        matches!(bucket_end_micros(redoubt_wire::figures::bucket_of(last) - 1), Some(end) if end == last)
    );
};

#[cfg(test)]
mod tests;
