//! Which server: a MariaDB 10.11 of the system, or a MySQL 9.7 in a folder of its own.
//!
//! Here is everything in which they differ for those who run them: program, installation, options.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::process::find_program;

/// Debian package of the server.
const MARIADB_PACKAGE: &str = "mariadb-server";

/// A server product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Product {
    /// `mariadbd` in PATH.
    MariaDb,
    /// `bin/mysqld` of a folder.
    MySql {
        /// What `scripts/fetch-mysql.sh` made.
        folder: PathBuf,
        /// Command that starts it with its dynamic loader; empty: `bin/mysqld`, which does that.
        loader: Vec<PathBuf>,
    },
}

impl Product {
    /// Name of the server program.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::MariaDb => "mariadbd",
            Self::MySql { .. } => "mysqld",
        }
    }

    /// The server program.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`].
    pub fn program(&self) -> Result<PathBuf> {
        match self {
            Self::MariaDb => find_program("mariadbd", MARIADB_PACKAGE),
            Self::MySql { folder, loader } => {
                Ok(loader.first().cloned().unwrap_or_else(|| folder.join("bin/mysqld")))
            }
        }
    }

    /// Program and first options that make a data directory with a root account without password.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`].
    pub fn installer(&self) -> Result<(PathBuf, Vec<String>)> {
        match self {
            Self::MariaDb => Ok((
                find_program("mariadb-install-db", MARIADB_PACKAGE)?,
                [
                    "--no-defaults",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--skip-name-resolve",
                ]
                .map(str::to_owned)
                .to_vec(),
            )),
            Self::MySql { folder, .. } => Ok((
                folder.join("bin/mysqld"),
                ["--no-defaults", "--initialize-insecure"].map(str::to_owned).to_vec(),
            )),
        }
    }

    /// The option for a redo log of this size.
    pub fn log_size(&self, bytes: u64) -> String {
        match self {
            Self::MariaDb => format!("--innodb-log-file-size={bytes}"),
            Self::MySql { .. } => format!("--innodb-redo-log-capacity={bytes}"),
        }
    }

    /// Options for every start of a server that listens on its socket only.
    pub fn start_options(&self) -> Vec<String> {
        let mut options = vec!["--skip-networking".to_owned(), "--skip-name-resolve".to_owned()];
        if matches!(self, Self::MySql { .. }) {
            options.push("--mysqlx=OFF".to_owned());
        }
        options.extend(self.places());
        options
    }

    /// The server started by its dynamic loader instead of by the script that does that; MySQL only.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`] for another server, or where there is no such loader.
    pub fn by_loader(self) -> Result<Self> {
        let missing = || Error::missing("the loader of a fetched MySQL", "fetch it: scripts/fetch-mysql.sh");
        let Self::MySql { folder, .. } = self else { return Err(missing()) };
        let root = folder.join("root");
        let (loader, libraries) = [
            ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
            ("usr/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu"),
        ]
        .map(|(loader, libraries)| (root.join(loader), root.join(libraries)))
        .into_iter()
        .find(|(loader, _)| loader.exists())
        .ok_or_else(missing)?;
        let words = vec![loader, "--library-path".into(), libraries, root.join("usr/sbin/mysqld")];
        Ok(Self::MySql { folder, loader: words })
    }

    /// Words between the program and its options.
    pub fn words(&self) -> &[PathBuf] {
        match self {
            Self::MySql { loader, .. } => loader.get(1..).unwrap_or_default(),
            Self::MariaDb => &[],
        }
    }

    /// Where a server finds its own files, if it has to be told.
    fn places(&self) -> Vec<String> {
        match self {
            Self::MySql { folder, loader } if !loader.is_empty() => {
                let root = folder.join("root");
                let option = |name: &str, path: &str| format!("--{name}={}", root.join(path).display());
                vec![
                    option("basedir", "usr"),
                    option("lc-messages-dir", "usr/share/mysql"),
                    option("plugin-dir", "usr/lib/mysql/plugin"),
                    option("character-sets-dir", "usr/share/mysql/charsets"),
                    "--secure-file-priv=NULL".to_owned(),
                ]
            }
            _ => Vec::new(),
        }
    }
}
