//! One storage node: `redoubt node` in a directory of its own, on a free local port.
//!
//! Invariants: the port is chosen at the first start and kept over restarts, so servers find the node again;
//! a node that says "listening on ADDR" accepts connections; dropping kills this node and no other.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify};
use redoubt_workload::node::wait_until_listening;
use redoubt_workload::process::{Process, poll_every, poll_until, run_to_end, tail};

use crate::command::PATIENCE;

const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two questions whether the volumes are open.
const OPENING_LOOK_INTERVAL: Duration = Duration::from_millis(100);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A storage node and its directory.
#[derive(Debug)]
pub struct Node {
    redoubt_bin: PathBuf,
    directory: PathBuf,
    _temporary: Option<tempfile::TempDir>,
    args: Vec<String>,
    further_args: Vec<String>,
    environment: Vec<(String, OsString)>,
    listen: SocketAddr,
    /// Directory of the authority, for a node with TLS.
    authority: Option<PathBuf>,
    process: Option<Process>,
}

impl Node {
    /// Starts a node in a fresh temporary directory on a free port, with further arguments.
    ///
    /// # Errors
    /// [`Error::Exited`] or [`Error::Deadline`] with the end of its log.
    pub fn create(redoubt_bin: &Path, args: &[&str]) -> Result<Self> {
        let temporary = tempfile::Builder::new()
            .prefix("rdtn-")
            .tempdir()
            .map_err(Error::io("make a temporary directory"))?;
        let mut node = Self::in_directory(redoubt_bin, temporary.path(), args)?;
        node._temporary = Some(temporary);
        Ok(node)
    }

    /// [`Node::create`] with TLS: an authority of its own, and certificates for it, these volumes and the
    /// administrator.
    ///
    /// # Errors
    /// As for [`Node::create`], and [`Error::Command`] when the certificates cannot be made.
    pub fn create_with_tls(redoubt_bin: &Path, volumes: &[&str], args: &[&str]) -> Result<Self> {
        let temporary = tempfile::Builder::new()
            .prefix("rdtn-")
            .tempdir()
            .map_err(Error::io("make a temporary directory"))?;
        let authority = temporary.path().join("ca");
        let mut command = Command::new(redoubt_bin);
        command.args(["certificates", "create"]).arg(&authority).args(["--node", "127.0.0.1,localhost"]);
        for volume in volumes {
            command.args(["--volume", volume]);
        }
        run_to_end(&mut command)?;
        let mut node = Self::stopped(redoubt_bin, temporary.path(), args);
        node.authority = Some(authority);
        node._temporary = Some(temporary);
        node.start()?;
        Ok(node)
    }

    /// Directory with the credentials of this name, such as `administrator`, of a node with TLS.
    pub fn bundle(&self, name: &str) -> Option<PathBuf> {
        self.authority.as_ref().map(|authority| authority.join(name))
    }

    /// [`Node::create`] in a given directory, which is kept; the node's data lies in its `node` subdirectory.
    ///
    /// # Errors
    /// As for [`Node::create`].
    pub fn in_directory(redoubt_bin: &Path, directory: &Path, args: &[&str]) -> Result<Self> {
        let mut node = Self::stopped(redoubt_bin, directory, args);
        node.start()?;
        Ok(node)
    }

    fn stopped(redoubt_bin: &Path, directory: &Path, args: &[&str]) -> Self {
        Self {
            redoubt_bin: redoubt_bin.to_owned(),
            directory: directory.to_owned(),
            _temporary: None,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            further_args: Vec::new(),
            environment: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            authority: None,
            process: None,
        }
    }

    /// Adds arguments that count from the next start on, and replaces those that an earlier call added.
    pub fn set_further_args(&mut self, args: &[&str]) {
        self.further_args = args.iter().map(|arg| (*arg).to_owned()).collect();
    }

    /// Adds to the environment of the node, from the next start on.
    pub fn set_environment(&mut self, environment: Vec<(String, OsString)>) {
        self.environment = environment;
    }

    /// The `redoubt` command.
    pub fn redoubt_bin(&self) -> &Path {
        &self.redoubt_bin
    }

    /// The process id of the running node.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.join("node")
    }

    /// The node's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The last `lines` lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.directory.join("node.log"), lines)
    }

    /// Starts the node and waits until it has opened its volumes, or given up those that cannot be opened.
    ///
    /// # Errors
    /// [`Error::Exited`] or [`Error::Deadline`] with the end of its log.
    pub fn start(&mut self) -> Result<()> {
        self.start_at_once()?;
        let address = self.listen.to_string();
        // Each look is a process, and opening may take all the processors there are.
        poll_every(OPENING_LOOK_INTERVAL, "the node's volumes to be opened", READY_TIMEOUT, || {
            // A node that cannot be asked is the business of who started it.
            let status = self.redoubt(&["status", "--node", &address]);
            Ok((!matches!(status, Ok(status) if status.contains("recovering"))).then_some(()))
        })
        .map_err(|error| match error {
            Error::Deadline { what, after, .. } => Error::Deadline { what, after, detail: self.log_tail(30) },
            error => error,
        })
    }

    /// Starts the node and waits until it says that it listens; its volumes are perhaps still being opened.
    ///
    /// # Errors
    /// [`Error::Exited`] or [`Error::Deadline`] with the end of its log.
    pub fn start_at_once(&mut self) -> Result<()> {
        if self.process.is_some() {
            return Err(Error::State(format!("the node at {} runs already", self.listen)));
        }
        let mut command = Command::new(&self.redoubt_bin);
        command
            .arg("node")
            .arg("--data")
            .arg(self.data())
            .arg("--listen")
            .arg(self.listen.to_string())
            .args(&self.args)
            .args(&self.further_args)
            .args(
                self.bundle("node-127.0.0.1")
                    .iter()
                    .flat_map(|bundle| ["--tls".as_ref(), bundle.as_os_str()]),
            )
            .envs(self.environment.iter().cloned());
        let log = self.directory.join("node.log");
        let mut process = Process::spawn_logged("redoubt node", &mut command, &log)?;
        self.listen = wait_until_listening(&mut process, READY_TIMEOUT)?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills the node with SIGKILL; its directory stays as it is.
    ///
    /// # Errors
    /// [`Error::State`] when it does not run.
    pub fn kill9(&mut self) -> Result<()> {
        self.take_process()?.kill()
    }

    /// Stops the node (SIGSTOP), so that it does nothing until it is killed.
    ///
    /// # Errors
    /// [`Error::State`] when it does not run.
    pub fn halt(&mut self) -> Result<()> {
        let listen = self.listen;
        let process = self.process.as_mut();
        process.ok_or_else(|| Error::State(format!("no node runs at {listen}")))?.halt()
    }

    /// Asks the node to stop (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// [`Error::Exited`] when it ends with a failure.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.take_process()?.terminate(STOP_TIMEOUT)?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Exited {
            name: "redoubt node (stop)".into(),
            status: status.to_string(),
            log_tail: self.log_tail(30),
        })
    }

    /// Kills the node and starts it again on the same port.
    ///
    /// # Errors
    /// Those of [`Node::kill9`] and [`Node::start`].
    pub fn crash_and_restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.start()
    }

    /// Runs `redoubt ARGS` and returns its standard output.
    ///
    /// # Errors
    /// [`Error::Command`] with the end of its output.
    pub fn redoubt(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.redoubt_bin);
        if let Some(bundle) = self.bundle("administrator") {
            command.env("REDOUBT_TLS", bundle);
        }
        run_to_end(command.args(args))
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn create_volume(&self, name: &str) -> Result<()> {
        let address = self.listen.to_string();
        self.redoubt(&["volume", "create", "--node", &address, name]).map(drop)
    }

    /// `redoubt status --json` of a volume.
    ///
    /// # Errors
    /// [`Error::Command`], or [`Error::Parse`] when the answer is not JSON.
    pub fn status(&self, volume: &str) -> Result<serde_json::Value> {
        let address = self.listen.to_string();
        let text = self.redoubt(&["status", "--node", &address, "--volume", volume, "--json"])?;
        serde_json::from_str(&text)
            .map_err(|error| Error::Parse { what: "redoubt status --json".into(), detail: error.to_string() })
    }

    /// Waits until at least so many pages of a volume were compared since the node's start (the last ones are when they
    /// are applied), and returns how many. None may differ.
    ///
    /// # Errors
    /// [`Error::Violation`] if one differs, [`Error::Deadline`] if too few are compared, or as [`Node::status`].
    pub fn require_verified(&self, volume: &str, at_least: u64) -> Result<u64> {
        poll_until("pages to be compared", PATIENCE, || {
            let status = self.status(volume)?;
            let counters = &status["volumes"][0]["counters"];
            if counters["page_mismatches"].as_u64() != Some(0) {
                return Err(Error::Violation(format!("pages differ: {status}")));
            }
            if status["volumes"][0]["quarantined"].as_u64() != Some(0) {
                return Err(Error::Violation(format!("pages cannot be built: {status}")));
            }
            Ok(counters["pages_verified"].as_u64().filter(|verified| *verified >= at_least))
        })
    }

    /// Waits until the volume is in `state`: a node sees a little later than others that a server has gone, and
    /// listens before its volumes have recovered.
    pub fn require_state(&self, volume: &str, state: &str) -> Result<()> {
        poll_until(&format!("volume {volume} to be {state}"), PATIENCE, || {
            Ok((self.status(volume)?["volumes"][0]["state"] == state).then_some(()))
        })
    }

    /// Waits until everything that the node has received for a volume is in its page files.
    ///
    /// # Errors
    /// [`Error::Deadline`], or as [`Node::status`].
    pub fn wait_applied(&self, volume: &str) -> Result<()> {
        poll_until("the end of applying", PATIENCE, || {
            let status = self.status(volume)?;
            let volume = &status["volumes"][0];
            Ok((volume["a_lsn"] == volume["w_lsn"] && volume["ring_used_bytes"] == 0).then_some(()))
        })
    }

    /// The launcher that puts a server on a volume of this node.
    pub fn launcher(&self, volume: &str, verify: Verify) -> Launcher {
        self.launcher_with(volume, verify, &[])
    }

    /// [`Node::launcher`] with further options of `redoubt run`.
    pub fn launcher_with(&self, volume: &str, verify: Verify, options: &[&str]) -> Launcher {
        let bundle = self.bundle(&format!("volume-{volume}"));
        let credentials = bundle.iter().flat_map(|bundle| ["--tls".to_owned(), bundle.display().to_string()]);
        Launcher::Redoubt {
            node_addr: self.listen,
            volume: volume.to_owned(),
            redoubt_bin: self.redoubt_bin.clone(),
            verify,
            options: options.iter().map(|option| (*option).to_owned()).chain(credentials).collect(),
        }
    }

    fn take_process(&mut self) -> Result<Process> {
        self.process.take().ok_or_else(|| Error::State(format!("no node runs at {}", self.listen)))
    }
}
