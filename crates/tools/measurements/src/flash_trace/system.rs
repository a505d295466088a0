//! The servers under test: what each layout is made of.
//!
//! Lock and drop order: the server ends before its node, and both before the disk.

use std::path::{Path, PathBuf};

use redoubt_flash::trace::Origin;
use redoubt_harness::node::Node;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{connect, status_number};
use serde_json::Value;

use super::disk::{Disk, JournalMode};
use super::extents::Part;
use super::origin;
use super::seed::Seed;
use super::{Layout, Options};

const VOLUME: &str = "flash";
/// On the disk: the directory of a stock server, or of a node.
const STOCK_DIRECTORY: &str = "server";
const NODE_DIRECTORY: &str = "node";

/// A server, with its node if it has one, installed on a disk and not running.
pub(super) struct System {
    server: Server,
    node: Option<Node>,
    layout: Layout,
    doublewrite: [u64; 2],
}

/// Counters of server and node at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    /// `Innodb_os_log_written`.
    pub(super) redo_bytes: u64,
    /// `Innodb_buffer_pool_pages_flushed`.
    pub(super) pages_flushed: u64,
    /// `Innodb_dblwr_pages_written`.
    pub(super) doublewrite_pages: u64,
    /// The node's status of the volume.
    pub(super) node: Option<Value>,
}

/// What to read from [`Counters`] while clients run.
pub(super) struct CounterSource {
    socket: PathBuf,
    status: Option<(PathBuf, String)>,
}

impl System {
    /// Puts the loaded database on the disk.
    ///
    /// # Errors
    /// Those of the server, the node and the import.
    pub(super) fn install(
        layout: Layout,
        journal_mib: u64,
        disk: &Disk,
        seed: &Seed,
        options: &Options,
    ) -> Result<Self> {
        let doublewrite = origin::doublewrite_blocks(&seed.datadir.join("ibdata1"))?;
        let (server, node) = match layout.node_arguments(journal_mib) {
            None => (stock(layout, disk, seed, options)?, None),
            Some(arguments) => {
                let (server, node) = on_node(&arguments, disk, seed, options)?;
                (server, Some(node))
            }
        };
        Ok(Self { server, node, layout, doublewrite })
    }

    /// Starts everything.
    ///
    /// # Errors
    /// Those of the server and the node.
    pub(super) fn start(&mut self) -> Result<()> {
        if let Some(node) = &mut self.node {
            node.start()?;
        }
        self.server.start()
    }

    /// Stops everything, in order.
    ///
    /// # Errors
    /// Those of the server and the node.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.server.shutdown()?;
        self.node.as_mut().map_or(Ok(()), Node::stop)
    }

    /// The processes that run.
    pub(super) fn process_ids(&self) -> Vec<u32> {
        self.node.as_ref().and_then(Node::process_id).into_iter().chain(self.server.process_id()).collect()
    }

    /// The server's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.server.socket()
    }

    /// The parts of a file on the disk, by origin.
    pub(super) fn classify(&self, path: &Path) -> Vec<Part> {
        if self.node.is_none() {
            return origin::of_server(path, self.doublewrite);
        }
        // A node that writes pages twice at once does so through the same file.
        let is_doublewrite = self.layout == Layout::RedoubtDoublewrite;
        origin::of_node(path, if is_doublewrite { Origin::Doublewrite } else { Origin::Journal })
    }

    /// For reading counters.
    pub(super) fn counter_source(&self) -> CounterSource {
        CounterSource {
            socket: self.server.socket(),
            status: self
                .node
                .as_ref()
                .map(|node| (node.redoubt_bin().to_owned(), node.address().to_string())),
        }
    }
}

impl CounterSource {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::Command`].
    pub(super) fn read(&self) -> Result<Counters> {
        let mut conn = connect(&self.socket)?;
        let redo_bytes = status_number(&mut conn, "Innodb_os_log_written")?;
        let pages_flushed = status_number(&mut conn, "Innodb_buffer_pool_pages_flushed")?;
        let doublewrite_pages = status_number(&mut conn, "Innodb_dblwr_pages_written")?;
        let node =
            self.status.as_ref().map(|(program, address)| node_status(program, address)).transpose()?;
        Ok(Counters { redo_bytes, pages_flushed, doublewrite_pages, node })
    }
}

fn node_status(program: &Path, address: &str) -> Result<Value> {
    let mut command = std::process::Command::new(program);
    command.args(["status", "--node", address, "--volume", VOLUME, "--json"]);
    let text = redoubt_workload::process::run_to_end(&mut command)?;
    serde_json::from_str(&text)
        .map_err(|error| Error::Parse { what: "redoubt status --json".into(), detail: error.to_string() })
}

/// The settings that all servers share.
fn config(launcher: Launcher, options: &Options) -> ServerConfig {
    let mut config = ServerConfig::new(launcher)
        .server_arg("--innodb-flush-log-at-trx-commit=1")
        .server_arg("--innodb-flush-neighbors=0")
        .server_arg("--innodb-buffer-pool-load-at-startup=0")
        .server_arg("--innodb-buffer-pool-dump-at-shutdown=0");
    config.buffer_pool_bytes = u64::from(options.pool) << 20;
    config.log_file_size_bytes = u64::from(options.log_mib) << 20;
    config
}

fn stock(layout: Layout, disk: &Disk, seed: &Seed, options: &Options) -> Result<Server> {
    let doublewrite = u8::from(layout == Layout::StockDoublewrite);
    let config = config(Launcher::Stock, options).server_arg(format!("--innodb-doublewrite={doublewrite}"));
    let directory = disk.path().join(STOCK_DIRECTORY);
    std::fs::create_dir(&directory).map_err(Error::io_at("create", &directory))?;
    seed.copy_to(&directory.join("data"))?;
    Server::in_directory(config, &directory)
}

fn on_node(arguments: &[String], disk: &Disk, seed: &Seed, options: &Options) -> Result<(Server, Node)> {
    let directory = disk.path().join(NODE_DIRECTORY);
    std::fs::create_dir(&directory).map_err(Error::io_at("create", &directory))?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(options.node_arguments()).collect();
    let mut node = Node::in_directory(&find_redoubt()?, &directory, &arguments)?;
    let (address, from) = (node.address().to_string(), seed.datadir.display().to_string());
    node.redoubt(&["volume", "import", "--node", &address, "--from", &from, VOLUME])?;
    let server = Server::new(config(node.launcher(VOLUME, Verify::Off), options))?;
    // The recording begins while nothing runs.
    node.stop()?;
    Ok((server, node))
}

impl Layout {
    /// How the file system under the server or the node is mounted.
    pub(super) fn journal_mode(self) -> JournalMode {
        if self == Self::DataJournal { JournalMode::Data } else { JournalMode::Ordered }
    }

    /// Arguments of the node; none for a server without one.
    fn node_arguments(self, journal_mib: u64) -> Option<Vec<String>> {
        let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        match self {
            Self::StockDoublewrite | Self::Stock | Self::DataJournal => None,
            Self::RedoubtJournal => {
                words(&["--page-protection", "journal", "--journal", &format!("{journal_mib}MiB")])
            }
            Self::RedoubtDoublewrite => words(&["--page-protection", "doublewrite"]),
            Self::RedoubtAtomic => words(&["--page-protection", "atomic", "--pretend-atomic"]),
        }
    }
}
