//! One MariaDB or MySQL server in a temporary directory of its own.
//!
//! Layout of the directory: `data/` the data directory, `tmp/` its temporary files, `s.sock` the socket,
//! `error.log` the error log (appended over restarts), `install.log` of the bootstrap. The directory has a
//! short path because a socket path may have at most 107 bytes.
//!
//! Invariants: the server listens on the socket only; dropping kills this server and no other; the error
//! log and socket live outside `data/`, so a data directory can be replaced by an empty one.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};

use crate::error::{Error, Result, tail};
use crate::launcher::Launcher;
use crate::process::{Process, poll_until, run_to_end};
use crate::product::Product;

/// What a server is started with. Sizes are small, so that a test touches the disk early.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Which server.
    pub product: Product,
    /// How the programs are started.
    pub launcher: Launcher,
    /// Page size in bytes, 4096 to 65536; fixed at installation.
    pub page_size_bytes: u32,
    /// Buffer pool in MiB.
    pub buffer_pool_mib: u32,
    /// Redo log in MiB.
    pub log_file_size_mib: u32,
    /// Further arguments, for the bootstrap and for every start (`--innodb-...`).
    pub innodb_args: Vec<String>,
    /// Further arguments for every start only.
    pub server_args: Vec<String>,
    /// Added to the environment of every start.
    pub environment: Vec<(String, OsString)>,
    /// How long a start, with recovery, may take.
    pub ready_timeout: Duration,
}

impl ServerConfig {
    /// 16 KiB pages, 128 MiB pool, 96 MiB redo log, nothing special.
    pub fn new(launcher: Launcher) -> Self {
        Self {
            product: Product::MariaDb,
            launcher,
            page_size_bytes: 16384,
            buffer_pool_mib: 128,
            log_file_size_mib: 96,
            innodb_args: Vec::new(),
            server_args: Vec::new(),
            environment: Vec::new(),
            ready_timeout: Duration::from_secs(120),
        }
    }

    /// The same for another server.
    pub fn product(mut self, product: Product) -> Self {
        self.product = product;
        self
    }

    /// Adds an argument for the bootstrap and every start.
    pub fn innodb_arg(mut self, arg: impl Into<String>) -> Self {
        self.innodb_args.push(arg.into());
        self
    }

    /// Adds an argument for every start.
    pub fn server_arg(mut self, arg: impl Into<String>) -> Self {
        self.server_args.push(arg.into());
        self
    }

    fn common_args(&self) -> Vec<String> {
        let mut args = vec![
            format!("--innodb-page-size={}", self.page_size_bytes),
            self.product.log_size(self.log_file_size_mib),
            format!("--innodb-buffer-pool-size={}M", self.buffer_pool_mib),
        ];
        args.extend(self.innodb_args.iter().cloned());
        if running_as_root() {
            args.push("--user=root".into());
        }
        args
    }
}

/// How long an orderly shutdown may take before it counts as failed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(120);
/// What a client waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// A server and its directory.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    directory: PathBuf,
    // Owns `directory` unless the caller asked to keep it.
    _temporary: Option<tempfile::TempDir>,
    process: Option<Process>,
}

impl Server {
    /// A server in a fresh temporary directory, not installed and not started.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be made.
    pub fn new(config: ServerConfig) -> Result<Self> {
        Self::new_below(config, &std::env::temp_dir())
    }

    /// [`Server::new`] with its temporary directory inside `parent`.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be made.
    pub fn new_below(config: ServerConfig, parent: &Path) -> Result<Self> {
        let temporary = tempfile::Builder::new()
            .prefix("rdt-")
            .tempdir_in(parent)
            .map_err(Error::io_at("make a temporary directory in", parent))?;
        let mut server = Self::in_directory(config, temporary.path())?;
        server._temporary = Some(temporary);
        Ok(server)
    }

    /// A server in a given directory, which is kept.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be made.
    pub fn in_directory(config: ServerConfig, directory: &Path) -> Result<Self> {
        for part in ["data", "tmp"] {
            let path = directory.join(part);
            std::fs::create_dir_all(&path).map_err(Error::io_at("create", &path))?;
        }
        Ok(Self { config, directory: directory.to_owned(), _temporary: None, process: None })
    }

    /// Creates, installs and starts a server, and waits until it answers.
    ///
    /// # Errors
    /// The first that fails.
    pub fn create(config: ServerConfig) -> Result<Self> {
        let mut server = Self::new(config)?;
        server.install_db()?;
        server.start()?;
        Ok(server)
    }

    /// The data directory.
    pub fn datadir(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("s.sock")
    }

    /// The directory that holds everything of this server.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What the server is started with; changes count from the next start.
    pub fn config_mut(&mut self) -> &mut ServerConfig {
        &mut self.config
    }

    /// What the server is started with.
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// The process id of the running server.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Bootstraps the data directory, through the launcher.
    ///
    /// # Errors
    /// [`Error::Command`] with the output of the bootstrap.
    pub fn install_db(&mut self) -> Result<()> {
        let (program, arguments) = self.config.product.installer()?;
        let datadir = self.datadir();
        let mut command = self.config.launcher.command(&program, &datadir);
        command
            .args(arguments)
            .arg(format!("--datadir={}", datadir.display()))
            .args(self.config.common_args())
            // A server that starts removes the temporary tables of any other that has the same directory for them.
            .env("TMPDIR", self.directory.join("tmp"))
            .stdin(Stdio::null());
        let output = run_to_end("the installation of a server", &mut command)?;
        let log = self.directory.join("install.log");
        std::fs::write(&log, output).map_err(Error::io_at("write", &log))
    }

    /// Starts the server and waits until it answers on its socket.
    ///
    /// # Errors
    /// [`Error::Exited`] or [`Error::Deadline`] with the end of the error log.
    pub fn start(&mut self) -> Result<()> {
        self.start_with(&[])
    }

    /// [`Server::start`] with arguments for this one start.
    ///
    /// # Errors
    /// As for [`Server::start`].
    pub fn start_with(&mut self, extra_args: &[&str]) -> Result<()> {
        self.spawn(extra_args)?;
        self.wait_ready()
    }

    /// Starts the server without waiting; [`Server::wait_ready`] comes after.
    ///
    /// # Errors
    /// [`Error::State`] when it runs already, [`Error::Io`] when it cannot be started.
    pub fn spawn(&mut self, extra_args: &[&str]) -> Result<()> {
        if self.process.is_some() {
            return Err(Error::State(format!("the server in {} runs already", self.directory.display())));
        }
        // A socket left by a killed server would let a poll see the wrong error; the new server makes its own.
        let _ = std::fs::remove_file(self.socket());
        let datadir = self.datadir();
        let log = self.open_log()?;
        let log_too = log.try_clone().map_err(Error::io("duplicate the error log"))?;
        let mut command = self.config.launcher.command(&self.config.product.program()?, &datadir);
        command
            .args(self.config.product.words())
            .arg("--no-defaults")
            .arg(format!("--datadir={}", datadir.display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--tmpdir={}", self.directory.join("tmp").display()))
            .arg(format!("--pid-file={}", self.directory.join("s.pid").display()))
            .args(self.config.product.start_options())
            .arg("--loose-innodb-print-all-deadlocks=OFF")
            .args(self.config.common_args())
            .args(&self.config.server_args)
            .args(extra_args)
            .envs(self.config.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too);
        self.process = Some(Process::spawn(self.config.product.name(), &mut command)?);
        Ok(())
    }

    /// Waits until the server answers a query.
    ///
    /// # Errors
    /// [`Error::Exited`] when it ended, [`Error::Deadline`] when it is not ready in time.
    pub fn wait_ready(&mut self) -> Result<()> {
        let socket = self.socket();
        let timeout = self.config.ready_timeout;
        let log = self.error_log_path();
        let name = self.config.product.name();
        let Some(process) = self.process.as_mut() else {
            return Err(Error::State("the server was not started".into()));
        };
        let ready = poll_until("the server's readiness", timeout, || {
            if let Some(status) = process.try_wait()? {
                return Err(Error::Exited {
                    name: name.into(),
                    status: status.to_string(),
                    log_tail: tail(&log, 30),
                });
            }
            match connect(&socket).and_then(|mut conn| ping(&mut conn)) {
                Ok(()) => Ok(Some(())),
                Err(error) if error.is_connection_loss() => Ok(None),
                Err(error) => Err(error),
            }
        });
        match ready {
            Err(Error::Exited { name, status, log_tail }) => {
                self.process = None;
                Err(Error::Exited { name, status, log_tail })
            }
            Err(Error::Deadline { what, after, .. }) => {
                Err(Error::Deadline { what, after, detail: self.error_log_tail(30) })
            }
            other => other,
        }
    }

    /// Kills the server with SIGKILL and reaps it; the data directory stays as it is.
    ///
    /// # Errors
    /// [`Error::State`] when it does not run.
    pub fn kill9(&mut self) -> Result<()> {
        self.take_process()?.kill()
    }

    /// Shuts the server down in order (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// [`Error::Exited`] when it ends with a failure, [`Error::Deadline`] when it does not end.
    pub fn shutdown(&mut self) -> Result<()> {
        let status = self.take_process()?.terminate(SHUTDOWN_TIMEOUT)?;
        self.check_orderly(status)
    }

    /// Waits for the server to end by itself, and returns whether it ended with success.
    ///
    /// # Errors
    /// [`Error::Deadline`] when it still runs after `timeout`.
    pub fn wait_exit(&mut self, timeout: Duration) -> Result<bool> {
        Ok(self.wait_exit_code(timeout)? == Some(0))
    }

    /// Waits for the server to end by itself, and returns its exit code; `None` when a signal ended it.
    ///
    /// # Errors
    /// [`Error::Deadline`] when it still runs after `timeout`.
    pub fn wait_exit_code(&mut self, timeout: Duration) -> Result<Option<i32>> {
        let mut process = self.take_process()?;
        match process.wait(timeout) {
            Ok(status) => Ok(status.code()),
            Err(error) => {
                self.process = Some(process);
                Err(error)
            }
        }
    }

    fn check_orderly(&self, status: std::process::ExitStatus) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        Err(Error::Exited {
            name: format!("{} (shutdown)", self.config.product.name()),
            status: status.to_string(),
            log_tail: self.error_log_tail(30),
        })
    }

    /// Replaces the data directory by an empty one, as a host sees it that attaches the volume for the
    /// first time. The server must be down.
    ///
    /// # Errors
    /// [`Error::State`] when the server runs or is a stock one, whose data would be lost.
    pub fn empty_data_directory(&mut self) -> Result<()> {
        if self.process.is_some() || !self.config.launcher.is_redoubt() {
            return Err(Error::State("only a stopped server with a volume may lose its directory".into()));
        }
        let datadir = self.datadir();
        std::fs::remove_dir_all(&datadir).map_err(Error::io_at("remove", &datadir))?;
        std::fs::create_dir(&datadir).map_err(Error::io_at("create", &datadir))
    }

    /// A new connection as root.
    ///
    /// # Errors
    /// [`Error::Sql`] when the server does not accept it.
    pub fn connect(&self) -> Result<Conn> {
        connect(&self.socket())
    }

    /// Runs one statement on a connection of its own and returns its rows as text.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn query(&self, statement: &str) -> Result<Vec<Vec<String>>> {
        query_text(&mut self.connect()?, statement)
    }

    /// Path of the error log.
    pub fn error_log_path(&self) -> PathBuf {
        self.directory.join("error.log")
    }

    /// The last `lines` lines of the error log.
    pub fn error_log_tail(&self, lines: usize) -> String {
        tail(&self.error_log_path(), lines)
    }

    fn open_log(&self) -> Result<File> {
        let path = self.error_log_path();
        OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io_at("open", &path))
    }

    fn take_process(&mut self) -> Result<Process> {
        self.process
            .take()
            .ok_or_else(|| Error::State(format!("no server runs in {}", self.directory.display())))
    }
}

/// A new connection as root to the server behind `socket`.
///
/// # Errors
/// [`Error::Sql`] when the server does not accept it.
pub fn connect(socket: &Path) -> Result<Conn> {
    connect_for(socket, ANSWER_TIMEOUT)
}

/// [`connect`], for statements that may take `answer_timeout`.
///
/// # Errors
/// As for [`connect`].
pub fn connect_for(socket: &Path, answer_timeout: Duration) -> Result<Conn> {
    let options = OptsBuilder::new()
        .socket(Some(socket.to_string_lossy()))
        .user(Some("root"))
        .prefer_socket(false)
        .read_timeout(Some(answer_timeout))
        .write_timeout(Some(answer_timeout));
    Conn::new(options).map_err(Error::sql("connect"))
}

/// Connects again and again until the server accepts, for at most `timeout`.
///
/// # Errors
/// [`Error::Deadline`], or an error that is not about the connection.
pub fn connect_within(socket: &Path, timeout: Duration) -> Result<Conn> {
    poll_until("a connection", timeout, || match connect(socket) {
        Ok(conn) => Ok(Some(conn)),
        Err(error) if error.is_connection_loss() => Ok(None),
        Err(error) => Err(error),
    })
}

/// Runs one statement and returns its rows as text (`NULL` for SQL NULL).
///
/// # Errors
/// [`Error::Sql`].
pub fn query_text(conn: &mut Conn, statement: &str) -> Result<Vec<Vec<String>>> {
    let rows: Vec<mysql::Row> = conn.query(statement).map_err(Error::sql(statement))?;
    Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(value_text).collect()).collect())
}

/// Runs one statement for its effect.
///
/// # Errors
/// [`Error::Sql`].
pub fn execute(conn: &mut Conn, statement: &str) -> Result<()> {
    conn.query_drop(statement).map_err(Error::sql(statement))
}

/// A status counter or a system variable read with `SHOW GLOBAL STATUS`, as a number.
///
/// # Errors
/// [`Error::Parse`] when there is none of that name or it is not a number.
pub fn status_number(conn: &mut Conn, name: &str) -> Result<u64> {
    let rows = query_text(conn, &format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    rows.first()
        .and_then(|row| row.get(1))
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| Error::Parse { what: format!("status {name}"), detail: format!("{rows:?}") })
}

fn value_text(value: mysql::Value) -> String {
    match value {
        mysql::Value::NULL => "NULL".to_owned(),
        mysql::Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => other.as_sql(true),
    }
}

fn ping(conn: &mut Conn) -> Result<()> {
    conn.query_drop("DO 1").map_err(Error::sql("DO 1"))
}

fn running_as_root() -> bool {
    // The owner of /proc/self is the effective user; no unsafe call is needed to learn it.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Time one call took, with its result.
///
/// # Errors
/// Those of the call.
pub fn timed<T>(call: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    call().map(|value| (value, start.elapsed()))
}
