//! The configuration that all servers share, so that they differ only in their storage; and their counters.

use std::process::Command;
use std::time::Duration;

use mysql::Conn;
use mysql::prelude::Queryable;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::run_to_end;
use redoubt_workload::product::Product;
use redoubt_workload::server::ServerConfig;

use crate::args::Options;

/// How long a start may take, and an orderly end, which writes the whole buffer pool over a slow link.
const START_TIMEOUT: Duration = Duration::from_secs(300);
const STOP_TIMEOUT: Duration = Duration::from_secs(1800);

fn product(options: &Options) -> Result<Product> {
    if options.server.is_dir() { Product::in_folder(&options.server) } else { Ok(Product::MariaDb) }
}

/// The server configuration of these options.
///
/// # Errors
/// [`Error::ProgramMissing`] for a folder without a server.
pub fn config(options: &Options, launcher: Launcher, pool_bytes: u64) -> Result<ServerConfig> {
    let mut config = ServerConfig::new(launcher).product(product(options)?);
    // A name alone is looked for where servers are.
    let is_program = !options.server.is_dir() && options.server.components().count() > 1;
    config.program = is_program.then(|| options.server.clone());
    config.buffer_pool_bytes = pool_bytes;
    config.log_file_size_bytes = options.log_size;
    (config.ready_timeout, config.stop_timeout) = (START_TIMEOUT, STOP_TIMEOUT);
    config.server_args = [
        "--innodb-flush-log-at-trx-commit=1",
        // Pages that a run before had in memory would be read again at the start.
        "--innodb-buffer-pool-dump-at-shutdown=0",
        "--innodb-buffer-pool-load-at-startup=0",
        "--skip-log-bin",
    ]
    .map(str::to_owned)
    .to_vec();
    config.server_args.push(format!("--max-connections={}", options.clients + 50));
    config.server_args.extend(options.server_option.iter().cloned());
    Ok(config)
}

/// The version that the server of these options reports.
///
/// # Errors
/// [`Error::ProgramMissing`] without a server, [`Error::Command`].
pub fn version(options: &Options) -> Result<String> {
    let program = config(options, Launcher::Stock, 0)?.program()?;
    run_to_end(Command::new(program).arg("--version")).map(|text| text.trim().to_owned())
}

/// Counters of a server that matter here, since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Pages in the buffer pool that are newer than in storage.
    pub dirty_pages: u64,
    /// Redo.
    pub redo_bytes: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Pages written.
    pub pages_written: u64,
}

impl ServerCounters {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::Parse`].
    pub fn read(conn: &mut Conn) -> Result<Self> {
        const QUERY: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_buffer_pool_pages_dirty', \
            'Innodb_os_log_written', 'Innodb_pages_read', 'Innodb_pages_written')";
        let rows: Vec<(String, u64)> = conn.query(QUERY).map_err(Error::sql(QUERY))?;
        let find = |name: &str| {
            rows.iter().find(|row| row.0.eq_ignore_ascii_case(name)).map(|row| row.1).ok_or_else(|| {
                Error::Parse { what: "the server's status".to_owned(), detail: format!("no {name}") }
            })
        };
        Ok(Self {
            dirty_pages: find("Innodb_buffer_pool_pages_dirty")?,
            redo_bytes: find("Innodb_os_log_written")?,
            pages_read: find("Innodb_pages_read")?,
            pages_written: find("Innodb_pages_written")?,
        })
    }
}
