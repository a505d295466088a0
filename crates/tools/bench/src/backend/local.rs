//! The plain server on the local disk; its redo log, if wanted, in memory, with or without the library.
//!
//! Memory is tmpfs, that is DRAM: an upper bound for what persistent memory below the log can give. From the disk to
//! memory is what the place of the log gives, from there to the library what system calls cost that are not made.

use std::path::Path;

use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;

use super::{Environment, Storage, System};
use crate::args::Backend;
use crate::dataset::copy;

/// The redo log's file.
const LOG: &str = "ib_logfile0";

pub(super) fn start(
    environment: &Environment<'_>,
    directory: tempfile::TempDir,
    backend: Backend,
    pool_bytes: u64,
) -> Result<System> {
    let data = directory.path().join("data");
    copy(&environment.data.data(), &data)?;
    let launcher = match backend {
        Backend::LocalLog => Launcher::LocalLog {
            redoubt_bin: environment.redoubt.to_owned(),
            options: vec!["--pretend-pmem".to_owned()],
        },
        _ => Launcher::Stock,
    };
    let paths = (directory.path(), data.as_path());
    let (server, storage) = if backend == Backend::Local {
        (environment.server(launcher, paths, pool_bytes, &[])?, Storage::None)
    } else {
        let memory = environment.memory()?;
        move_log(&data, memory.path())?;
        let place = format!("--innodb-log-group-home-dir={}", memory.path().display());
        let server = environment.server(launcher, paths, pool_bytes, &[&place])?;
        (server, Storage::Memory(memory))
    };
    Ok(System {
        server,
        _mounts: Vec::new(),
        mounters: Vec::new(),
        storage,
        _delay: None,
        _directory: directory,
    })
}

fn move_log(data: &Path, memory: &Path) -> Result<()> {
    let log = data.join(LOG);
    std::fs::copy(&log, memory.join(LOG)).map_err(Error::io_at("copy", &log))?;
    std::fs::remove_file(&log).map_err(Error::io_at("remove", &log))
}
