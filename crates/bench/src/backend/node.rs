//! Redoubt: a storage node on the storage side, and the server with the library preloaded on the other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Environment, Storage, System};
use crate::dataset::copy;
use crate::error::{Error, Result};
use crate::network::Side;
use crate::process::{Process, poll_until, run_to_end};

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
        if address != "127.0.0.1" {
            // Nobody but the other namespace reaches it.
            command.arg("--allow-plain-text");
        }
        command.args(options);
        let mut process = Process::spawn("redoubt node", &mut command, side, log)?;
        let address = poll_until("the node's readiness", START_TIMEOUT, || {
            process.require_running()?;
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("listening on "));
            Ok(line.map(|address| address.trim().to_owned()))
        })?;
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port =
            port.ok_or_else(|| Error::Parse { what: "the node's address".into(), detail: address.clone() })?;
        Ok(Self { process, address, port, redoubt: redoubt.to_owned(), side: side.clone() })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    fn redoubt(&self, arguments: &[&std::ffi::OsStr]) -> Result<String> {
        self.side.enter(|| run_to_end(Command::new(&self.redoubt).args(arguments)))
    }

    /// Counters of the node (`node.*`) and of the library (`server.*`, up to a second old), and positions.
    pub(super) fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let arguments = ["status", "--node", &self.address, "--volume", VOLUME, "--json"];
        let text = self.redoubt(&arguments.map(AsRef::as_ref))?;
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
    run_options: &[String],
    pool_bytes: u64,
) -> Result<System> {
    let (work, network) = (directory.path().to_owned(), environment.network);
    let options = &environment.options.redoubt_node_option;
    // What the node's options say of the layout on disk holds from the import on.
    let name = format!("node{}", options.iter().map(|option| format!("_{option}")).collect::<String>());
    let base = environment.data.derived(&name.replace('/', "+"), |part| import(environment, part))?;
    let data = work.join("node");
    copy(&base, &data)?;
    let place = (&network.storage, network.storage_address());
    let node = Node::start(environment.redoubt, (&data, &work.join("node.log")), place, options)?;
    let (address, delay) = environment.reach(node.port)?;
    let datadir = work.join("data");
    let mut launcher: Vec<OsString> =
        vec![environment.redoubt.into(), "run".into(), "--node".into(), address.into()];
    launcher.extend(["--volume".into(), VOLUME.into(), "--datadir".into(), datadir.clone().into()]);
    launcher.extend(run_options.iter().map(OsString::from));
    launcher.push("--".into());
    let server = environment.server(&launcher, (&work, &datadir), pool_bytes, &[])?;
    Ok(System {
        server,
        _mounts: Vec::new(),
        mounters: Vec::new(),
        storage: Storage::Node(node),
        _delay: delay,
        _directory: directory,
    })
}

/// A node's directory with a volume of the data.
fn import(environment: &Environment<'_>, part: &Path) -> Result<()> {
    let log = part.with_extension("log");
    let _ = std::fs::remove_file(&log);
    let options = &environment.options.redoubt_node_option;
    let place = (&Side::outside(), "127.0.0.1");
    let mut node = Node::start(environment.redoubt, (part, &log), place, options)?;
    let data = environment.data.data();
    let arguments = ["volume", "import", "--node", &node.address, "--from"].map(AsRef::as_ref);
    node.redoubt(&[arguments.as_slice(), &[data.as_os_str(), VOLUME.as_ref()]].concat())?;
    node.process.terminate(STOP_TIMEOUT)?;
    let _ = std::fs::remove_file(&log);
    Ok(())
}
