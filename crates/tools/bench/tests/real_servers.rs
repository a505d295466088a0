//! `redoubt bench` on real servers: its runs, and the files and processes that remain afterwards.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use redoubt_bench::RunReport;
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::find_program;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// One small warehouse.
const SMALL: [&str; 4] = ["--warehouses", "1", "--scale", "60,2000"];

/// Root in a container may not.
fn has_namespaces() -> bool {
    Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success())
}

/// A command that is ended with its children's help if a test fails.
struct Bench(Child);

impl Bench {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn terminate(&self) {
        let id = rustix::process::Pid::from_raw(self.0.id().cast_signed()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    }

    /// Its exit code.
    fn wait(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "redoubt bench does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            self.terminate();
            let _ = self.0.wait();
        }
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(find_redoubt().unwrap()).arg("bench").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn network() -> &'static [&'static str] {
    if has_namespaces() {
        return &["--bandwidth", "100mbit"];
    }
    redoubt_test_support::skip("network namespaces", "they cannot be made here");
    &["--no-namespaces", "--bandwidth", "none"]
}

/// Network storage needs its programs, FUSE and loop devices.
fn has_peer() -> bool {
    let programs = ["nbdkit", "nbdfuse"].iter().all(|program| find_program(program, "").is_ok());
    let found = has_namespaces()
        && programs
        && ["/dev/fuse", "/dev/loop-control"].iter().all(|path| Path::new(path).exists());
    if !found {
        redoubt_test_support::skip(
            "network storage",
            "it needs network namespaces, nbdkit, nbdfuse, FUSE and loop devices",
        );
    }
    found
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn runs_of(outcome: &Output) -> Vec<RunReport> {
    assert!(outcome.status.success(), "{}", text(&outcome.stderr));
    text(&outcome.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_backend_does_the_five_transactions_and_stays_consistent() {
    let temporary = tempfile::tempdir().unwrap();
    let report = temporary.path().join("report.html");
    let backends = if has_peer() { "local,remote,redoubt" } else { "local,redoubt" };
    let mut arguments = vec!["--json", "--clients", "4", "--warm-up", "50", "--transactions", "200"];
    arguments.extend(SMALL);
    arguments.extend(network());
    arguments.extend(["--backend", backends, "--variant", "compressed=--compress", "--pool", "8M"]);
    arguments.extend(["--report", report.to_str().unwrap()]);
    let outcome = run(&arguments);
    let runs = runs_of(&outcome);
    let names: Vec<_> = runs.iter().map(|run| run.backend.as_str()).collect();
    assert_eq!(names.first(), Some(&"local"));
    assert_eq!(names.iter().rev().take(2).collect::<Vec<_>>(), [&"redoubt-compressed", &"redoubt"]);
    for run in &runs {
        assert!(run.transactions >= 200 && run.tps > 0.0, "{run:?}");
        assert_eq!(run.by_kind.values().sum::<u64>(), run.transactions);
        assert!(run.by_kind.values().all(|count| *count > 0), "{:?}", run.by_kind);
        assert_eq!(run.consistency, 14, "{}", run.backend);
        assert!(run.server_errors.is_empty(), "{:?}", run.server_errors);
        assert!(run.latency.p50_ms <= run.latency.p95_ms && run.latency.p95_ms <= run.latency.p99_ms);
        assert!((1000.0..30_000.0).contains(&run.redo_bytes_per_txn), "{}", run.redo_bytes_per_txn);
    }
    let sent = |name: &str| {
        let run = runs.iter().find(|run| run.backend == name).unwrap();
        run.sent_bytes_per_txn.map(|bytes| (bytes, run.redo_bytes_per_txn))
    };
    if let (Some((plain, redo)), Some((compressed, _))) = (sent("redoubt"), sent("redoubt-compressed")) {
        // By default some of it may be compressed, or all.
        assert!(
            (0.2 * redo..3.0 * redo).contains(&plain),
            "{plain} bytes were sent for {redo} bytes of redo"
        );
        assert!(compressed < 0.8 * redo, "{compressed} bytes were sent compressed for {redo} bytes of redo");
        assert_eq!(sent("local").map(|sent| sent.0), Some(0.0));
    }
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.contains("<svg ") && page.contains("redoubt-compressed"));
    // The same table again, from what was printed.
    let results = temporary.path().join("results.json");
    std::fs::write(&results, &outcome.stdout).unwrap();
    let again = text(&run(&["--from", results.to_str().unwrap()]).stdout);
    assert!(text(&outcome.stderr).contains(again.trim()) && again.contains("of local"), "{again}");
}

#[test]
fn sysbench_mixes_run_and_are_checked() {
    let mut arguments = vec!["--json", "--workload", "oltp_read_write", "--tables", "2", "--rows", "1000"];
    arguments.extend(["--clients", "2", "--warm-up", "20", "--seconds", "1", "--backend", "redoubt"]);
    arguments.extend(network());
    let is_separate = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    let processors = if is_separate { "separate" } else { "shared" };
    arguments.extend(["--processors", processors]);
    let runs = runs_of(&run(&arguments));
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].processors, processors);
    assert!(runs[0].transactions > 0 && runs[0].consistency == 2, "{:?}", runs[0]);
    assert!((0.9..1.5).contains(&runs[0].window_s), "{}", runs[0].window_s);
}

#[test]
fn logs_in_memory_tls_and_options_of_a_node_are_measured_in_one_run() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut arguments = vec!["--json", "--clients", "2", "--warm-up", "20", "--transactions", "100"];
    arguments.extend(SMALL);
    arguments.extend(network());
    arguments.extend(["--memory", memory.path().to_str().unwrap()]);
    arguments.extend(["--backend", "memory-log,local-log,redoubt-tls"]);
    let in_memory = "pmem=--log-device pmem --pretend-pmem --log-path {memory}";
    arguments.extend([
        "--node-variant",
        in_memory,
        "--node-variant",
        "small=--batch 1MiB --apply-interval 1",
    ]);
    let runs = runs_of(&run(&arguments));
    let names: Vec<_> = runs.iter().map(|run| run.backend.as_str()).collect();
    let expected = ["memory-log", "local-log", "redoubt-tls", "redoubt-pmem", "redoubt-small"];
    assert_eq!(names, expected);
    for run in &runs {
        assert!(run.transactions >= 100 && run.consistency == 14, "{run:?}");
        assert!(run.server_errors.is_empty(), "{:?}", run.server_errors);
        let appended = run.redoubt.get("node.log_device_appended_bytes").copied().unwrap_or(0);
        assert_eq!(appended > 0, run.backend.starts_with("redoubt-"), "{run:?}");
    }
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0, "something is left in memory");
}

#[test]
fn a_missing_library_is_said_before_anything_runs() {
    let temporary = tempfile::tempdir().unwrap();
    let alone = temporary.path().join("redoubt");
    let redoubt = find_redoubt().unwrap();
    std::fs::copy(&redoubt, &alone).unwrap();
    std::fs::copy(redoubt.with_file_name("redoubt-bench"), alone.with_file_name("redoubt-bench")).unwrap();
    let arguments = ["bench", "--no-namespaces", "--bandwidth", "none"];
    let outcome = Command::new(&alone).args(arguments).env_remove("REDOUBT_LIBRARY").output().unwrap();
    let said = text(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(1), "{said}");
    assert!(said.contains("libredoubt.so") && !said.contains("run 1"), "{said}");
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let temporary = tempfile::Builder::new().prefix("rdtb-").tempdir().unwrap();
    let mut command = Command::new(find_redoubt().unwrap());
    command
        .args(["bench", "--seconds", "600", "--warm-up", "1", "--clients", "2"])
        .args(SMALL)
        .args(network());
    command.args(["--backend", if has_peer() { "remote" } else { "redoubt" }]);
    let log = std::fs::File::create(temporary.path().join("log")).unwrap();
    command.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(log);
    let mut process = Bench::start(&mut command);
    let mounts = || {
        let text = std::fs::read_to_string("/proc/mounts").unwrap();
        text.lines().filter(|line| line.contains(temporary.path().to_str().unwrap())).count()
    };
    // The server's socket is there when everything is.
    let until = Instant::now() + PATIENCE;
    while !has_socket(temporary.path()) {
        assert!(process.0.try_wait().unwrap().is_none(), "{}", log_of(temporary.path()));
        assert!(Instant::now() < until, "the run does not begin: {}", log_of(temporary.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let namespaces = || {
        let all = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let mine = format!("redoubt-{}-", process.0.id());
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine)).count()
    };
    assert_eq!(namespaces(), if has_namespaces() { 2 } else { 0 });
    let names = format!("redoubt-{}-", process.0.id());
    // Caught as Ctrl-C is.
    process.terminate();
    assert_eq!(process.wait(), Some(1), "{}", log_of(temporary.path()));
    assert!(log_of(temporary.path()).contains("interrupted"), "{}", log_of(temporary.path()));
    assert_eq!(mounts(), 0);
    let left = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(&names)));
    let left: Vec<_> =
        std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["log"], "files are left");
    let directory = temporary.path().to_str().unwrap();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(directory), "a process is left: {line:?}");
    }
}

/// Is there a server's socket two levels below (the run's directory, not the loader's)?
fn has_socket(directory: &Path) -> bool {
    let below =
        |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    below(directory).flat_map(|path| below(&path).collect::<Vec<_>>()).any(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-"))
            && path.join("s.sock").exists()
    })
}

fn log_of(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("log")).unwrap_or_default()
}
