//! Jobs: each is one process, with one test of a program or several.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::plan::{Durations, Plan, STAGES, stage_named};
use crate::programs::{Program, Tests};

/// One process of the run.
#[derive(Debug, Clone)]
pub struct Job {
    /// The program.
    pub program: Program,
    /// The test, or the beginning of their names and `*` for several.
    pub test: String,
    /// Names of the tests in it.
    pub tests: Vec<String>,
    /// All of the program's tests are in it, so they need not be named.
    pub is_program: bool,
    /// How many more there are that are ignored.
    pub ignored: usize,
    /// Index into [`STAGES`].
    pub stage: usize,
    /// Nothing else runs meanwhile.
    pub alone: bool,
    /// How long it usually takes.
    pub usual: Duration,
}

impl Job {
    /// Program and test.
    pub fn name(&self) -> String {
        if self.test == "*" {
            self.program.name.clone()
        } else {
            format!("{} {}", self.program.name, self.test)
        }
    }

    /// Name of its log file.
    pub fn log_name(&self) -> String {
        let plain = |c: char| if c.is_alphanumeric() || c == '_' { c } else { '-' };
        format!("{}.log", self.name().chars().map(plain).collect::<String>())
    }

    /// Threads that run tests in it on so many processors.
    pub fn threads(&self, processors: usize) -> usize {
        self.tests.len().min(processors).max(1)
    }
}

/// The tests to run.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Indexes into [`STAGES`].
    pub stages: Vec<usize>,
    /// Only tests whose program and name contain this.
    pub filter: Option<String>,
}

impl Selection {
    /// The stages of these names, `all` for all.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn new(names: &[String], filter: Option<String>) -> Result<Self> {
        let mut stages = Vec::new();
        for name in names.iter().flat_map(|names| names.split(',')) {
            if name == "all" {
                stages.extend(0..STAGES.len());
            } else {
                stages.push(stage_named(name).ok_or_else(|| {
                    Error::Usage(format!("unknown stage {name:?}; stages are {}, all", STAGES.join(", ")))
                })?);
            }
        }
        stages.sort_unstable();
        stages.dedup();
        Ok(Self { stages, filter })
    }

    fn wants(&self, stage: usize, program: &str, test: &str) -> bool {
        let matches = self.filter.as_ref().is_none_or(|part| format!("{program} {test}").contains(part));
        self.stages.contains(&stage) && matches
    }
}

/// The jobs of a selection, in the order in which they are to be started: by stage, the longest first.
///
/// # Errors
/// [`Error::Plan`] naming all tests without a stage and all lines of the plan without a test.
pub fn jobs(
    programs: &[(Program, Tests)],
    plan: &Plan,
    durations: &Durations,
    selection: &Selection,
) -> Result<Vec<Job>> {
    let [unit, checked] = ["unit", "checked"].map(|name| stage_named(name).unwrap_or_default());
    let mut faults = Vec::new();
    let mut used = vec![false; plan.rules().len()];
    let mut jobs: Vec<Job> = Vec::new();
    for (program, tests) in programs {
        let mut whole: Vec<((usize, usize), Job)> = Vec::new();
        for test in &tests.names {
            let rule = plan.rule(&program.name, test);
            let Some((stage, alone, is_whole, line, prefix)) = rule
                .map(|rule| (rule.stage, rule.alone, rule.whole, rule.line, rule.prefix.as_str()))
                .or(program.is_checked.then_some((checked, false, true, 0, "")))
                .or(program.is_unit.then_some((unit, false, true, 0, "")))
            else {
                faults.push(format!("unassigned: {} {test}", program.name));
                continue;
            };
            if let Some(index) = plan.rules().iter().position(|rule| rule.line == line) {
                used[index] = true;
            }
            if !selection.wants(stage, &program.name, test) {
                continue;
            }
            let job = |test: &str| Job {
                program: program.clone(),
                test: test.to_owned(),
                tests: Vec::new(),
                is_program: false,
                ignored: 0,
                stage,
                alone,
                usual: durations.usual(&program.name, test),
            };
            if is_whole {
                let index = whole.iter().position(|(key, _)| *key == (stage, line)).unwrap_or_else(|| {
                    whole.push(((stage, line), job(&format!("{prefix}*"))));
                    whole.len() - 1
                });
                whole[index].1.tests.push(test.clone());
            } else {
                jobs.push(Job { tests: vec![test.clone()], ..job(test) });
            }
        }
        for (_, mut job) in whole {
            job.is_program = job.tests.len() == tests.names.len();
            jobs.push(job);
        }
        // Counted once, with the program's first job.
        if let Some(job) = jobs.iter_mut().find(|job| job.program.name == program.name) {
            job.ignored = tests.ignored;
        }
    }
    for (rule, used) in plan.rules().iter().zip(used) {
        if !used {
            let (program, prefix) = (&rule.program, &rule.prefix);
            faults.push(format!("no test for line {} of the plan: {program} {prefix}", rule.line));
        }
    }
    if !faults.is_empty() {
        return Err(Error::Plan(format!("the plan does not match the tests:\n{}", faults.join("\n"))));
    }
    jobs.sort_by(|a, b| {
        let key = |job: &Job| (job.alone, job.stage, std::cmp::Reverse(job.usual));
        key(a).cmp(&key(b))
    });
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, is_unit: bool, tests: &[&str]) -> (Program, Tests) {
        let program = Program {
            name: name.to_owned(),
            is_unit,
            is_checked: false,
            path: "/x".into(),
            directory: "/".into(),
        };
        let names = tests.iter().map(|test| (*test).to_owned()).collect();
        (program, Tests { names, ignored: 2 })
    }

    fn all(filter: Option<&str>) -> Selection {
        Selection::new(&["all".to_owned()], filter.map(str::to_owned)).unwrap()
    }

    fn names(jobs: &[Job]) -> Vec<String> {
        jobs.iter().map(Job::name).collect()
    }

    #[test]
    fn every_test_is_in_one_job_and_ignored_ones_are_counted_once() {
        let programs = [
            program("a/lib", true, &["x", "y"]),
            program("a/t", false, &["m::x", "m::y", "n::x", "n::y", "o"]),
        ];
        let plan = Plan::parse("volume a/t *\nnet a/t m:: whole\nnet a/t o alone").unwrap();
        let jobs = jobs(&programs, &plan, &Durations::default(), &all(None)).unwrap();
        assert_eq!(names(&jobs), ["a/lib", "a/t n::x", "a/t n::y", "a/t m::*", "a/t o"]);
        assert_eq!(jobs.iter().map(|job| job.tests.len()).sum::<usize>(), 7);
        assert_eq!(jobs.iter().map(|job| job.ignored).sum::<usize>(), 4);
        assert!(jobs[0].is_program && !jobs[3].is_program && jobs[4].alone);
    }

    #[test]
    fn tests_without_a_stage_and_lines_without_a_test_are_errors() {
        let programs = [program("a/t", false, &["m::x", "n::x"])];
        let plan = Plan::parse("volume a/t m::\nnet a/other *").unwrap();
        let error = jobs(&programs, &plan, &Durations::default(), &all(None)).unwrap_err().to_string();
        assert!(error.contains("unassigned: a/t n::x"), "{error}");
        assert!(error.contains("no test for line 2 of the plan: a/other"), "{error}");
    }

    #[test]
    fn selection_takes_stages_and_names() {
        let programs = [program("a/t", false, &["m::x", "n::x"])];
        let plan = Plan::parse("volume a/t *\nnet a/t n::").unwrap();
        let select =
            |selection: &Selection| names(&jobs(&programs, &plan, &Durations::default(), selection).unwrap());
        assert_eq!(select(&Selection::new(&["net".to_owned()], None).unwrap()), ["a/t n::x"]);
        assert_eq!(select(&all(Some("m::"))), ["a/t m::x"]);
        assert_eq!(select(&all(Some("a/t"))).len(), 2);
        let error = Selection::new(&["volume,nets".to_owned()], None).unwrap_err().to_string();
        assert!(error.contains("\"nets\"") && error.contains("versions"), "{error}");
    }
}
