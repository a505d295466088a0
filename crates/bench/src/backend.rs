//! What is compared: servers with different storage, each started on a copy of the same data.
//!
//! A [`System`] is a server and all that its storage needs, in one temporary directory. Whatever it started or
//! mounted goes with it.

mod nbd;
mod node;
mod sshfs;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{Backend, Options, Peer};
use crate::dataset::{DataSet, copy};
use crate::error::{Error, Result};
use crate::network::{Delay, Network, Side};
use crate::process::{Process, find_program, run_to_end};
use crate::server::{Server, Settings};

/// One of the things that are compared.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Name in results: `local`, `remote-nbd`, `redoubt`, `redoubt-NAME`.
    pub name: String,
    /// What kind it is.
    pub backend: Backend,
    run_options: Vec<String>,
}

impl Candidate {
    /// All that the options ask for, in their order, and the variants of Redoubt.
    pub fn all(options: &Options) -> Vec<Self> {
        let mut all = Vec::new();
        for &backend in &options.backend {
            let name = match backend {
                Backend::Local => "local".to_owned(),
                Backend::Remote => format!("remote-{}", options.peer.name()),
                Backend::Redoubt => "redoubt".to_owned(),
            };
            all.push(Self { name, backend, run_options: options.redoubt_run_option.clone() });
        }
        for variant in &options.variant {
            let run_options = [options.redoubt_run_option.as_slice(), &variant.run_options].concat();
            let name = format!("redoubt-{}", variant.name);
            all.push(Self { name, backend: Backend::Redoubt, run_options });
        }
        all
    }
}

/// What a system is started from.
pub struct Environment<'a> {
    /// The command's options.
    pub options: &'a Options,
    /// What all servers have in common.
    pub settings: &'a Settings,
    /// What all runs begin with.
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
    /// What runs beside the server for its storage.
    mounters: Vec<Process>,
    storage: Storage,
    _delay: Option<Delay>,
    _directory: tempfile::TempDir,
}

/// What runs on the storage side.
enum Storage {
    None,
    Process(Process),
    Node(node::Node),
    Sftp(sshfs::SftpServer),
}

impl System {
    /// Copies the data and starts everything.
    ///
    /// # Errors
    /// Whatever keeps it from starting.
    pub fn start(environment: &Environment<'_>, candidate: &Candidate, pool_bytes: u64) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(environment.directory)
            .map_err(Error::io_at("make a directory in", environment.directory))?;
        match candidate.backend {
            Backend::Local => {
                let data = directory.path().join("data");
                copy(&environment.data.data(), &data)?;
                let server = environment.server(&[], (directory.path(), &data), pool_bytes, &[])?;
                Ok(Self {
                    server,
                    _mounts: Vec::new(),
                    mounters: Vec::new(),
                    storage: Storage::None,
                    _delay: None,
                    _directory: directory,
                })
            }
            Backend::Redoubt => node::start(environment, directory, &candidate.run_options, pool_bytes),
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

    /// The server's process.
    pub fn server_id(&self) -> u32 {
        self.server.id()
    }

    /// Processes beside the server.
    pub fn mounter_ids(&self) -> Vec<u32> {
        self.mounters.iter().map(Process::id).collect()
    }

    /// Processes on the storage side.
    pub fn storage_ids(&self) -> Vec<u32> {
        match &self.storage {
            Storage::None => Vec::new(),
            Storage::Process(process) => vec![process.id()],
            Storage::Node(node) => vec![node.id()],
            Storage::Sftp(server) => server.ids(),
        }
    }

    /// What a storage node counts of its volume, by name; nothing without a node.
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
    fn server(
        &self,
        launcher: &[OsString],
        paths: (&Path, &Path),
        pool_bytes: u64,
        further: &[String],
    ) -> Result<Server> {
        Server::start(self.settings, launcher, paths, pool_bytes, &self.network.compute, further)
    }

    /// The address to reach what listens on the storage side, through a delay if one is wanted.
    fn reach(&self, port: u16) -> Result<(String, Option<Delay>)> {
        let address = format!("{}:{port}", self.network.storage_address());
        if self.options.delay.is_zero() {
            return Ok((address, None));
        }
        let target = address.parse().map_err(|_| Error::Usage(format!("{address} is no address")))?;
        let delay = Delay::start(&self.network.compute, target, self.options.delay)?;
        Ok((delay.address().to_string(), Some(delay)))
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
            // What was killed a moment ago may still hold it; then it goes when that lets go.
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
