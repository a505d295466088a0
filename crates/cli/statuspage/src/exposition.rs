//! The text format of Prometheus, version 0.0.4: one HELP and one TYPE line per metric, then its samples.
//!
//! Callers write all samples of a metric directly after its head, because scrapers reject a metric that comes twice.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Media type of the result.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows, until the process restarts.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of observations in buckets.
    Histogram,
}

/// Appends the HELP and TYPE lines of a metric.
pub fn head(out: &mut String, name: &str, kind: Kind, help: &str) {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Appends one sample with its labels.
pub fn sample(out: &mut String, name: &str, labels: &[(&str, String)], value: f64) {
    out.push_str(name);
    for (at, (label, text)) in labels.iter().enumerate() {
        out.push(if at == 0 { '{' } else { ',' });
        let _ = write!(out, "{label}=\"{}\"", escaped(text));
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {}", number(value));
}

/// Appends the gauge of the time at which the figures are taken. Figures of a hung process keep an old time.
pub fn timestamp(out: &mut String, name: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    head(out, name, Kind::Gauge, "Time at which these figures were taken.");
    sample(out, name, &[], now.as_millis() as f64 / 1e3);
}

/// A label's text.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A sample's value, or a bound of a histogram.
pub fn number(value: f64) -> String {
    format!("{value}")
}
