//! The server product: the MariaDB of the system, or a server that was fetched into a folder of its own.
//!
//! Here is everything in which they differ for those who run them: program, installation, options.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::process::find_program;

/// Debian package of the server.
const MARIADB_PACKAGE: &str = "mariadb-server";

/// A server product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Product {
    /// `mariadbd` in PATH, which is a MariaDB 10.11.
    MariaDb,
    /// One of a folder.
    Fetched {
        /// Which.
        server: FetchedServer,
        /// The folder that `scripts/fetch-server` made.
        folder: PathBuf,
        /// Command that starts it with its dynamic loader; empty: the program in `bin`, which does that.
        loader: Vec<PathBuf>,
    },
}

/// A server that `scripts/fetch-server` fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FetchedServer {
    /// MySQL 9.7.
    MySql97,
    /// MariaDB 11.4.
    MariaDb114,
    /// MariaDB 11.8.
    MariaDb118,
}

impl FetchedServer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::MySql97, Self::MariaDb114, Self::MariaDb118];

    /// Its name for `scripts/fetch-server`, and of its folder below `target`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MySql97 => "mysql-9.7",
            Self::MariaDb114 => "mariadb-11.4",
            Self::MariaDb118 => "mariadb-11.8",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|server| server.name() == name)
    }

    const fn program(self) -> &'static str {
        match self {
            Self::MySql97 => "mysqld",
            Self::MariaDb114 | Self::MariaDb118 => "mariadbd",
        }
    }

    /// Where it has its messages, below the root of its installation.
    const fn share(self) -> &'static str {
        match self {
            Self::MySql97 => "usr/share/mysql",
            Self::MariaDb114 | Self::MariaDb118 => "usr/share/mariadb",
        }
    }

    /// The server in `folder`.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`].
    pub fn find_in(self, folder: &Path) -> Result<Product> {
        let program = folder.join("bin").join(self.program());
        if !program.is_file() {
            let how = format!("fetch it: scripts/fetch-server {}", self.name());
            return Err(Error::missing(program.display().to_string(), &how));
        }
        let folder = folder.canonicalize().map_err(Error::io_at("open", folder))?;
        Ok(Product::Fetched { server: self, folder, loader: Vec::new() })
    }
}

impl Product {
    /// The server in a folder that `scripts/fetch-server` made.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`].
    pub fn in_folder(folder: &Path) -> Result<Self> {
        FetchedServer::ALL.into_iter().find_map(|server| server.find_in(folder).ok()).ok_or_else(|| {
            Error::missing(format!("a server in {}", folder.display()), "fetch it: scripts/fetch-server")
        })
    }

    /// It is a MySQL.
    pub const fn is_mysql(&self) -> bool {
        matches!(self, Self::Fetched { server: FetchedServer::MySql97, .. })
    }

    /// Name of the server program.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::MariaDb => "mariadbd",
            Self::Fetched { server, .. } => server.program(),
        }
    }

    /// Name of the server's process (`/proc/PID/comm`): that of a fetched one is its dynamic loader's.
    pub const fn process_name(&self) -> &'static str {
        match self {
            Self::MariaDb => "mariadbd",
            Self::Fetched { .. } if cfg!(target_arch = "aarch64") => "ld-linux-aarch6",
            Self::Fetched { .. } => "ld-linux-x86-64",
        }
    }

    /// The server program.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`].
    pub fn program(&self) -> Result<PathBuf> {
        match self {
            Self::MariaDb => find_program("mariadbd", MARIADB_PACKAGE),
            Self::Fetched { server, folder, loader } => {
                Ok(loader.first().cloned().unwrap_or_else(|| folder.join("bin").join(server.program())))
            }
        }
    }

    /// Program and first options that make a data directory with a root account without password.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`].
    pub fn installer(&self) -> Result<(PathBuf, Vec<String>)> {
        let (program, options): (_, &[&str]) = match self {
            Self::MariaDb => (
                find_program("mariadb-install-db", MARIADB_PACKAGE)?,
                &[
                    "--no-defaults",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--skip-name-resolve",
                ],
            ),
            Self::Fetched {
                server: FetchedServer::MariaDb114 | FetchedServer::MariaDb118, folder, ..
            } => (folder.join("bin/mariadb-install-db"), &["--no-defaults", "--skip-name-resolve"]),
            Self::Fetched { server: FetchedServer::MySql97, folder, .. } => {
                (folder.join("bin/mysqld"), &["--no-defaults", "--initialize-insecure"])
            }
        };
        Ok((program, options.iter().map(|option| (*option).to_owned()).collect()))
    }

    /// The option for a redo log of this size.
    pub fn log_size(&self, bytes: u64) -> String {
        match self {
            _ if self.is_mysql() => format!("--innodb-redo-log-capacity={bytes}"),
            _ => format!("--innodb-log-file-size={bytes}"),
        }
    }

    /// Options for every start of a server that listens on its socket only.
    pub fn start_options(&self) -> Vec<String> {
        let mut options = vec!["--skip-networking".to_owned(), "--skip-name-resolve".to_owned()];
        if self.is_mysql() {
            options.push("--mysqlx=OFF".to_owned());
        }
        options.extend(self.places());
        options
    }

    /// The server started by its dynamic loader instead of by the script that does that; fetched ones only.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`] for another server, or where there is no such loader.
    pub fn by_loader(self) -> Result<Self> {
        let missing = || Error::missing("the loader of a fetched server", "fetch it: scripts/fetch-server");
        let Self::Fetched { server, folder, .. } = self else { return Err(missing()) };
        let root = folder.join("root");
        let (loader, libraries) = [
            ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
            ("usr/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu"),
        ]
        .map(|(loader, libraries)| (root.join(loader), root.join(libraries)))
        .into_iter()
        .find(|(loader, _)| loader.exists())
        .ok_or_else(missing)?;
        let program = root.join("usr/sbin").join(server.program());
        Ok(Self::Fetched {
            server,
            folder,
            loader: vec![loader, "--library-path".into(), libraries, program],
        })
    }

    /// Words between the program and its options.
    pub fn words(&self) -> &[PathBuf] {
        match self {
            Self::Fetched { loader, .. } => loader.get(1..).unwrap_or_default(),
            Self::MariaDb => &[],
        }
    }

    /// Options with the paths of a server's own files, if it needs them.
    fn places(&self) -> Vec<String> {
        match self {
            Self::Fetched { server, folder, loader } if !loader.is_empty() => {
                let root = folder.join("root");
                let share = server.share();
                let option = |name: &str, path: &str| format!("--{name}={}", root.join(path).display());
                let mut options = vec![
                    option("basedir", "usr"),
                    option("lc-messages-dir", share),
                    option("plugin-dir", "usr/lib/mysql/plugin"),
                    option("character-sets-dir", &format!("{share}/charsets")),
                ];
                if *server == FetchedServer::MySql97 {
                    options.push("--secure-file-priv=NULL".to_owned());
                }
                options
            }
            _ => Vec::new(),
        }
    }
}
