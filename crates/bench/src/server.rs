//! One MariaDB server: its files, its start and its end.
//!
//! Layout of its directory: `tmp/` temporary files, `s.sock` the socket, `error.log`. The data directory is where the
//! backend has it. With `redoubt run` in front the child becomes the server itself, so its process id is the server's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mysql::Conn;
use mysql::prelude::Queryable;

use crate::args::Options;
use crate::error::{Error, Result};
use crate::network::Side;
use crate::process::{Process, find_program, poll_until, run_to_end, tail};
use crate::sql::connect;

/// How long a start may take, and an orderly end, which writes the whole buffer pool over a slow link.
const START_TIMEOUT: Duration = Duration::from_secs(300);
const STOP_TIMEOUT: Duration = Duration::from_secs(1800);

/// What all servers have in common, so that they differ only in their storage.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program.
    pub program: PathBuf,
    /// Redo log.
    pub log_size_bytes: u64,
    /// Connections.
    pub clients: u32,
    /// The user's own options.
    pub further: Vec<String>,
}

impl Settings {
    /// From the command's options.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`] without a server.
    pub fn new(options: &Options) -> Result<Self> {
        let program = if options.server.components().count() > 1 {
            options.server.clone()
        } else {
            find_program("mariadbd", "mariadb-server")?
        };
        Ok(Self {
            program,
            log_size_bytes: options.log_size,
            clients: options.clients,
            further: options.server_option.clone(),
        })
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn version(&self) -> Result<String> {
        run_to_end(Command::new(&self.program).arg("--version")).map(|text| text.trim().to_owned())
    }

    fn common(&self) -> Vec<String> {
        let mut arguments = vec![format!("--innodb-log-file-size={}", self.log_size_bytes)];
        if rustix::process::geteuid().is_root() {
            arguments.push("--user=root".to_owned());
        }
        arguments
    }

    fn for_run(&self, pool_bytes: u64) -> Vec<String> {
        let mut arguments = self.common();
        arguments.extend([
            format!("--innodb-buffer-pool-size={pool_bytes}"),
            "--innodb-flush-log-at-trx-commit=1".to_owned(),
            // Pages that a run before had in memory would be read again at the start.
            "--innodb-buffer-pool-dump-at-shutdown=0".to_owned(),
            "--innodb-buffer-pool-load-at-startup=0".to_owned(),
            format!("--max-connections={}", self.clients + 50),
            "--skip-networking".to_owned(),
            "--skip-log-bin".to_owned(),
        ]);
        arguments.extend(self.further.iter().cloned());
        arguments
    }

    /// Makes a data directory.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn install(&self, datadir: &Path, tmpdir: &Path) -> Result<()> {
        let mut command = Command::new(find_program("mariadb-install-db", "mariadb-server")?);
        command
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg(format!("--datadir={}", datadir.display()))
            .args(self.common())
            .env("TMPDIR", tmpdir);
        run_to_end(&mut command).map(drop)
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    process: Process,
    directory: PathBuf,
}

impl Server {
    /// Starts a server and waits until it answers. `launcher` are the words in front of the server's program.
    ///
    /// # Errors
    /// [`Error::Exited`] or [`Error::Deadline`] with the end of its log.
    pub fn start(
        settings: &Settings,
        launcher: &[OsString],
        (directory, datadir): (&Path, &Path),
        pool_bytes: u64,
        side: &Side,
        further: &[String],
    ) -> Result<Self> {
        let tmpdir = directory.join("tmp");
        std::fs::create_dir_all(&tmpdir).map_err(Error::io_at("create", &tmpdir))?;
        let socket = directory.join("s.sock");
        if socket.as_os_str().len() > 107 {
            return Err(Error::Usage(format!(
                "{} is too long for a socket; take a shorter --directory or TMPDIR",
                socket.display()
            )));
        }
        let mut command = match launcher.split_first() {
            None => Command::new(&settings.program),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&settings.program);
                command
            }
        };
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", datadir.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--tmpdir={}", tmpdir.display()))
            .arg(format!("--pid-file={}", directory.join("s.pid").display()))
            .args(settings.for_run(pool_bytes))
            .args(further);
        let process = Process::spawn("mariadbd", &mut command, side, &directory.join("error.log"))?;
        let mut server = Self { process, directory: directory.to_owned() };
        server.wait_ready()?;
        Ok(server)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let (socket, log) = (self.socket(), self.directory.join("error.log"));
        let ready = poll_until("the server's readiness", START_TIMEOUT, || {
            self.process.require_running()?;
            match connect(&socket, None) {
                Ok(_) => Ok(Some(())),
                Err(error) if error.is_connection_loss() => Ok(None),
                Err(error) => Err(error),
            }
        });
        match ready {
            Err(Error::Deadline { what, after, .. }) => {
                Err(Error::Deadline { what, after, detail: tail(&log, 20) })
            }
            other => other,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("s.sock")
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    /// [`Error::Exited`] with the end of its log.
    pub fn require_running(&mut self) -> Result<()> {
        self.process.require_running()
    }

    /// Lines of its error log that say `[ERROR]`.
    pub fn error_lines(&self) -> Vec<String> {
        let log = std::fs::read(self.directory.join("error.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.lines().filter(|line| line.contains("[ERROR]")).map(str::to_owned).collect()
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// [`Error::Exited`] if it fails, [`Error::Deadline`] if it does not end.
    pub fn stop(mut self) -> Result<()> {
        let status = self.process.terminate(STOP_TIMEOUT)?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Exited {
            name: "mariadbd".to_owned(),
            status: status.to_string(),
            log_tail: tail(&self.directory.join("error.log"), 20),
        })
    }
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
