//! A stock server with the library preloaded, against the model node.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod support;

use redoubt_test_support::child;
use redoubt_test_support::wait::{until, until_some};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use support::ModelNode;

redoubt_test_support::children!(
    write_pages_of_a_deleted_file,
    write_late_to_a_deleted_file,
    write_pages_that_are_wanted
);

fn library() -> PathBuf {
    // In target/PROFILE/deps beside the test program, or in the folder above: whichever was built last.
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    [deps.parent().unwrap().join("libredoubt.so"), deps.join("libredoubt.so")]
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("libredoubt.so is built with the tests")
}

/// A server process; killed when a test gives up.
struct Running(Child);

impl std::ops::Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn data_directory(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().canonicalize().unwrap();
    for name in ["data", "tmp"] {
        std::fs::create_dir(path.join(name)).unwrap();
    }
    path.join("data")
}

/// Does the work of `redoubt run` before each start: makes an empty file for unsent frames.
fn prepare(datadir: &Path) {
    let head = redoubt_resend_queue::layout::new_head("0123456789abcdef0123456789abcdef").unwrap();
    let path = datadir.join(redoubt_resend_queue::FILE_NAME);
    std::fs::write(&path, head).unwrap();
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(redoubt_resend_queue::FILE_LEN_BYTES)
        .unwrap();
}

struct Server<'a> {
    datadir: &'a Path,
    node: &'a ModelNode,
    generation: u64,
}

impl Server<'_> {
    fn command(&self) -> Command {
        prepare(self.datadir);
        let mut command = Command::new("mariadbd");
        command
            .arg("--no-defaults")
            .arg("--user=root")
            .arg(format!("--datadir={}", self.datadir.display()))
            .env("TMPDIR", self.temporary())
            .args(["--innodb-undo-tablespaces=2", "--innodb-undo-log-truncate=1"])
            .args(["--innodb-doublewrite=0", "--innodb-use-native-aio=0", "--skip-networking"])
            .args([
                "--innodb-buffer-pool-size=8M",
                "--innodb-log-file-size=4M",
                "--innodb-log-buffer-size=2M",
                "--lc-messages-dir=/usr/share/mysql",
            ])
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", self.datadir.join("server.pid").display()))
            .env("LD_PRELOAD", library())
            .env("REDOUBT_NODE", &self.node.address)
            .env("REDOUBT_VOLUME", "v")
            .env("REDOUBT_SERVER_VERSION", "MariaDB 10.11.19")
            .env("REDOUBT_GENERATION", self.generation.to_string())
            .env("REDOUBT_DATADIR", self.datadir)
            .env("REDOUBT_SYSTEM_FILES", "ibdata1:0")
            .env("REDOUBT_VERIFY", "all")
            .env("REDOUBT_TIMEOUT_S", "20");
        command
    }

    /// A server that starts removes the temporary tables of any other that has the same directory for them.
    fn temporary(&self) -> PathBuf {
        self.datadir.with_file_name("tmp")
    }

    fn socket(&self) -> PathBuf {
        self.datadir.join("s.sock")
    }

    fn bootstrap(&self) -> Output {
        let mut child = self
            .command()
            .arg("--bootstrap")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = b"create database mysql;\nuse mysql;\n".to_vec();
        let tables = ["mariadb_system_tables.sql", "mysql_system_tables.sql"];
        let found =
            tables.iter().find_map(|file| std::fs::read(Path::new("/usr/share/mysql").join(file)).ok());
        input.extend(found.unwrap_or_else(|| panic!("none of {tables:?} is in /usr/share/mysql")));
        let mut stdin = child.stdin.take().unwrap();
        std::thread::spawn(move || stdin.write_all(&input));
        child.wait_with_output().unwrap()
    }

    fn start(&self, extra: &[&str]) -> Running {
        let mut command = self.command();
        command.args(extra);
        self.wait_for(command)
    }

    fn wait_for(&self, mut command: Command) -> Running {
        let log = std::fs::File::create(self.datadir.join("server.err")).unwrap();
        let mut child =
            Running(command.arg("--skip-grant-tables").stdout(Stdio::null()).stderr(log).spawn().unwrap());
        until_some("an answer of the server", || {
            assert!(child.try_wait().unwrap().is_none(), "the server ended:\n{}", self.log());
            std::os::unix::net::UnixStream::connect(self.socket()).ok()
        });
        child
    }

    /// The same server without the library, on a data directory of its own.
    fn start_ordinary(&self) -> Running {
        let created = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"])
            .arg(format!("--datadir={}", self.datadir.display()))
            .env("TMPDIR", self.temporary())
            .output()
            .unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let mut command = self.command();
        command.env_remove("LD_PRELOAD").env_remove("REDOUBT_NODE");
        self.wait_for(command)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.datadir.join("server.err")).unwrap_or_default()
    }

    fn sql(&self, text: &str) -> String {
        let output = Command::new("mariadb")
            .args(["--no-defaults", "-N", "-u", "root"])
            .arg(format!("--socket={}", self.socket().display()))
            .args(["-e", text])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{text}: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.log()
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

fn no_problems(node: &ModelNode) {
    let model = node.model.lock().unwrap();
    assert!(model.problems.is_empty(), "{:#?}", model.problems);
}

/// Plain files of the server are the same on the node.
fn plain_files_equal(node: &ModelNode, datadir: &Path) {
    let model = node.model.lock().unwrap();
    assert!(model.plain.len() > 20, "{}", model.plain.len());
    for (path, contents) in &model.plain {
        let local = std::fs::read(datadir.join(String::from_utf8_lossy(path).as_ref())).unwrap();
        assert!(local == *contents, "{} differs", String::from_utf8_lossy(path));
    }
}

const LOAD: &str = "
    create database d; use d;
    create table t (id int auto_increment primary key, a varchar(200), b int, key(b)) engine=innodb;
    create table z (id int primary key, a text) engine=innodb row_format=compressed key_block_size=4;
    create table p (id int primary key, a text) engine=innodb page_compressed=1;
    create table r (id int primary key, a text) engine=innodb row_format=redundant;
    insert into t (a, b) select repeat(char(65 + seq % 26), 150), seq % 1000 from seq_1_to_60000;
    insert into z select id, a from t where id < 8000;
    insert into p select id, a from t where id < 8000;
    insert into r select id, a from t where id < 8000;
    update t set b = b + 1 where id % 3 = 0;
    delete from t where id % 7 = 0;
    alter table t add column c int default 5, algorithm=inplace;
    create table gone (id int primary key) engine=innodb; drop table gone;
    rename table r to r2;
    truncate table z; insert into z select id, a from t where id < 4000;
";

// A check beside a running purge may miss the clustered record of a secondary one.
const SUMS: &str = "set global innodb_max_purge_lag_wait = 0;
    checksum table d.t, d.z, d.p, d.r2 extended; check table d.t, d.z, d.p, d.r2 extended";

#[test]
fn server_lives_on_the_model_node() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = data_directory(&directory);
    let node = ModelNode::start();
    let mut server = Server { datadir: &datadir, node: &node, generation: 1 };

    let output = server.bootstrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    no_problems(&node);
    plain_files_equal(&node, &datadir);
    stubs_are_sparse(&datadir);

    // A pool of 8 MiB and a log of 4 MiB: pages are read back, the log wraps.
    server.generation = 2;
    let mut child = server.start(&[]);
    server.sql(LOAD);
    let before = server.sql(SUMS);
    assert!(before.matches("OK").count() == 4, "{before}");
    no_problems(&node);
    child.kill().unwrap();
    child.wait().unwrap();

    // Crash recovery from the node's log and pages.
    server.generation = 3;
    let mut child = server.start(&[]);
    assert_eq!(server.sql(SUMS), before, "{}", server.log());
    server.sql(
        "set global innodb_log_file_size = 8388608; insert into d.t (a, b) select a, b from d.t limit 20000",
    );
    let after = server.sql(SUMS);
    server.sql("shutdown");
    assert!(child.wait().unwrap().success(), "{}", server.log());
    no_problems(&node);
    plain_files_equal(&node, &datadir);

    // A clean start with another log size: ib_logfile101 alone.
    server.generation = 4;
    let mut child = server.start(&["--innodb-log-file-size=6M"]);
    assert_eq!(server.sql(SUMS), after, "{}", server.log());
    server.sql("insert into d.t (a, b) select a, b from d.t limit 1000");
    let last = server.sql(SUMS);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut child = server.start(&["--innodb-log-file-size=6M"]);
    assert_eq!(server.sql(SUMS), last, "{}", server.log());
    server.sql("shutdown");
    assert!(child.wait().unwrap().success(), "{}", server.log());
    no_problems(&node);
    stubs_are_sparse(&datadir);
    let model = node.model.lock().unwrap();
    eprintln!(
        "verified {} pages, {} images, {} reads, redo ends at {}",
        model.verified,
        model.images,
        model.reads,
        model.next_lsn()
    );
    assert!(model.verified > 1000 && model.reads > 100, "{} {}", model.verified, model.reads);
}

/// No page or redo byte is in the local files.
fn stubs_are_sparse(datadir: &Path) {
    use std::os::unix::fs::MetadataExt;
    for name in ["ibdata1", "ib_logfile0", "undo001"] {
        let metadata = std::fs::metadata(datadir.join(name)).unwrap();
        assert!(metadata.len() > 0 && metadata.blocks() == 0, "{name}: {} blocks", metadata.blocks());
    }
}

/// Inserts with several clients until the server is killed; returns how many rows were acknowledged.
fn insert_until_killed(server: &Server<'_>, child: &mut Running, rows_before_kill: u64) -> u64 {
    use std::io::{BufRead, BufReader};
    use std::sync::atomic::{AtomicU64, Ordering};
    server.sql("create database l; create table l.t (id int auto_increment primary key, a varchar(300)) engine=innodb");
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = Command::new("mariadb")
                .args(["--no-defaults", "-N", "-u", "root", "--unbuffered"])
                .arg(format!("--socket={}", server.socket().display()))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut input = client.stdin.take().unwrap();
            let output = BufReader::new(client.stdout.take().unwrap());
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                // One row per statement; its answer comes after the commit.
                let line = b"insert into l.t (a) values (repeat('x', 250)); select 1;\n";
                let mut lines = output.lines();
                while input.write_all(line).and_then(|()| input.flush()).is_ok() {
                    match lines.next() {
                        Some(Ok(_)) => acknowledged.fetch_add(1, Ordering::SeqCst),
                        _ => break,
                    };
                }
                drop(input);
                let _ = client.wait();
            });
        }
        while acknowledged.load(Ordering::SeqCst) < rows_before_kill {
            assert!(child.try_wait().unwrap().is_none(), "{}", server.log());
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    });
    acknowledged.load(Ordering::SeqCst)
}

#[test]
fn acknowledged_rows_survive_kills_and_lost_connections() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = data_directory(&directory);
    let node = ModelNode::start();
    let mut server = Server { datadir: &datadir, node: &node, generation: 1 };
    let output = server.bootstrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Both kinds of connections are cut again and again from here on.
    node.model.lock().unwrap().cut_after_frames = Some(150);
    // The doublewrite area is written now, and must not reach the node.
    server.generation = 2;
    let mut child = server.start(&["--innodb-doublewrite=1"]);
    let acknowledged = insert_until_killed(&server, &mut child, 3000);
    server.generation = 3;
    let mut child = server.start(&["--innodb-doublewrite=1"]);
    let rows: u64 = server.sql("select count(*) from l.t").trim().parse().unwrap();
    assert!(rows >= acknowledged && rows <= acknowledged + 4, "{rows} rows, {acknowledged} acknowledged");
    assert!(server.sql("check table l.t extended").contains("OK"));
    // Counters are not sent again when a connection is cut.
    node.model.lock().unwrap().cut_after_frames = None;
    server.sql("shutdown");
    assert!(child.wait().unwrap().success(), "{}", server.log());
    no_problems(&node);
    until("a counter of the doublewrite", || {
        node.model.lock().unwrap().counters.get(&7).is_some_and(|bytes| *bytes > 0)
    });
    let model = node.model.lock().unwrap();
    assert!(model.cuts > 10, "{} cuts", model.cuts);
    assert!(model.counters.get(&7).is_some_and(|bytes| *bytes > 0), "no doublewrite: {:?}", model.counters);
    assert_eq!(model.images, 0, "{:?}", model.counters);
}

#[test]
fn imported_tablespace_reaches_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = data_directory(&directory);
    let node = ModelNode::start();
    let mut server = Server { datadir: &datadir, node: &node, generation: 1 };
    assert!(server.bootstrap().status.success());
    // The tablespace to import comes from an ordinary server.
    let other = tempfile::tempdir().unwrap();
    let other_dir = data_directory(&other);
    let table =
        "create database d; use d; create table d.t (id int primary key, a varchar(200)) engine=innodb";
    let fill = "use d; insert into d.t select seq, repeat(char(65 + seq % 26), 150) from seq_1_to_5000";
    let plain = Server { datadir: &other_dir, node: &node, generation: 0 };
    let mut child = plain.start_ordinary();
    plain.sql(&format!("{table}; {fill}"));
    let sums = plain.sql("checksum table d.t extended");
    plain.sql("shutdown");
    assert!(child.wait().unwrap().success());

    server.generation = 2;
    let mut child = server.start(&[]);
    server.sql(&format!("{table}; insert into d.t values (1, 'old'); alter table d.t discard tablespace"));
    std::fs::copy(other_dir.join("d/t.ibd"), datadir.join("d/t.ibd")).unwrap();
    server.sql("alter table d.t import tablespace; update d.t set a = 'new' where id = 77");
    let changed = server.sql("checksum table d.t extended");
    assert_ne!(changed, sums);
    child.kill().unwrap();
    child.wait().unwrap();
    server.generation = 3;
    let mut child = server.start(&[]);
    assert_eq!(server.sql("checksum table d.t extended"), changed, "{}", server.log());
    server.sql("update d.t set a = repeat(char(65 + 77 % 26), 150) where id = 77");
    assert_eq!(server.sql("checksum table d.t extended"), sums);
    server.sql("shutdown");
    assert!(child.wait().unwrap().success(), "{}", server.log());
    no_problems(&node);
    assert!(node.model.lock().unwrap().images > 10);
}

#[test]
fn recovery_in_several_batches_sends_no_old_page() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = data_directory(&directory);
    let node = ModelNode::start();
    let mut server = Server { datadir: &datadir, node: &node, generation: 1 };
    assert!(server.bootstrap().status.success());
    // The redo of the whole load is above the checkpoint, and far more than fits into a pool of 8 MiB.
    let size = "--innodb-log-file-size=256M";
    let options = [
        size,
        "--innodb-max-dirty-pages-pct=99",
        "--innodb-idle-flush-pct=0",
        "--innodb-buffer-pool-size=256M",
    ];
    server.generation = 2;
    let mut child = server.start(&options);
    server.sql(LOAD);
    let before = server.sql(SUMS);
    child.kill().unwrap();
    child.wait().unwrap();
    server.generation = 3;
    let mut child = server.start(&[size]);
    let log = server.log();
    assert!(log.contains("Starting crash recovery") && log.contains("batch"), "{log}");
    assert_eq!(server.sql(SUMS), before, "{log}");
    server.sql("shutdown");
    assert!(child.wait().unwrap().success(), "{}", server.log());
    no_problems(&node);
    let model = node.model.lock().unwrap();
    assert_eq!(model.images, 0, "{:?}", model.counters);
}

/// A server's way to a late write, made to happen every time: the page cleaner writes the first pages of a new table
/// through a descriptor that is still open while another thread drops the table. The caller is this very program, under
/// a server's name.
#[test]
fn a_first_write_to_a_file_that_is_deleted_goes_nowhere_without_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = data_directory(&directory);
    let node = ModelNode::start();
    let text = as_server(&directory, &datadir, &node, "write_late_to_a_deleted_file");
    assert!(text.contains("written 16384 bytes while it is being deleted"), "{text}");
    assert!(text.contains("written 16384 bytes late"), "{text}");
    // The warning is about the write before the file was deleted.
    assert_eq!(text.matches("page size is not known").count(), 1, "{text}");
    no_problems(&node);
    assert!(!datadir.join("d/t.ibd").exists());
}

/// Runs a child process that the library takes for a server. Returns what it printed.
fn as_server(directory: &tempfile::TempDir, datadir: &Path, node: &ModelNode, name: &str) -> String {
    std::fs::create_dir(datadir.join("d")).unwrap();
    let server = Server { datadir, node, generation: 1 };
    let program = directory.path().join("mariadbd");
    child::copy_program(&program);
    let from_server = server.command();
    let environment = from_server.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let output = Command::new(&program)
        .args([child::MARK, name])
        .envs(environment)
        .env("REDOUBT_CLEAR_PAGES", "1")
        .current_dir(datadir)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Pages that the cleaner writes between FILE_DELETE and the unlinking. They have no reader; in an encrypted table
/// they would be an error.
#[test]
fn pages_of_a_file_that_is_deleted_are_not_sent() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = data_directory(&directory);
    let node = ModelNode::start();
    let text = as_server(&directory, &datadir, &node, "write_pages_of_a_deleted_file");
    assert!(text.contains("written all"), "{text}");
    no_problems(&node);
    let model = node.model.lock().unwrap();
    assert_eq!(model.images, 2, "those before");
}

/// Pages that redo explains, of which the node has requested three as images. It could not read the encrypted one, and
/// `d/u.ibd` is another file since. Page 0 of both files is an image in any case.
#[test]
fn explained_page_that_the_node_wants_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let datadir = data_directory(&directory);
    let node = ModelNode::start();
    let wanted = [("d/t.ibd", 3), ("d/t.ibd", 5), ("d/u.ibd", 3)];
    node.model.lock().unwrap().wanted = wanted.map(|(path, no)| (path.as_bytes().to_vec(), no)).into();
    let text = as_server(&directory, &datadir, &node, "write_pages_that_are_wanted");
    assert!(text.contains("written all"), "{text}");
    let model = node.model.lock().unwrap();
    assert!(model.wanted.is_empty());
    assert_eq!(model.images, 3, "both pages 0, and page 3: {text}");
}

/// A page of a `full_crc32` tablespace.
fn page(space: u32, number: u32, kind: u16, lsn: u64) -> Vec<u8> {
    let mut page = vec![0; 16384];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(4, &number.to_be_bytes());
    put(16, &lsn.to_be_bytes());
    put(24, &kind.to_be_bytes());
    put(34, &space.to_be_bytes());
    if number == 0 {
        put(38, &space.to_be_bytes());
        put(54, &0x15_u32.to_be_bytes());
    }
    page
}

/// A child process.
fn write_pages_that_are_wanted() {
    use std::os::unix::fs::FileExt;
    let create = |path: &str, space| {
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.write_all_at(&page(space, 0, 8, 0), 0).unwrap();
        // The node's requests come before it acknowledges the page.
        file.sync_all().unwrap();
        file
    };
    let (t, u) = (create("./d/t.ibd", 7), create("./d/u.ibd", 8));
    // INIT_PAGE of pages 3, 4 and 5 of space 7, and of page 3 of space 8.
    let lsn = log_mtr(&[0x12, 7, 3, 0x12, 7, 4, 0x12, 7, 5, 0x12, 8, 3]);
    let mut encrypted = page(7, 5, 17855, lsn);
    encrypted[..4].copy_from_slice(&1_u32.to_be_bytes());
    t.write_all_at(&page(7, 3, 17855, lsn), 3 * 16384).unwrap();
    t.write_all_at(&page(7, 4, 17855, lsn), 4 * 16384).unwrap();
    t.write_all_at(&encrypted, 5 * 16384).unwrap();
    u.write_all_at(&page(8, 3, 17855, lsn), 3 * 16384).unwrap();
    [t, u].iter().for_each(|file| file.sync_all().unwrap());
    println!("written all");
}

/// A child process.
fn write_pages_of_a_deleted_file() {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).create_new(true).open("./d/t.ibd").unwrap();
    let page = |number, kind| page(7, number, kind, 0);
    file.write_all_at(&page(0, 8), 0).unwrap();
    file.write_all_at(&page(3, 17855), 3 * 16384).unwrap();
    log_deletion();
    file.write_all_at(&page(3, 17855), 3 * 16384).unwrap();
    file.write_all_at(&page(4, 17855), 4 * 16384).unwrap();
    println!("written all");
}

/// A child process.
fn write_late_to_a_deleted_file() {
    use std::os::unix::fs::FileExt;
    let open = || std::fs::File::options().read(true).write(true).create_new(true).open("./d/t.ibd").unwrap();
    let late = open();
    // Not deleted, such a write is refused: the page size is unknown.
    let error = late.write_at(&[0; 16384], 16384).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    // The server logs that, waits until it is durable, and then unlinks the file.
    log_deletion();
    let written = late.write_at(&[0; 16384], 16384).unwrap();
    println!("written {written} bytes while it is being deleted");
    std::fs::remove_file("./d/t.ibd").unwrap();
    let written = late.write_at(&[0; 16384], 16384).unwrap();
    println!("written {written} bytes late");
}

/// Makes a redo log with FILE_DELETE of tablespace 7, `./d/t.ibd`.
fn log_deletion() {
    log_mtr(&[&[0x90 | 11, 7, 0], &b"./d/t.ibd"[..]].concat());
}

/// Makes a redo log, and writes a mini-transaction with these records into it. Returns its end LSN.
fn log_mtr(records: &[u8]) -> u64 {
    use redoubt_redo::mariadb::LogHeader;
    use redoubt_redo::mariadb::log_file::{DATA_OFFSET, FIRST_LSN};
    use std::os::unix::fs::FileExt;
    let log =
        std::fs::File::options().read(true).write(true).create_new(true).open("./ib_logfile101").unwrap();
    log.set_len(4 << 20).unwrap();
    let header = LogHeader { first_lsn: FIRST_LSN, creator: b"test".to_vec() }.build();
    log.write_all_at(&header, 0).unwrap();
    std::fs::rename("./ib_logfile101", "./ib_logfile0").unwrap();
    let mut bytes = records.to_vec();
    let crc = crc32c::crc32c(&bytes);
    bytes.push(1);
    bytes.extend(crc.to_be_bytes());
    let end_lsn = FIRST_LSN.advance(bytes.len() as u64).0;
    // The server writes whole blocks.
    bytes.resize(4096, 0);
    log.write_all_at(&bytes, DATA_OFFSET).unwrap();
    end_lsn
}
