//! Figures of the network library in the text format of Prometheus.
//!
//! Labels: `pid` and `datadir` of the server, `interface` for TCP in user space. Every counter of the library has a
//! metric; a new counter does not compile without one.

use super::NetStatus;
use redoubt_shm_control::net::Counter;
use redoubt_statuspage::exposition::{Kind, head, sample, timestamp};

/// Name and help of a counter's metric.
const fn described(counter: Counter) -> (&'static str, &'static str) {
    match counter {
        Counter::Connections => {
            ("redoubt_net_connections_total", "Accepted connections that the library handles.")
        }
        Counter::Closed => ("redoubt_net_connections_closed_total", "Connections of these that are closed."),
        Counter::Collapsed => ("redoubt_net_connections_collapsed_total", "Connections with read-ahead."),
        Counter::LeftAlone => {
            ("redoubt_net_connections_left_alone_total", "Connections that the library left to the kernel.")
        }
        Counter::Requests => ("redoubt_net_requests_total", "Waits that ended with bytes of a client."),
        Counter::Calls => ("redoubt_net_calls_total", "Reads and waits of the server on these connections."),
        Counter::SystemCalls => ("redoubt_net_system_calls_total", "System calls that were made for them."),
        Counter::Entered => {
            ("redoubt_net_admission_entered_total", "Commands that admission let in at once.")
        }
        Counter::Waited => ("redoubt_net_admission_waited_total", "Commands that waited for admission."),
        Counter::LetInLate => (
            "redoubt_net_admission_over_limit_total",
            "Commands let in over the limit after the timeout of admission.",
        ),
        Counter::WaitsEnded => {
            ("redoubt_net_admission_waits_ended_total", "Waits that ended without admission.")
        }
        Counter::LeasesEnded => (
            "redoubt_net_admission_leases_ended_total",
            "Transactions no longer counted: their client was idle.",
        ),
        Counter::NotUnderstood => (
            "redoubt_net_admission_not_understood_total",
            "Connections that never wait: protocol not understood.",
        ),
        Counter::Holders => {
            ("redoubt_net_admission_lock_holders_total", "Connections that never wait: they may hold locks.")
        }
        Counter::Administrators => {
            ("redoubt_net_admission_administrators_total", "Connections of administrators, which never wait.")
        }
        Counter::Bypassed => {
            ("redoubt_net_connections_bypassed_total", "Connections that became unix sockets.")
        }
    }
}

type Labels = Vec<(&'static str, String)>;

fn labels(status: &NetStatus) -> Labels {
    vec![("pid", status.process_id.to_string()), ("datadir", status.datadir.clone().unwrap_or_default())]
}

/// Appends one metric with one sample per server.
fn metric(
    out: &mut String,
    servers: &[NetStatus],
    (name, kind, help): (&str, Kind, &str),
    value: impl Fn(&NetStatus) -> Option<f64>,
) {
    head(out, name, kind, help);
    for status in servers {
        if let Some(value) = value(status) {
            sample(out, name, &labels(status), value);
        }
    }
}

/// Metrics of these servers, and the number of servers whose figures could not be read.
pub fn render(servers: &[NetStatus], unreadable: usize) -> String {
    let mut out = String::new();
    head(&mut out, "redoubt_net_servers", Kind::Gauge, "Servers on this host with the network library.");
    sample(&mut out, "redoubt_net_servers", &[], servers.len() as f64);
    let name = "redoubt_net_unreadable_servers";
    head(
        &mut out,
        name,
        Kind::Gauge,
        "Servers whose figures cannot be read: no permission, or another version.",
    );
    sample(&mut out, name, &[], unreadable as f64);
    timestamp(&mut out, "redoubt_net_sampled_timestamp_seconds");
    for counter in Counter::ALL {
        let (name, help) = described(counter);
        metric(&mut out, servers, (name, Kind::Counter, help), |of| {
            of.counters.get(counter.name()).map(|value| *value as f64)
        });
    }
    let gauge = Kind::Gauge;
    metric(&mut out, servers, ("redoubt_net_open_connections", gauge, "Open connections."), |of| {
        Some(of.open_connections as f64)
    });
    let limit = ("redoubt_net_admission_limit", gauge, "Limit of admission. No sample: admission is off.");
    metric(&mut out, servers, limit, |of| of.admission.limit.map(f64::from));
    let inside = ("redoubt_net_admission_inside", gauge, "Connections inside a transaction.");
    metric(&mut out, servers, inside, |of| Some(of.admission.inside as f64));
    let waiting = ("redoubt_net_admission_waiting", gauge, "Connections that wait for admission.");
    metric(&mut out, servers, waiting, |of| Some(of.admission.waiting as f64));
    let longest =
        ("redoubt_net_admission_longest_wait_seconds", gauge, "Longest completed wait for admission.");
    metric(&mut out, servers, longest, |of| Some(of.admission.longest_ended_wait_seconds));
    links(&mut out, servers);
    out
}

/// Value of a figure of one interface.
type OfLink = fn(&super::LinkStatus) -> u64;

fn links(out: &mut String, servers: &[NetStatus]) {
    let (counter, gauge) = (Kind::Counter, Kind::Gauge);
    let figures: [(&str, Kind, &str, OfLink); 9] = [
        ("redoubt_net_user_tcp_connections", gauge, "Connections in user-space TCP.", |link| {
            link.connections
        }),
        ("redoubt_net_user_tcp_opened_total", counter, "Connections opened.", |link| link.opened),
        ("redoubt_net_user_tcp_received_frames_total", counter, "Frames received.", |link| {
            link.frames_received
        }),
        ("redoubt_net_user_tcp_sent_frames_total", counter, "Frames sent.", |link| link.frames_sent),
        ("redoubt_net_user_tcp_dropped_frames_total", counter, "Frames dropped: no room.", |link| {
            link.frames_dropped
        }),
        ("redoubt_net_user_tcp_retransmitted_segments_total", counter, "Segments sent again.", |link| {
            link.segments_retransmitted
        }),
        ("redoubt_net_user_tcp_resets_total", counter, "Resets received.", |link| link.resets_received),
        ("redoubt_net_user_tcp_timeouts_total", counter, "Connections given up.", |link| link.timed_out),
        ("redoubt_net_user_tcp_bad_checksums_total", counter, "Frames with a wrong checksum.", |link| {
            link.bad_checksums
        }),
    ];
    for (name, kind, help, value) in figures {
        head(out, name, kind, help);
        for status in servers {
            for link in &status.user_tcp.interfaces {
                let mut labels = labels(status);
                labels.push(("interface", link.interface.clone()));
                sample(out, name, &labels, value(link) as f64);
            }
        }
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
