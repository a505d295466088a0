//! The library in a real program: `dd` with it preloaded, on files.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CALLS: [&str; 12] = [
    "read", "write", "sync", "allocate", "truncate", "open", "rename", "unlink", "receive", "send",
    "connect", "accept",
];
const FAULTS: [&str; 7] = ["short", "eintr", "eio", "enospc", "reset", "delay", "swallow"];

fn library() -> PathBuf {
    // The test executable is in target/PROFILE/deps, the library beside that folder or in it.
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    [deps.parent().unwrap().join("libredoubt_faults.so"), deps.join("libredoubt_faults.so")]
        .into_iter()
        .find(|path| path.exists())
        .expect("libredoubt_faults.so is built with the tests")
}

struct Setup {
    directory: tempfile::TempDir,
    contents: Vec<u8>,
}

impl Setup {
    fn new(rules: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut control = vec![0; 16384];
        control[..8].copy_from_slice(b"RDTFLT01");
        control[8..16].copy_from_slice(&1u64.to_le_bytes());
        control[16..24].copy_from_slice(&42u64.to_le_bytes());
        control[4096..4096 + rules.len()].copy_from_slice(rules.as_bytes());
        std::fs::write(directory.path().join("control"), control).unwrap();
        let contents: Vec<u8> = (0..1_000_003u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(directory.path().join("in"), &contents).unwrap();
        Self { directory, contents }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn dd(&self, options: &[&str]) -> Output {
        let file = |name: &str, path: &Path| format!("{name}={}", path.display());
        Command::new("dd")
            .args([file("if", &self.path("in")), file("of", &self.path("out")), "bs=64k".to_owned()])
            .args(options)
            .env("LC_ALL", "C")
            .env("LD_PRELOAD", library())
            .env("REDOUBT_FAULTS", self.path("control"))
            .env("REDOUBT_FAULTS_PROGRAM", "dd")
            .env("REDOUBT_FAULTS_LOG", self.path("log"))
            .output()
            .unwrap()
    }

    fn count(&self, call: &str, fault: &str) -> u64 {
        let call = CALLS.iter().position(|known| *known == call).unwrap();
        let fault = FAULTS.iter().position(|known| *known == fault).unwrap();
        let mut bytes = [0; 8];
        let control = std::fs::File::open(self.path("control")).unwrap();
        control.read_exact_at(&mut bytes, 8192 + 8 * (call * FAULTS.len() + fault) as u64).unwrap();
        u64::from_le_bytes(bytes)
    }
}

#[test]
fn a_program_that_goes_on_after_short_and_interrupted_calls_notices_nothing() {
    let setup = Setup::new(
        "read,write short kind=file path=*/in p=0.5\nwrite short path=*/out p=0.5\nread,write eintr p=0.3\n\
         write delay us=1..50 p=0.5",
    );
    // dd itself takes a short read for the end of a block, not of the file.
    let output = setup.dd(&["iflag=fullblock"]);
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(setup.path("out")).unwrap() == setup.contents);
    for (call, fault) in
        [("read", "short"), ("write", "short"), ("read", "eintr"), ("write", "eintr"), ("write", "delay")]
    {
        assert!(setup.count(call, fault) > 0, "no {fault} {call}");
    }
    let log = std::fs::read_to_string(setup.path("log")).unwrap();
    assert!(log.lines().any(|line| line.ends_with("/in") && line.contains(" read short ")), "{log}");
}

#[test]
fn errors_reach_the_program() {
    for (rule, message, counted) in [
        ("write eio path=*/out nth=3", "Input/output error", ("write", "eio")),
        ("write enospc path=*/out nth=3", "No space left on device", ("write", "enospc")),
        ("read eio path=*/in nth=2", "Input/output error", ("read", "eio")),
        ("open eio path=*/in", "Input/output error", ("open", "eio")),
        ("sync eio path=*/out", "Input/output error", ("sync", "eio")),
        ("truncate eio", "Input/output error", ("truncate", "eio")),
    ] {
        let setup = Setup::new(rule);
        let options: &[&str] = match counted.0 {
            "truncate" => &["seek=1"],
            _ => &["conv=fsync"],
        };
        let output = setup.dd(options);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(message), "{rule}: {text}");
        assert_eq!(setup.count(counted.0, counted.1), 1, "{rule}");
    }
}

#[test]
fn a_swallowed_write_is_a_lie() {
    let setup = Setup::new("write swallow path=*/out nth=2");
    let output = setup.dd(&[]);
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(setup.path("out")).unwrap() != setup.contents);
    assert_eq!(setup.count("write", "swallow"), 1);
}

#[test]
fn another_program_and_no_rules_mean_no_faults() {
    let setup = Setup::new("");
    assert!(setup.dd(&[]).status.success());
    assert!(std::fs::read(setup.path("out")).unwrap() == setup.contents);
    let setup = Setup::new("read,write eio");
    let cat = Command::new("cat")
        .arg(setup.path("in"))
        .env("LD_PRELOAD", library())
        .env("REDOUBT_FAULTS", setup.path("control"))
        .env("REDOUBT_FAULTS_PROGRAM", "dd")
        .output()
        .unwrap();
    assert!(cat.status.success() && cat.stdout == setup.contents);
}

#[test]
fn rules_that_cannot_be_read_are_refused_loudly() {
    let setup = Setup::new("write explode");
    let output = setup.dd(&[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("[redoubt-faults] line 1: unknown fault"), "{text}");
    std::fs::write(setup.path("control"), vec![0; 16384]).unwrap();
    let output = setup.dd(&[]);
    assert_eq!(output.status.code(), Some(99), "{output:?}");
}
