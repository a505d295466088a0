//! `redoubt doctor`: checks a host and recommends changes.
//!
//! Each check has two functions: the first gathers facts, the second is pure and judges them. Nothing is changed on
//! the host, no volume is attached and no server is started; trials use files without a name.

pub mod args;
mod credentials;
mod data_directory;
mod host;
mod library;
mod limits;
#[cfg_attr(not(feature = "experimental-devices"), path = "doctor/no_local_log.rs")]
mod local_log;
mod locks;
mod node;
mod node_directory;
mod place;
mod report;
mod server;
mod space;

use crate::error::Result;
use crate::show::bytes;
use args::DoctorArguments;
use report::{Check, Report};
use std::path::Path;

/// A volume has spare segments of log, a journal, and pages.
const LEAST_NODE_BYTES: u64 = 1 << 30;

/// Checks and prints.
///
/// # Errors
/// [`CliError::Usage`](crate::error::CliError::Usage) if there is a problem.
pub fn run(arguments: &DoctorArguments) -> Result<()> {
    let report = match &arguments.data {
        Some(data) => Report::new("node", node_side(arguments, data)),
        None if arguments.local_log => Report::new("local-log", local_log::checks(arguments)?),
        None => Report::new("server", server_side(arguments)),
    };
    report.print(arguments.json)
}

fn server_side(arguments: &DoctorArguments) -> Vec<Check> {
    let uses_tls = !matches!(arguments.address.tls_files(), Ok(None));
    let volume = arguments.volume.as_deref();
    let datadir = arguments.datadir.as_deref();
    let mut checks = vec![host::kernel(), host::clock(uses_tls)];
    let (found, library) = library::find(arguments.library.as_deref());
    checks.push(found);
    let (found, server) = server::check(&arguments.command, datadir);
    checks.extend(found);
    let user = server.as_ref().and_then(server::Server::user).and_then(limits::user_number);
    if let Some(server) = &server {
        if let Some(library) = &library {
            checks.push(library::preloads(&server.binary, library));
            checks.extend(library::confinement(&server.binary, library, datadir));
        }
        let number = |name| server.number(name).unwrap_or(0);
        checks.push(limits::server(number("max-connections"), number("table-open-cache")));
        let pool = number("innodb-buffer-pool-size");
        let in_memory =
            arguments.page_cache.filter(|_| arguments.page_cache_directory.is_none()).unwrap_or(0);
        let parts = format!("buffer pool and page cache take {}", bytes(pool + in_memory));
        checks.push(host::memory(pool.saturating_add(in_memory), &parts));
        if let Some(len) = arguments.page_cache {
            checks.push(data_directory::page_cache(len, arguments.page_cache_directory.as_deref(), pool));
        }
    }
    if let Some(datadir) = datadir {
        checks.extend(data_directory::check(datadir, volume));
    }
    checks
        .extend(credentials::check(&arguments.address, &credentials::Wanted::Volume { name: volume, user }));
    let version = server.as_ref().map(|server| server.version);
    checks.extend(node::check(&arguments.address, volume, version));
    checks.push(host::network());
    checks
}

fn node_side(arguments: &DoctorArguments, data: &Path) -> Vec<Check> {
    let uses_tls = !matches!(arguments.address.tls_files(), Ok(None));
    let volumes = node_directory::volumes(data);
    let mut checks = vec![host::kernel(), host::clock(uses_tls)];
    checks.extend(node_directory::check(data, &volumes));
    let mut places = node_directory::places(data, &volumes);
    for place in &arguments.place {
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
    let rings = arguments.ring.saturating_mul(count.max(1));
    let parts = format!("log buffers of {} volumes take up to {}", count.max(1), bytes(rings));
    checks.push(host::memory(rings, &parts));
    checks.extend(credentials::check(&arguments.address, &credentials::Wanted::Node));
    checks.push(host::network());
    checks
}
