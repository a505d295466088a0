//! The program as people call it: exit status, tables, messages.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

fn flash(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_redoubt-flash")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn validate_passes_and_a_wrong_model_fails() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let good = flash(&["validate", "--quick", "--json", json.to_str().unwrap()]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    assert_eq!(text(&good.stdout).matches("| yes |").count(), 4);
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 4);

    let wrong = flash(&["validate", "--quick", "--victims", "random"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(text(&wrong.stdout).matches("**no**").count(), 4);
    assert!(text(&wrong.stderr).contains("do not trust it"));
}

fn written_traces(dir: &Path) {
    let output = flash(&["synthetic", "--logical-mib", "128", "--write-traces", dir.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn synthetic_traces_can_be_shown_run_and_tabled() {
    let dir = tempfile::tempdir().unwrap();
    written_traces(dir.path());
    let trace = dir.path().join("01-doublewrite.trace");
    let trace = trace.to_str().unwrap();
    let shown = flash(&["show", trace]);
    assert_eq!(shown.status.code(), Some(0));
    assert!(text(&shown.stdout).contains("| doublewrite |"), "{}", text(&shown.stdout));

    let (json, plots) = (dir.path().join("run.json"), dir.path().join("plots"));
    let run = flash(&[
        "run",
        "--trace",
        trace,
        "--streams",
        "one,doublewrite",
        "--over-provisioning",
        "28",
        "--json",
        json.to_str().unwrap(),
        "--plots",
        plots.to_str().unwrap(),
    ]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let table = text(&run.stdout);
    assert!(
        table.contains("| one |") && table.contains("| doublewrite |") && table.contains("looped"),
        "{table}"
    );
    assert!(json.exists() && plots.join("nand-op28.svg").exists() && plots.join("waf-op28.svg").exists());

    let out = dir.path().join("out");
    let tabled = flash(&[
        "table",
        "--traces",
        dir.path().to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "--utilisation",
        "95",
        "--over-provisioning",
        "15",
    ]);
    assert_eq!(tabled.status.code(), Some(0), "{}", text(&tabled.stderr));
    let table = std::fs::read_to_string(out.join("table.md")).unwrap();
    assert_eq!(table, text(&tabled.stdout));
    assert_eq!(table.matches("| synthetic ").count(), 16, "8 runs, in two tables: {table}");
}

#[test]
fn bad_input_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    written_traces(dir.path());
    let trace = dir.path().join("02-atomic.trace");
    let path = trace.to_str().unwrap();
    let refused = |arguments: &[&str], words: &str| {
        let output = flash(arguments);
        let message = text(&output.stderr);
        assert!(output.status.code() == Some(1) && message.contains(words), "{:?}: {message}", output.status);
        assert!(!message.contains("panicked"), "{message}");
    };
    refused(&["run", "--trace", path, "--utilisation", "1"], "raise the utilisation");
    refused(&["run", "--trace", path, "--over-provisioning", "nan"], "over-provisioning");
    refused(&["run", "--trace", "/nonexistent/x.trace"], "x.json");
    refused(&["synthetic", "--logical-mib", "1"], "needs at least");
    assert_eq!(flash(&["run", "--trace", path, "--streams", "some"]).status.code(), Some(2));

    let mut bytes = std::fs::read(&trace).unwrap();
    bytes[16 + 24 * 5 + 21] = 200;
    std::fs::write(&trace, &bytes).unwrap();
    refused(&["run", "--trace", path], "record 5 at offset 136: origin 200");
    refused(&["show", path], "record 5 at offset 136");
    std::fs::write(&trace, &bytes[..16 + 24 * 5 - 1]).unwrap();
    refused(&["run", "--trace", path], "ends inside record 4");
    std::fs::write(&trace, b"something else altogether").unwrap();
    refused(&["run", "--trace", path], "not a trace");
}
