//! Results of a recording: the description beside its trace, and the figures for people.

use std::collections::BTreeMap;
use std::path::Path;

use redoubt_flash::trace::{Origin, TraceInfo};
use redoubt_workload::error::{Error, Result};
use serde_json::{Value, json};

use super::collect::Window;
use super::disk::Disk;
use super::origin::PAGE_LEN_BYTES;
use super::recorder::Totals;
use super::seed::Seed;
use super::{Layout, LoadRun, Options};

/// One layout, recorded.
pub struct Recording {
    /// Name of the trace file, without its ending.
    pub name: String,
    /// The recorded layout.
    pub layout: Layout,
    /// Size of the journal of pages, or of the file system's journal where there is none, in MiB.
    pub journal_mib: u64,
    /// The part that counts.
    pub window: Window,
    /// Everything from an idle device to an idle device.
    pub totals: Totals,
    pub(super) run: LoadRun,
}

impl Recording {
    /// Redo bytes that the server wrote in the part that counts, by its own counter.
    pub fn redo_bytes(&self) -> u64 {
        self.run.end.redo_bytes.saturating_sub(self.run.begin.redo_bytes)
    }

    /// Pages that the server wrote back, by its own counter. Under Redoubt these writes are dropped.
    pub fn pages_flushed(&self) -> u64 {
        self.run.end.pages_flushed.saturating_sub(self.run.begin.pages_flushed)
    }

    /// Pages written to the doublewrite area, by the server's own counter.
    pub fn doublewrite_pages(&self) -> u64 {
        self.run.end.doublewrite_pages.saturating_sub(self.run.begin.doublewrite_pages)
    }

    /// Pages that the node applied; none without a node.
    fn pages_applied(&self) -> Option<u64> {
        self.node_counters().get("pages_applied").copied()
    }

    /// How the node's counters have changed in the part that counts; empty without a node.
    pub fn node_counters(&self) -> BTreeMap<String, u64> {
        let read = |value: &Option<Value>| -> BTreeMap<String, u64> {
            let counters = value.as_ref().and_then(|value| value.pointer("/volumes/0/counters"));
            let counters = counters.and_then(Value::as_object).into_iter().flatten();
            counters.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
        };
        let before = read(&self.run.begin.node);
        let mut after = read(&self.run.end.node);
        for (name, value) in &mut after {
            *value = value.saturating_sub(before.get(name).copied().unwrap_or(0));
        }
        after
    }

    /// A node applies redo in batches: a recording of less than a few of them may hold none of the page writes that its
    /// transactions cause, or too many.
    ///
    /// # Errors
    /// [`Error::State`] when far less or far more redo was applied in it than was received.
    pub(super) fn require_batches(&self) -> Result<()> {
        let counters = self.node_counters();
        let (Some(received), Some(applied)) =
            (counters.get("redo_bytes"), counters.get("redo_bytes_applied"))
        else {
            return Ok(());
        };
        if *applied >= received / 2 && *applied <= received + received / 2 {
            return Ok(());
        }
        Err(Error::State(format!(
            "{} is too short to say anything: the node received {} MiB of redo in it and applied {} MiB. Record more \
             transactions (--transactions), or with a smaller batch (--node-options \"--batch 4MiB\")",
            self.name,
            received >> 20,
            applied >> 20
        )))
    }

    /// Bytes of an origin per committed transaction.
    pub fn bytes_per_transaction(&self, origin: Origin) -> f64 {
        self.window.bytes(origin) as f64 / self.window.transactions.max(1) as f64
    }

    /// The figures in one line.
    pub fn line(&self) -> String {
        let transactions = self.window.transactions.max(1) as f64;
        let kib = |bytes: u64| bytes as f64 / transactions / 1024.0;
        let parts: Vec<_> =
            self.window.by_origin.iter().map(|(name, sum)| format!("{name} {:.1}", kib(sum.bytes))).collect();
        format!(
            "{} transactions in {:.0} s, KiB per transaction: {} ({:.1} in all), server's redo {:.1}",
            self.window.transactions,
            self.window.seconds,
            parts.join(", "),
            kib(self.window.total_bytes()),
            kib(self.redo_bytes())
        )
    }

    /// The figures.
    pub fn summary(&self) -> Value {
        let transactions = self.window.transactions.max(1) as f64;
        let by_origin: BTreeMap<_, _> = self
            .window
            .by_origin
            .iter()
            .map(|(name, sum)| {
                let share = sum.bytes as f64 / self.window.total_bytes().max(1) as f64;
                let per_transaction = sum.bytes as f64 / transactions;
                (
                    *name,
                    json!({
                        "writes": sum.writes, "bytes": sum.bytes, "share": share,
                        "bytes_per_transaction": per_transaction,
                    }),
                )
            })
            .collect();
        json!({
            "name": self.name,
            "transactions": self.window.transactions,
            "seconds": self.window.seconds,
            "transactions_per_second": transactions / self.window.seconds,
            "bytes_per_transaction": self.window.total_bytes() as f64 / transactions,
            "flushes_per_transaction": self.window.flushes as f64 / transactions,
            "by_origin": by_origin,
            "server_redo_bytes": self.redo_bytes(),
            "server_redo_bytes_per_transaction": self.redo_bytes() as f64 / transactions,
            "server_pages_flushed": self.pages_flushed(),
            "server_doublewrite_pages": self.doublewrite_pages(),
            "node_counters": self.node_counters(),
            "retries": self.run.retries,
            "recorded_sectors": self.totals.written_sectors,
        })
    }

    /// Puts the trace in its place, with its description and its figures (`NAME.summary`) beside it.
    pub(super) fn save(
        &self,
        part: &Path,
        trace: &Path,
        disk: &Disk,
        seed: &Seed,
        options: &Options,
    ) -> Result<()> {
        std::fs::rename(part, trace).map_err(Error::io_at("rename", part))?;
        self.info(disk, seed, options).save(trace).map_err(|error| Error::Io {
            what: "describe the trace".into(),
            source: std::io::Error::other(error.to_string()),
        })?;
        let path = trace.with_extension("summary");
        std::fs::write(&path, format!("{:#}\n", self.summary())).map_err(Error::io_at("write", &path))
    }

    fn info(&self, disk: &Disk, seed: &Seed, options: &Options) -> TraceInfo {
        let text = |value: &dyn ToString| value.to_string();
        let mut description = BTreeMap::from([
            ("server".to_owned(), format!("MariaDB {}", seed.version)),
            ("database MiB".to_owned(), text(&(seed.database_bytes >> 20))),
            ("buffer pool MiB".to_owned(), text(&options.pool)),
            ("redo log MiB".to_owned(), text(&options.log_mib)),
            ("warehouses".to_owned(), text(&options.warehouses)),
            ("node options".to_owned(), options.node_options.clone()),
            ("clients".to_owned(), text(&options.clients)),
            ("warm-up transactions".to_owned(), text(&self.run.warm_up)),
            ("file system".to_owned(), format!("ext4 {}", disk.mode().mount_option())),
        ]);
        for (origin, sum) in &self.window.by_origin {
            description.insert(format!("host bytes, {origin}"), text(&sum.bytes));
        }
        let (row, streams) = self.layout.row();
        let row =
            if options.suffix.is_empty() { row.to_owned() } else { format!("{row}, {}", options.suffix) };
        TraceInfo {
            label: self.name.clone(),
            device_sectors: disk.len_sectors(),
            transactions: self.window.transactions,
            seconds: self.window.seconds,
            page_len_bytes: PAGE_LEN_BYTES,
            pages_written: Some(self.pages_applied().unwrap_or(self.pages_flushed())),
            row: Some(row),
            streams: streams.iter().map(|stream| (*stream).to_owned()).collect(),
            journal_mb: self.layout.has_page_journal().then_some(self.journal_mib),
            description,
        }
    }
}

impl Layout {
    /// Row of the table, and the stream policies of its cells.
    fn row(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::StockDoublewrite => ("stock, ordered, doublewrite", &["one", "doublewrite"]),
            Self::Stock => ("stock, ordered, no doublewrite", &["one"]),
            Self::DataJournal => ("stock, data journal", &["one", "journal"]),
            Self::RedoubtJournal => ("Redoubt, journal", &["one", "journal", "journal+redo"]),
            Self::RedoubtDoublewrite => ("Redoubt, doublewrite", &["one", "doublewrite"]),
            Self::RedoubtAtomic => ("Redoubt, atomic", &["one", "journal+redo"]),
        }
    }
}
