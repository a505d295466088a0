//! What is read at both ends of a window: bytes on the link, processor time, counters.

use std::collections::BTreeMap;

use mysql::Conn;
use redoubt_workload::error::{Error, Result};

use crate::backend::System;
use crate::network::{Network, Traffic};
use crate::server::ServerCounters;

/// Everything at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Bytes on the link; `None` if they are not counted.
    pub traffic: Option<Traffic>,
    /// Processor time.
    pub cpu: Cpu,
    /// The server's counters.
    pub server: ServerCounters,
    /// Counters of a storage node and of the library.
    pub node: BTreeMap<String, u64>,
}

/// Processor time in milliseconds, of user and system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The server, with what is preloaded into it.
    pub server_ms: u64,
    /// What runs beside the server for its storage.
    pub mount_ms: u64,
    /// What runs on the storage side.
    pub storage_ms: u64,
    /// This program: the clients.
    pub client_ms: u64,
}

impl Snapshot {
    /// Reads everything.
    ///
    /// # Errors
    /// Whatever cannot be read.
    pub fn take(system: &System, network: &Network, conn: &mut Conn) -> Result<Self> {
        let sum = |ids: &[u32]| ids.iter().map(|id| cpu_ms(&id.to_string())).sum::<Result<u64>>();
        let cpu = Cpu {
            server_ms: sum(system.server_id().as_slice())?,
            mount_ms: sum(&system.mounter_ids())?,
            storage_ms: sum(&system.storage_ids())?,
            client_ms: cpu_ms("self")?,
        };
        let traffic = network.traffic()?;
        Ok(Self { traffic, cpu, server: ServerCounters::read(conn)?, node: system.node_counters()? })
    }
}

/// Processor time of a process and its threads.
fn cpu_ms(process: &str) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).map_err(Error::io(format!("read {path}")))?;
    let ticks = parse_ticks(&text).ok_or(Error::Parse { what: path, detail: text })?;
    Ok(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1))
}

/// User and system time: the 14th and 15th field. The second one, the name in parentheses, may hold anything.
fn parse_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_after_any_name() {
        let stat = "123 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14";
        assert_eq!(parse_ticks(stat), Some(300));
        assert_eq!(parse_ticks("123 (x) S 1 2"), None);
    }

    #[test]
    fn own_processor_time_grows() {
        let before = cpu_ms("self").unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while cpu_ms("self").unwrap() < before + 20 {
            assert!(std::time::Instant::now() < until, "no processor time in ten seconds of work");
        }
    }
}
