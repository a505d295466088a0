//! Which server: a MariaDB 10.11 of the system, or a MySQL 9.7 that `scripts/fetch-mysql.sh` has fetched.
//!
//! Here is everything in which they differ for a test: program, installation, options.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result, find_program};

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

/// Folder with a fetched MySQL.
const FOLDER_VARIABLE: &str = "REDOUBT_MYSQL";
/// Why there is none, as `./test` found out.
const REASON_VARIABLE: &str = "REDOUBT_MYSQL_MISSING";

impl Product {
    /// A MySQL in the folder that `REDOUBT_MYSQL` names, or in `target/mysql`.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`].
    pub fn find_mysql() -> Result<Self> {
        let folder = std::env::var_os(FOLDER_VARIABLE)
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mysql"), PathBuf::from);
        let program = folder.join("bin/mysqld");
        if !program.is_file() {
            return Err(Error::ProgramMissing(format!(
                "{} (fetch it: scripts/fetch-mysql.sh)",
                program.display()
            )));
        }
        let folder = folder.canonicalize().map_err(Error::io_at("open", &folder))?;
        Ok(Self::MySql { folder, loader: Vec::new() })
    }

    /// [`Product::find_mysql`]; where there is none, says on standard error that `test` is skipped, and why.
    pub fn mysql_or_skip(test: &str) -> Option<Self> {
        match Self::find_mysql() {
            Ok(product) => Some(product),
            Err(error) => {
                let reason = std::env::var(REASON_VARIABLE).unwrap_or_else(|_| error.to_string());
                redoubt_test_support::skip(test, reason);
                None
            }
        }
    }

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
            Self::MariaDb => find_program("mariadbd"),
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
                find_program("mariadb-install-db")?,
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
    pub fn log_size(&self, mib: u32) -> String {
        match self {
            Self::MariaDb => format!("--innodb-log-file-size={mib}M"),
            Self::MySql { .. } => format!("--innodb-redo-log-capacity={mib}M"),
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
        let missing = || Error::ProgramMissing("the loader of a fetched MySQL".into());
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
