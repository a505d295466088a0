//! The entry point of the server's container, with a node that needs certificates.

use super::READY_WITHIN;
use redoubt_harness::node::Node;
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::process::{Process, poll_until, run_to_end};
use redoubt_workload::sql::{one, try_connect};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

struct Container {
    node: Node,
    directory: tempfile::TempDir,
}

impl Container {
    fn new() -> Self {
        let node = Node::create_with_tls(&find_redoubt().unwrap(), &["main"], &[]).unwrap();
        Self { node, directory: tempfile::Builder::new().prefix("rdtc-").tempdir().unwrap() }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("s.sock")
    }

    /// The entry point with these arguments, and with the certificate of this name.
    fn entry(&self, bundle: &str, arguments: &[&str]) -> Command {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/container/server-entrypoint");
        let programs = find_redoubt().unwrap().parent().unwrap().display().to_string();
        let mut command = Command::new("bash");
        command.arg(script).args(arguments).stdin(Stdio::null());
        command.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
        command.env("REDOUBT_NODE", self.node.address().to_string());
        command.env("REDOUBT_TLS", self.node.bundle(bundle).unwrap());
        command.env("REDOUBT_DATADIR", self.directory.path().join("data"));
        command.env("REDOUBT_SOCKET", self.socket());
        command.env("TMPDIR", self.directory.path());
        command.env("MARIADB_ROOT_PASSWORD", r"it's a \ secret");
        command
    }

    fn outcome(&self, bundle: &str, arguments: &[&str]) -> (Output, String) {
        let output = self.entry(bundle, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    }
}

#[test]
fn container_makes_its_volume_with_the_administrator() {
    let container = Container::new();

    // The server's own certificate is not enough, and the way out is named.
    let (output, said) = container.outcome("volume-main", &["--skip-networking"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("needs the administrator's certificate") && said.contains("make-volume"), "{said}");

    // Once, and again at the next start of the pod.
    for _ in 0..2 {
        let (output, said) = container.outcome("administrator", &["make-volume"]);
        assert!(output.status.success(), "{said}");
    }

    let name = run_to_end(Command::new("id").arg("-un")).unwrap();
    let user = format!("--user={}", name.trim());
    let mut command = container.entry("volume-main", &["--skip-networking", &user]);
    let log = container.directory.path().join("server.log");
    let mut server = Process::spawn_logged("server", &mut command, &log).unwrap();
    let mut connection = poll_until("the server of the container", READY_WITHIN, || {
        server.require_running()?;
        try_connect(&container.socket())
    })
    .unwrap();
    let accounts: u64 =
        one(&mut connection, "SELECT COUNT(*) FROM mysql.user WHERE user = 'root' AND host = '%'", ())
            .unwrap();
    assert_eq!(accounts, 1);
    let is_it: u64 = one(
        &mut connection,
        r"SELECT authentication_string = PASSWORD('it''s a \\ secret') FROM mysql.user WHERE user = 'root' AND host = '%'",
        (),
    )
    .unwrap();
    assert_eq!(is_it, 1, "the password is another one");
    assert!(server.terminate(READY_WITHIN).unwrap().success());
}
