//! Settings of a node, each with its effect, default and smallest value.

use crate::at_rest::AtRest;
use crate::descriptors;
use crate::log_device::LogOptions;
use crate::memory::MemoryBudget;
use crate::page_store::PageOptions;
use crate::place::RawDevices;
use crate::scrub::ScrubOptions;
use crate::server::ConnectionLimits;
use redoubt_storage::FileBudget;
use redoubt_transport::ServerTls;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Settings of a node; the same for all its volumes.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Directory that holds the volumes.
    pub data_directory: PathBuf,
    /// Address to listen on, `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Length of a volume's log buffer: received bytes that are not yet applied. More means fewer page writes on
    /// the node (a page changed a thousand times is written once) and more memory. Default 256 MiB, at least 16 MiB.
    pub ring_len_bytes: u64,
    /// Memory bound of all volumes together: frames that are not applied yet, and their index. Default a quarter of the
    /// host's memory, at least 1 GiB. Shared by the copies of these options.
    pub memory: Arc<MemoryBudget>,
    /// Rate of an export while a server writes the volume; otherwise its speed is not limited. Default 16 MiB/s.
    pub export_rate_bytes_per_second: u64,
    /// How and when everything that is stored is read.
    pub scrub: ScrubOptions,
    /// Stream bytes per table of the log index, applied together. Default a quarter of the log buffer, at least 1 MiB.
    pub batch_len_bytes: u64,
    /// A table is applied after this time even if it is not full. A longer time
    /// means fewer page writes. Default 60 s.
    pub apply_interval: Duration,
    /// Length of the changes in a volume's names file before the file may be replaced. Default 1 MiB.
    pub names_log_len_bytes: u64,
    /// Threads that apply a table. Default: the number of cores.
    pub apply_workers: usize,
    /// Storage of pages.
    pub pages: PageOptions,
    /// Storage of logs.
    pub log: LogOptions,
    /// Users that may use the socket for servers on this host, besides root and the node's own user; `None`: there is
    /// no such socket. Default: no other users.
    pub local_users: Option<Vec<u32>>,
    /// TLS with certificates on both sides; `None`: plain text, where every peer may do everything.
    pub tls: Option<Arc<ServerTls>>,
    /// Offer plain text to other hosts too.
    pub allow_plain_text: bool,
    /// How many connections there may be, and how long they may take.
    pub connections: ConnectionLimits,
    /// Address of this node's status page, for display only: the program that embeds the node serves the page.
    pub status_page: Option<SocketAddr>,
    /// The raw devices that are open, shared by the copies of these options.
    pub devices: Arc<RawDevices>,
    /// Bound of the open files of all volumes together, shared by the copies of these options. Default: a share of the
    /// descriptors that the process may have open ([`descriptors`]).
    pub open_files: Arc<FileBudget>,
    /// Idle volumes that stay open. Others are closed until the next request for them. Default 64, or fewer by the bound
    /// of open files ([`descriptors::idle_volumes`]).
    pub idle_volumes: usize,
    /// The keys of encrypted volumes, shared by the copies of these options. Default: there are none.
    pub at_rest: Arc<AtRest>,
}

impl NodeOptions {
    /// The defaults.
    pub fn new(data_directory: PathBuf, listen: String) -> Self {
        let open_files = descriptors::open_files();
        Self {
            data_directory,
            listen,
            ring_len_bytes: 256 << 20,
            memory: Arc::default(),
            export_rate_bytes_per_second: 16 << 20,
            scrub: ScrubOptions::default(),
            batch_len_bytes: 64 << 20,
            apply_interval: Duration::from_secs(60),
            names_log_len_bytes: 1 << 20,
            apply_workers: std::thread::available_parallelism().map_or(1, usize::from),
            pages: PageOptions::default(),
            log: LogOptions::default(),
            local_users: Some(Vec::new()),
            tls: None,
            allow_plain_text: false,
            connections: ConnectionLimits::default(),
            status_page: None,
            devices: Arc::default(),
            idle_volumes: descriptors::idle_volumes(open_files.limit()),
            open_files,
            at_rest: Arc::default(),
        }
    }

    /// Locations for parts of new volumes outside of the volume's directory.
    pub fn places(&self) -> Vec<&Path> {
        let places = [&self.log.place, &self.pages.journal_place, &self.pages.pages_place];
        places.into_iter().filter_map(Option::as_deref).collect()
    }
}
