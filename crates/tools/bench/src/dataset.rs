//! The initial data of all runs. A plain server loads it and shuts down cleanly; each run gets a copy.
//!
//! Layout of the directory: `data/` is the data directory of the stopped server. `node/` is a storage node's directory
//! with the same data imported, `disk.img` an ext4 file system with it; both are made at their first use. `complete`
//! describes the contents: a directory without it is incomplete and is made again. Afterwards the directory is
//! read-only.

use std::path::{Path, PathBuf};
use std::process::Command;

use indicatif::{ProgressBar, ProgressStyle};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::oltp;
use redoubt_workload::process::{find_program, run_to_end};
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;
use redoubt_workload::tpcc;

use crate::args::{Options, Workload};
use crate::server::{config, version};

/// Buffer pool for loading.
const LOAD_POOL_BYTES: u64 = 1 << 30;

/// A directory with loaded data, and copies derived from it.
#[derive(Debug)]
pub struct DataSet {
    directory: PathBuf,
}

impl DataSet {
    /// The data set of these options below `parent`; loaded unless it is there.
    ///
    /// # Errors
    /// Any error that prevents the server from being loaded.
    pub fn prepare(parent: &Path, options: &Options) -> Result<Self> {
        let name = name(options);
        let set = Self { directory: parent.join(format!("dataset-{name}")) };
        let what = format!("{name}\n{}\nredo log {} bytes\n", version(options)?, options.log_size);
        let mark = set.directory.join("complete");
        if std::fs::read_to_string(&mark).is_ok_and(|text| text == what) {
            return Ok(set);
        }
        if set.directory.exists() {
            std::fs::remove_dir_all(&set.directory).map_err(Error::io_at("remove", &set.directory))?;
        }
        std::fs::create_dir_all(&set.directory).map_err(Error::io_at("create", &set.directory))?;
        set.load(parent, options)?;
        std::fs::write(&mark, what).map_err(Error::io_at("write", &mark))?;
        Ok(set)
    }

    fn load(&self, parent: &Path, options: &Options) -> Result<()> {
        let work = tempfile::Builder::new()
            .prefix("load-")
            .tempdir_in(parent)
            .map_err(Error::io_at("make a directory in", parent))?;
        let config = config(options, Launcher::Stock, LOAD_POOL_BYTES)?;
        let mut server = Server::with_datadir(config, work.path(), &self.data())?;
        server.install_db()?;
        // These options avoid writing everything twice during the load. The resulting data on disk is the same.
        server.start_with(&["--innodb-doublewrite=0", "--innodb-flush-log-at-trx-commit=0"])?;
        let bar = bar("loading");
        let threads = std::thread::available_parallelism().map_or(2, usize::from) as u32;
        let socket = server.socket();
        match options.workload {
            Workload::Tpcc => tpcc::load(&socket, tpcc_scale(options), options.seed, threads, &bar)?,
            Workload::Oltp(_) => oltp::load(&socket, oltp_scale(options), options.seed, threads, &bar)?,
        }
        bar.set_message("stopping the loaded server");
        // Nothing left to purge: no run would begin with another's work.
        execute(&mut server.connect()?, "SET GLOBAL innodb_fast_shutdown = 0")?;
        server.shutdown()?;
        bar.finish_and_clear();
        Ok(())
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// A file or directory made from the data directory, by `make` at its first use.
    ///
    /// # Errors
    /// That of `make`.
    pub fn derived(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let (path, part) = (self.directory.join(name), self.directory.join(format!("{name}.part")));
        if path.exists() {
            return Ok(path);
        }
        if part.is_dir() {
            std::fs::remove_dir_all(&part).map_err(Error::io_at("remove", &part))?;
        } else if part.exists() {
            std::fs::remove_file(&part).map_err(Error::io_at("remove", &part))?;
        }
        make(&part)?;
        std::fs::rename(&part, &path).map_err(Error::io_at("rename", &part))?;
        Ok(path)
    }

    /// Bytes that the data directory takes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn len_bytes(&self) -> Result<u64> {
        directory_len_bytes(&self.data())
    }
}

/// Length of all files below.
///
/// # Errors
/// [`Error::Io`].
pub fn directory_len_bytes(path: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(path).map_err(Error::io_at("read", path))? {
        let entry = entry.map_err(Error::io_at("read", path))?;
        let metadata = entry.metadata().map_err(Error::io_at("look at", &entry.path()))?;
        total += if metadata.is_dir() { directory_len_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(total)
}

/// Copies a file or directory and waits until the copy is on disk, so that writing it back does not disturb the run.
///
/// # Errors
/// [`Error::Command`].
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new(find_program("cp", "coreutils")?);
    run_to_end(command.args(["-a", "--reflink=auto", "--sparse=always"]).arg(from).arg(to))?;
    sync(to)
}

/// File by file: not what others have written on the same disk.
fn sync(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(Error::io_at("read", path))? {
            sync(&entry.map_err(Error::io_at("read", path))?.path())?;
        }
        return Ok(());
    }
    let file = std::fs::File::open(path).map_err(Error::io_at("open", path))?;
    file.sync_all().map_err(Error::io_at("sync", path))
}

/// Size of TPC-C's database.
pub fn tpcc_scale(options: &Options) -> tpcc::Scale {
    let mut scale = tpcc::Scale::new(options.warehouses);
    scale.foreign_keys = !options.no_foreign_keys;
    if let Some((customers, items)) = options.scale {
        (scale.customers, scale.items) = (customers, items);
    }
    scale
}

/// Size of sysbench's database.
pub fn oltp_scale(options: &Options) -> oltp::Scale {
    oltp::Scale { tables: options.tables, rows: options.rows }
}

/// The name of a data set, unique for its contents.
fn name(options: &Options) -> String {
    let seed = options.seed;
    match options.workload {
        Workload::Tpcc => {
            let scale = tpcc_scale(options);
            let keys = if scale.foreign_keys { "" } else { "-nokeys" };
            format!("tpcc-{}w-{}c-{}i{keys}-seed{seed}", scale.warehouses, scale.customers, scale.items)
        }
        Workload::Oltp(_) => format!("oltp-{}t-{}r-seed{seed}", options.tables, options.rows),
    }
}

/// A bar on a terminal, nothing elsewhere.
pub fn bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(0).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar
}
