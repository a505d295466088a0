//! Traces on one drive: every trace under every stream policy and over-provisioning asked for.
//!
//! All runs are on a drive of the same size, that of the largest trace, so that their bytes can be compared. Entries
//! come in the order of the files given (a directory: of their names), policies in the order asked for.
//!
//! For the table of a directory the descriptions beside the traces say what to run: a trace takes part if it has a
//! `row`, under each policy in its `streams`. The first one is the base of the ratios: name the files so that it is
//! the layout to beat.

use redoubt_locks::IgnorePoison;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::ftl::GcDestination;
use crate::load::{LoadedTrace, LogicalSize};
use crate::placement::Policy;
use crate::report::ReportedRun;
use crate::simulate::{self, Settings, superblock_blocks_for};

/// The drive and the length of the runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Logical size of the drive.
    pub logical_size: LogicalSize,
    /// Over-provisioning to try, in percent.
    pub over_provisioning_percent: Vec<f64>,
    /// Share of the logical blocks that hold something, in percent.
    pub utilisation_percent: f64,
    /// Largest superblock, in blocks of 4 KiB; small drives get smaller ones.
    pub superblock_blocks: u32,
    /// Where garbage collection puts what it saves.
    pub gc: GcDestination,
    /// Does the drive's write buffer bring parts of blocks together?
    pub coalesce_small: bool,
    /// Least warm-up, in drive writes.
    pub warm_up_drive_writes: f64,
    /// Least measurement, in drive writes.
    pub measured_drive_writes: f64,
    /// Runs at the same time.
    pub jobs: usize,
}

/// A trace and the policies to run it under.
#[derive(Debug)]
pub struct Row {
    /// The trace.
    pub trace: LoadedTrace,
    /// Stream policies.
    pub policies: Vec<Policy>,
}

/// Loads every trace of a directory whose description gives it a row.
pub fn rows_of(dir: &Path) -> Result<Vec<Row>> {
    let entries = std::fs::read_dir(dir).map_err(|source| Error::file(dir, source))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| Error::file(dir, source))?.path();
        if path.extension().is_some_and(|extension| extension == "trace") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut rows = Vec::new();
    for path in paths {
        let info = crate::trace::TraceInfo::load(&path)?;
        if info.row.is_none() {
            continue;
        }
        let policies = policies_of(&path, &info.streams)?;
        rows.push(Row { trace: LoadedTrace::load(&path)?, policies });
    }
    if rows.is_empty() {
        let what =
            "it holds no trace with a row: NAME.trace beside a NAME.json with the field \"row\"".to_owned();
        return Err(Error::Unusable { path: dir.to_owned(), what });
    }
    Ok(rows)
}

fn policies_of(trace: &Path, names: &[String]) -> Result<Vec<Policy>> {
    let path = crate::trace::TraceInfo::path_of(trace);
    let parsed: std::result::Result<Vec<Policy>, String> = names.iter().map(|name| name.parse()).collect();
    let mut policies =
        parsed.map_err(|what| Error::Unusable { path, what: format!("field \"streams\": {what}") })?;
    if policies.is_empty() {
        policies.push(Policy::One);
    }
    Ok(policies)
}

/// The largest drive that any of the rows asks for, and its superblocks, both in blocks of 4 KiB.
fn drive_of(rows: &[Row], options: &Options) -> Result<(u32, u32)> {
    let mut logical_blocks = 0;
    for row in rows {
        let blocks = options.logical_size.blocks(&row.trace, options.utilisation_percent, 1)?;
        logical_blocks = logical_blocks.max(blocks);
    }
    let superblock_blocks = superblock_blocks_for(u64::from(logical_blocks), options.superblock_blocks);
    let rounded = logical_blocks.checked_next_multiple_of(superblock_blocks);
    let blocks = rounded.ok_or(crate::ftl::GeometryError::Size(u64::from(logical_blocks)))?;
    Ok((blocks, superblock_blocks))
}

/// A run to be done.
struct Job<'a> {
    row: &'a Row,
    settings: Settings,
}

impl Job<'_> {
    fn run(&self, progress: &mut dyn FnMut(f64)) -> Result<ReportedRun> {
        let trace = &self.row.trace;
        let named = |error: Error| Error::Unusable { path: trace.path().to_owned(), what: error.to_string() };
        let outcome = simulate::run(trace, &self.settings, progress).map_err(named)?;
        let info = trace.info();
        let looped = format!(
            "trace of {:.2} GiB looped {} + {} times",
            trace.bytes_per_loop() as f64 / (1u64 << 30) as f64,
            outcome.warm_up_laps,
            outcome.measured_laps
        );
        Ok(ReportedRun {
            row: info.row.clone().unwrap_or_else(|| info.label.clone()),
            label: info.label.clone(),
            trace: Some(trace.path().file_name().map_or_else(PathBuf::new, PathBuf::from)),
            journal_mb: info.journal_mb,
            looped,
            outcome,
        })
    }
}

/// Number of runs that [`run`] will do.
pub fn run_count(rows: &[Row], options: &Options) -> usize {
    rows.iter().map(|row| row.policies.len()).sum::<usize>() * options.over_provisioning_percent.len()
}

/// Runs everything. `progress` gets the number of a run and what is done of it, from 0 to 1; it is called by
/// several threads.
pub fn run(
    rows: &[Row],
    options: &Options,
    progress: &(dyn Fn(usize, f64) + Sync),
) -> Result<Vec<ReportedRun>> {
    let (logical_blocks, superblock_blocks) = drive_of(rows, options)?;
    let mut jobs = Vec::new();
    for &over_provisioning_percent in &options.over_provisioning_percent {
        for row in rows {
            for &policy in &row.policies {
                let settings = Settings {
                    logical_blocks,
                    superblock_blocks,
                    over_provisioning_percent,
                    utilisation_percent: options.utilisation_percent,
                    gc: options.gc,
                    policy,
                    coalesce_small: options.coalesce_small,
                    warm_up_drive_writes: options.warm_up_drive_writes,
                    measured_drive_writes: options.measured_drive_writes,
                };
                jobs.push(Job { row, settings });
            }
        }
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(number) else { break };
                    let result = job.run(&mut |done| progress(number, done));
                    // After a failure the rest is not needed.
                    if result.is_err() {
                        next.store(jobs.len(), Ordering::Relaxed);
                    }
                    done.lock().ignore_poison().push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().ignore_poison();
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests;
