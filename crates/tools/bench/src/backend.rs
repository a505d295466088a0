//! The compared systems: servers with different storage, each started on a copy of the same data.
//!
//! A [`System`] is a server and all that its storage needs, in one temporary directory. Dropping it ends its processes
//! and removes its mounts.

mod local;
mod nbd;
mod node;
mod sshfs;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::{Process, find_program, run_to_end};
use redoubt_workload::server::Server;

use crate::args::{Backend, Options, Peer, Variant};
use crate::dataset::DataSet;
use crate::network::{Delay, Network, Side};
use crate::server::config;

/// One of the things that are compared.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Name in results: `local`, `remote-nbd`, `redoubt`, `redoubt-NAME`.
    pub name: String,
    /// Its kind.
    pub backend: Backend,
    run_options: Vec<String>,
    node_options: Vec<String>,
}

impl Candidate {
    /// All that the options ask for, in their order, and the variants of Redoubt.
    pub fn all(options: &Options) -> Vec<Self> {
        let (run, node) = (&options.redoubt_run_option, &options.redoubt_node_option);
        let of_redoubt = |name, backend, of_run: &[String], of_node: &[String]| Self {
            name,
            backend,
            run_options: [run.as_slice(), of_run].concat(),
            node_options: [node.as_slice(), of_node].concat(),
        };
        let mut all = Vec::new();
        for &backend in &options.backend {
            let name = match backend {
                Backend::Local => "local".to_owned(),
                Backend::Remote => format!("remote-{}", options.peer.name()),
                Backend::Redoubt => "redoubt".to_owned(),
                Backend::RedoubtTls => "redoubt-tls".to_owned(),
                Backend::MemoryLog => "memory-log".to_owned(),
                Backend::LocalLog => "local-log".to_owned(),
            };
            all.push(of_redoubt(name, backend, &[], &[]));
        }
        let name = |variant: &Variant| format!("redoubt-{}", variant.name);
        for variant in &options.variant {
            all.push(of_redoubt(name(variant), Backend::Redoubt, &variant.options, &[]));
        }
        for variant in &options.node_variant {
            all.push(of_redoubt(name(variant), Backend::Redoubt, &[], &variant.options));
        }
        all
    }
}

/// Resources that a system is started from.
pub struct Environment<'a> {
    /// The command's options.
    pub options: &'a Options,
    /// The initial data of all runs.
    pub data: &'a DataSet,
    /// Where server and storage run.
    pub network: &'a Network,
    /// Directory for copies of the data.
    pub directory: &'a Path,
    /// The `redoubt` command.
    pub redoubt: &'a Path,
}

/// A running server with its storage. Dropped in the order of its fields: server, mounts, storage, directory.
pub struct System {
    server: Server,
    _mounts: Vec<Mount>,
    /// Processes beside the server for its storage.
    mounters: Vec<Process>,
    storage: Storage,
    _delay: Option<Delay>,
    _directory: tempfile::TempDir,
}

/// Processes on the storage side.
enum Storage {
    None,
    /// The redo log's directory.
    Memory(#[expect(dead_code, reason = "removed when dropped")] tempfile::TempDir),
    Process(Process),
    Node(node::Node),
    Sftp(sshfs::SftpServer),
}

impl System {
    /// Copies the data and starts everything.
    ///
    /// # Errors
    /// Any error that prevents the start.
    pub fn start(environment: &Environment<'_>, candidate: &Candidate, pool_bytes: u64) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(environment.directory)
            .map_err(Error::io_at("make a directory in", environment.directory))?;
        match candidate.backend {
            Backend::Local | Backend::MemoryLog | Backend::LocalLog => {
                local::start(environment, directory, candidate.backend, pool_bytes)
            }
            Backend::Redoubt | Backend::RedoubtTls => {
                node::start(environment, directory, candidate, pool_bytes)
            }
            Backend::Remote => match environment.options.peer {
                Peer::Nbd => nbd::start(environment, directory, pool_bytes),
                Peer::Sshfs => sshfs::start(environment, directory, pool_bytes),
            },
        }
    }

    /// The server.
    pub fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// The server's process; none if it has been stopped.
    pub fn server_id(&self) -> Option<u32> {
        self.server.process_id()
    }

    /// Processes beside the server.
    pub fn mounter_ids(&self) -> Vec<u32> {
        self.mounters.iter().map(Process::id).collect()
    }

    /// Processes on the storage side.
    pub fn storage_ids(&self) -> Vec<u32> {
        match &self.storage {
            Storage::None | Storage::Memory(_) => Vec::new(),
            Storage::Process(process) => vec![process.id()],
            Storage::Node(node) => vec![node.id()],
            Storage::Sftp(server) => server.ids(),
        }
    }

    /// Counters of the storage node for its volume, by name; empty without a node.
    ///
    /// # Errors
    /// [`Error::Command`], [`Error::Parse`].
    pub fn node_counters(&self) -> Result<std::collections::BTreeMap<String, u64>> {
        match &self.storage {
            Storage::Node(node) => node.counters(),
            _ => Ok(std::collections::BTreeMap::new()),
        }
    }
}

impl Environment<'_> {
    /// A running server with a directory and a data directory, and with further options.
    fn server(
        &self,
        launcher: Launcher,
        (directory, datadir): (&Path, &Path),
        pool_bytes: u64,
        further: &[&str],
    ) -> Result<Server> {
        let config = config(self.options, launcher, pool_bytes)?;
        let mut server = Server::with_datadir(config, directory, datadir)?;
        self.network.compute.enter(|| server.spawn(further))?;
        server.wait_ready()?;
        Ok(server)
    }

    /// A directory of its own in memory.
    fn memory(&self) -> Result<tempfile::TempDir> {
        let memory = &self.options.memory;
        let builder = tempfile::Builder::new().prefix("rdbm-").tempdir_in(memory);
        builder.map_err(Error::io_at("make a directory in", memory))
    }

    /// The address to reach what listens on the storage side, through a delay if one is wanted.
    fn reach(&self, port: u16) -> Result<(SocketAddr, Option<Delay>)> {
        let address = format!("{}:{port}", self.network.storage_address());
        let address = address.parse().map_err(|_| Error::State(format!("{address} is no address")))?;
        if self.options.delay.is_zero() {
            return Ok((address, None));
        }
        let delay = Delay::start(&self.network.compute, address, self.options.delay)?;
        Ok((delay.address(), Some(delay)))
    }
}

/// A port on the storage side that nothing listens on.
fn free_port(side: &Side, address: &str) -> Result<u16> {
    side.enter(|| {
        let listener = std::net::TcpListener::bind((address, 0)).map_err(Error::io("find a free port"))?;
        listener.local_addr().map(|address| address.port()).map_err(Error::io("find a free port"))
    })
}

/// Something to be undone: a mount or a loop device.
#[derive(Debug)]
enum Mount {
    Directory(PathBuf),
    Loop(String),
}

impl Drop for Mount {
    fn drop(&mut self) {
        let run = |program, package, arguments: &[&std::ffi::OsStr]| {
            find_program(program, package)
                .and_then(|program| run_to_end(Command::new(program).args(arguments)))
        };
        let done = match self {
            // A process that was just killed may still use the mount. A lazy unmount ends when the process releases it.
            Self::Directory(path) => run("umount", "mount", &[path.as_os_str()])
                .or_else(|_| run("umount", "mount", &["-l".as_ref(), path.as_os_str()])),
            Self::Loop(device) => run("losetup", "mount", &["-d".as_ref(), device.as_ref()]),
        };
        if let Err(error) = done {
            eprintln!("cleaning up: {error}");
        }
    }
}

fn create_directory(path: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir_all(&path).map_err(Error::io_at("create", &path))?;
    Ok(path)
}
