//! Starts jobs, several at a time, and waits for their ends.
//!
//! Each job is a process group with a log file and a temporary directory of its own. It may take as many slots as it
//! has threads; an `alone` job takes all. Processes that a job leaves behind are killed and reported. At a guard, an
//! interrupt, or the limit of the run everything below the job is killed.
//!
//! Invariant: once jobs run, no error ends the run before its report. A log that cannot be written is a note, a job that
//! cannot be started is one that failed. All processes end before their directories are removed, also after an error.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::children::{Ended, end_with_parent, reap};
use crate::cleanup;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::outcome::{Outcome, Verdict, judge};
use crate::plan::guard;
use crate::print;
use crate::processes;
use crate::temporary::Temporary;

/// Pause between two looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// How a run is done.
#[derive(Debug)]
pub struct Settings {
    /// Directory of the logs.
    pub logs: PathBuf,
    /// All of them in one file.
    pub log: PathBuf,
    /// Slots.
    pub at_once: usize,
    /// Threads of one process, at most.
    pub processors: usize,
    /// After this the run is ended.
    pub limit: Option<Duration>,
    /// Guard of all jobs, instead of one by their usual durations.
    pub guard: Option<Duration>,
    /// Number of the signal that asked for the end; 0 while none did.
    pub signal: Arc<AtomicUsize>,
}

/// A job that runs.
struct Running {
    job: Job,
    id: u32,
    slots: usize,
    start: Duration,
    guard: Duration,
    log: PathBuf,
    directory: PathBuf,
}

/// A run under way.
struct Run<'a> {
    settings: &'a Settings,
    /// Holds the jobs' temporary directories; short, for the sockets in them.
    temporary: Temporary,
    begin: Instant,
    running: Vec<Running>,
    outcomes: Vec<Outcome>,
    count: usize,
    total: usize,
}

/// Runs all jobs, unless it is interrupted. The order of the outcomes is that of the ends.
///
/// # Errors
/// [`Error::Io`] when there is no directory for temporary files; then no job has been started.
pub fn run(jobs: Vec<Job>, settings: &Settings) -> Result<Vec<Outcome>> {
    let mut run = Run {
        settings,
        temporary: Temporary::new(&std::env::temp_dir())?,
        begin: Instant::now(),
        running: Vec::new(),
        outcomes: Vec::new(),
        count: 0,
        total: jobs.len(),
    };
    run.all(jobs);
    Ok(std::mem::take(&mut run.outcomes))
}

impl Drop for Run<'_> {
    /// Kills processes that left the group of their job, and all jobs if this unwinds: their directories are removed
    /// next.
    fn drop(&mut self) {
        let strays =
            processes::kill_all(|| processes::descendants(std::process::id()), || while reap().is_some() {});
        for (id, command) in strays {
            print::note(&format!("process {id} was left behind, and is killed: {command}"));
        }
    }
}

impl Run<'_> {
    fn all(&mut self, mut jobs: Vec<Job>) {
        while !jobs.is_empty() || !self.running.is_empty() {
            self.take_ended();
            self.kill_hanging();
            let is_over = self.settings.limit.is_some_and(|limit| self.begin.elapsed() >= limit);
            if is_over || self.settings.signal.load(Ordering::Relaxed) != 0 {
                self.kill_running(Verdict::Interrupted);
                for job in jobs.drain(..) {
                    let others = job.tests.clone();
                    self.outcomes.push(Outcome { verdict: Verdict::NotRun, others, ..self.empty(job) });
                }
                return;
            }
            while let Some(index) = self.next(&jobs) {
                let job = jobs.remove(index);
                self.start(job);
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// The first job that fits beside those that run.
    fn next(&self, jobs: &[Job]) -> Option<usize> {
        if self.running.iter().any(|running| running.job.alone) {
            return None;
        }
        let taken: usize = self.running.iter().map(|running| running.slots).sum();
        let free = self.settings.at_once.saturating_sub(taken);
        let fits = |job: &Job| if job.alone { taken == 0 } else { self.slots(job) <= free };
        // Not past one that waits to be alone: those are the last.
        jobs.iter().position(fits)
    }

    fn slots(&self, job: &Job) -> usize {
        job.threads(self.settings.processors).min(self.settings.at_once)
    }

    fn start(&mut self, job: Job) {
        self.count += 1;
        match self.spawn(&job) {
            Ok((id, log, directory)) => {
                let slots = self.slots(&job);
                let guard = self.settings.guard.unwrap_or_else(|| guard(job.usual));
                let start = self.begin.elapsed();
                self.running.push(Running { id, slots, start, guard, log, directory, job });
            }
            Err(error) => {
                let (others, reason) = (job.tests.clone(), Some(error.to_string()));
                self.note(Outcome { verdict: Verdict::Failed, others, reason, ..self.empty(job) });
            }
        }
    }

    /// Starts the process of a job. Returns its id, its log and its directory.
    fn spawn(&self, job: &Job) -> Result<(u32, PathBuf, PathBuf)> {
        let directory = self.temporary.directory_of_job(self.count)?;
        let log = self.settings.logs.join(job.log_name());
        let output = File::create(&log).map_err(Error::io("create", &log))?;
        let errors = output.try_clone().map_err(Error::io("open", &log))?;
        let mut command = Command::new(&job.program.path);
        // With all of them as arguments the line could be too long.
        if !job.is_program || job.test != "*" {
            command.arg("--exact").args(&job.tests);
        }
        command
            .arg(format!("--test-threads={}", job.threads(self.settings.processors)))
            .env("TMPDIR", &directory)
            .env("CARGO_MANIFEST_DIR", &job.program.directory)
            .current_dir(&job.program.directory)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        if job.program.is_checked {
            // A test fails if the settings are not in force.
            command.env("REDOUBT_CHECKED", "1");
        }
        end_with_parent(&mut command);
        let child = command.spawn().map_err(Error::io("start", &job.program.path))?;
        self.temporary.note_job(child.id());
        Ok((child.id(), log, directory))
    }

    /// Takes note of all children that have ended.
    fn take_ended(&mut self) {
        while let Some(ended) = reap() {
            if let Some(index) = self.running.iter().position(|running| running.id == ended.id) {
                let running = self.running.swap_remove(index);
                self.finish(running, &ended);
            }
        }
    }

    fn finish(&mut self, running: Running, ended: &Ended) {
        let group = running.id;
        let left = processes::kill_all(|| processes::of_job(group, &running.directory), || ());
        let output = read(&running.log);
        let (verdict, passed, others) = judge(&running.job, ended.status, &output);
        self.append(&running.job, ended.status, &output);
        cleanup::clean(running.id, &running.directory);
        let outcome = Outcome {
            verdict,
            passed,
            others,
            start: running.start,
            wall: self.begin.elapsed().saturating_sub(running.start),
            processor: ended.processor,
            left,
            ..self.empty(running.job)
        };
        self.note(outcome);
    }

    /// One line for the person who looks on.
    fn note(&mut self, outcome: Outcome) {
        let word = match outcome.verdict {
            Verdict::Passed => "ok",
            Verdict::Failed => "FAILED",
            Verdict::Killed => "KILLED",
            Verdict::Interrupted => "interrupted",
            Verdict::NotRun => "not run",
        };
        let (seconds, name) = (outcome.wall.as_secs_f64(), outcome.job.name());
        let (number, total) = (self.outcomes.len() + 1, self.total);
        print::line(&format!("[{number:>4}/{total}] {word:<6} {seconds:>6.1} s  {name}"));
        self.outcomes.push(outcome);
    }

    fn append(&self, job: &Job, status: ExitStatus, output: &str) {
        use std::io::Write;
        let path = &self.settings.log;
        let text = format!("==== {} ({status})\n{output}\n", job.name());
        let file = File::options().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
            print::note(&Error::io("write", path)(error).to_string());
        }
    }

    fn kill_hanging(&mut self) {
        let now = self.begin.elapsed();
        while let Some(index) =
            self.running.iter().position(|running| now.saturating_sub(running.start) >= running.guard)
        {
            let running = self.running.swap_remove(index);
            self.kill(running, Verdict::Killed);
        }
    }

    fn kill_running(&mut self, verdict: Verdict) {
        while let Some(running) = self.running.pop() {
            self.kill(running, verdict);
        }
    }

    fn kill(&mut self, running: Running, verdict: Verdict) {
        // The processes that it has started are below it only while it is there.
        let mut victims: Vec<u32> = processes::descendants(running.id).iter().map(|entry| entry.id).collect();
        victims.push(running.id);
        victims.extend(processes::of_job(running.id, &running.directory).iter().map(|entry| entry.id));
        let mut status = ExitStatus::default();
        let mut processor = Duration::ZERO;
        let (mut ended, mut others) = (None, Vec::new());
        let left = processes::kill_all(
            || {
                let below = processes::descendants(std::process::id());
                for entry in &below {
                    if victims.contains(&entry.parent) && !victims.contains(&entry.id) {
                        victims.push(entry.id);
                    }
                }
                let group = running.id;
                below
                    .into_iter()
                    .filter(|entry| entry.group == group || victims.contains(&entry.id))
                    .collect()
            },
            || {
                while let Some(one) = reap() {
                    if one.id == running.id { ended = Some(one) } else { others.push(one) }
                }
            },
        );
        if let Some(ended) = ended {
            (status, processor) = (ended.status, ended.processor);
        }
        let output = read(&running.log);
        let (_, passed, not_passed) = judge(&running.job, status, &output);
        self.append(&running.job, status, &output);
        cleanup::clean(running.id, &running.directory);
        let outcome = Outcome {
            verdict,
            passed: passed.min(running.job.tests.len()),
            others: not_passed,
            start: running.start,
            wall: self.begin.elapsed().saturating_sub(running.start),
            processor,
            left,
            ..self.empty(running.job)
        };
        self.note(outcome);
        // Other jobs that have ended meanwhile.
        for one in others {
            if let Some(index) = self.running.iter().position(|running| running.id == one.id) {
                let running = self.running.swap_remove(index);
                self.finish(running, &one);
            }
        }
    }

    fn empty(&self, job: Job) -> Outcome {
        Outcome {
            job,
            verdict: Verdict::NotRun,
            passed: 0,
            others: Vec::new(),
            start: self.begin.elapsed(),
            wall: Duration::ZERO,
            processor: Duration::ZERO,
            left: Vec::new(),
            reason: None,
        }
    }
}

fn read(log: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
}
