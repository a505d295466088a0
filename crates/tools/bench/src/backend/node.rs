//! Redoubt: a storage node on the storage side, and the server with the library preloaded on the other.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify};
use redoubt_workload::node::wait_until_listening;
use redoubt_workload::process::{Process, run_to_end};

use super::{Candidate, Environment, Storage, System};
use crate::args::Backend;
use crate::dataset::copy;
use crate::network::Side;

const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
const VOLUME: &str = "bench";

/// A running storage node.
pub(super) struct Node {
    process: Process,
    address: String,
    port: u16,
    redoubt: PathBuf,
    side: Side,
    /// Credentials of the administrator, if connections need some.
    administrator: Option<PathBuf>,
    /// The part of its files that is in memory; removed when dropped.
    memory: Option<tempfile::TempDir>,
}

impl Node {
    fn start(
        redoubt: &Path,
        (data, log): (&Path, &Path),
        (side, address): (&Side, &str),
        options: &[String],
    ) -> Result<Self> {
        let mut command = Command::new(redoubt);
        command.arg("node").arg("--data").arg(data).args(["--listen", &format!("{address}:0")]);
        let is_open = options.iter().all(|option| option != "--tls");
        if address != "127.0.0.1" && is_open {
            // Only the other namespace can reach it.
            command.arg("--allow-plain-text");
        }
        command.args(options);
        let mut process = side.spawn("redoubt node", command, log)?;
        let address = wait_until_listening(&mut process, START_TIMEOUT)?;
        let port = address.port();
        let (redoubt, side) = (redoubt.to_owned(), side.clone());
        let address = address.to_string();
        Ok(Self { process, address, port, redoubt, side, administrator: None, memory: None })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    fn redoubt(&self, arguments: &[&OsStr]) -> Result<String> {
        self.side.enter(|| run_to_end(Command::new(&self.redoubt).args(arguments)))
    }

    /// Counters of the node (`node.*`) and of the library (`server.*`, up to a second old), and positions.
    pub(super) fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let mut arguments: Vec<&OsStr> =
            ["status", "--node", &self.address, "--volume", VOLUME, "--json"].map(AsRef::as_ref).to_vec();
        if let Some(administrator) = &self.administrator {
            arguments.extend([OsStr::new("--tls"), administrator.as_os_str()]);
        }
        let text = self.redoubt(&arguments)?;
        let status: serde_json::Value = serde_json::from_str(&text).map_err(|error| Error::Parse {
            what: "redoubt status --json".into(),
            detail: error.to_string(),
        })?;
        let volume = status.get("volumes").and_then(|volumes| volumes.get(0));
        let mut all = BTreeMap::new();
        for (field, prefix) in [("counters", "node"), ("server_counters", "server")] {
            let counters = volume.and_then(|volume| volume.get(field)).and_then(serde_json::Value::as_object);
            for (name, value) in counters.into_iter().flatten() {
                if let Some(value) = value.as_u64() {
                    all.insert(format!("{prefix}.{name}"), value);
                }
            }
        }
        for name in ["w_lsn", "a_lsn"] {
            if let Some(value) =
                volume.and_then(|volume| volume.get(name)).and_then(serde_json::Value::as_u64)
            {
                all.insert(name.to_owned(), value);
            }
        }
        Ok(all)
    }
}

pub(super) fn start(
    environment: &Environment<'_>,
    directory: tempfile::TempDir,
    candidate: &Candidate,
    pool_bytes: u64,
) -> Result<System> {
    let (work, network) = (directory.path().to_owned(), environment.network);
    let (mut options, mut run_options) = (candidate.node_options.clone(), candidate.run_options.clone());
    let data = work.join("node");
    let memory = put_data(environment, &mut options, &data)?;
    let authority = work.join("ca");
    let is_tls = candidate.backend == Backend::RedoubtTls;
    if is_tls {
        let addresses = format!("{},127.0.0.1", network.storage_address());
        let mut command = Command::new(environment.redoubt);
        command.args(["certificates", "create"]).arg(&authority);
        run_to_end(command.args(["--node", &addresses, "--volume", VOLUME]))?;
        let bundle = |name: &str| ["--tls".to_owned(), authority.join(name).display().to_string()];
        options.extend(bundle(&format!("node-{}", network.storage_address())));
        run_options.extend(bundle(&format!("volume-{VOLUME}")));
    }
    let place = (&network.storage, network.storage_address());
    let mut node = Node::start(environment.redoubt, (&data, &work.join("node.log")), place, &options)?;
    node.administrator = is_tls.then(|| authority.join("administrator"));
    node.memory = memory;
    let (address, delay) = environment.reach(node.port)?;
    let datadir = work.join("data");
    let launcher = Launcher::Redoubt {
        node_addr: address,
        volume: VOLUME.to_owned(),
        redoubt_bin: environment.redoubt.to_owned(),
        verify: Verify::Default,
        options: run_options,
    };
    let server = environment.server(launcher, (&work, &datadir), pool_bytes, &[])?;
    Ok(System {
        server,
        _mounts: Vec::new(),
        mounters: Vec::new(),
        storage: Storage::Node(node),
        _delay: delay,
        _directory: directory,
    })
}

/// Makes the node's directory from a retained copy. The copy already has the on-disk layout that the options request.
/// Memory directories are not part of a copy, so with such options the data is imported again.
fn put_data(
    environment: &Environment<'_>,
    options: &mut [String],
    data: &Path,
) -> Result<Option<tempfile::TempDir>> {
    const MEMORY: &str = "{memory}";
    if options.iter().any(|option| option.contains(MEMORY)) {
        let memory = environment.memory()?;
        for option in options.iter_mut() {
            *option = option.replace(MEMORY, &memory.path().display().to_string());
        }
        import(environment, options, data)?;
        return Ok(Some(memory));
    }
    let name = format!("node{}", options.iter().map(|option| format!("_{option}")).collect::<String>());
    let base =
        environment.data.derived(&name.replace('/', "+"), |part| import(environment, options, part))?;
    copy(&base, data)?;
    Ok(None)
}

/// A node's directory with a volume of the data.
fn import(environment: &Environment<'_>, options: &[String], part: &Path) -> Result<()> {
    let log = part.with_extension("log");
    let _ = std::fs::remove_file(&log);
    let place = (&Side::outside(), "127.0.0.1");
    let mut node = Node::start(environment.redoubt, (part, &log), place, options)?;
    let data = environment.data.data();
    let arguments = ["volume", "import", "--node", &node.address, "--from"].map(AsRef::as_ref);
    node.redoubt(&[arguments.as_slice(), &[data.as_os_str(), VOLUME.as_ref()]].concat())?;
    node.process.terminate(STOP_TIMEOUT)?;
    let _ = std::fs::remove_file(&log);
    Ok(())
}
