//! Checks a host and recommends changes: before a server or a node runs there, or when something is wrong.
//!
//! Each check has two functions: the first gathers facts, the second is pure and judges them. Nothing is changed on
//! the host, no volume is attached and no server is started; trials use files without a name.
//!
//! The result is a [`Report`], which the caller prints.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod credentials;
mod data_directory;
mod error;
mod host;
mod library;
mod limits;
#[cfg_attr(not(feature = "experimental-devices"), path = "no_local_log.rs")]
mod local_log;
mod locks;
mod node;
mod node_directory;
mod place;
mod report;
mod server;
mod space;

pub use error::DoctorError;
use redoubt_client::ClientError;
use redoubt_client::events::bytes;
use redoubt_transport::{Connector, CredentialFiles};
pub use report::{Check, Level, Report};
use std::path::{Path, PathBuf};

/// A volume has spare segments of log, a journal, and pages.
const LEAST_NODE_BYTES: u64 = 1 << 30;

/// The node that options or environment name.
pub struct NodeAddress {
    /// Whether an option or the environment names it.
    pub is_given: bool,
    /// The files for TLS; `None`: plain text.
    pub files: Result<Option<CredentialFiles>, ClientError>,
    /// How to reach it.
    pub connector: Result<Connector, ClientError>,
}

/// A node's side: its data directory and its host.
pub struct NodeSide<'a> {
    /// The data directory.
    pub data: &'a Path,
    /// Further places of the node.
    pub places: &'a [PathBuf],
    /// Length of the log buffer of a volume.
    pub ring: u64,
    /// Its address and its certificate.
    pub address: NodeAddress,
}

/// A server's side, on a volume or with a local log.
pub struct ServerSide<'a> {
    /// Server command with its options; empty: `mariadbd`.
    pub command: &'a [String],
    /// The preloaded library, or the reason why it is not found.
    pub library: Result<PathBuf, String>,
    /// Its local data directory.
    pub datadir: Option<&'a Path>,
}

/// The volume of a server.
pub struct VolumeSide<'a> {
    /// Name of the volume.
    pub volume: Option<&'a str>,
    /// The node.
    pub address: NodeAddress,
    /// Length of its page cache.
    pub page_cache: Option<u64>,
    /// Directory of that.
    pub page_cache_directory: Option<&'a Path>,
}

/// Checks the host of a server on a volume.
pub fn check_server(side: &ServerSide<'_>, on: &VolumeSide<'_>) -> Report {
    Report::new("server", server_side(side, on))
}

/// Checks the host of a server with a local log. `pretend_pmem`: files on tmpfs count as persistent memory.
///
/// # Errors
/// [`DoctorError::NotBuiltIn`] in a build without the feature `experimental-devices`.
pub fn check_local_log(side: &ServerSide<'_>, pretend_pmem: bool) -> Result<Report, DoctorError> {
    Ok(Report::new("local-log", local_log::checks(side, pretend_pmem)?))
}

/// Checks the host of a node.
pub fn check_node(side: &NodeSide<'_>) -> Report {
    Report::new("node", node_side(side))
}

impl NodeAddress {
    fn uses_tls(&self) -> bool {
        !matches!(self.files, Ok(None))
    }
}

fn server_side(side: &ServerSide<'_>, on: &VolumeSide<'_>) -> Vec<Check> {
    let uses_tls = on.address.uses_tls();
    let &ServerSide { command, datadir, .. } = side;
    let mut checks = vec![host::kernel(), host::clock(uses_tls)];
    let (found, library) = library::find(&side.library);
    checks.push(found);
    let (found, server) = server::check(command, datadir);
    checks.extend(found);
    let user = server.as_ref().and_then(server::Server::user).and_then(limits::user_number);
    if let Some(server) = &server {
        if let Some(library) = library {
            checks.push(library::preloads(&server.binary, library));
            checks.extend(library::confinement(&server.binary, library, datadir));
        }
        let number = |name| server.number(name).unwrap_or(0);
        checks.push(limits::server(number("max-connections"), number("table-open-cache")));
        let pool = number("innodb-buffer-pool-size");
        let in_memory = on.page_cache.filter(|_| on.page_cache_directory.is_none()).unwrap_or(0);
        let parts = format!("buffer pool and page cache take {}", bytes(pool + in_memory));
        checks.push(host::memory(pool.saturating_add(in_memory), &parts));
        if let Some(len) = on.page_cache {
            checks.push(data_directory::page_cache(len, on.page_cache_directory, pool));
        }
    }
    if let Some(datadir) = datadir {
        checks.extend(data_directory::check(datadir, on.volume));
    }
    checks.extend(credentials::check(&on.address, &credentials::Wanted::Volume { name: on.volume, user }));
    let version = server.as_ref().map(|server| server.version);
    checks.extend(node::check(&on.address, on.volume, version));
    checks.push(host::network());
    checks
}

fn node_side(side: &NodeSide<'_>) -> Vec<Check> {
    let data = side.data;
    let uses_tls = side.address.uses_tls();
    let volumes = node_directory::volumes(data);
    let mut checks = vec![host::kernel(), host::clock(uses_tls)];
    checks.extend(node_directory::check(data, &volumes));
    let mut places = node_directory::places(data, &volumes);
    for place in side.places {
        if !places.contains(place) {
            places.push(place.clone());
        }
    }
    for path in &places {
        checks.extend(place::check(path));
        if !redoubt_node::place::is_block_device(path) {
            checks.push(space::check("free_space", path, LEAST_NODE_BYTES, "a node"));
        }
    }
    let count = volumes.len() as u64;
    checks.push(limits::node(count));
    let rings = side.ring.saturating_mul(count.max(1));
    let parts = format!("log buffers of {} volumes take up to {}", count.max(1), bytes(rings));
    checks.push(host::memory(rings, &parts));
    checks.extend(credentials::check(&side.address, &credentials::Wanted::Node));
    checks.push(host::network());
    checks
}
