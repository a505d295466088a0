//! The parts of a package: `make install` and `make uninstall`, the manual, the completions, and the units of systemd,
//! whose own command lines are run here. No service manager is needed: its socket for notifications is all that it
//! takes.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod container;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_test_support::wait::until_some;
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::{Process, poll_until, run_to_end};
use redoubt_workload::sql::{connect, execute};

const READY_WITHIN: Duration = Duration::from_secs(120);
/// Exit status of `redoubt run --no-takeover` when another server has the volume.
const TAKEN_OVER: i32 = 3;
/// Exit status of `redoubt run` for a node with an older copy of the volume.
const OLDER_COPY: i32 = 4;
/// The command, two tools and three libraries.
const PROGRAMS: usize = 6;

fn make(target: &str, destination: &Path) {
    make_from(target, destination, find_redoubt().unwrap().parent().unwrap());
}

fn make_from(target: &str, destination: &Path, build: &Path) {
    run_to_end(&mut make_command(target, destination, build)).unwrap_or_else(|error| panic!("{error}"));
}

fn make_command(target: &str, destination: &Path, build: &Path) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut command = Command::new("make");
    command.arg("-s").arg("-C").arg(root).arg(target).arg("PREFIX=/usr");
    command.arg(format!("DESTDIR={}", destination.display())).arg(format!("BUILD={}", build.display()));
    // Of a make that runs this test.
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    command
}

/// All files, relative.
fn files(root: &Path) -> BTreeSet<String> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    found
}

#[test]
fn what_is_installed_is_complete_works_and_can_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    make("install", root);
    let found = files(root);
    for file in [
        "usr/bin/redoubt",
        "usr/lib/redoubt/libredoubt.so",
        "usr/lib/redoubt/libredoubt_group.so",
        "usr/lib/redoubt/libredoubt_net.so",
        "usr/lib/redoubt/redoubt-bench",
        "usr/lib/redoubt/redoubt-drill",
        "usr/lib/systemd/system/redoubt-node.service",
        "usr/lib/sysusers.d/redoubt.conf",
        "usr/share/bash-completion/completions/redoubt",
        "usr/share/doc/redoubt/README.md",
        "usr/share/doc/redoubt/LICENSE",
        "usr/share/doc/redoubt/docs/install.md",
        "usr/share/doc/redoubt/packaging/Dockerfile",
        "usr/share/doc/redoubt/packaging/etc/redoubt/node.conf",
        "usr/share/doc/redoubt/packaging/grafana/redoubt-dashboard.json",
        "usr/share/doc/redoubt/packaging/prometheus/redoubt.rules.yml",
        "usr/share/doc/redoubt/packaging/prometheus/redoubt-group.rules.yml",
        "usr/share/doc/redoubt/packaging/prometheus/redoubt-net.rules.yml",
        "usr/share/doc/redoubt/packaging/examples/backup",
        "usr/share/doc/redoubt/packaging/systemd/mariadb.service.d/redoubt.conf",
        "usr/share/fish/vendor_completions.d/redoubt.fish",
        "usr/share/man/man1/redoubt.1",
        "usr/share/man/man1/redoubt-volume-import.1",
        "usr/share/zsh/site-functions/_redoubt",
    ] {
        assert!(found.contains(file), "{file} is missing in {found:#?}");
        let mode = std::fs::metadata(root.join(file)).unwrap().permissions().mode() & 0o777;
        let is_program = file == "usr/bin/redoubt" || file.contains("/redoubt/redoubt-");
        let is_program = is_program || file.ends_with("/examples/backup");
        let wanted = if is_program { 0o755 } else { 0o644 };
        assert_eq!(mode, wanted, "{file}: {mode:o}");
    }
    assert!(!found.iter().any(|file| file.starts_with("etc/") || file.starts_with("var/")), "{found:#?}");

    // Every program and library, whatever is installed later.
    let is_program = |file: &&String| std::fs::read(root.join(file)).unwrap().starts_with(b"\x7fELF");
    let programs: Vec<_> = found.iter().filter(is_program).collect();
    assert_eq!(programs.len(), PROGRAMS, "{programs:#?}");
    for program in programs {
        let has_planted_bugs = redoubt_test_support::planted::is_compiled_into(&root.join(program)).unwrap();
        assert!(!has_planted_bugs, "{program} was built with the feature planted-bugs");
    }

    // The command finds the library where it was installed.
    let command = root.join("usr/bin/redoubt");
    let outcome = Outcome::of(&command, ["doctor", "--json", "--", "/no/such/mariadbd"], PATIENCE).unwrap();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let library =
        report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "library").unwrap();
    let place = root.join("usr/lib/redoubt/libredoubt.so").canonicalize().unwrap();
    assert_eq!((library["level"].as_str(), library["found"].as_str()), (Some("ok"), place.to_str()));

    // The pages of the tools have the tools' options.
    for (page, option) in [("bench", "\\-\\-warehouses"), ("group-drill", "\\-\\-certificates")] {
        let path = root.join(format!("usr/share/man/man1/redoubt-{page}.1"));
        assert!(std::fs::read_to_string(path).unwrap().contains(option), "{page} lacks {option}");
    }

    // A shell takes what was written for it.
    let script = std::fs::read_to_string(root.join("usr/share/bash-completion/completions/redoubt")).unwrap();
    let asked =
        "COMP_WORDS=(redoubt volume ex); COMP_CWORD=2; _redoubt redoubt ex volume; echo \"${COMPREPLY[*]}\"";
    let said = run_to_end(Command::new("bash").args(["-c", &format!("{script}\n{asked}")])).unwrap();
    assert_eq!(said.trim(), "export");

    // Foreign files in a shared directory, and settings, stay.
    let others = root.join("usr/share/man/man1/other.1");
    std::fs::write(&others, "").unwrap();
    make("uninstall", root);
    assert_eq!(files(root), BTreeSet::from(["usr/share/man/man1/other.1".to_owned()]));
    assert!(!root.join("usr/share/doc/redoubt").exists() && !root.join("usr/lib/redoubt").exists());
}

// The programs of this build have the code only with the feature.
#[cfg(feature = "experimental-devices")]
#[test]
fn experimental_command_is_installed_beside_its_library() {
    let directory = tempfile::tempdir().unwrap();
    let (build, root) = (directory.path().join("build"), directory.path().join("root"));
    std::fs::create_dir_all(build.join("experimental")).unwrap();
    for name in ["redoubt", "libredoubt.so"] {
        let built = find_redoubt().unwrap().with_file_name(name);
        std::fs::copy(built, build.join("experimental").join(name)).unwrap();
    }
    make_from("install-experimental", &root, &build);
    let expected = [
        "usr/bin/redoubt-experimental",
        "usr/lib/redoubt/experimental/libredoubt.so",
        "usr/lib/redoubt/experimental/redoubt",
        "usr/share/man/man1/redoubt-experimental.1",
    ];
    assert_eq!(files(&root), BTreeSet::from(expected.map(str::to_owned)));
    let link = |path: &str| std::fs::read_link(root.join(path)).unwrap();
    assert_eq!(link(expected[0]), Path::new("../lib/redoubt/experimental/redoubt"));
    assert_eq!(link(expected[3]), Path::new("redoubt.1"));

    // Through the link the command finds its own library.
    let command = root.join(expected[0]);
    let outcome = Outcome::of(&command, ["doctor", "--json", "--", "/no/such/mariadbd"], PATIENCE).unwrap();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let library =
        report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "library").unwrap();
    let place = root.join(expected[1]).canonicalize().unwrap();
    assert_eq!((library["level"].as_str(), library["found"].as_str()), (Some("ok"), place.to_str()));

    make_from("uninstall", &root, &build);
    assert!(files(&root).is_empty(), "{:#?}", files(&root));

    // A build without the feature is refused.
    std::fs::write(build.join("experimental/redoubt"), "no such code").unwrap();
    let refused = make_command("install-experimental", &root, &build).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("has no experimental device code"), "{said}");
    assert!(files(&root).is_empty(), "{:#?}", files(&root));
}

/// `redoubt` with these arguments, where PATH has no tools.
fn without_tools_in_path(command: &Path, arguments: &[&str]) -> std::process::Output {
    let mut started = Command::new(command);
    started.args(arguments).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    started.output().unwrap()
}

#[test]
fn installed_tools_are_started_by_the_command() {
    let installed = Installed::new();
    let command = Path::new(&installed.command);
    for (words, name) in [(&["bench"][..], "redoubt-bench"), (&["group", "drill"], "redoubt-drill")] {
        let help = without_tools_in_path(command, &[words, &["--help"]].concat());
        let shown = String::from_utf8_lossy(&help.stdout);
        assert!(help.status.success() && shown.contains(&words.join(" ")), "{help:?}");
        let wrong = without_tools_in_path(command, &[words, &["--no-such-option"]].concat());
        assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");

        // A program in the place of the tool prints its arguments and exits with a status of its own.
        let tool = command.with_file_name("../lib/redoubt").join(name);
        // Written by a process of its own: this one's children could hold it open for writing, and it could not be run.
        let source = installed.directory.path().join("tool");
        let place_program = |text: &str| {
            std::fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
            run_to_end(Command::new("cp").arg(&source).arg(&tool)).unwrap();
        };
        place_program("printf '[%s]' \"$@\" \"$REDOUBT_BIN\"; exit 7");
        let given = ["--", "-h", "a b", "--json"];
        let passed = without_tools_in_path(command, &[words, &given].concat());
        let expected = format!("[--][-h][a b][--json][{}]", command.canonicalize().unwrap().display());
        assert_eq!(String::from_utf8_lossy(&passed.stdout), expected);
        assert_eq!(passed.status.code(), Some(7));
        place_program("kill -KILL $$");
        assert_eq!(without_tools_in_path(command, words).status.signal(), Some(9));

        std::fs::remove_file(&tool).unwrap();
        let missing = without_tools_in_path(command, &[words, &["--help"]].concat());
        let said = String::from_utf8_lossy(&missing.stderr);
        let named = [name, "Debian package redoubt-tools"];
        assert!(missing.status.code() == Some(1) && named.iter().all(|word| said.contains(word)), "{said}");
    }
}

/// A value of a unit file, such as `ExecStart`; the last one counts.
fn setting(unit: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(unit).unwrap();
    let value = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).next_back();
    value.unwrap_or_else(|| panic!("{} has no {name}", unit.display())).to_owned()
}

/// The words of a command line of a unit, its variables and paths replaced.
fn words(line: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        // `$NAME` as a word of its own becomes any number of words.
        if let Some((_, value)) = variables.iter().find(|(name, _)| word == format!("${name}")) {
            words.extend(value.split_whitespace().map(str::to_owned));
            continue;
        }
        let word = variables.iter().fold(word.to_owned(), |word, (name, value)| {
            // A path is replaced as it is.
            word.replace(
                &if name.starts_with('/') { (*name).to_owned() } else { format!("${{{name}}}") },
                value,
            )
        });
        assert!(!word.contains('$'), "{word} of {line}");
        words.push(word);
    }
    words
}

/// The service manager's socket.
struct Manager {
    path: PathBuf,
    socket: UnixDatagram,
}

impl Manager {
    fn new(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(READY_WITHIN)).unwrap();
        Self { path, socket }
    }

    fn start(&self, name: &str, words: &[String], log: &Path, environment: &[(&str, &str)]) -> Process {
        let (program, arguments) = words.split_first().unwrap();
        let log = std::fs::File::create(log).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).env("NOTIFY_SOCKET", &self.path).envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Process::spawn(name, &mut command).unwrap()
    }

    /// All messages up to `wanted`.
    fn hear(&self, wanted: &str) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let len =
                self.socket.recv(&mut bytes).unwrap_or_else(|error| panic!("no {wanted}: {error} {heard:?}"));
            heard.push(String::from_utf8_lossy(&bytes[..len]).into_owned());
            if heard.iter().any(|message| message.lines().any(|line| line == wanted)) {
                return heard;
            }
        }
    }
}

/// An installed package, and where a test runs it.
struct Installed {
    directory: tempfile::TempDir,
    unit: PathBuf,
    drop_in: PathBuf,
    command: String,
    /// Option of a server that is started by this user.
    user: String,
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("rdtp-").tempdir().unwrap();
        let root = directory.path().join("i");
        make("install", &root);
        let name = run_to_end(Command::new("id").arg("-un")).unwrap();
        Self {
            unit: root.join("usr/lib/systemd/system/redoubt-node.service"),
            drop_in: root.join("usr/share/doc/redoubt/packaging/systemd/mariadb.service.d/redoubt.conf"),
            command: root.join("usr/bin/redoubt").display().to_string(),
            user: format!("--user={}", name.trim()),
            directory,
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn node_words(&self) -> Vec<String> {
        let line = setting(&self.unit, "ExecStart");
        let places = [("/usr/bin/redoubt", self.command.as_str()), ("/var/lib/redoubt", &self.path("node"))];
        words(&line, &[&places[..], &[("REDOUBT_NODE_OPTIONS", "--listen 127.0.0.1:0")]].concat())
    }

    /// As the drop-in starts it, with these options of `redoubt run`, on a data directory of this name.
    fn server_words(&self, name: &str, run: &str) -> Vec<String> {
        let options = format!(
            "--no-defaults --skip-networking {} --socket={}.s --pid-file={}.pid",
            self.user,
            self.path(name),
            self.path(name)
        );
        let variables = [
            ("/usr/bin/redoubt", self.command.as_str()),
            ("/var/lib/redoubt-mariadb", &self.path(name)),
            ("REDOUBT_MARIADB_VOLUME", "main"),
            ("REDOUBT_RUN_OPTIONS", run),
            ("MYSQLD_OPTS", &options),
        ];
        words(&setting(&self.drop_in, "ExecStart"), &variables)
    }

    fn make_database(&self, name: &str, address: &str) {
        let mut command = Command::new(&self.command);
        command.args(["volume", "create", "--node", address, "main"]);
        run_to_end(&mut command).unwrap_or_else(|error| panic!("{error}"));
        let mut command = Command::new(&self.command);
        command.args(["run", "--node", address, "--volume", "main", "--datadir", &self.path(name)]);
        command.args(["--no-takeover", "--", "mariadb-install-db", "--no-defaults", "--skip-name-resolve"]);
        command.args(["--auth-root-authentication-method=normal", "--skip-test-db", &self.user]);
        run_to_end(&mut command).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The JSON list after `keyword` in the Dockerfile, where a line starts with `start`.
fn docker_words(start: &str, keyword: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/Dockerfile");
    let text = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
    let line = text.lines().find(|line| line.starts_with(start)).unwrap();
    serde_json::from_str(line.split_once(keyword).unwrap().1).unwrap()
}

#[test]
fn the_dockerfiles_command_lines_start_a_node_and_see_whether_it_lives() {
    let directory = tempfile::Builder::new().prefix("rdtp-").tempdir().unwrap();
    let root = directory.path();
    let redoubt = find_redoubt().unwrap();
    let mut words = vec![redoubt.display().to_string()];
    words.extend(docker_words("CMD", "CMD ").into_iter().map(|word| match word.as_str() {
        "/var/lib/redoubt" => root.join("data").display().to_string(),
        // Free ports, and no other host's business.
        "127.0.0.1:7070" | "0.0.0.0:7071" => "127.0.0.1:0".to_owned(),
        _ => word,
    }));
    let manager = Manager::new(root.join("n"));
    let log = root.join("node.log");
    let mut node = manager.start("node", &words, &log, &[]);
    manager.hear("READY=1");
    // Every line is an object: the command line asks for that.
    let page = until_some("the address of the status page", || {
        let said = std::fs::read_to_string(&log).unwrap();
        let whole = said.rsplit_once('\n')?.0;
        let events = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let page = events.into_iter().find(|event| event["event"] == "status_page_listening")?;
        Some(page["address"].as_str().unwrap().to_owned())
    });
    let port = page.rsplit_once(':').unwrap().1;
    let health: Vec<_> =
        docker_words("HEALTHCHECK", " CMD ").iter().map(|word| word.replace("7071", port)).collect();
    let is_healthy = || Outcome::of(Path::new(&health[0]), &health[1..], PATIENCE).unwrap().code == Some(0);
    assert!(is_healthy(), "{health:?}");
    node.terminate(READY_WITHIN).unwrap();
    assert!(!is_healthy(), "{health:?}");
}

/// Exit status and message of a server that does not start.
fn refusal(words: &[String], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(environment.iter().copied()).stdin(Stdio::null());
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_units_command_lines_start_node_and_server_which_say_when_they_are_ready() {
    let installed = Installed::new();
    let root = installed.directory.path();
    assert_eq!(setting(&installed.unit, "Type"), "notify");
    assert_eq!(
        setting(&installed.drop_in, "RestartPreventExitStatus"),
        format!("2 {TAKEN_OVER} {OLDER_COPY}")
    );
    let no_takeover = setting(&installed.drop_in, "Environment").split_once('=').unwrap().1.to_owned();
    assert_eq!(no_takeover, "--no-takeover");

    let manager = Manager::new(root.join("n"));
    let mut node = manager.start("node", &installed.node_words(), &root.join("node.log"), &[]);
    let ready = manager.hear("READY=1").join("\n");
    let address = ready.split("listening on ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let environment = [("REDOUBT_NODE", address.as_str())];

    // The server: made, then started as the drop-in does. The volume's last server may have it again.
    installed.make_database("first", &address);
    let first_words = installed.server_words("first", &no_takeover);
    let first_said = Manager::new(root.join("m"));
    let mut first = first_said.start("server", &first_words, &root.join("first.log"), &environment);
    // The server that `redoubt run` only asks for its settings must not speak for the service.
    let heard = first_said.hear("READY=1");
    assert!(!heard.iter().any(|message| message.contains("server is down")), "{heard:?}");
    let mut connection = connect(&root.join("first.s")).unwrap();
    execute(&mut connection, "CREATE TABLE mysql.t (a INT PRIMARY KEY) ENGINE=InnoDB").unwrap();

    // Another host takes the volume over. The fenced server ends; a restart takes the volume from no other server.
    let other_said = Manager::new(root.join("o"));
    let other_words = installed.server_words("other", "");
    let mut other = other_said.start("other server", &other_words, &root.join("other.log"), &environment);
    other_said.hear("READY=1");
    let ended = poll_until("the end of the fenced server", READY_WITHIN, || {
        let _ = execute(&mut connection, "INSERT INTO mysql.t VALUES (1)");
        first.try_wait()
    });
    assert!(!ended.unwrap().success());
    let (status, message) = refusal(&first_words, &environment);
    assert_eq!(status, Some(TAKEN_OVER), "{message}");
    assert!(message.contains("--no-takeover") && message.contains("attached by"), "{message}");
    // Also when the other one has ended: it has written since.
    other.terminate(READY_WITHIN).unwrap();
    assert_eq!(refusal(&first_words, &environment).0, Some(TAKEN_OVER));

    node.terminate(READY_WITHIN).unwrap();
    manager.hear("STOPPING=1");
}
