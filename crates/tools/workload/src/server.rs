//! One MariaDB or MySQL server in a directory of its own.
//!
//! Layout of the directory: `data/` the data directory, `tmp/` its temporary files, `s.sock` the socket,
//! `error.log` the error log (appended over restarts), `install.log` of the bootstrap. The data directory may lie
//! elsewhere. The directory has a short path because a socket path may have at most 107 bytes.
//!
//! Invariants: the server listens on the socket only; dropping kills this server and no other; the error
//! log and socket live outside `data/`, so a data directory can be replaced by an empty one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mysql::Conn;

use crate::error::{Error, Result};
use crate::launcher::Launcher;
use crate::process::{Process, find_program, poll_until, run_to_end, tail};
use crate::product::Product;
use crate::sql::{connect, execute, query_text, try_connect};

/// Configuration of a server. Sizes are small, so that a test touches the disk early.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Which server.
    pub product: Product,
    /// Its program, if not the usual one.
    pub program: Option<PathBuf>,
    /// How the programs are started.
    pub launcher: Launcher,
    /// The network namespace in which the server runs; none: that of this program.
    pub network: Option<String>,
    /// The only option file that is read at a start; none by default.
    pub option_file: Option<PathBuf>,
    /// Page size in bytes, 4096 to 65536; fixed at installation.
    pub page_size_bytes: u32,
    /// Buffer pool.
    pub buffer_pool_bytes: u64,
    /// Redo log.
    pub log_file_size_bytes: u64,
    /// Further arguments, for the bootstrap and for every start (`--innodb-...`).
    pub innodb_args: Vec<String>,
    /// Further arguments for every start only.
    pub server_args: Vec<String>,
    /// Added to the environment of every start.
    pub environment: Vec<(String, OsString)>,
    /// How long a start, with recovery, may take.
    pub ready_timeout: Duration,
    /// How long an orderly shutdown may take.
    pub stop_timeout: Duration,
}

impl ServerConfig {
    /// 16 KiB pages, 128 MiB pool, 96 MiB redo log, nothing special.
    pub fn new(launcher: Launcher) -> Self {
        Self {
            product: Product::MariaDb,
            program: None,
            launcher,
            network: None,
            option_file: None,
            page_size_bytes: 16384,
            buffer_pool_bytes: 128 << 20,
            log_file_size_bytes: 96 << 20,
            innodb_args: Vec::new(),
            server_args: Vec::new(),
            environment: Vec::new(),
            ready_timeout: Duration::from_secs(120),
            stop_timeout: Duration::from_secs(120),
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

    /// The server program.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`].
    pub fn program(&self) -> Result<PathBuf> {
        self.program.clone().map_or_else(|| self.product.program(), Ok)
    }

    fn common_args(&self) -> Vec<String> {
        let mut args = vec![
            format!("--innodb-page-size={}", self.page_size_bytes),
            self.product.log_size(self.log_file_size_bytes),
            format!("--innodb-buffer-pool-size={}", self.buffer_pool_bytes),
        ];
        args.extend(self.innodb_args.iter().cloned());
        let names_user = args.iter().any(|arg| arg.starts_with("--user="));
        if rustix::process::geteuid().is_root() && !names_user {
            args.push("--user=root".into());
        }
        args
    }
}

/// The same command in a network namespace. The process that is started becomes the server itself here, too.
fn inside(network: &str, command: &Command) -> Result<Command> {
    let mut outer = Command::new(find_program("ip", "iproute2")?);
    outer.args(["netns", "exec", network]).arg(command.get_program()).args(command.get_args());
    Ok(outer)
}

/// Longest path of a socket.
const SOCKET_PATH_LEN_BYTES: usize = 107;

/// A server and its directory.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    directory: PathBuf,
    datadir: PathBuf,
    process: Option<Process>,
    // Owns `directory` unless the caller asked to keep it; goes after the process.
    _temporary: Option<tempfile::TempDir>,
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
        let datadir = directory.join("data");
        std::fs::create_dir_all(&datadir).map_err(Error::io_at("create", &datadir))?;
        Self::with_datadir(config, directory, &datadir)
    }

    /// [`Server::in_directory`] with the caller's data directory.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be made, [`Error::State`] when its path is too long for a socket.
    pub fn with_datadir(config: ServerConfig, directory: &Path, datadir: &Path) -> Result<Self> {
        let temporary = directory.join("tmp");
        std::fs::create_dir_all(&temporary).map_err(Error::io_at("create", &temporary))?;
        let (directory, datadir) = (directory.to_owned(), datadir.to_owned());
        let server = Self { config, directory, datadir, _temporary: None, process: None };
        if server.socket().as_os_str().len() > SOCKET_PATH_LEN_BYTES {
            let socket = server.socket();
            return Err(Error::State(format!(
                "{} is too long for a socket; take a shorter directory (TMPDIR)",
                socket.display()
            )));
        }
        Ok(server)
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
        self.datadir.clone()
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("s.sock")
    }

    /// The directory that holds everything of this server.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The server's configuration; changes take effect at the next start.
    pub fn config_mut(&mut self) -> &mut ServerConfig {
        &mut self.config
    }

    /// The server's configuration.
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// The process id of the running server.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The start of a command that runs a program through the launcher, in the server's network namespace.
    fn launched(&self, program: &Path) -> Result<Command> {
        let command = self.config.launcher.command(program, &self.datadir());
        match &self.config.network {
            Some(network) => inside(network, &command),
            None => Ok(command),
        }
    }

    /// Bootstraps the data directory, through the launcher.
    ///
    /// # Errors
    /// [`Error::Command`] with the output of the bootstrap.
    pub fn install_db(&mut self) -> Result<()> {
        let (program, arguments) = self.config.product.installer()?;
        let datadir = self.datadir();
        let mut command = self.launched(&program)?;
        command
            .args(arguments)
            .arg(format!("--datadir={}", datadir.display()))
            .args(self.config.common_args())
            // A server that starts removes the temporary tables of any other that has the same directory for them.
            .env("TMPDIR", self.directory.join("tmp"));
        let output = run_to_end(&mut command)?;
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
        let mut command = self.launched(&self.config.program()?)?;
        let options = match &self.config.option_file {
            Some(file) => format!("--defaults-file={}", file.display()),
            None => "--no-defaults".to_owned(),
        };
        command
            .args(self.config.product.words())
            .arg(options)
            .arg(format!("--datadir={}", datadir.display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--tmpdir={}", self.directory.join("tmp").display()))
            .arg(format!("--pid-file={}", self.directory.join("s.pid").display()))
            .args(self.config.product.start_options())
            .arg("--loose-innodb-print-all-deadlocks=OFF")
            .args(self.config.common_args())
            .args(&self.config.server_args)
            .args(extra_args)
            .envs(self.config.environment.iter().cloned());
        let (name, log) = (self.config.product.name(), self.error_log_path());
        self.process = Some(Process::spawn_logged(name, &mut command, &log)?);
        Ok(())
    }

    /// Waits until the server answers a query; a member of a group does so once it is part of it.
    ///
    /// # Errors
    /// [`Error::Exited`] when it ended, [`Error::Deadline`] when it is not ready in time.
    pub fn wait_ready(&mut self) -> Result<()> {
        let (socket, timeout) = (self.socket(), self.config.ready_timeout);
        let Some(process) = self.process.as_mut() else {
            return Err(Error::State("the server was not started".into()));
        };
        let ready = poll_until("the server's readiness", timeout, || {
            process.require_running()?;
            match try_connect(&socket)?.map(|mut conn| execute(&mut conn, "DO 1")) {
                Some(Err(error)) if !error.is_connection_loss() && !error.is_outside_group() => Err(error),
                Some(Ok(())) => Ok(Some(())),
                _ => Ok(None),
            }
        });
        let ready = ready.map_err(|error| process.explain(error));
        if matches!(ready, Err(Error::Exited { .. })) {
            self.process = None;
        }
        ready
    }

    /// Fails if the server has ended.
    ///
    /// # Errors
    /// [`Error::State`] when it was not started, [`Error::Exited`] with the end of its log.
    pub fn require_running(&mut self) -> Result<()> {
        match self.process.as_mut() {
            Some(process) => process.require_running(),
            None => Err(Error::State("the server was not started".into())),
        }
    }

    /// Kills the server with SIGKILL and reaps it; the data directory stays as it is.
    ///
    /// # Errors
    /// [`Error::State`] when it does not run.
    pub fn kill9(&mut self) -> Result<()> {
        self.take_process()?.kill()
    }

    /// Stops the server (SIGSTOP) until [`Server::resume`]; it can be killed meanwhile.
    ///
    /// # Errors
    /// [`Error::State`] when it was not started, [`Error::Exited`] when it has ended.
    pub fn halt(&mut self) -> Result<()> {
        self.process.as_mut().ok_or_else(|| not_running(&self.directory))?.halt()
    }

    /// Lets a stopped server go on (SIGCONT).
    ///
    /// # Errors
    /// As for [`Server::halt`].
    pub fn resume(&mut self) -> Result<()> {
        self.process.as_mut().ok_or_else(|| not_running(&self.directory))?.resume()
    }

    /// Shuts the server down in order (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// [`Error::Exited`] when it ends with a failure, [`Error::Deadline`] when it does not end.
    pub fn shutdown(&mut self) -> Result<()> {
        let mut process = self.take_process()?;
        let status = process.terminate(self.config.stop_timeout)?;
        if status.success() { Ok(()) } else { Err(process.exited(status)) }
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

    /// Lines of the error log that say `[ERROR]`.
    pub fn error_lines(&self) -> Vec<String> {
        let log = std::fs::read(self.error_log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.lines().filter(|line| line.contains("[ERROR]")).map(str::to_owned).collect()
    }

    fn take_process(&mut self) -> Result<Process> {
        self.process.take().ok_or_else(|| not_running(&self.directory))
    }
}

fn not_running(directory: &Path) -> Error {
    Error::State(format!("no server runs in {}", directory.display()))
}
