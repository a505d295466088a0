//! Outcomes for people: Markdown tables, plots, JSON.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::placement::Policy;
use crate::plot::{self, Bar, Line, Part};
use crate::simulate::Outcome;
use crate::trace::Origin;

/// Windows of 0.1 drive writes in a point of a line: half a drive write, as the axis says.
const PLOT_WINDOWS: usize = 5;

/// A run and what it was of.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedRun {
    /// Row of the table: what was made safe how.
    pub row: String,
    /// Label of the trace, or of the synthetic load.
    pub label: String,
    /// File of the trace, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<PathBuf>,
    /// Size of the page journal, in MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal_mb: Option<u64>,
    /// How the load was made longer than it is.
    pub looped: String,
    /// The measurements.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl ReportedRun {
    /// Name in plots: row, journal, streams.
    pub fn name(&self) -> String {
        let journal = self.journal_mb.map(|mb| format!(", journal {mb} MB")).unwrap_or_default();
        let streams = match self.outcome.settings.policy {
            Policy::One => "one stream".to_owned(),
            policy => format!("streams: {policy}"),
        };
        format!("{}{journal}, {streams}", self.row)
    }

    /// Divisor of bytes in plots.
    fn per(&self, unit: Unit) -> Option<f64> {
        let number = match unit {
            Unit::Transaction => self.outcome.transactions,
            Unit::Page => self.outcome.pages,
            Unit::HostByte => self.outcome.host_bytes / 1024,
        };
        (number > 0).then_some(number as f64)
    }
}

/// Unit that programmed bytes are shown per.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Transaction,
    Page,
    HostByte,
}

impl Unit {
    /// The first that every entry can be divided by.
    fn of(entries: &[ReportedRun]) -> Unit {
        let all = |unit: Unit| entries.iter().all(|entry| entry.per(unit).is_some());
        [Unit::Transaction, Unit::Page].into_iter().find(|unit| all(*unit)).unwrap_or(Unit::HostByte)
    }

    fn words(self) -> &'static str {
        match self {
            Unit::Transaction => "committed transaction",
            Unit::Page => "page written",
            Unit::HostByte => "KiB written by the host",
        }
    }
}

fn kib(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes / 1024.0))
}

/// The over-provisionings that occur, in their order.
fn over_provisionings(entries: &[ReportedRun]) -> Vec<f64> {
    let mut found: Vec<f64> = Vec::new();
    for entry in entries {
        let percent = entry.outcome.settings.over_provisioning_percent;
        if !found.contains(&percent) {
            found.push(percent);
        }
    }
    found
}

fn with_op(entries: &[ReportedRun], op_percent: f64) -> Vec<ReportedRun> {
    let of_it = |entry: &&ReportedRun| entry.outcome.settings.over_provisioning_percent == op_percent;
    entries.iter().filter(of_it).cloned().collect()
}

/// Markdown: for every over-provisioning a table of all entries, and one of host bytes by origin. The first entry of a
/// table is the base of its ratios.
pub fn markdown(entries: &[ReportedRun]) -> String {
    let mut text = String::new();
    for op_percent in over_provisionings(entries) {
        let entries = with_op(entries, op_percent);
        let Some(first) = entries.first() else { continue };
        let settings = &first.outcome.settings;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "### Over-provisioning {op_percent} %, {} % of the drive in use\n\n\
             Modelled drive: {:.2} GiB, superblocks of {} KiB, {} garbage collection, small writes {}.\n\n",
            settings.utilisation_percent,
            f64::from(settings.logical_blocks) / 262_144.0,
            settings.superblock_blocks * 4,
            match settings.gc {
                crate::ftl::GcDestination::Shared => "shared",
                crate::ftl::GcDestination::PerStream => "per-stream",
            },
            if settings.coalesce_small { "coalesced" } else { "programmed one by one" },
        );
        main_table(&mut text, &entries);
        origin_table(&mut text, &entries);
    }
    text
}

fn main_table(text: &mut String, entries: &[ReportedRun]) {
    text.push_str(
        "| Layout | Journal, MB | Streams | NAND KiB per transaction | to the first row | Host KiB per transaction \
         | Device WAF | NAND KiB per page written | NAND per page byte | Superblocks erased | Load |\n\
         |---|---:|---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    let unit = Unit::of(entries);
    let ratio = |entry: &ReportedRun| Some(entry.outcome.nand_bytes as f64 / entry.per(unit)?);
    let base = entries.first().and_then(ratio);
    for entry in entries {
        let outcome = &entry.outcome;
        let to_base = ratio(entry).zip(base).map(|(one, base)| one / base);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {:.3} | {} | {} | {} | {}{} |",
            entry.row.replace('|', "\\|"),
            entry.journal_mb.map_or_else(|| "-".to_owned(), |mb| mb.to_string()),
            outcome.settings.policy,
            kib(outcome.nand_bytes_per_transaction),
            to_base.map_or_else(|| "-".to_owned(), |ratio| format!("x{ratio:.2}")),
            kib(outcome.host_bytes_per_transaction),
            outcome.waf,
            kib(outcome.nand_bytes_per_page),
            outcome.nand_bytes_per_page_byte.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            outcome.erases,
            entry.looped,
            if outcome.stable { "" } else { "; WAF was not stable" },
        );
    }
    text.push('\n');
}

fn origin_table(text: &mut String, entries: &[ReportedRun]) {
    let unit = Unit::of(entries);
    let occurs = |origin: Origin| {
        entries.iter().any(|entry| entry.outcome.origins.iter().any(|one| one.origin == origin))
    };
    let origins: Vec<Origin> = Origin::ALL.into_iter().filter(|origin| occurs(*origin)).collect();
    let names: Vec<&str> = origins.iter().map(|origin| origin.name()).collect();
    let _ = writeln!(
        text,
        "KiB per {}: written by the host, and + copied by garbage collection\n\n| Layout | {} |\n|---|{}",
        unit.words(),
        names.join(" | "),
        "---:|".repeat(names.len())
    );
    for entry in entries {
        let _ = write!(text, "| {} |", entry.name().replace('|', "\\|"));
        for origin in &origins {
            let found = entry.outcome.origins.iter().find(|one| one.origin == *origin);
            match found.zip(entry.per(unit)) {
                Some((one, per)) => {
                    let (host, copied) = (one.host_bytes as f64 / per, one.copied_bytes as f64 / per);
                    let _ = write!(text, " {} + {} |", kib(Some(host)), kib(Some(copied)));
                }
                None => text.push_str(" - |"),
            }
        }
        text.push('\n');
    }
    text.push('\n');
}

/// Writes the plots for every over-provisioning into a directory and says which files they are.
pub fn plots(entries: &[ReportedRun], dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let unit = Unit::of(entries);
    for op_percent in over_provisionings(entries) {
        let entries = with_op(entries, op_percent);
        let utilisation = entries.first().map_or(0.0, |entry| entry.outcome.settings.utilisation_percent);
        let drive = format!("over-provisioning {op_percent} %, {utilisation} % in use, modelled");
        let path = dir.join(format!("nand-op{op_percent}.svg"));
        let title = format!("Bytes programmed per {} ({drive})", unit.words());
        let axis = format!("KiB programmed per {}", unit.words());
        let all: Vec<Bar> = entries.iter().filter_map(|entry| bar(entry, unit)).collect();
        plot::bars(&path, &title, &axis, &all)?;
        paths.push(path);
        let path = dir.join(format!("waf-op{op_percent}.svg"));
        let all: Vec<Line> = entries.iter().map(line).collect();
        plot::lines(&path, &format!("Device write amplification ({drive})"), &all)?;
        paths.push(path);
    }
    Ok(paths)
}

fn bar(entry: &ReportedRun, unit: Unit) -> Option<Bar> {
    let per = entry.per(unit)? * 1024.0;
    let origins = &entry.outcome.origins;
    let copied: u64 = origins.iter().map(|one| one.copied_bytes).sum();
    let host = origins.iter().map(|one| (Part::Host(one.origin), one.programmed_bytes as f64 / per));
    let parts = host.chain([(Part::Collection, copied as f64 / per)]).collect();
    Some(Bar { label: entry.name(), parts })
}

/// Means of several windows, so that the turns of a journal do not hide the level.
fn line(entry: &ReportedRun) -> Line {
    let mean = |windows: &[crate::simulate::Window]| {
        let last = windows.last().map_or(0.0, |window| window.drive_writes);
        (last, windows.iter().map(|window| window.waf).sum::<f64>() / windows.len().max(1) as f64)
    };
    let points = entry.outcome.windows.windows(PLOT_WINDOWS).map(mean).collect();
    Line { label: entry.name(), points, measured_from: entry.outcome.warm_up_drive_writes }
}

/// Writes entries as JSON.
pub fn json(entries: &[ReportedRun], path: &Path) -> Result<()> {
    let describe =
        |source| Error::Unusable { path: path.to_owned(), what: format!("cannot be JSON: {source}") };
    let mut text = serde_json::to_vec_pretty(entries).map_err(describe)?;
    text.push(b'\n');
    std::fs::write(path, text).map_err(|source| Error::file(path, source))
}
