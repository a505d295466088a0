//! The loaded database that every recording starts from: a data directory, made once and copied.
//!
//! It lies in `tpcc-...` in the output directory, whose name says what it is of. Invariant: a directory of that name is
//! complete; it is made under another name and renamed.

use std::path::{Path, PathBuf};
use std::process::Command;

use indicatif::ProgressBar;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::run_to_end;
use redoubt_workload::product::Product;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, status_number};
use redoubt_workload::tpcc::{self, DATABASE};

use super::Options;

/// Loading is done once and is not measured: it gets more memory than the server under test.
const LOADING_POOL_MIB: u32 = 1024;
/// Connections that load.
const LOADERS: u32 = 2;
/// Of the random numbers.
pub(super) const SEED: u64 = 1;

/// The loaded database.
#[derive(Debug, Clone)]
pub(super) struct Seed {
    /// The data directory of a server that was shut down cleanly.
    pub(super) datadir: PathBuf,
    /// Version of the server.
    pub(super) version: String,
    /// Length of the tablespaces of the loaded tables, in bytes.
    pub(super) database_bytes: u64,
}

impl Seed {
    /// The one in the output directory, made if it is not there.
    ///
    /// # Errors
    /// Those of a server and of the load.
    pub(super) fn prepare(options: &Options) -> Result<Self> {
        let version = installed_version()?;
        let scale = options.scale();
        let name = format!(
            "tpcc-{version}-w{}-c{}-i{}-log{}",
            scale.warehouses, scale.customers, scale.items, options.log_mib
        );
        let directory = options.out.join(&name);
        if !directory.is_dir() {
            let part = options.out.join(format!("{name}.part"));
            if part.exists() {
                std::fs::remove_dir_all(&part).map_err(Error::io_at("remove", &part))?;
            }
            eprintln!("loading {} warehouses, once", scale.warehouses);
            load(options, &part)?;
            std::fs::rename(&part, &directory).map_err(Error::io_at("rename", &part))?;
        }
        let datadir = directory.join("data");
        let database_bytes = tables_len_bytes(&datadir)?;
        Ok(Self { datadir, version, database_bytes })
    }

    /// Copies the data directory into `to`, which must be empty, with all its bytes written.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub(super) fn copy_to(&self, to: &Path) -> Result<()> {
        // A block that was never written costs a change of the file system's tables at its first write.
        let mut command = Command::new("cp");
        command.args(["--archive", "--sparse=never", "--no-target-directory"]).arg(&self.datadir).arg(to);
        run_to_end(&mut command).map(drop)
    }
}

fn installed_version() -> Result<String> {
    let program = Product::MariaDb.program()?;
    let text = run_to_end(Command::new(program).arg("--version"))?;
    let version =
        text.split_once("Ver ").and_then(|(_, rest)| rest.split_once('-')).map(|(version, _)| version);
    version
        .map(str::to_owned)
        .ok_or_else(|| Error::Parse { what: "the version of mariadbd".into(), detail: text.clone() })
}

fn load(options: &Options, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(Error::io_at("create", directory))?;
    let full = directory.canonicalize().map_err(Error::io_at("find", directory))?;
    // The path of a socket must be short.
    let short = tempfile::Builder::new()
        .prefix("rdtf-")
        .tempdir()
        .map_err(Error::io("make a temporary directory"))?;
    let link = short.path().join("seed");
    std::os::unix::fs::symlink(&full, &link).map_err(Error::io_at("link to", &full))?;
    let mut config = ServerConfig::new(Launcher::Stock)
        .innodb_arg("--innodb-doublewrite=0")
        .server_arg("--innodb-flush-log-at-trx-commit=0")
        .server_arg("--innodb-io-capacity=2000");
    config.buffer_pool_bytes = u64::from(LOADING_POOL_MIB) << 20;
    config.log_file_size_bytes = u64::from(options.log_mib) << 20;
    let mut server = Server::in_directory(config, &link)?;
    server.install_db()?;
    server.start()?;
    tpcc::load(&server.socket(), options.scale(), SEED, LOADERS, &ProgressBar::hidden())?;
    // Nothing is left over that a server under test would have to clean up.
    let mut conn = server.connect()?;
    execute(&mut conn, "SET GLOBAL innodb_fast_shutdown=0")?;
    status_number(&mut conn, "Innodb_page_size")?;
    drop(conn);
    server.shutdown()
}

fn tables_len_bytes(datadir: &Path) -> Result<u64> {
    let directory = datadir.join(DATABASE);
    let mut sum = 0;
    for entry in std::fs::read_dir(&directory).map_err(Error::io_at("list", &directory))? {
        let entry = entry.map_err(Error::io_at("list", &directory))?;
        sum += entry.metadata().map_err(Error::io_at("look at", &entry.path()))?.len();
    }
    Ok(sum)
}
