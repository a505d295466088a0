//! A real MySQL server in a temporary directory, reached over a socket in it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::load::Options;

/// More than a test writes between two starts. The server makes that many bytes of files in advance.
const LOG_CAPACITY: &str = "2G";
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(600);

/// A program of the server that `scripts/fetch-server` has fetched.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/mysql-9.7/bin").join(name)
}

/// Whether the server is there.
pub fn is_there() -> bool {
    program("mysqld").exists()
}

/// A data directory, and the server on it if one runs.
pub struct Server {
    dir: TempDir,
    page_size_bytes: usize,
    child: Option<Child>,
    /// The client that keeps the server from removing log files.
    consumer: Option<Child>,
}

impl Server {
    /// Create a data directory; no server runs afterwards.
    pub fn initialize(options: &Options) -> Self {
        let dir = TempDir::new().unwrap();
        let server = Self { dir, page_size_bytes: options.page_size_bytes, child: None, consumer: None };
        let output = server.mysqld().arg("--initialize-insecure").output().unwrap();
        assert!(output.status.success(), "{}", server.error_log());
        server
    }

    /// Another server of the same kind on a copy of the data directory.
    pub fn on_copy(copy: &Path, options: &Options) -> Self {
        let dir = TempDir::new().unwrap();
        fs::rename(copy, dir.path().join("data")).unwrap();
        let _ = fs::remove_dir_all(dir.path().join("data/log"));
        Self { dir, page_size_bytes: options.page_size_bytes, child: None, consumer: None }
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn error_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("error.log")).unwrap_or_default()
    }

    fn mysqld(&self) -> Command {
        let dir = self.dir.path().display();
        let mut command = Command::new(program("mysqld"));
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--mysqlx=OFF", "--skip-log-bin"]);
        command.arg(format!("--datadir={dir}/data"));
        command.arg(format!("--socket={dir}/s.sock"));
        command.arg(format!("--pid-file={dir}/s.pid"));
        command.arg(format!("--log-error={dir}/error.log"));
        command.arg(format!("--tmpdir={dir}"));
        command.arg(format!("--innodb-page-size={}", self.page_size_bytes));
        command.arg(format!("--innodb-redo-log-capacity={LOG_CAPACITY}"));
        command.args([
            "--innodb-buffer-pool-size=48M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-dump-at-shutdown=OFF",
            "--innodb-use-native-aio=OFF",
            "--innodb-max-undo-log-size=10M",
            "--innodb-purge-rseg-truncate-frequency=1",
            "--innodb-max-dirty-pages-pct=10",
            "--innodb-io-capacity=2000",
            "--log-error-verbosity=2",
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Start a server on the data directory.
    pub fn start(&mut self) {
        assert!(self.child.is_none());
        self.child = Some(self.mysqld().spawn().unwrap());
        let started = Instant::now();
        while !self.client().arg("-e").arg("SELECT 1").output().unwrap().status.success() {
            let child = self.child.as_mut().unwrap();
            assert!(child.try_wait().unwrap().is_none(), "the server ended:\n{}", self.error_log());
            assert!(started.elapsed() < START_LIMIT, "no answer:\n{}", self.error_log());
            std::thread::sleep(Duration::from_millis(200));
        }
        self.keep_log();
    }

    /// Register as a consumer of the log, for as long as this connection is there.
    fn keep_log(&mut self) {
        let mut consumer = self
            .client()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let sql = b"SELECT innodb_redo_log_consumer_register();\nSELECT SLEEP(100000);\n";
        consumer.stdin.as_mut().unwrap().write_all(sql).unwrap();
        self.consumer = Some(consumer);
        let started = Instant::now();
        while self
            .sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'")
            .trim()
            != "1"
        {
            assert!(started.elapsed() < START_LIMIT, "no consumer of the log");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The directory of log files that were kept.
    fn kept(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Take the log files that are full, and let the server go on without us.
    fn take_log(&mut self) {
        let _ = fs::remove_dir_all(self.kept());
        fs::create_dir_all(self.kept()).unwrap();
        self.copy_log(&self.kept());
        if let Some(mut consumer) = self.consumer.take() {
            consumer.kill().unwrap();
            consumer.wait().unwrap();
        }
    }

    /// Copy the log files of the data directory, but for those that are made in advance.
    fn copy_log(&self, target: &Path) {
        for entry in fs::read_dir(self.data_dir().join("#innodb_redo")).unwrap() {
            let path = entry.unwrap().path();
            if !path.to_str().unwrap().ends_with("_tmp") {
                fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
            }
        }
    }

    fn client(&self) -> Command {
        let mut command = Command::new(program("mysql"));
        command.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"]);
        command.arg(format!("--socket={}", self.dir.path().join("s.sock").display()));
        command
    }

    /// Run SQL and answer what it printed; any error fails the test.
    pub fn sql(&self, sql: &str) -> String {
        let (output, error) = self.try_sql(sql);
        assert!(error.is_empty(), "{error}");
        output
    }

    /// Run SQL; answers what it printed, and its error.
    pub fn try_sql(&self, sql: &str) -> (String, String) {
        let mut child = self
            .client()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let sql = sql.to_owned();
        // A server that is killed while it works closes the pipe.
        let writer = std::thread::spawn(move || {
            let _ = input.write_all(sql.as_bytes());
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let error = if output.status.success() { String::new() } else { text(&output.stderr) };
        (text(&output.stdout), error)
    }

    /// Run scripts at the same time; any error fails the test.
    pub fn sql_at_once(&self, scripts: &[String]) {
        std::thread::scope(|scope| {
            for script in scripts {
                scope.spawn(|| self.sql(script));
            }
        });
    }

    /// Shut down cleanly, with purge and everything: afterwards every page is in the files.
    pub fn shut_down(&mut self) {
        self.take_log();
        self.sql("SET GLOBAL innodb_fast_shutdown = 0; SHUTDOWN;");
        let started = Instant::now();
        let child = self.child.as_mut().unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < STOP_LIMIT, "the server does not stop");
            std::thread::sleep(Duration::from_millis(100));
        };
        self.child = None;
        assert!(status.success(), "{status}: {}", self.error_log());
    }

    /// Kill the server. The log is then as it wrote it.
    pub fn kill(&mut self) {
        let _ = fs::remove_dir_all(self.kept());
        for mut child in [self.child.take(), self.consumer.take()].into_iter().flatten() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Copy the data directory of a stopped server beside it, and all the log since its start into `log` there.
    pub fn copy_data(&self, name: &str) -> PathBuf {
        assert!(self.child.is_none());
        let copy = self.dir.path().join(name);
        let status = Command::new("cp").arg("-a").arg(self.data_dir()).arg(&copy).status().unwrap();
        assert!(status.success());
        for entry in fs::read_dir(copy.join("#innodb_redo")).unwrap() {
            let path = entry.unwrap().path();
            if path.to_str().unwrap().ends_with("_tmp") {
                fs::remove_file(path).unwrap();
            }
        }
        let log = copy.join("log");
        fs::create_dir(&log).unwrap();
        if self.kept().exists() {
            for entry in fs::read_dir(self.kept()).unwrap() {
                let path = entry.unwrap().path();
                fs::copy(&path, log.join(path.file_name().unwrap())).unwrap();
            }
        }
        self.copy_log(&log);
        copy
    }

    /// Put bytes into a file of the data directory.
    pub fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
    }
}

/// Send the server the signal that nothing outlives. [`Server::kill`] then takes note.
pub fn kill_of(server: &Server) {
    let pid = server.child.as_ref().unwrap().id();
    let status = Command::new("kill").arg("-9").arg(pid.to_string()).status().unwrap();
    assert!(status.success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in [&mut self.child, &mut self.consumer].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("error log of the server:\n{}", self.error_log());
        }
    }
}
