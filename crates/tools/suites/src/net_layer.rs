//! Counters of the network library in the servers that a command starts, one after another and some at a time. Also
//! checks whether the intended layer was used at all: a test run through an unused layer has no meaning.
//!
//! The servers are found while the command runs, by the library's memory (`redoubt_shm_control::net`) in `/proc`. That
//! memory stays open, so the counters of a server can be read after its end, however it ended. A server that runs for
//! less than [`LOOK_INTERVAL`] may be missed.
//!
//! Invariant: each server is counted once, when it has ended or the command has.

#[cfg(test)]
mod tests;

use redoubt_shm_control::net::{Counter, LEN_BYTES, Snapshot, find_memory};
use redoubt_workload::error::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Between two looks for new servers.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The layer under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layer {
    /// Fewer system calls.
    Collapser,
    /// A limit of connections inside a transaction.
    Admission,
    /// Unix sockets instead of TCP.
    Bypass,
    /// TCP in user space.
    UserTcp,
}

/// The command to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The layer that is to be used
    #[arg(long, value_enum)]
    pub layer: Layer,
    /// Only servers whose data directory is below this directory
    #[arg(long)]
    pub below: PathBuf,
    /// File for what the command writes
    #[arg(long)]
    pub log: PathBuf,
    /// The command, after `--`
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

/// The sums over all servers.
#[derive(Debug, Default, Serialize)]
pub struct Sums {
    /// Servers with the library.
    pub servers: u64,
    /// Connections of TCP in user space, which are not among `connections`.
    pub user_tcp_connections: u64,
    /// The library's counters.
    pub counters: BTreeMap<&'static str, u64>,
}

impl Sums {
    /// Adds one server.
    pub fn add(&mut self, snapshot: &Snapshot) {
        self.servers += 1;
        self.user_tcp_connections += snapshot.user_tcp.iter().map(|link| link.opened).sum::<u64>();
        for counter in Counter::ALL {
            *self.counters.entry(counter.name()).or_default() += snapshot.get(counter);
        }
    }

    fn get(&self, counter: Counter) -> u64 {
        self.counters.get(counter.name()).copied().unwrap_or(0)
    }

    /// Checks whether the layer was used. The collapser and admission need some use only, since short connections and
    /// single clients do not use them. The others need more than half of the connections, because clients with TCP
    /// options use TCP.
    ///
    /// # Errors
    /// Why it was not, in words.
    pub fn verdict(&self, layer: Layer) -> std::result::Result<(), String> {
        let connections = self.get(Counter::Connections);
        let require = |is_so: bool, what: String| if is_so { Ok(()) } else { Err(what) };
        require(self.servers > 0, "no server with the network library was seen".to_owned())?;
        match layer {
            Layer::Collapser => {
                let (calls, made) = (self.get(Counter::Calls), self.get(Counter::SystemCalls));
                let collapsed = self.get(Counter::Collapsed);
                let said =
                    format!("{collapsed} connections collapsed, {made} system calls for {calls} calls");
                require(collapsed > 0 && made < calls, format!("the collapser was not used: {said}"))
            }
            Layer::Admission => {
                let (entered, waited) = (self.get(Counter::Entered), self.get(Counter::Waited));
                let said = format!("{entered} commands admitted at once, {waited} after a wait");
                require(waited > 0, format!("no command waited for admission: {said}"))
            }
            Layer::Bypass => {
                let past = self.get(Counter::Bypassed);
                require(past * 2 > connections, format!("{past} of {connections} connections went past TCP"))
            }
            Layer::UserTcp => {
                let past = self.user_tcp_connections;
                let said = format!("{past} connections went past the kernel's TCP, {connections} did not");
                require(past > connections, said)
            }
        }
    }
}

/// Result of the observation.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// How the command ended.
    pub status: String,
    /// Sums of the servers' counters.
    #[serde(flatten)]
    pub sums: Sums,
    /// Whether the layer was used, or why not.
    #[serde(skip)]
    pub verdict: std::result::Result<(), String>,
}

struct Server {
    process: PathBuf,
    /// Of the memory: a process id may come back as another process.
    inode: u64,
    memory: File,
}

/// The servers with the library, as they come and go.
pub struct Watch {
    below: PathBuf,
    servers: Vec<Server>,
    sums: Sums,
}

impl Watch {
    /// Watches servers whose data directory is below this directory.
    pub fn new(below: PathBuf) -> Self {
        Self { below, servers: Vec::new(), sums: Sums::default() }
    }

    /// Looks for new servers, and reads the memory of those that have ended.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Parse`] if it is not the memory of this version.
    pub fn look(&mut self) -> Result<()> {
        for server in std::mem::take(&mut self.servers) {
            if open(&server.process).is_some_and(|(inode, _)| inode == server.inode) {
                self.servers.push(server);
            } else {
                self.count(server)?;
            }
        }
        let proc = std::fs::read_dir("/proc").map_err(Error::io("read /proc"))?;
        for process in proc.flatten().map(|entry| entry.path()) {
            let is_known = self.servers.iter().any(|server| server.process == process);
            if is_known || !is_server(&process) || !self.is_below(&process) {
                continue;
            }
            if let Some((inode, memory)) = open(&process) {
                self.servers.push(Server { process, inode, memory });
            }
        }
        Ok(())
    }

    /// A server makes its data directory its current one.
    fn is_below(&self, process: &Path) -> bool {
        std::fs::read_link(process.join("cwd")).is_ok_and(|path| path.starts_with(&self.below))
    }

    fn count(&mut self, mut server: Server) -> Result<()> {
        let mut bytes = Vec::new();
        let what = || format!("the memory of {}", server.process.display());
        let limit = LEN_BYTES as u64 + 1;
        server.memory.by_ref().take(limit).read_to_end(&mut bytes).map_err(Error::io(what()))?;
        let bad = |error: redoubt_shm_control::net::BadMemory| Error::Parse {
            what: what(),
            detail: error.to_string(),
        };
        self.sums.add(&Snapshot::parse(&bytes).map_err(bad)?);
        Ok(())
    }

    /// Reads what is left, and says what all have counted.
    ///
    /// # Errors
    /// As [`Watch::look`].
    pub fn finish(mut self) -> Result<Sums> {
        self.look()?;
        for server in std::mem::take(&mut self.servers) {
            self.count(server)?;
        }
        Ok(self.sums)
    }
}

fn is_server(process: &Path) -> bool {
    std::fs::read_to_string(process.join("comm"))
        .is_ok_and(|name| matches!(name.trim_end(), "mariadbd" | "mysqld"))
}

/// The memory, and its number. `None`: there is none, or the process has just ended.
fn open(process: &Path) -> Option<(u64, File)> {
    let file = File::open(find_memory(process).ok()??).ok()?;
    Some((file.metadata().ok()?.ino(), file))
}

/// Runs the command, whatever its exit status is.
///
/// # Errors
/// [`Error::Io`] if it cannot be started; those of [`Watch::look`].
pub fn run(options: &Options) -> Result<Summary> {
    let io = |what: String, path: &Path| Error::io(format!("{what} {}", path.display()));
    let below = options.below.canonicalize().map_err(io("open".to_owned(), &options.below))?;
    let log = File::create(&options.log).map_err(io("create".to_owned(), &options.log))?;
    let errors = log.try_clone().map_err(io("open".to_owned(), &options.log))?;
    let (program, arguments) =
        options.command.split_first().ok_or_else(|| Error::State("no command".to_owned()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(Error::io(format!("start {program}")))?;
    let mut watch = Watch::new(below);
    let status: ExitStatus = loop {
        watch.look()?;
        if let Some(status) = child.try_wait().map_err(Error::io(format!("wait for {program}")))? {
            break status;
        }
        std::thread::sleep(LOOK_INTERVAL);
    };
    let sums = watch.finish()?;
    let verdict = sums.verdict(options.layer);
    Ok(Summary { status: status.to_string(), sums, verdict })
}
