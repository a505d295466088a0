//! How a server program is started: directly, or with the Redoubt library through `redoubt run`.
//!
//! Invariant: with either launcher the returned command becomes the server process itself (`redoubt run`
//! replaces itself by `exec`), so the child's process id is the server's.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// How many of the pages served are compared with what the server would have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Every page.
    All,
    /// One page in this many.
    OneIn(u32),
    /// None.
    Off,
    /// As `redoubt run` chooses for the server.
    Default,
}

impl fmt::Display for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::OneIn(count) => write!(f, "1/{count}"),
            Self::Off => f.write_str("off"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// How server programs are started.
#[derive(Debug, Clone)]
pub enum Launcher {
    /// The stock server, untouched, on the local file system.
    Stock,
    /// The same server with the Redoubt library preloaded and a volume of a storage node.
    Redoubt {
        /// Address of the storage node.
        node_addr: SocketAddr,
        /// Volume name; it must exist.
        volume: String,
        /// The `redoubt` command; `libredoubt.so` lies next to it.
        redoubt_bin: PathBuf,
        /// Page comparison.
        verify: Verify,
        /// Further options of `redoubt run`.
        options: Vec<String>,
    },
    /// The same server on a view of a volume, `redoubt run --reader`: it takes nothing over.
    Reader {
        /// Address of the storage node.
        node_addr: SocketAddr,
        /// Volume name; it must not be empty.
        volume: String,
        /// The `redoubt` command.
        redoubt_bin: PathBuf,
    },
    /// The same server with the library preloaded and no storage node: its redo log in (pretended) persistent memory.
    LocalLog {
        /// The `redoubt` command; `libredoubt.so` lies next to it.
        redoubt_bin: PathBuf,
        /// Further options of `redoubt run --local-log`.
        options: Vec<String>,
    },
    /// The stock server with the network library.
    Net {
        /// The `redoubt` command; `libredoubt_net.so` lies next to it.
        redoubt_bin: PathBuf,
        /// Options of `redoubt net run`.
        options: Vec<String>,
    },
}

impl Launcher {
    /// A local log with the `redoubt` command that was built, on tmpfs.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`] when it was not.
    pub fn pretended_local_log() -> Result<Self> {
        Ok(Self::LocalLog { redoubt_bin: find_redoubt()?, options: vec!["--pretend-pmem".to_owned()] })
    }

    /// True for [`Launcher::Redoubt`]: InnoDB files in the data directory are then only stubs.
    pub fn is_redoubt(&self) -> bool {
        matches!(self, Self::Redoubt { .. })
    }

    /// The command that runs `program` on `datadir`; the caller adds the program's arguments.
    pub fn command(&self, program: &Path, datadir: &Path) -> Command {
        match self {
            Self::Stock => Command::new(program),
            Self::Redoubt { node_addr, volume, redoubt_bin, verify, options } => {
                let mut command = Command::new(redoubt_bin);
                command.arg("run").arg("--node").arg(node_addr.to_string());
                command.arg("--volume").arg(volume).arg("--datadir").arg(datadir);
                if *verify != Verify::Default {
                    command.arg(format!("--verify={verify}"));
                }
                command.args(options).arg("--").arg(program);
                command
            }
            Self::Reader { node_addr, volume, redoubt_bin } => {
                let mut command = Command::new(redoubt_bin);
                command.args(["run", "--reader", "--node"]).arg(node_addr.to_string());
                command.arg("--volume").arg(volume).arg("--datadir").arg(datadir).arg("--").arg(program);
                command
            }
            Self::LocalLog { redoubt_bin, options } => {
                let mut command = Command::new(redoubt_bin);
                command.args(["run", "--local-log"]).args(options);
                command.arg("--datadir").arg(datadir).arg("--").arg(program);
                command
            }
            Self::Net { redoubt_bin, options } => {
                let mut command = Command::new(redoubt_bin);
                command.args(["net", "run"]).args(options).arg("--").arg(program);
                command
            }
        }
    }
}

/// Finds the `redoubt` command: `REDOUBT_BIN`, or next to the running test or tool in the target directory.
///
/// # Errors
/// [`Error::ProgramMissing`] when it has not been built.
pub fn find_redoubt() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("REDOUBT_BIN").map(PathBuf::from) {
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Error::missing(path.display().to_string(), "REDOUBT_BIN names it"))
        };
    }
    let current = std::env::current_exe().map_err(Error::io("find the running program"))?;
    // Tests run from target/PROFILE/deps, tools from target/PROFILE.
    current
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("redoubt"))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Error::missing("redoubt", "build it: cargo build --release --workspace"))
}
