//! A real server in a temporary directory, reached over a socket in it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::load::Options;

/// Big enough that the log never wraps, so that its first byte is still there at the end.
const LOG_FILE_SIZE: &str = "512M";

/// A running server.
pub struct Server {
    dir: TempDir,
    child: Option<Child>,
}

/// Directory of a server that was shut down.
pub struct DataDir(TempDir);

impl DataDir {
    pub fn path(&self) -> std::path::PathBuf {
        self.0.path().join("data")
    }
}

impl Server {
    /// Create a database and start a server on it.
    pub fn create(options: &Options) -> Self {
        let dir = TempDir::new().unwrap();
        let config = dir.path().join("my.cnf");
        fs::write(&config, config_text(dir.path(), options)).unwrap();
        let defaults = format!("--defaults-file={}", config.display());
        let install = Command::new("mariadb-install-db")
            .arg(&defaults)
            .args(["--user=root", "--skip-test-db", "--auth-root-authentication-method=normal"])
            .output()
            .expect("mariadb-install-db must be installed");
        assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
        let child = Command::new("mariadbd")
            .args([&defaults, "--user=root"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("mariadbd must be installed");
        let mut server = Self { dir, child: Some(child) };
        server.wait_until_ready();
        server
    }

    /// The error log goes to stderr; a thread reads on so that the server never blocks on it.
    fn wait_until_ready(&mut self) {
        let stderr = self.child.as_mut().and_then(|child| child.stderr.take()).unwrap();
        let mut lines = BufReader::new(stderr).lines();
        let mut seen = String::new();
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("the server ended:\n{seen}")).unwrap();
            if line.contains("ready for connections") {
                break;
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter(|line| line.contains("[ERROR]")) {
                eprintln!("server: {line}");
            }
        });
    }

    /// Run SQL; any error fails the test.
    pub fn run_sql(&self, sql: &str) {
        let mut client = Command::new("mariadb")
            .args(["--no-defaults", "--user=root", "--batch"])
            .arg(format!("--socket={}", self.dir.path().join("s.sock").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the mariadb client must be installed");
        client.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Shut down cleanly: afterwards every page is in the files.
    pub fn shut_down(mut self) -> DataDir {
        self.run_sql("SET GLOBAL innodb_fast_shutdown=1; SHUTDOWN;");
        let status = self.child.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}");
        let dir = std::mem::replace(&mut self.dir, TempDir::new().unwrap());
        DataDir(dir)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn config_text(dir: &Path, options: &Options) -> String {
    let dir = dir.display();
    let Options { page_size_bytes, checksum } = options;
    format!(
        "[mysqld]\n\
         datadir={dir}/data\n\
         socket={dir}/s.sock\n\
         pid_file={dir}/s.pid\n\
         tmpdir={dir}\n\
         skip_networking\n\
         innodb_page_size={page_size_bytes}\n\
         innodb_checksum_algorithm={checksum}\n\
         innodb_log_file_size={LOG_FILE_SIZE}\n\
         innodb_buffer_pool_size=48M\n\
         innodb_flush_log_at_trx_commit=0\n\
         innodb_use_native_aio=0\n\
         innodb_undo_tablespaces=3\n\
         innodb_undo_log_truncate=ON\n\
         innodb_max_undo_log_size=10M\n\
         innodb_buffer_pool_dump_at_shutdown=OFF\n"
    )
}
