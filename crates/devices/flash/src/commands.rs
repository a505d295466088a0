//! The sub-commands.

use redoubt_locks::IgnorePoison;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use redoubt_flash::error::{Error, Result};
use redoubt_flash::ftl::{GcDestination, Victims};
use redoubt_flash::load::LoadedTrace;
use redoubt_flash::report::{self, ReportedRun};
use redoubt_flash::simulate::{self, Settings, Source};
use redoubt_flash::synthetic::{
    PAGE_LEN_BYTES, REFERENCE, REFERENCE_OP_PERCENT, Reference, Shape, Synthetic,
};
use redoubt_flash::table::{self, Row};
use redoubt_flash::trace::{Op, Origin, Record, TraceInfo, TraceReader, TraceWriter};
use redoubt_flash::validate::{self, OP_PERCENT, TOLERANCE_PERCENT};

use crate::arguments::{
    RunArguments, SyntheticArguments, TableArguments, ValidateArguments, VictimsArgument,
};

/// Steps of a progress bar per run.
const STEPS: f64 = 1000.0;

/// A bar for so many runs. It draws on standard error, and only on a terminal.
fn progress_bar(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64 * STEPS as u64);
    let template = "{msg} {wide_bar} {percent:>3} %, {elapsed} passed, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

pub fn validate(arguments: &ValidateArguments) -> Result<ExitCode> {
    let base = if arguments.quick { validate::Settings::QUICK } else { validate::Settings::FULL };
    let victims = match arguments.victims {
        VictimsArgument::Greedy => Victims::Greedy,
        VictimsArgument::Random => Victims::Random { seed: arguments.seed },
    };
    let settings = validate::Settings { victims, seed: arguments.seed, ..base };
    println!(
        "Uniform random writes, {} MiB logical, superblocks of {} KiB, every block mapped\n",
        settings.logical_blocks / 256,
        settings.superblock_blocks * 4
    );
    println!(
        "| Over-provisioning, % | Model | Closed form | Deviation, % | Within {TOLERANCE_PERCENT} % | Million blocks/s |"
    );
    println!("|---:|---:|---:|---:|---|---:|");
    let bar = progress_bar(OP_PERCENT.len());
    let mut rows = Vec::new();
    for (number, op_percent) in OP_PERCENT.into_iter().enumerate() {
        bar.set_message(format!("over-provisioning {op_percent} %"));
        let row = validate::uniform(op_percent, &settings, |done| {
            bar.set_position(((number as f64 + done) * STEPS) as u64);
        })?;
        bar.suspend(|| {
            println!(
                "| {op_percent} | {:.3} | {:.3} | {:+.2} | {} | {:.1} |",
                row.simulated,
                row.closed_form,
                row.deviation_percent,
                if row.within_tolerance() { "yes" } else { "**no**" },
                row.programmed_blocks_per_second / 1e6
            );
        });
        rows.push(row);
    }
    bar.finish_and_clear();
    if let Some(path) = &arguments.json {
        let text = serde_json::to_vec_pretty(&rows)
            .map_err(|source| Error::Unusable { path: path.clone(), what: source.to_string() })?;
        std::fs::write(path, text).map_err(|source| Error::File { path: path.clone(), source })?;
    }
    if rows.iter().all(validate::Row::within_tolerance) {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "redoubt-flash: the model is more than {TOLERANCE_PERCENT} % from the closed form: do not trust it"
    );
    Ok(ExitCode::FAILURE)
}

pub fn show(path: &Path) -> Result<ExitCode> {
    let info = TraceInfo::load(path)?;
    let mut ops = [0u64; 4];
    let (mut writes, mut bytes) = ([0u64; Origin::ALL.len()], [0u64; Origin::ALL.len()]);
    let (mut small, mut marked) = (0u64, 0u64);
    for record in TraceReader::open(path)? {
        let record = record.map_err(|source| Error::Trace { path: path.to_owned(), source })?;
        ops[record.op as usize] += 1;
        match record.op {
            Op::Write => {
                writes[record.origin as usize] += 1;
                bytes[record.origin as usize] += u64::from(record.sectors) * 512;
                small += u64::from(!record.sector.is_multiple_of(8) || !record.sectors.is_multiple_of(8));
            }
            Op::Mark => marked += u64::from(record.sectors),
            Op::Trim | Op::Flush => {}
        }
    }
    let trace = LoadedTrace::load(path)?;
    println!(
        "{}: {:.1} s, device of {:.2} GiB",
        info.label,
        info.seconds,
        info.device_sectors as f64 / 2_097_152.0
    );
    for (key, value) in &info.description {
        println!("  {key}: {value}");
    }
    println!(
        "{} writes ({small} of them not of whole 4 KiB blocks), {} trims, {} flushes; {} transactions described, {marked} marked",
        ops[0], ops[1], ops[2], info.transactions
    );
    println!(
        "{:.3} GiB written to {:.3} GiB of distinct blocks\n",
        trace.bytes_per_loop() as f64 / (1u64 << 30) as f64,
        f64::from((&trace).used_blocks()) / 262_144.0
    );
    println!("| Origin | Writes | MiB |\n|---|---:|---:|");
    for origin in Origin::ALL.into_iter().filter(|origin| writes[*origin as usize] > 0) {
        let mib = bytes[origin as usize] as f64 / (1u64 << 20) as f64;
        println!("| {} | {} | {mib:.1} |", origin.name(), writes[origin as usize]);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs rows with a progress bar.
fn run_rows(rows: &[Row], options: &table::Options) -> Result<Vec<ReportedRun>> {
    let runs = table::run_count(rows, options);
    let bar = progress_bar(runs);
    bar.set_message(format!("{runs} runs"));
    let done = Mutex::new(vec![0.0f64; runs]);
    let entries = table::run(rows, options, &|number, part| {
        let mut done = done.lock().ignore_poison();
        if let Some(slot) = done.get_mut(number) {
            // A longer warm-up lowers the share that is done.
            *slot = slot.max(part);
        }
        bar.set_position((done.iter().sum::<f64>() * STEPS) as u64);
    });
    bar.finish_and_clear();
    let entries = entries?;
    let slowest =
        entries.iter().map(|entry| entry.outcome.programmed_blocks_per_second).fold(f64::MAX, f64::min);
    eprintln!("{runs} runs; the slowest programmed {:.1} million blocks of 4 KiB per second", slowest / 1e6);
    Ok(entries)
}

fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|source| Error::File { path: dir.to_owned(), source })
}

fn print_written(paths: &[PathBuf]) {
    paths.iter().for_each(|path| eprintln!("written: {}", path.display()));
}

pub fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let load = |path: &PathBuf| {
        let trace = LoadedTrace::load(path)?;
        Ok(Row { trace, policies: arguments.streams.clone() })
    };
    let rows: Vec<Row> = arguments.traces.iter().map(load).collect::<Result<_>>()?;
    let entries = run_rows(&rows, &arguments.drive.options())?;
    print!("{}", report::markdown(&entries));
    if let Some(path) = &arguments.json {
        report::json(&entries, path)?;
    }
    if let Some(dir) = &arguments.plots {
        make_dir(dir)?;
        print_written(&report::plots(&entries, dir)?);
    }
    Ok(ExitCode::SUCCESS)
}

pub fn table(arguments: &TableArguments) -> Result<ExitCode> {
    let rows = table::rows_of(&arguments.traces)?;
    let entries = run_rows(&rows, &arguments.drive.options())?;
    make_dir(&arguments.out)?;
    let markdown = report::markdown(&entries);
    print!("{markdown}");
    let (text, data) = (arguments.out.join("table.md"), arguments.out.join("table.json"));
    std::fs::write(&text, markdown).map_err(|source| Error::File { path: text.clone(), source })?;
    report::json(&entries, &data)?;
    print_written(&[text, data]);
    print_written(&report::plots(&entries, &arguments.out)?);
    Ok(ExitCode::SUCCESS)
}

pub fn synthetic(arguments: &SyntheticArguments) -> Result<ExitCode> {
    let logical_blocks = arguments.logical_mib.saturating_mul(256);
    if let Some(dir) = &arguments.write_traces {
        return write_synthetic(dir, logical_blocks, arguments.seed);
    }
    let runs = REFERENCE.iter().flat_map(|row| row.waf).flatten().count();
    let bar = progress_bar(runs);
    let mut entries = Vec::new();
    println!("| Load | Over-provisioning, % | WAF | Reference | NAND per page byte | Reference |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (column, op_percent) in REFERENCE_OP_PERCENT.into_iter().enumerate() {
        for row in REFERENCE {
            let (Some(waf), Some(nand)) = (row.waf[column], row.nand_per_page_byte[column]) else { continue };
            bar.set_message(row.label);
            let start = entries.len() as f64 * STEPS;
            let progress = &mut |done: f64| bar.set_position((start + done * STEPS) as u64);
            let entry = synthetic_run(&row, logical_blocks, op_percent, arguments.seed, progress)?;
            let outcome = &entry.outcome;
            bar.suspend(|| {
                println!(
                    "| {} | {op_percent} | {:.2} | {waf:.2} | {:.2} | {nand:.2} |",
                    row.label,
                    outcome.waf,
                    outcome.nand_bytes_per_page_byte.unwrap_or(0.0)
                );
            });
            entries.push(entry);
        }
    }
    bar.finish_and_clear();
    if let Some(dir) = &arguments.out {
        make_dir(dir)?;
        let data = dir.join("synthetic.json");
        report::json(&entries, &data)?;
        print_written(&[data]);
        print_written(&report::plots(&entries, dir)?);
    }
    Ok(ExitCode::SUCCESS)
}

fn load_of(row: &Reference, logical_blocks: u32, seed: u64) -> Result<Synthetic> {
    let shape = Shape::reference(logical_blocks, row.journal_mib);
    Synthetic::new(shape, row.method, seed).map_err(Error::Setting)
}

fn synthetic_run(
    row: &Reference,
    logical_blocks: u32,
    op_percent: f64,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<ReportedRun> {
    let settings = Settings {
        logical_blocks,
        superblock_blocks: simulate::superblock_blocks_for(u64::from(logical_blocks), 4096),
        over_provisioning_percent: op_percent,
        utilisation_percent: 90.0,
        gc: GcDestination::Shared,
        policy: row.policy,
        coalesce_small: true,
        warm_up_drive_writes: 3.0,
        measured_drive_writes: 3.0,
    };
    let outcome = simulate::run(load_of(row, logical_blocks, seed)?, &settings, progress)?;
    Ok(ReportedRun {
        row: format!("synthetic {}", row.method.name()),
        label: row.label.to_owned(),
        trace: None,
        journal_mb: (row.journal_mib > 0).then_some(u64::from(row.journal_mib)),
        looped: "synthetic, not looped".to_owned(),
        outcome,
    })
}

/// Writes each load of the reference, one drive write long. Loads that differ in streams alone become one trace.
fn write_synthetic(dir: &Path, logical_blocks: u32, seed: u64) -> Result<ExitCode> {
    make_dir(dir)?;
    let mut number = 0;
    for (index, row) in REFERENCE.iter().enumerate() {
        let same = |other: &&Reference| (other.method, other.journal_mib) == (row.method, row.journal_mib);
        if REFERENCE.iter().take(index).any(|other| same(&other)) {
            continue;
        }
        number += 1;
        let what = row.label.split(',').next().unwrap_or(row.label);
        let path = dir.join(format!("{number:02}-{}.trace", what.replace(' ', "-")));
        let mut source = load_of(row, logical_blocks, seed)?;
        let (bytes, pages) = write_one(&path, &mut source, u64::from(logical_blocks) * 4096)?;
        let info = TraceInfo {
            label: format!("synthetic {what}"),
            device_sectors: u64::from(logical_blocks) * 8,
            page_len_bytes: PAGE_LEN_BYTES,
            pages_written: Some(pages),
            row: Some(format!("synthetic {}", row.method.name())),
            streams: REFERENCE.iter().filter(same).map(|one| one.policy.name().to_owned()).collect(),
            journal_mb: (row.journal_mib > 0).then_some(u64::from(row.journal_mib)),
            description: [("load".to_owned(), format!("synthetic, seed {seed}"))].into(),
            ..TraceInfo::default()
        };
        info.save(&path)?;
        eprintln!("written: {} ({} MiB of writes)", path.display(), bytes >> 20);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes laps until so many bytes are written; gives bytes and pages.
fn write_one(path: &Path, source: &mut Synthetic, least_bytes: u64) -> Result<(u64, u64)> {
    let failed = |source| Error::Trace { path: path.to_owned(), source };
    let mut writer = TraceWriter::create(path)?;
    let (mut bytes, mut pages, mut result) = (0, 0, Ok(()));
    while bytes < least_bytes && result.is_ok() {
        let lap = source.lap(&mut |step| {
            let op = if step.trim { Op::Trim } else { Op::Write };
            let record =
                Record { time_us: 0, sector: step.sector, sectors: step.sectors, op, origin: step.origin };
            bytes += u64::from(step.sectors) * 512;
            if result.is_ok() {
                result = writer.write(&record);
            }
        });
        pages += lap.pages;
    }
    result.map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok((bytes, pages))
}
