//! The servers that are compared, and what their logs have done.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::Options;
use crate::error::{Error, Result};
use crate::launcher::{Launcher, Verify, find_redoubt};
use crate::node::Node;
use crate::product::Product;
use crate::server::{Server, ServerConfig, connect, query_text, status_number};

/// The library sends its counters once per second.
const COUNTERS_INTERVAL: Duration = Duration::from_millis(1200);
const VOLUME: &str = "bench";

/// One server with its log. The server ends before its node, and both before their directories.
pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) version: String,
    pub(super) socket: PathBuf,
    server: Server,
    node: Option<Node>,
    _memory: Option<tempfile::TempDir>,
}

/// Counters of a log, cumulative or of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LogCounters {
    /// Redo bytes of the server.
    pub redo_bytes: u64,
    /// With a node: calls that waited for durable bytes. Else: reads, writes and syncs of the redo files.
    pub waits: u64,
    /// Time in them.
    pub wait_micros: u64,
    /// Wake-ups of those that waited; with a node only.
    pub wakeups: u64,
    /// Stream bytes given to the node's log device.
    pub device_appended_bytes: u64,
    /// Bytes that it wrote for them.
    pub device_written_bytes: u64,
}

impl LogCounters {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            redo_bytes: self.redo_bytes.saturating_sub(before.redo_bytes),
            waits: self.waits.saturating_sub(before.waits),
            wait_micros: self.wait_micros.saturating_sub(before.wait_micros),
            wakeups: self.wakeups.saturating_sub(before.wakeups),
            device_appended_bytes: self.device_appended_bytes.saturating_sub(before.device_appended_bytes),
            device_written_bytes: self.device_written_bytes.saturating_sub(before.device_written_bytes),
        }
    }
}

fn wanted<'a>(options: &Options, names: &[&'a str]) -> Result<Vec<&'a str>> {
    if options.only.is_empty() {
        return Ok(names.to_vec());
    }
    let find = |name: &String| {
        names
            .iter()
            .find(|known| **known == name.as_str())
            .copied()
            .ok_or_else(|| Error::State(format!("--only {name}: there are {}", names.join(", "))))
    };
    options.only.iter().map(find).collect()
}

fn memory_directory(options: &Options) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("rdtm-")
        .tempdir_in(&options.memory)
        .map_err(Error::io_at("make a directory in", &options.memory))
}

/// MariaDB servers, each on a node of its own with another log device.
pub(super) fn on_nodes(options: &Options) -> Result<Vec<Candidate>> {
    let start = |name| {
        let memory = if name == "pmem" { Some(memory_directory(options)?) } else { None };
        let mut arguments = vec!["--log-device", name];
        let path = memory.as_ref().map(|directory| directory.path().display().to_string());
        if let Some(path) = &path {
            arguments.extend(["--pretend-pmem", "--log-path", path]);
        }
        let node = Node::create(&find_redoubt()?, &arguments)?;
        node.create_volume(VOLUME)?;
        let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::Off));
        config.buffer_pool_mib = options.pool;
        Candidate::new(name, Server::create(config)?, Some(node), memory)
    };
    wanted(options, &["file", "block", "pmem"])?.into_iter().map(start).collect()
}

/// MariaDB servers, each on a node of its own, connected in different ways.
pub(super) fn connections(options: &Options) -> Result<Vec<Candidate>> {
    let start = |name| {
        let redoubt = find_redoubt()?;
        let node = match name {
            "tls" => Node::create_with_tls(&redoubt, &[VOLUME], &[])?,
            _ => Node::create(&redoubt, &[])?,
        };
        node.create_volume(VOLUME)?;
        let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::Off));
        config.buffer_pool_mib = options.pool;
        Candidate::new(name, Server::create(config)?, Some(node), None)
    };
    wanted(options, &["plain", "tls"])?.into_iter().map(start).collect()
}

/// MySQL servers with their default sizes, their redo log in different places.
pub(super) fn local(options: &Options) -> Result<Vec<Candidate>> {
    let start = |name| {
        let launcher = if name == "local-log" { Launcher::pretended_local_log()? } else { Launcher::Stock };
        let mut config = ServerConfig::new(launcher).product(Product::find_mysql()?);
        config.buffer_pool_mib = options.pool;
        // The default of MySQL 9.7.
        config.log_file_size_mib = 100;
        let memory = if name == "disk" { None } else { Some(memory_directory(options)?) };
        if let Some(memory) = &memory {
            config = config.innodb_arg(format!("--innodb-log-group-home-dir={}", memory.path().display()));
        }
        Candidate::new(name, Server::create(config)?, None, memory)
    };
    wanted(options, &["disk", "memory", "local-log"])?.into_iter().map(start).collect()
}

impl Candidate {
    fn new(
        name: &'static str,
        server: Server,
        node: Option<Node>,
        memory: Option<tempfile::TempDir>,
    ) -> Result<Self> {
        let version = server.query("SELECT VERSION()")?.concat().concat();
        let socket = server.socket();
        Ok(Self { name, version, socket, server, node, _memory: memory })
    }

    /// Restarts a local server without its binary log.
    pub(super) fn restart_without_binary_log(&mut self) -> Result<()> {
        self.server.shutdown()?;
        self.server.config_mut().server_args.push("--disable-log-bin".to_owned());
        self.server.start()
    }

    /// What the log has done up to now. Background work of the server is in it.
    pub(super) fn log_counters(&self) -> Result<LogCounters> {
        match &self.node {
            Some(node) => {
                // There is no way to ask for the last second's counters.
                std::thread::sleep(COUNTERS_INTERVAL);
                status_counters(&node.status(VOLUME)?)
            }
            None => self.server_counters(),
        }
    }

    fn server_counters(&self) -> Result<LogCounters> {
        let mut conn = connect(&self.socket)?;
        let redo_bytes = status_number(&mut conn, "Innodb_os_log_written")?;
        // Picoseconds of all threads in calls on the redo files.
        let rows = query_text(
            &mut conn,
            "SELECT COUNT_STAR, SUM_TIMER_WAIT DIV 1000000 FROM performance_schema.file_summary_by_event_name \
             WHERE EVENT_NAME = 'wait/io/file/innodb/innodb_log_file'",
        )?;
        let number = |column: usize| {
            let value = rows.first().and_then(|row| row.get(column)?.parse().ok());
            value.ok_or_else(|| Error::Parse {
                what: "performance_schema.file_summary_by_event_name".into(),
                detail: format!("{rows:?}"),
            })
        };
        Ok(LogCounters { redo_bytes, waits: number(0)?, wait_micros: number(1)?, ..LogCounters::default() })
    }
}

fn status_counters(status: &Value) -> Result<LogCounters> {
    let number = |group: &str, name: &str| {
        status.pointer(&format!("/volumes/0/{group}/{name}")).and_then(Value::as_u64).ok_or_else(|| {
            Error::Parse { what: "redoubt status --json".into(), detail: format!("no {group}.{name}") }
        })
    };
    Ok(LogCounters {
        redo_bytes: number("server_counters", "redo_bytes")?,
        waits: number("server_counters", "durability_waits")?,
        wait_micros: number("server_counters", "durability_wait_micros")?,
        wakeups: number("server_counters", "durability_wakeups")?,
        device_appended_bytes: number("counters", "log_device_appended_bytes")?,
        device_written_bytes: number("counters", "log_device_written_bytes")?,
    })
}
