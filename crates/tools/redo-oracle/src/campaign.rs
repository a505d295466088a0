//! Many histories, one after the other or two at a time, with progress and a summary.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::load::Until;
use redoubt_workload::oltp::Mix;
use redoubt_workload::product::FetchedServer;
use redoubt_workload::sql::execute;
use redoubt_workload::tpcc::{self, Scale, Tpcc};
use serde::Serialize;
use serde_json::{Value, json};

use super::check::{self, Checked, Contents};
use super::compare::Report;
use super::history::{Recorded, Setup, Tally, Workshop};
use super::refused::{Refusal, refused_by_both};
use super::replay::Defect;
use super::shrink;
use crate::generator::Config;
use redoubt_workload::sysbench::Sysbench;

/// Source of the redo of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
pub enum Kind {
    /// Random statements of every class.
    Random,
    /// sysbench, writes only.
    Sysbench,
    /// TPC-C.
    Tpcc,
}

/// How much is done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed of the first history; each further one takes the next.
    pub seed: u64,
    /// Source of the redo.
    pub kind: Kind,
    /// Statements in all.
    pub statements: u64,
    /// Statements of a history.
    pub statements_each: u64,
    /// Random cuts of each history; 0: none.
    pub cuts_each: usize,
    /// The server encrypts all tablespaces.
    pub encrypted: bool,
    /// Every page size is the same, if given.
    pub page_size_bytes: Option<u32>,
    /// A fetched server; `None`: the system's.
    pub server: Option<FetchedServer>,
    /// One history in this many also goes through a node; 0: none.
    pub node_every: u64,
    /// Histories at the same time.
    pub threads: usize,
    /// Stop beginning new histories after this time.
    pub budget: Option<Duration>,
    /// Where it works; memory if there is a file system in it.
    pub scratch: Option<PathBuf>,
    /// Where scripts of failing histories go.
    pub failures: PathBuf,
    /// A defect of the replay, to see it found.
    pub defect: Option<Defect>,
    /// Show a progress bar.
    pub progress: bool,
}

impl Plan {
    /// A small random one.
    pub fn random(seed: u64, statements: u64, statements_each: u64) -> Self {
        Self {
            seed,
            kind: Kind::Random,
            statements,
            statements_each,
            cuts_each: 10,
            encrypted: false,
            page_size_bytes: None,
            server: None,
            node_every: 4,
            threads: 1,
            budget: None,
            scratch: None,
            failures: std::env::temp_dir(),
            defect: None,
            progress: false,
        }
    }
}

/// Results of a campaign.
#[derive(Debug, Default)]
pub struct Summary {
    /// Histories.
    pub histories: u64,
    /// Histories by page size.
    pub page_sizes: BTreeMap<u32, u64>,
    /// Statements.
    pub tally: Tally,
    /// Redo.
    pub contents: Contents,
    /// Comparisons with stock recovery.
    pub checked: Checked,
    /// Comparisons of a node's pages with our replay's.
    pub node: super::node_path::Passed,
    /// Servers that ended by themselves: seeds and the end of their logs.
    pub crashes: Vec<(u64, String)>,
    /// Histories with a record that neither our replay nor the server's recovery applies: seeds, and the record.
    pub refused_by_both: Vec<(u64, Refusal)>,
    /// Histories that differ: seed, what, and the script.
    pub failures: Vec<(u64, String, Option<PathBuf>)>,
    /// How long it took.
    pub took: Duration,
}

impl Summary {
    /// Nothing differs, and the server's own recovery took nearly all histories.
    pub fn is_sound(&self) -> bool {
        let refused = self.refused_by_both.len() as u64;
        self.failures.is_empty() && self.checked.is_sound() && refused * 10 <= self.histories.max(10)
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let never: BTreeMap<_, _> =
            self.tally.never().into_iter().map(|(class, why)| (class.name(), why)).collect();
        json!({
            "histories": self.histories,
            "page_sizes": self.page_sizes,
            "statements": self.tally.tried(),
            "succeeded": self.tally.succeeded(),
            "classes": self.tally.json(),
            "classes_never_successful": never,
            "redo": self.contents,
            "recoveries": self.checked,
            "node": self.node,
            "server_crashes": self.crashes.iter().map(|(seed, _)| seed).collect::<Vec<_>>(),
            "refused_by_both": self.refused_by_both.iter().map(|(seed, refusal)| json!({
                "seed": seed, "page": refusal.page.to_string(), "lsn": refusal.start_lsn.0, "what": refusal.what,
            })).collect::<Vec<_>>(),
            "failures": self.failures.iter().map(|(seed, what, script)| json!({
                "seed": seed, "what": what, "script": script,
            })).collect::<Vec<_>>(),
            "took_s": self.took.as_secs(),
        })
    }

    fn add(&mut self, part: Self) {
        self.histories += part.histories;
        for (size, count) in part.page_sizes {
            *self.page_sizes.entry(size).or_default() += count;
        }
        self.tally.add(&part.tally);
        self.contents.bytes += part.contents.bytes;
        self.contents.mtrs += part.contents.mtrs;
        self.contents.records += part.contents.records;
        self.contents.trims += part.contents.trims;
        self.contents.flag_changes += part.contents.flag_changes;
        for (kind, count) in part.contents.kinds {
            *self.contents.kinds.entry(kind).or_default() += count;
        }
        self.checked.add(&part.checked);
        self.node.add(&part.node);
        self.crashes.extend(part.crashes);
        self.refused_by_both.extend(part.refused_by_both);
        self.failures.extend(part.failures);
    }
}

/// Runs a plan.
///
/// # Errors
/// The first thing that is no finding about redo: a server that does not start, a full disk.
pub fn run(plan: &Plan) -> Result<Summary> {
    let start = Instant::now();
    let workshop = Workshop::new(plan.scratch.as_deref())?;
    let total = plan.statements.div_ceil(plan.statements_each.max(1));
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    let bar = progress(plan, plan.statements);
    let poisoned = |_| Error::State("a thread of the campaign panicked".into());
    let worker = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= total || plan.budget.is_some_and(|budget| start.elapsed() >= budget) {
                return Ok(());
            }
            let part = one(plan, &workshop, number)?;
            if let Some((seed, what, script)) = part.failures.first() {
                bar.suspend(|| eprintln!("seed {seed} differs, script {script:?}: {what}"));
            }
            if part.checked.refused > 0 {
                let seed = plan.seed + number;
                bar.suspend(|| {
                    eprintln!("seed {seed}: refused {}: {}", part.checked.refused, part.checked.refusal)
                });
            }
            let mut summary = summary.lock().map_err(poisoned)?;
            summary.add(part);
            bar.set_position(summary.tally.tried());
            bar.set_message(format!(
                "{} cuts, {} pages, {} differences",
                summary.checked.cuts,
                summary.checked.report.touched + summary.checked.report.untouched,
                summary.checked.report.differing
            ));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads.max(1)).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| Error::State("a thread of the campaign panicked".into()))?
        })
    })?;
    bar.finish_and_clear();
    let mut summary = summary.into_inner().map_err(|_| Error::State("a thread panicked".into()))?;
    summary.took = start.elapsed();
    Ok(summary)
}

fn progress(plan: &Plan, statements: u64) -> ProgressBar {
    if !plan.progress {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(statements);
    let template =
        "{bar:30} {human_pos}/{human_len} statements, {elapsed} of about {duration}, ETA {eta}; {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// One history and all its checks.
fn one(plan: &Plan, workshop: &Workshop, number: u64) -> Result<Summary> {
    let seed = plan.seed + number;
    let mut setup = Setup { encrypted: plan.encrypted, server: plan.server, ..Setup::of_seed(seed) };
    if let Some(page_size_bytes) = plan.page_size_bytes {
        setup.page_size_bytes = page_size_bytes;
        if page_size_bytes > 16384 {
            setup.pool_mib = setup.pool_mib.max(32);
        }
    }
    let config = Config { seed, page_size_bytes: setup.page_size_bytes, large_undo: seed.is_multiple_of(4) };
    let (recorded, script) = match plan.kind {
        Kind::Random => {
            let (recorded, script) = workshop.random(setup, config, plan.statements_each as usize)?;
            (recorded, Some(script))
        }
        Kind::Sysbench => (sysbench(workshop, setup, seed, plan.statements_each)?, None),
        Kind::Tpcc => (tpcc_history(workshop, setup, seed, plan.statements_each)?, None),
    };
    let mut summary = Summary { histories: 1, ..Summary::default() };
    summary.page_sizes.insert(setup.page_size_bytes, 1);
    summary.tally = recorded.tally.clone();
    summary.contents.count(&recorded)?;
    if let Some(log) = &recorded.crash {
        summary.crashes.push((seed, log.clone()));
    }
    let through_node = plan.node_every > 0 && number.is_multiple_of(plan.node_every);
    if let Err(error) = checks(plan, workshop, &recorded, seed, through_node, &mut summary) {
        if !matches!(error, Error::Violation(_) | Error::Parse { .. }) {
            return Err(error);
        }
        // Only where it is that record which the check has met.
        let what = error.to_string();
        match refused_by_both(workshop, &recorded)? {
            Some(refusal) if what.contains(&format!("page {} ", refusal.page)) => {
                summary.refused_by_both.push((seed, refusal))
            }
            _ => summary.failures.push((seed, what, None)),
        }
    }
    let found = summary.checked.report.differences.first().map(|difference| format!("{difference:?}"));
    if let Some(what) = found {
        summary.failures.push((seed, what, None));
    }
    keep_evidence(plan, seed, &summary.checked.report)?;
    if let (Some(script), Some(failure)) = (script, summary.failures.first_mut()) {
        std::fs::create_dir_all(&plan.failures).map_err(Error::io_at("create", &plan.failures))?;
        let path = plan.failures.join(format!("oracle-{seed}.script"));
        shrink::write(&script, &path)?;
        failure.2 = Some(path);
    }
    Ok(summary)
}

/// Writes both images of the pages that differ, and the server's messages, beside the script.
fn keep_evidence(plan: &Plan, seed: u64, report: &Report) -> Result<()> {
    if report.differing == 0 {
        return Ok(());
    }
    let folder = plan.failures.join(format!("oracle-{seed}.pages"));
    std::fs::create_dir_all(&folder).map_err(Error::io_at("create", &folder))?;
    let write = |name: String, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(Error::io_at("write", &path))
    };
    for (number, difference) in report.differences.iter().enumerate() {
        let page = difference.page.replace(':', "-");
        for (whose, image) in ["ours", "theirs"].iter().zip(&difference.images.0) {
            write(format!("{number}-{page}.{whose}"), image)?;
        }
    }
    write("server.log".to_owned(), report.log.as_bytes())
}

fn checks(
    plan: &Plan,
    workshop: &Workshop,
    recorded: &Recorded,
    seed: u64,
    through_node: bool,
    summary: &mut Summary,
) -> Result<()> {
    if through_node {
        summary.node = super::node_path::pass(workshop, recorded)?;
        summary.node.add(&super::node_path::pass_killed(workshop, recorded)?);
    }
    for cut in check::random_cuts(recorded, plan.cuts_each, seed) {
        summary.checked.add(&check::check_cut(workshop, recorded, cut, plan.defect)?);
    }
    summary.checked.add(&check::check_whole(workshop, recorded, plan.defect)?);
    Ok(())
}

/// A history of sysbench's write load; a statement is one of sysbench's queries.
fn sysbench(workshop: &Workshop, setup: Setup, seed: u64, statements: u64) -> Result<Recorded> {
    const STATEMENTS_EACH: u64 = 6;
    let load = |server: &redoubt_workload::server::Server| Sysbench {
        seed: u32::try_from(seed % 100_000).unwrap_or(0) + 1,
        rows: 2000,
        ..Sysbench::small(&server.socket())
    };
    workshop.record(
        setup,
        |server| load(server).prepare().map(|()| Tally::default()),
        |server| {
            let until = Until::Transactions(statements / STATEMENTS_EACH);
            let report = load(server).run(Mix::WriteOnly, until)?;
            Ok(Tally { other: report.queries, ..Tally::default() })
        },
    )
}

/// A history of TPC-C, for about a second per thousand statements.
fn tpcc_history(workshop: &Workshop, setup: Setup, seed: u64, statements: u64) -> Result<Recorded> {
    const STATEMENTS_PER_TRANSACTION: u64 = 25;
    let scale = Scale { customers: 30, items: 300, ..Scale::new(1) };
    workshop.record(
        setup,
        |server| {
            tpcc::load(&server.socket(), scale, seed, 1, &ProgressBar::hidden())?;
            Ok(Tally::default())
        },
        |server| {
            // Lock waits of zero would make this mix fail at once.
            execute(&mut server.connect()?, "SET GLOBAL innodb_lock_wait_timeout = 10")?;
            let socket = server.socket();
            let until = Until::Elapsed(Duration::from_millis(statements.max(1000)));
            let window = Tpcc::begin(&socket, scale, seed, false)?.run(&socket, 3, until)?;
            let statements = window.samples.len() as u64 * STATEMENTS_PER_TRANSACTION;
            Ok(Tally { other: statements, ..Tally::default() })
        },
    )
}
