//! Test programs that cargo has built, and the tests in them.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::children::end_with_parent;
use crate::error::{Error, Result};

/// How long a program may take to list its tests, which takes milliseconds: a guard against one that hangs.
const LIST_TIME: Duration = Duration::from_secs(60);

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// `package/target` without `redoubt-`: `node/lib`, `cli/bin:redoubt`, `testkit/volume`.
    pub name: String,
    /// Unit tests of a library or a binary.
    pub is_unit: bool,
    /// Built with overflow checks and debug assertions (`scripts/checked`).
    pub is_checked: bool,
    /// The executable.
    pub path: PathBuf,
    /// The package's directory, in which cargo runs its tests.
    pub directory: PathBuf,
}

/// The test programs named in cargo's messages (`cargo test --no-run --message-format json`), those of `scripts/checked`
/// or the usual ones.
///
/// # Errors
/// [`Error::Io`], [`Error::Plan`] if there are none.
pub fn read(messages: &Path, is_checked: bool) -> Result<Vec<Program>> {
    let text = std::fs::read_to_string(messages).map_err(Error::io("read", messages))?;
    let mut programs: Vec<Program> = text.lines().filter_map(program).collect();
    if is_checked {
        for program in &mut programs {
            program.name = format!("checked:{}", program.name);
            program.is_checked = true;
        }
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    if programs.is_empty() {
        return Err(Error::Plan(format!("{} names no test program", messages.display())));
    }
    Ok(programs)
}

/// The test program of one message, if it is about one.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = package_name(message["package_id"].as_str()?);
    let package = package.strip_prefix("redoubt-").unwrap_or(package);
    let target = message["target"]["name"].as_str()?;
    let kinds: Vec<&str> = message["target"]["kind"].as_array()?.iter().filter_map(Value::as_str).collect();
    let (target, is_unit) = match kinds[..] {
        ["test"] => (target.to_owned(), false),
        ["bin"] => (format!("bin:{target}"), true),
        [kind] if kind == "bench" || kind == "example" => (format!("{kind}:{target}"), false),
        _ => ("lib".to_owned(), true),
    };
    Some(Program { name: format!("{package}/{target}"), is_unit, is_checked: false, path, directory })
}

/// The name in `path+file:///somewhere/directory#name@0.1.0`, or `...directory#0.1.0` where the directory has it.
fn package_name(id: &str) -> &str {
    let (location, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => location.rsplit('/').next().unwrap_or(location),
    }
}

/// Tests of a program.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tests {
    /// Names of those that run.
    pub names: Vec<String>,
    /// Number of those that do not (`#[ignore]`).
    pub ignored: usize,
}

impl Program {
    /// Asks the program for its tests.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Plan`] if it does not list them.
    pub fn tests(&self) -> Result<Tests> {
        let all = self.list(&[])?;
        let ignored = self.list(&["--ignored"])?;
        let names = all.iter().filter(|name| !ignored.contains(name)).cloned().collect();
        Ok(Tests { names, ignored: ignored.len() })
    }

    fn list(&self, options: &[&str]) -> Result<Vec<String>> {
        let mut command = Command::new(&self.path);
        end_with_parent(&mut command);
        let child = command
            .args(["--list", "--format", "terse"])
            .args(options)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(Error::io("start", &self.path))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let Ok(output) = receiver.recv_timeout(LIST_TIME) else {
            if let Some(group) = group {
                // Fails only if it has just ended.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let reason = format!("{} has not listed its tests in {} s", self.name, LIST_TIME.as_secs());
            return Err(Error::Plan(reason));
        };
        let output = output.map_err(Error::io("read the output of", &self.path))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Plan(format!("{} does not list its tests: {text}", self.name)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/tools/testkit#redoubt-testkit@0.1.0","manifest_path":"/r/crates/tools/testkit/Cargo.toml","target":{"kind":["KIND"],"name":"NAME"},"profile":{"test":true},"executable":"/r/target/release/deps/x-1"}"#;

    fn named(kind: &str, name: &str) -> Option<(String, bool)> {
        let line = MESSAGE.replace("KIND", kind).replace("NAME", name);
        program(&line).map(|program| (program.name, program.is_unit))
    }

    #[test]
    fn artifacts_of_tests_are_programs() {
        assert_eq!(named("test", "volume"), Some(("testkit/volume".into(), false)));
        assert_eq!(named("bin", "redoubt-testkit"), Some(("testkit/bin:redoubt-testkit".into(), true)));
        assert_eq!(named("cdylib\",\"rlib", "redoubt"), Some(("testkit/lib".into(), true)));
        assert_eq!(program(&MESSAGE.replace("\"test\":true", "\"test\":false")), None);
        assert_eq!(program(&MESSAGE.replace("\"/r/target/release/deps/x-1\"", "null")), None);
        assert_eq!(program("   Compiling x"), None);
        assert_eq!(package_name("path+file:///r/crates/volume/redoubt-redo#0.1.0"), "redoubt-redo");
    }
}
