//! Values read at both ends of a window: bytes on the link, CPU time, counters.

use std::collections::BTreeMap;

use mysql::Conn;
use redoubt_workload::error::Result;
use redoubt_workload::process::processor_ms;

use crate::backend::System;
use crate::network::{Network, Traffic};
use crate::server::ServerCounters;

/// Everything at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Bytes on the link; `None` if they are not counted.
    pub traffic: Option<Traffic>,
    /// CPU time.
    pub cpu: Cpu,
    /// The server's counters.
    pub server: ServerCounters,
    /// Counters of a storage node and of the library.
    pub node: BTreeMap<String, u64>,
}

/// User and system CPU time in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The server, with what is preloaded into it.
    pub server_ms: u64,
    /// Processes beside the server for its storage.
    pub mount_ms: u64,
    /// Processes on the storage side.
    pub storage_ms: u64,
    /// This program: the clients.
    pub client_ms: u64,
}

impl Snapshot {
    /// Reads everything.
    ///
    /// # Errors
    /// The first value that cannot be read.
    pub fn take(system: &System, network: &Network, conn: &mut Conn) -> Result<Self> {
        let sum = |ids: &[u32]| ids.iter().map(|id| processor_ms(&id.to_string())).sum::<Result<u64>>();
        let cpu = Cpu {
            server_ms: sum(system.server_id().as_slice())?,
            mount_ms: sum(&system.mounter_ids())?,
            storage_ms: sum(&system.storage_ids())?,
            client_ms: processor_ms("self")?,
        };
        let traffic = network.traffic()?;
        Ok(Self { traffic, cpu, server: ServerCounters::read(conn)?, node: system.node_counters()? })
    }
}
