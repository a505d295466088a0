//! `redoubt bench` on real servers: runs, what it leaves behind, and that its consistency check finds what is wrong.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::ProgressBar;
use redoubt_bench::load::Worker;
use redoubt_bench::network::Side;
use redoubt_bench::process::find_program;
use redoubt_bench::server::{Server, Settings};
use redoubt_bench::sql::{connect, execute};
use redoubt_bench::tpcc::random::Constants;
use redoubt_bench::tpcc::{self, Client, DATABASE, Run, Scale, check};
use redoubt_bench::{Options, RunReport};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// One small warehouse.
const SMALL: [&str; 4] = ["--warehouses", "1", "--scale", "60,2000"];

/// Root in a container may not.
fn has_namespaces() -> bool {
    Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success())
}

/// The command: `REDOUBT_BIN`, or beside this test in the target directory, where `libredoubt.so` lies too.
fn find_redoubt() -> PathBuf {
    if let Some(path) = std::env::var_os("REDOUBT_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    let beside = test.ancestors().skip(1).take(2).map(|directory| directory.join("redoubt"));
    beside
        .into_iter()
        .find(|path| path.is_file())
        .expect("redoubt is built: cargo build --release --workspace")
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
    Command::new(find_redoubt()).arg("bench").args(arguments).stdin(Stdio::null()).output().unwrap()
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
fn a_missing_library_is_said_before_anything_runs() {
    let temporary = tempfile::tempdir().unwrap();
    let alone = temporary.path().join("redoubt");
    std::fs::copy(find_redoubt(), &alone).unwrap();
    let arguments = ["bench", "--no-namespaces", "--bandwidth", "none"];
    let outcome = Command::new(&alone).args(arguments).env_remove("REDOUBT_LIBRARY").output().unwrap();
    let said = text(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(1), "{said}");
    assert!(said.contains("libredoubt.so") && !said.contains("run 1"), "{said}");
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let temporary = tempfile::Builder::new().prefix("rdtb-").tempdir().unwrap();
    let mut command = Command::new(find_redoubt());
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

/// A fault for each condition that all before it do not notice.
const FAULTS: [(u32, &[&str]); 12] = [
    (1, &["UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 3"]),
    (2, &["UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 2 AND d_id = 1"]),
    (3, &["DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 2 AND no_o_id = 39"]),
    (4, &["DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 2 AND ol_number = 1"]),
    (5, &["UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1"]),
    (
        6,
        &[
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1",
            "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 2",
        ],
    ),
    (7, &["UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 2 AND ol_o_id = 1"]),
    (
        8,
        &[
            "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1",
            "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1",
        ],
    ),
    (
        9,
        &[
            "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1",
            "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 1 AND d_id = 2",
        ],
    ),
    (
        10,
        &[
            "UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        ],
    ),
    (
        11,
        &[
            "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        ],
    ),
    (
        12,
        &[
            "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        ],
    ),
];

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

#[test]
fn each_condition_notices_what_breaks_it() {
    let temporary = tempfile::Builder::new().prefix("rdtb-").tempdir().unwrap();
    let data = temporary.path().join("data");
    let settings = Settings::new(&Arguments::parse_from(["bench"]).options).unwrap();
    settings.install(&data, temporary.path()).unwrap();
    let paths = (temporary.path(), data.as_path());
    let server = Server::start(&settings, &[], paths, 64 << 20, &Side::outside(), &[]).unwrap();
    let socket = server.socket();
    let scale = Scale { customers: 40, items: 500, ..Scale::new(2) };
    tpcc::load(&socket, scale, 7, 2, &ProgressBar::hidden()).unwrap();
    let mut conn = connect(&socket, Some(DATABASE)).unwrap();
    assert_eq!(check::conditions(&mut conn, u32::MAX).unwrap(), 12);

    let run = Run { scale, constants: Constants::new(7), think: false, tally: std::sync::Arc::default() };
    let before = check::Done::read(&mut conn).unwrap();
    let mut client = Client::new(&socket, &run, 0, 1).unwrap();
    for _ in 0..230 {
        client.choose();
        client.run().unwrap();
    }
    assert_eq!(check::conditions(&mut conn, u32::MAX).unwrap(), 12);
    check::Done::read(&mut conn).unwrap().require_growth(&before, &run.tally).unwrap();
    check::counts(&mut conn, scale, &run.tally).unwrap();

    for (number, statements) in FAULTS {
        execute(&mut conn, "START TRANSACTION").unwrap();
        for statement in statements {
            execute(&mut conn, statement).unwrap();
        }
        let error = check::conditions(&mut conn, u32::MAX).unwrap_err().to_string();
        assert!(error.contains(&format!("condition {number} ")), "{statements:?}: {error}");
        if number > check::REQUIRED {
            check::conditions(&mut conn, check::REQUIRED).unwrap();
        }
        execute(&mut conn, "ROLLBACK").unwrap();
    }
    // Commits that were acknowledged and are gone, though nothing contradicts itself.
    execute(&mut conn, "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 1 AND d_id = 1").unwrap();
    let lost = check::Done::read(&mut conn).unwrap().require_growth(&before, &run.tally);
    assert!(lost.unwrap_err().to_string().contains("acknowledged"));
    execute(&mut conn, "DELETE FROM history LIMIT 1").unwrap();
    let lost = check::counts(&mut conn, scale, &run.tally).unwrap_err().to_string();
    assert!(lost.contains("history"), "{lost}");
}
