//! The runner on programs that behave as libtest's do: scripts whose tests pass, fail, hang, or leave processes behind.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// More than any of this takes: a guard against a hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program `package/t` and the runner's files, in a directory of their own.
struct Lab {
    directory: tempfile::TempDir,
}

impl Lab {
    /// A program with these tests: name, and the commands of the shell that are its body.
    fn new(plan: &str, tests: &[(&str, &str)]) -> Self {
        let lab = Self { directory: tempfile::tempdir().unwrap() };
        let mut list = String::new();
        let mut cases = String::new();
        for (name, body) in tests {
            list += &format!("echo '{name}: test'; ");
            cases += &format!("{name}) ({body}) && passed=$((passed+1)) || failed=\"$failed {name}\" ;;\n");
        }
        let script = format!(
            "#!/bin/sh\ncd {}\ncase \"$*\" in *--ignored*) exit 0 ;; --list*) {list} exit 0 ;; esac\n\
             passed=0 failed=\nfor test in \"$@\"; do case \"$test\" in\n--*) ;;\n{cases}esac; done\n\
             if [ -n \"$failed\" ]; then\n  echo; echo failures:; for test in $failed; do echo \"    $test\"; done\n\
             \x20 echo; echo \"test result: FAILED. $passed passed; 1 failed; 0 ignored;\"; exit 101\nfi\n\
             echo \"test result: ok. $passed passed; 0 failed; 0 ignored; 0 measured;\"\n",
            lab.path("").display()
        );
        let program = lab.write("t.sh", &script);
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let message = serde_json::json!({
            "reason": "compiler-artifact", "package_id": "path+file:///r#redoubt-package@0.1.0",
            "manifest_path": lab.path("Cargo.toml"), "target": { "kind": ["test"], "name": "t" },
            "profile": { "test": true }, "executable": program,
        });
        lab.write("programs.json", &message.to_string());
        lab.write("plan.txt", plan);
        lab.write("durations.txt", "");
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn start(&self, options: &[&str]) -> Child {
        self.start_with(Command::new("env"), options)
    }

    /// Starts the runner through this command.
    fn start_with(&self, mut command: Command, options: &[&str]) -> Child {
        command.arg(env!("CARGO_BIN_EXE_redoubt-runner"));
        for (option, name) in [
            ("--programs", "programs.json"),
            ("--plan", "plan.txt"),
            ("--durations", "durations.txt"),
            ("--out", "out"),
        ] {
            command.arg(option).arg(self.path(name));
        }
        command
            .args(options)
            .env("REDOUBT_SKIPPED", self.path("skipped"))
            .env("TMPDIR", self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, options: &[&str]) -> (Output, String) {
        ended(self.start(options))
    }

    /// The process id that a test has written.
    fn process(&self, name: &str) -> Pid {
        let path = self.path(name);
        let read = || std::fs::read_to_string(&path).ok()?.trim().parse().ok().and_then(Pid::from_raw);
        wait_for(read)
    }
}

fn ended(child: Child) -> (Output, String) {
    let output = child.wait_with_output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output, text)
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "it did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err()
}

/// Gone, or ended and not reaped: its parent is a process of this machine, not one of these tests.
fn has_ended(process: Pid) -> Option<()> {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')).then_some(())
}

fn require(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn passing_run_ends_with_its_totals() {
    let lab = Lab::new("volume package/t *", &[("a", "true"), ("b", "test -d \"$TMPDIR\"")]);
    let (output, text) = lab.run(&["--stage", "volume"]);
    assert!(output.status.success(), "{text}");
    require(&text, &["stage ", "volume ", "slowest", "package/t a", "\n2 passed, 0 failed\n"]);
    require(&text, &["test result: ok. 2 passed; 0 failed; 0 ignored;"]);
    assert!(files(lab.directory.path()).iter().all(|name| !name.starts_with("rdt")), "a directory is left");
    require(
        &std::fs::read_to_string(lab.path("out/all.log")).unwrap(),
        &["==== package/t a (exit status: 0)"],
    );
}

#[test]
fn failing_test_is_named_with_its_output() {
    let lab = Lab::new("volume package/t *", &[("a", "true"), ("b", "echo because; false")]);
    let (output, text) = lab.run(&["--stage", "volume"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["---- package/t b ----\nbecause\n", "Failed: 1\n  package/t b\n", "1 passed, 1 failed"]);
    require(&text, &["test result: FAILED. 1 passed; 1 failed;"]);
}

#[test]
fn whole_program_names_its_failed_test() {
    let lab = Lab::new("volume package/t m:: whole", &[("m::a", "true"), ("m::b", "false")]);
    let (output, text) = lab.run(&["--stage", "volume"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["Failed: 1\n  package/t m::*\n    m::b\n", "1 passed, 1 failed"]);
}

#[test]
fn hanging_test_is_killed_with_its_children() {
    // The last one has left its group, and its parent is gone.
    let body = "sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > other; \
                setsid sh -c 'sleep 1000 & echo $! > orphan'; wait";
    let lab = Lab::new("volume package/t *", &[("hangs", body), ("other", "true")]);
    let (output, text) = lab.run(&["--stage", "volume", "--guard", "5"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["Killed by the guard against a hang: 1\n  package/t hangs after", ": sleep 1000"]);
    assert!(["child", "other", "orphan"].iter().all(|name| is_gone(lab.process(name))));
}

#[test]
fn interrupt_kills_everything_and_names_what_did_not_run() {
    let body = "setsid sleep 1000 & echo $! > child; wait";
    let lab = Lab::new("volume package/t *", &[("hangs", body), ("later", "true")]);
    let runner = lab.start(&["--stage", "volume", "--at-once", "1"]);
    let child = lab.process("child");
    kill_process(Pid::from_child(&runner), Signal::TERM).unwrap();
    let (output, text) = ended(runner);
    assert_eq!(output.status.code(), Some(128 + 15), "{:?}\n{text}", output.status.signal());
    require(
        &text,
        &[
            "Ended with the run, by an interrupt or at its limit: 1\n  package/t hangs\n",
            "Not run: 1\n  package/t later\n",
            "0 passed, 2 failed",
        ],
    );
    assert!(is_gone(child));
}

#[test]
fn limit_of_the_run_names_what_did_not_run() {
    let lab = Lab::new("volume package/t *", &[("hangs", "sleep 1000"), ("later", "true")]);
    let (output, text) = lab.run(&["--stage", "volume", "--at-once", "1", "--limit", "2"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(
        &text,
        &[
            "Ended with the run, by an interrupt or at its limit: 1\n  package/t hangs\n",
            "Not run: 1\n  package/t later\n",
        ],
    );
}

#[test]
fn process_left_behind_is_killed_and_noted() {
    let lab = Lab::new("volume package/t *", &[("leaves", "sleep 1000 > gone 2>&1 & echo $! > child")]);
    let (output, text) = lab.run(&["--stage", "volume"]);
    assert!(output.status.success(), "{text}");
    require(&text, &["note: package/t leaves left process", "sleep 1000"]);
    assert!(is_gone(lab.process("child")));
}

#[test]
fn process_that_left_the_group_ends_with_its_job() {
    // The second job sees whether it is still there; the runner itself only looks at the end of the run.
    let leaves = "setsid sleep 1000 > gone 2>&1 & echo $! > child; until [ -s child ]; do :; done";
    let looks = "! kill -0 \"$(cat child)\"";
    let plan = "volume package/t a\nvolume package/t b";
    let lab = Lab::new(plan, &[("a", leaves), ("b", looks)]);
    let (output, text) = lab.run(&["--stage", "volume", "--at-once", "1"]);
    assert!(output.status.success(), "{text}");
    require(&text, &["note: package/t a left process", "sleep 1000"]);
    assert!(is_gone(lab.process("child")));
}

#[test]
fn second_run_in_one_directory_is_refused() {
    let lab = Lab::new(
        "volume package/t *",
        &[("waits", "echo $$ > child; until [ -e end ]; do sleep 0.01; done")],
    );
    let first = lab.start(&["--stage", "volume"]);
    lab.process("child");
    let (output, text) = lab.run(&["--stage", "volume"]);
    lab.write("end", "");
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["another run uses", "out"]);
    let (output, text) = ended(first);
    assert!(output.status.success(), "{text}");
    require(&text, &["1 passed, 0 failed"]);
    // A run that was killed leaves no lock.
    assert!(lab.run(&["--stage", "volume"]).0.status.success());
}

/// A test leaves a mount in its temporary directory, of a directory with a file. In a mount namespace of its own.
fn run_with_mount_left(ending: &str) -> (Lab, Output, String) {
    let body = format!("mkdir \"$TMPDIR/a b\" && mount --bind kept \"$TMPDIR/a b\" && {ending}");
    let lab = Lab::new("volume package/t *", &[("mounts", &body)]);
    std::fs::create_dir(lab.path("kept")).unwrap();
    lab.write("kept/file", "");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    let (output, text) = ended(lab.start_with(command, &["--stage", "volume"]));
    (lab, output, text)
}

fn has_mount_namespaces() -> bool {
    let works = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "mount", "--bind", "/", "/mnt"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        redoubt_test_support::skip("mounts left by a test", "unshare cannot make a mount namespace");
    }
    works
}

#[test]
fn nothing_is_removed_through_a_mount_that_a_test_left() {
    if !has_mount_namespaces() {
        return;
    }
    for (ending, is_ok) in [("true", true), ("false", false)] {
        let (lab, output, text) = run_with_mount_left(ending);
        assert_eq!(output.status.success(), is_ok, "{text}");
        assert!(lab.path("kept/file").exists(), "removed through the mount ({ending}): {text}");
        let left: Vec<_> =
            files(lab.directory.path()).into_iter().filter(|name| name.starts_with("rdt")).collect();
        assert!(left.is_empty(), "{left:?}: {text}");
    }
}

#[test]
fn stages_that_are_not_asked_for_do_not_run() {
    let lab = Lab::new("volume package/t *\nnet package/t n", &[("a", "true"), ("n", "false")]);
    let (output, text) = lab.run(&[]);
    assert!(output.status.success(), "{text}");
    require(&text, &["\n1 passed, 0 failed\n"]);
    // A name is looked for in all stages.
    let (output, text) = lab.run(&["--filter", "package/t n"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["0 passed, 1 failed"]);
    let (output, text) = lab.run(&["--filter", "nothing"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["no test was run"]);
}

#[test]
fn wrong_use_has_a_status_of_its_own() {
    let lab = Lab::new("volume package/t *", &[("a", "true")]);
    for options in
        [&["--stage", "volumes"][..], &["--stages", "all"], &["--stage", "net,x"], &["--stage", ""]]
    {
        let (output, text) = lab.run(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {text}");
    }
}

#[test]
fn test_without_a_stage_stops_the_run() {
    let lab = Lab::new("volume package/t a", &[("a", "true"), ("b", "true")]);
    let (output, text) = lab.run(&["--stage", "volume"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["unassigned: package/t b"]);
    assert!(!text.contains("passed"), "{text}");
}

#[test]
fn skips_must_be_those_that_are_allowed() {
    let body = "echo 'SKIP a disk: none here' >> \"$REDOUBT_SKIPPED\"";
    let lab = Lab::new("volume package/t *", &[("a", body)]);
    lab.write("allowed", "[volume]\na disk\n[net]\na card\n");
    let allowed = lab.path("allowed");
    let options = ["--stage", "volume", "--allowed", allowed.to_str().unwrap()];
    let (output, text) = lab.run(&options);
    assert!(output.status.success(), "{text}");
    require(
        &text,
        &["Left out on this machine, although their tests count as passed: 1\nSKIP a disk: none here"],
    );
    lab.write("allowed", "[volume]\na card\n");
    let (output, text) = lab.run(&options);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(
        &text,
        &["left out, but not allowed: a disk", "allowed, but not left out: a card", "FAILED. 1 passed"],
    );
}

#[test]
fn closed_output_ends_neither_run_nor_clean_up() {
    let hangs = "setsid sleep 1000 > gone 2>&1 & echo $! > child; wait";
    let ends = "until [ -e end ]; do sleep 0.01; done";
    let plan = "volume package/t *";
    let lab = Lab::new(
        plan,
        &[("ends", ends), ("hangs", hangs), ("later", "until [ -s child ]; do :; done; echo > later")],
    );
    let mut runner = lab.start(&["--stage", "volume", "--at-once", "2"]);
    drop((runner.stdout.take(), runner.stderr.take()));
    let child = lab.process("child");
    lab.write("end", "");
    // Started after the line on the first one could not be printed.
    wait_for(|| lab.path("later").exists().then_some(()));
    kill_process(Pid::from_child(&runner), Signal::TERM).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(128 + 15));
    assert!(is_gone(child));
    assert!(files(lab.directory.path()).iter().all(|name| !name.starts_with("rdt")), "a directory is left");
    require(&std::fs::read_to_string(lab.path("out/all.log")).unwrap(), &["package/t ends (exit status: 0)"]);
}

#[test]
fn closed_output_does_not_change_the_exit_status() {
    for (body, status) in [("true", 0), ("false", 1)] {
        let lab = Lab::new("volume package/t *", &[("a", body)]);
        let mut runner = lab.start(&["--stage", "volume"]);
        drop((runner.stdout.take(), runner.stderr.take()));
        assert_eq!(runner.wait().unwrap().code(), Some(status));
    }
}

#[test]
fn next_run_removes_what_a_killed_one_left() {
    let body =
        "test ! -e child || exit 0; echo $$ > test; setsid sleep 1000 > gone 2>&1 & echo $! > child; wait";
    let lab = Lab::new("volume package/t *", &[("hangs", body)]);
    let mut runner = lab.start(&["--stage", "volume"]);
    let (test, child) = (lab.process("test"), lab.process("child"));
    runner.kill().unwrap();
    runner.wait().unwrap();
    // The kernel ends the test with the runner. The server, which has left its group, is for the next run.
    wait_for(|| has_ended(test));
    let left =
        |lab: &Lab| files(lab.directory.path()).into_iter().filter(|name| name.starts_with("rdt")).count();
    assert_eq!(left(&lab), 1);
    let (output, text) = lab.run(&["--stage", "volume"]);
    assert!(output.status.success(), "{text}");
    require(&text, &["is of a run that was killed, and is removed", "is killed: sleep 1000"]);
    wait_for(|| has_ended(child));
    assert_eq!(left(&lab), 0);
}

#[test]
fn directory_of_another_run_stays() {
    let body = "test ! -e child || exit 0; echo $$ > child; until [ -e end ]; do sleep 0.01; done; test -d \"$TMPDIR\"";
    let lab = Lab::new("volume package/t *", &[("waits", body)]);
    let first = lab.start(&["--stage", "volume"]);
    lab.process("child");
    let other = lab.path("other");
    let mut second = Command::new(env!("CARGO_BIN_EXE_redoubt-runner"));
    for (option, name) in
        [("--programs", "programs.json"), ("--plan", "plan.txt"), ("--durations", "durations.txt")]
    {
        second.arg(option).arg(lab.path(name));
    }
    second.arg("--out").arg(other).args(["--stage", "volume"]).env("TMPDIR", lab.directory.path());
    assert!(second.output().unwrap().status.success());
    lab.write("end", "");
    let (output, text) = ended(first);
    assert!(output.status.success(), "{text}");
}

#[test]
fn logs_that_cannot_be_written_do_not_lose_the_report() {
    let tests = [("a", "rm -r out"), ("b", "true")];
    let lab = Lab::new("volume package/t *", &tests);
    let (output, text) = lab.run(&["--stage", "volume", "--at-once", "1"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["note: cannot write", "all.log", "not started: cannot create", "Failed: 2\n"]);
    require(&text, &["  package/t a\n", "  package/t b\n", "0 passed, 2 failed"]);
}

#[test]
fn hangup_that_was_ignored_at_the_start_ends_nothing() {
    let body = "echo $$ > child; until [ -e end ]; do sleep 0.01; done";
    let lab = Lab::new("volume package/t *", &[("waits", body)]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    let runner = lab.start_with(command, &["--stage", "volume"]);
    lab.process("child");
    kill_process(Pid::from_child(&runner), Signal::HUP).unwrap();
    lab.write("end", "");
    let (output, text) = ended(runner);
    assert!(output.status.success(), "{text}");
    require(&text, &["1 passed, 0 failed"]);
}

#[test]
fn program_with_one_slot_gets_one_thread() {
    let body = "case \"$*\" in *--test-threads=1*) ;; *) false ;; esac";
    let lab = Lab::new("volume package/t m:: whole", &[("m::a", body), ("m::b", body)]);
    let (output, text) = lab.run(&["--stage", "volume", "--at-once", "1"]);
    assert!(output.status.success(), "{text}");
}

#[test]
fn stage_without_tests_compares_its_skips() {
    let lab = Lab::new("volume package/t *", &[("a", "false")]);
    lab.write("allowed", "[lint]\nthe linter\n[volume]\na disk\n");
    let allowed = lab.path("allowed");
    let options = ["--stage", "lint", "--allowed", allowed.to_str().unwrap()];
    lab.write("skipped", "SKIP the linter: none here\n");
    let (output, text) = lab.run(&options);
    assert!(output.status.success(), "{text}");
    require(&text, &["SKIP the linter: none here\n", "0 passed, 0 failed"]);
    lab.write("skipped", "SKIP the format: none here\n");
    let (output, text) = lab.run(&options);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["left out, but not allowed: the format", "allowed, but not left out: the linter"]);
}

#[test]
fn failed_step_fails_the_run_after_its_tests() {
    let lab = Lab::new("volume package/t *", &[("a", "true")]);
    let steps = lab.write("failed", "clippy: exit status 101\nplanted-bugs: hangs, ended after 3600 s\n");
    let (output, text) = lab.run(&["--stage", "volume", "--failed-steps", steps.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    require(&text, &["Failed beside the tests: 2\n  clippy: exit status 101\n  planted-bugs: hangs"]);
    require(&text, &["test result: FAILED. 1 passed; 0 failed;", "1 passed, 0 failed"]);
}
