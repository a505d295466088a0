//! Server, node, proxy and injectors of the rounds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use redoubt_harness::fetched;
use redoubt_harness::node::Node;
use redoubt_harness::sparse_files::copy_directory;
use redoubt_redo::Family;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};

use super::kinds::{Trouble, Victim};
use crate::faults::{Counts, Injector, add_counts};
use crate::proxy::Proxy;

pub(super) const VOLUME: &str = "faults";
pub(super) const PATIENCE: Duration = Duration::from_secs(150);
/// Small, so that every part of the node is busy within seconds.
const NODE_ARGS: [&str; 10] = [
    "--ring",
    "16MiB",
    "--batch",
    "1MiB",
    "--apply-interval",
    "1",
    "--journal",
    "4MiB",
    "--page-protection",
    "journal",
];

/// See the module. Fields are dropped in this order: the server before its node.
pub(super) struct Setup {
    pub(super) server: Server,
    pub(super) proxy: Proxy,
    pub(super) node: Node,
    pub(super) server_faults: Injector,
    pub(super) node_faults: Injector,
    pub(super) ledger: PathBuf,
    pub(super) family: Family,
    /// Kills so far.
    pub(super) kills: Counts,
    /// The server's first process.
    first_server: u32,
    /// The server's process when the round began.
    pub(super) server_at_begin: u32,
    /// All faults, and those of the node's disk, when the round began.
    pub(super) faults_at_begin: u64,
    pub(super) node_errors_at_begin: u64,
    keep: Option<PathBuf>,
    _control: tempfile::TempDir,
}

impl Setup {
    pub(super) fn new(
        seed: u64,
        wanted: Option<&Path>,
        keep: Option<&Path>,
        binlog_size: &str,
    ) -> Result<Self> {
        let named = wanted.and_then(Path::to_str).and_then(FetchedServer::named);
        let product = named.map_or(Ok(Product::MariaDb), fetched::find)?;
        let program = wanted.filter(|_| named.is_none());
        let family = if named == Some(FetchedServer::MySql97) { Family::MySql } else { Family::MariaDb };
        let control = tempfile::Builder::new()
            .prefix("rdtf-")
            .tempdir()
            .map_err(Error::io("make a temporary directory"))?;
        let server_faults = Injector::new(control.path(), product.process_name())?;
        let node_faults = Injector::new(control.path(), "redoubt")?;
        let redoubt = find_redoubt()?;
        let mut node = Node::create(&redoubt, &NODE_ARGS)?;
        node.create_volume(VOLUME)?;
        node.stop()?;
        node.set_environment(node_faults.environment());
        // The block device writes with io_uring, which no library sees.
        node.set_further_args(&["--log-device", "file"]);
        node.start()?;
        let proxy = Proxy::start(node.address(), seed)?;
        let launcher = Launcher::Redoubt {
            node_addr: proxy.address(),
            volume: VOLUME.to_owned(),
            redoubt_bin: redoubt,
            verify: Verify::All,
            options: vec!["--on-difference=stop".to_owned()],
        };
        let mut config = ServerConfig::new(launcher)
            .product(product)
            .server_arg("--log-bin")
            .server_arg("--sync-binlog=1");
        config.server_args.push(format!("--max-binlog-size={binlog_size}"));
        config.log_file_size_bytes = 16 << 20;
        config.buffer_pool_bytes = 16 << 20;
        let mut server = Server::new(config)?;
        server.install_db()?;
        server.config_mut().environment = server_faults.environment();
        server.config_mut().program = program.map(Path::to_owned);
        server.start()?;
        let ledger = server.directory().join("ledger");
        let kills = Counts::new();
        let first_server = server.process_id().unwrap_or_default();
        let setup = Self {
            server,
            proxy,
            node,
            server_faults,
            node_faults,
            ledger,
            family,
            kills,
            first_server,
            server_at_begin: 0,
            faults_at_begin: 0,
            node_errors_at_begin: 0,
            keep: keep.map(Path::to_owned),
            _control: control,
        };
        setup.require_stacked()?;
        Ok(setup)
    }

    /// The injectors are where they are meant to be: both processes have called through them.
    fn require_stacked(&self) -> Result<()> {
        let both = [&self.server_faults, &self.node_faults];
        for injector in both {
            // A rule that matches nothing: calls are counted, none fails.
            injector.set(1, "read,write eio path=/nowhere")?;
        }
        self.server.query("CREATE TABLE mysql.touched (a INT PRIMARY KEY) ENGINE=MyISAM")?;
        self.server.query("DROP TABLE mysql.touched")?;
        for injector in both {
            injector.clear()?;
            if injector.calls_seen()? == 0 {
                return Err(Error::State(format!("no call came through {}", injector.log_path().display())));
            }
        }
        Ok(())
    }

    pub(super) fn begin(&mut self, trouble: &Trouble) -> Result<()> {
        self.server_at_begin = self.server.process_id().unwrap_or_default();
        // Counted before the rules are there: what fails at once counts too.
        self.faults_at_begin = self.faults()?.values().sum();
        self.node_errors_at_begin = self.node_errors()?;
        if !trouble.server_rules.is_empty() {
            self.server_faults.set(trouble.seed, &trouble.server_rules)?;
        }
        if !trouble.node_rules.is_empty() {
            self.node_faults.set(trouble.seed, &trouble.node_rules)?;
        }
        if let Some(weather) = &trouble.weather {
            self.proxy.set(weather.clone());
        }
        Ok(())
    }

    /// The server is not the process any more that was started first.
    pub(super) fn server_was_killed(&self) -> bool {
        self.server.process_id() != Some(self.first_server)
    }

    /// All faults so far, by place.
    pub(super) fn faults(&self) -> Result<Counts> {
        let mut counts = self.kills.clone();
        add_counts(&mut counts, "server: ", &self.server_faults.counts()?);
        add_counts(&mut counts, "node: ", &self.node_faults.counts()?);
        add_counts(&mut counts, "network: ", &self.proxy.counts());
        Ok(counts)
    }

    /// Calls of the node that failed for good so far: not those that are done again because they were interrupted.
    pub(super) fn node_errors(&self) -> Result<u64> {
        let counts = self.node_faults.counts()?;
        let failed = counts.iter().filter(|(name, _)| name.ends_with(" eio") || name.ends_with(" enospc"));
        Ok(failed.map(|(_, count)| count).sum())
    }

    /// Keeps a copy of the data directory that the next start of the server uses.
    pub(super) fn keep_server_before_restart(&self) -> Result<()> {
        let Some(keep) = &self.keep else { return Ok(()) };
        let kept = keep.join("server-before-restart");
        if kept.exists() {
            std::fs::remove_dir_all(&kept).map_err(Error::io_at("remove", &kept))?;
        }
        copy_directory(&self.server.datadir(), &kept)
    }

    /// Ends both and keeps their directories, if that is wanted; returns where.
    pub(super) fn keep_all(&mut self) -> Result<Option<PathBuf>> {
        let Some(keep) = self.keep.clone() else { return Ok(None) };
        if self.server.process_id().is_some() {
            self.server.kill9()?;
        }
        if self.node.process_id().is_some() {
            self.node.kill9()?;
        }
        copy_directory(self.server.directory(), &keep.join("server"))?;
        copy_directory(self.node.directory(), &keep.join("node"))?;
        Ok(Some(keep))
    }

    pub(super) fn calm(&self) -> Result<()> {
        self.server_faults.clear()?;
        self.node_faults.clear()?;
        self.proxy.calm();
        Ok(())
    }

    pub(super) fn kill(&mut self, trouble: &Trouble) -> Result<()> {
        for victim in &trouble.victims {
            let name = match victim {
                Victim::Server => {
                    self.server.kill9()?;
                    "kill: server"
                }
                Victim::Node => {
                    self.node.kill9()?;
                    "kill: node"
                }
                Victim::Directory => {
                    self.server.empty_data_directory()?;
                    "loss of the data directory"
                }
            };
            *self.kills.entry(name.to_owned()).or_default() += 1;
        }
        Ok(())
    }
}
