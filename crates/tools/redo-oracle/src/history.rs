//! Histories: statements run on a real server from a clean base on, and their results.
//!
//! A [`Workshop`] is a directory, in memory where there is a file system in memory, with one installed database per
//! configuration that is copied for each history. The copy gets a new log, sparse and so long that no history wraps
//! around in it: all redo from the base on is there at the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mysql::Conn;
use mysql::prelude::Queryable;
use redoubt_harness::encryption::KeyPlugin;
use redoubt_harness::fetched;
use redoubt_harness::sparse_files::copy_directory;
use redoubt_redo::Lsn;
use redoubt_redo::mariadb::{CheckpointBlock, LogHeader, LogScan};
use redoubt_workload::error::{Error, Result};
use redoubt_workload::launcher::Launcher;
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;
use serde::Serialize as _;

use super::base::{Base, LogFile, parse};
use super::clear;
use super::redo::Redo;
use crate::generator::{CONNECTIONS, Class, Config, Generator, Statement, load_files};

/// Length of the log file: more redo than any history makes. The file is sparse.
pub const LOG_FILE_MIB: u32 = 4096;

/// Pools from this size on are flushed eagerly.
const EAGER_POOL_MIB: u32 = 64;

/// New tables are encrypted, and threads encrypt what was there before.
const ENCRYPT: [&str; 3] =
    ["--innodb-encrypt-tables=ON", "--innodb-encryption-threads=2", "--innodb-encrypt-log=OFF"];

/// Settings of a history's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Setup {
    /// Page size in bytes.
    pub page_size_bytes: u32,
    /// Pages of new tablespaces carry a full_crc32 checksum, else the older crc32.
    pub full_crc32: bool,
    /// Buffer pool in MiB. A small one makes the change buffer work.
    pub pool_mib: u32,
    /// The server encrypts all tablespaces; its log is plain.
    pub encrypted: bool,
    /// A fetched server; `None`: the system's.
    #[serde(serialize_with = "name_of_server")]
    pub server: Option<FetchedServer>,
}

#[expect(clippy::ref_option, reason = "as serde wants it")]
fn name_of_server<S: serde::Serializer>(
    server: &Option<FetchedServer>,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    server.map(FetchedServer::name).serialize(out)
}

/// All page sizes there are.
pub const PAGE_SIZES: [u32; 5] = [16384, 4096, 65536, 8192, 32768];

impl Setup {
    /// The setup of a seed: page sizes in turn, the common one more often.
    pub fn of_seed(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let page_size_bytes = match seed % 8 {
            0 | 3 | 6 => 16384,
            1 | 5 => 4096,
            2 => 65536,
            4 => 8192,
            _ => 32768,
        };
        let smallest = if page_size_bytes > 16384 { 32 } else { 8 };
        let pool_mib = if random.bool() { smallest } else { 64 };
        Self { page_size_bytes, full_crc32: random.u8(..4) > 0, pool_mib, encrypted: false, server: None }
    }

    /// Arguments that bootstrap, server and recovery share.
    pub fn innodb_args(self) -> Vec<String> {
        let checksum = if self.full_crc32 { "full_crc32" } else { "crc32" };
        let args = [
            "--innodb-data-file-path=ibdata1:12M;ibdata2:4M:autoextend",
            "--innodb-undo-tablespaces=3",
            "--innodb-undo-log-truncate=ON",
            "--innodb-max-undo-log-size=10485760",
        ];
        let mut args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        args.push(format!("--innodb-checksum-algorithm={checksum}"));
        args
    }

    /// Its server.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`] if that was not fetched.
    pub fn product(self) -> Result<Product> {
        self.server.map_or(Ok(Product::MariaDb), fetched::find)
    }

    /// How its server recovers, without encryption.
    ///
    /// # Errors
    /// As [`Setup::product`].
    pub fn recovery(self, small_pool: bool) -> Result<super::recovery::Options> {
        let mut innodb_args = self.innodb_args();
        innodb_args.push(format!("--innodb-page-size={}", self.page_size_bytes));
        let smallest = if self.page_size_bytes > 16384 { 24 } else { 8 };
        let buffer_pool_mib = if small_pool { smallest } else { 96 };
        let server = self.product()?.program()?;
        Ok(super::recovery::Options { server, buffer_pool_mib, innodb_args, keys: None })
    }

    fn server_config(self, launcher: Launcher, files: &Path) -> Result<ServerConfig> {
        let mut config = ServerConfig::new(launcher).product(self.product()?);
        config.page_size_bytes = self.page_size_bytes;
        config.buffer_pool_bytes = u64::from(self.pool_mib) << 20;
        config.log_file_size_bytes = u64::from(LOG_FILE_MIB) << 20;
        config.innodb_args = self.innodb_args();
        config.server_args = [
            "--innodb-lock-wait-timeout=0",
            "--lock-wait-timeout=0",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-change-buffering=all",
            "--innodb-autoextend-increment=1",
            "--innodb-online-alter-log-max-size=1048576",
            "--innodb-buffer-pool-dump-at-shutdown=OFF",
            "--innodb-stats-persistent=1",
            "--skip-log-bin",
            "--max-connections=20",
            "--sql-mode=",
            "--default-storage-engine=InnoDB",
            "--loose-performance-schema=OFF",
            "--table-open-cache=200",
            "--system-versioning-alter-history=KEEP",
        ]
        .map(str::to_owned)
        .to_vec();
        config.server_args.push(format!("--secure-file-priv={}", files.display()));
        // A small pool is flushed by need. A large one is flushed at once, so that the checkpoint moves during the
        // history.
        if self.pool_mib >= EAGER_POOL_MIB {
            config
                .server_args
                .extend(["--innodb-max-dirty-pages-pct=0", "--innodb-io-capacity=4000"].map(str::to_owned));
        }
        Ok(config)
    }
}

/// Settings that an installed database depends on: page size in bytes, full_crc32, server.
type Installation = (u32, bool, Option<FetchedServer>);

/// Statements tried and done, by class, with the last refusal.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Tried, succeeded, and why the last one failed.
    pub classes: BTreeMap<Class, (u64, u64, String)>,
    /// Statements of loads that have no classes.
    pub other: u64,
}

impl Tally {
    /// Counts a statement.
    pub fn count(&mut self, class: Class, refusal: Option<String>) {
        let entry = self.classes.entry(class).or_default();
        entry.0 += 1;
        match refusal {
            None => entry.1 += 1,
            Some(why) => entry.2 = why,
        }
    }

    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.other += other.other;
        for (class, (tried, succeeded, why)) in &other.classes {
            let entry = self.classes.entry(*class).or_default();
            entry.0 += tried;
            entry.1 += succeeded;
            if !why.is_empty() {
                entry.2.clone_from(why);
            }
        }
    }

    /// Classes that never succeeded, with why the last try failed.
    pub fn never(&self) -> Vec<(Class, String)> {
        let missing = |class: &&Class| self.classes.get(*class).is_none_or(|entry| entry.1 == 0);
        Class::ALL
            .iter()
            .filter(missing)
            .map(|class| {
                let why = self.classes.get(class).map_or("never generated", |entry| &entry.2);
                (*class, why.to_owned())
            })
            .collect()
    }

    /// Tried and succeeded by class, as JSON.
    pub fn json(&self) -> serde_json::Value {
        let classes = self.classes.iter();
        classes
            .map(|(class, (tried, done, _))| (class.name().to_owned(), serde_json::json!([tried, done])))
            .collect()
    }

    /// Statements tried.
    pub fn tried(&self) -> u64 {
        self.classes.values().map(|entry| entry.0).sum::<u64>() + self.other
    }

    /// Statements that succeeded.
    pub fn succeeded(&self) -> u64 {
        self.classes.values().map(|entry| entry.1).sum::<u64>() + self.other
    }
}

/// Results of a history.
#[derive(Debug)]
pub struct Recorded {
    /// Where it began, in clear.
    pub base: Base,
    /// The same as it lies on disk, where that differs.
    stored: Option<Base>,
    /// The plugin with the server's keys.
    keys: Option<Arc<KeyPlugin>>,
    /// Its redo, to the end of what the killed server had written.
    pub redo: Redo,
    /// The data directory of the killed server.
    pub killed: PathBuf,
    /// Statements tried and done.
    pub tally: Tally,
    /// The server's setup.
    pub setup: Setup,
    /// The server ended by itself before the history did; the end of its log.
    pub crash: Option<String>,
    _directory: tempfile::TempDir,
}

impl Recorded {
    /// The base as it lies on disk.
    pub fn stored(&self) -> &Base {
        self.stored.as_ref().unwrap_or(&self.base)
    }

    /// Arguments of a recovery.
    pub fn recovery(&self, small_pool: bool) -> Result<super::recovery::Options> {
        Ok(super::recovery::Options { keys: self.keys.clone(), ..self.setup.recovery(small_pool)? })
    }

    /// The state of the directory after the kill. To be called before the directory is recovered.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn killed_state(&self) -> Result<KilledState> {
        let mut base = Base::read_killed(&self.killed)?;
        let redo = Redo::from_files(&[&self.killed.join("ib_logfile0")], base.start_lsn())?;
        let mut torn = clear::TornPages::default();
        if self.keys.is_some() {
            let copies = base.doublewritten.take();
            torn = clear::decrypt(&mut base.files, copies.as_ref(), redo.end_lsn)?.torn;
        }
        Ok(KilledState { base, redo, torn })
    }
}

/// The state of a directory after a kill.
#[derive(Debug)]
pub struct KilledState {
    /// The page files, in clear and with torn pages taken from the doublewrite area.
    pub base: Base,
    /// The redo that its checkpoint needs.
    pub redo: Redo,
    /// Encrypted pages that were torn.
    pub torn: clear::TornPages,
}

/// A directory in which histories run.
#[derive(Debug)]
pub struct Workshop {
    root: tempfile::TempDir,
    templates: std::sync::Mutex<BTreeMap<Installation, PathBuf>>,
    keys: std::sync::Mutex<Option<Arc<KeyPlugin>>>,
}

impl Workshop {
    /// In `parent`, or in memory, or where temporary files go.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(parent: Option<&Path>) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        let root = tempfile::Builder::new()
            .prefix("rdt-")
            .tempdir_in(&parent)
            .map_err(Error::io_at("make a temporary directory in", &parent))?;
        Ok(Self { root, templates: Default::default(), keys: Default::default() })
    }

    /// Where it works.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// The installed database of a setup, made on first use.
    fn template(&self, setup: Setup) -> Result<PathBuf> {
        let key = (setup.page_size_bytes, setup.full_crc32, setup.server);
        let mut templates = self.templates.lock().map_err(|_| Error::State("a thread panicked".into()))?;
        if let Some(path) = templates.get(&key) {
            return Ok(path.clone());
        }
        let directory = self.root.path().join(format!("template-{}", templates.len()));
        let mut config = setup.server_config(Launcher::Stock, &directory)?;
        config.log_file_size_bytes = 8 << 20;
        let mut server = Server::in_directory(config, &directory)?;
        server.install_db()?;
        let path = server.datadir();
        templates.insert(key, path.clone());
        Ok(path)
    }

    /// The plugin for a setup that encrypts.
    fn keys(&self, setup: Setup) -> Result<Option<Arc<KeyPlugin>>> {
        if !setup.encrypted {
            return Ok(None);
        }
        let mut keys = self.keys.lock().map_err(|_| Error::State("a thread panicked".into()))?;
        if keys.is_none() {
            *keys = Some(Arc::new(KeyPlugin::new()?));
        }
        Ok(keys.clone())
    }

    /// A stock server on a copy of the setup's template, with a long, sparse log. It is not started.
    ///
    /// # Errors
    /// Those of the installation; [`Error::Io`].
    pub fn server(&self, setup: Setup) -> Result<(Server, tempfile::TempDir)> {
        let template = self.template(setup)?;
        let directory = tempfile::Builder::new()
            .prefix("h-")
            .tempdir_in(self.root.path())
            .map_err(Error::io_at("make a temporary directory in", self.root.path()))?;
        let files = directory.path().join("files");
        fs::create_dir(&files).map_err(Error::io_at("create", &files))?;
        for (name, text) in load_files() {
            fs::write(files.join(name), text).map_err(Error::io_at("write to", &files))?;
        }
        let mut config = setup.server_config(Launcher::Stock, &files)?;
        if let Some(keys) = self.keys(setup)? {
            config = keys.on(config);
            config.server_args.extend(ENCRYPT.map(str::to_owned));
        }
        let server = Server::in_directory(config, directory.path())?;
        copy_directory(&template, &server.datadir())?;
        renew_log(&server.datadir().join("ib_logfile0"), u64::from(LOG_FILE_MIB) << 20)?;
        Ok((server, directory))
    }

    /// Runs `work` on a server whose state before it becomes the base, then kills the server.
    ///
    /// # Errors
    /// Those of the server and of reading what it left. A server that ends in `work` is no error.
    pub fn record(
        &self,
        setup: Setup,
        prepare: impl FnOnce(&Server) -> Result<Tally>,
        work: impl FnOnce(&Server) -> Result<Tally>,
    ) -> Result<Recorded> {
        let (mut server, directory) = self.server(setup)?;
        server.start()?;
        let mut tally = prepare(&server)?;
        execute(&mut server.connect()?, "SET GLOBAL innodb_fast_shutdown = 1")?;
        server.shutdown()?;
        let mut base = Base::read(&server.datadir())?;
        let keys = self.keys(setup)?;
        let stored = keys.is_some().then(|| base.clone());
        if keys.is_some() {
            let end_lsn = base.start_lsn();
            clear::decrypt(&mut base.files, None, end_lsn)?;
        }
        server.start()?;
        let crash = match work(&server) {
            Ok(done) => {
                tally.add(&done);
                make_durable(&server).err().map(|_| server.error_log_tail(40))
            }
            Err(error) if error.is_connection_loss() => Some(server.error_log_tail(60)),
            Err(error) => return Err(error),
        };
        server.kill9()?;
        let redo = Redo::from_files(&[&server.datadir().join("ib_logfile0")], base.start_lsn())?;
        let killed = server.datadir();
        Ok(Recorded { base, stored, keys, redo, killed, tally, setup, crash, _directory: directory })
    }

    /// Runs the first `count` statements of a configuration's random history, and returns them, too.
    ///
    /// # Errors
    /// As for [`Workshop::record`].
    pub fn random(&self, setup: Setup, config: Config, count: usize) -> Result<(Recorded, Script)> {
        let mut generator = Generator::new(config);
        let preparation = generator.preparation();
        let statements: Vec<_> = generator.take(count).collect();
        let script = Script { setup, preparation, statements };
        Ok((self.run(&script)?, script))
    }

    /// Runs a script.
    ///
    /// # Errors
    /// As for [`Workshop::record`].
    pub fn run(&self, script: &Script) -> Result<Recorded> {
        self.record(
            script.setup,
            |server| {
                let mut tally = run_statements(server, &script.preparation)?;
                tally
                    .count(Class::Import, import(server, str::to_owned).err().map(|error| error.to_string()));
                Ok(tally)
            },
            |server| run_statements(server, &script.statements),
        )
    }
}

/// A history that can be run again.
#[derive(Debug, Clone)]
pub struct Script {
    /// The server's setup.
    pub setup: Setup,
    /// Before the base.
    pub preparation: Vec<Statement>,
    /// After it.
    pub statements: Vec<Statement>,
}

/// Runs statements one by one, each on its connection; refusals are counted.
///
/// # Errors
/// A lost connection.
pub fn run_statements(server: &Server, statements: &[Statement]) -> Result<Tally> {
    let mut sessions = Sessions::new(server);
    statements.iter().try_for_each(|statement| sessions.run(statement))?;
    Ok(sessions.tally)
}

/// The connections of a history, opened as they are needed.
#[derive(Debug)]
pub struct Sessions<'s> {
    server: &'s Server,
    connections: Vec<Option<Conn>>,
    files: String,
    /// Statements tried and done.
    pub tally: Tally,
}

impl<'s> Sessions<'s> {
    /// None is open.
    pub fn new(server: &'s Server) -> Self {
        Self {
            server,
            connections: (0..CONNECTIONS).map(|_| None).collect(),
            files: server.directory().join("files").display().to_string(),
            tally: Tally::default(),
        }
    }

    /// Runs a statement on its connection, and counts whether the server took it.
    ///
    /// # Errors
    /// A lost connection.
    pub fn run(&mut self, statement: &Statement) -> Result<()> {
        let place = usize::from(statement.connection) % self.connections.len();
        let Some(slot) = self.connections.get_mut(place) else { return Ok(()) };
        let conn = match slot {
            Some(conn) => conn,
            None => {
                let mut conn = self.server.connect()?;
                // The sequence tables `seq_1_to_N` are looked for in the current database.
                execute(&mut conn, "USE mysql")?;
                slot.insert(conn)
            }
        };
        let sql = statement.sql.replace("$FILES", &self.files);
        match conn.query_drop(&sql) {
            Ok(()) => self.tally.count(statement.class, None),
            Err(mysql::Error::MySqlError(error)) if !matches!(error.code, 1053 | 1927) => {
                let refusal = format!("{} {}: {sql:.200}", error.code, error.message);
                self.tally.count(statement.class, Some(refusal));
            }
            Err(error) => return Err(Error::sql(&sql)(error)),
        }
        Ok(())
    }
}

/// Exports a table and imports it as another: before the base, because no redo tells of the pages. `in_dialect` makes the
/// server's statements of MariaDB's.
pub(super) fn import(server: &Server, in_dialect: impl Fn(&str) -> String) -> Result<()> {
    let mut conn = server.connect()?;
    for sql in [
        "USE d0",
        "CREATE TABLE d0.donor (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, c VARCHAR(180) NOT NULL \
         DEFAULT '', b LONGBLOB, KEY k (k), KEY c (c)) ENGINE=InnoDB CHARSET=latin1",
        "INSERT INTO d0.donor SELECT seq, seq, MD5(seq), NULL FROM seq_1_to_900",
        "CREATE TABLE d0.imported LIKE d0.donor",
        "ALTER TABLE d0.imported DISCARD TABLESPACE",
        "FLUSH TABLES d0.donor FOR EXPORT",
    ] {
        execute(&mut conn, &in_dialect(sql))?;
    }
    let database = server.datadir().join("d0");
    for extension in ["ibd", "cfg"] {
        let from = database.join(format!("donor.{extension}"));
        let to = database.join(format!("imported.{extension}"));
        fs::copy(&from, &to).map_err(Error::io_at("copy", &from))?;
    }
    execute(&mut conn, "UNLOCK TABLES")?;
    execute(&mut conn, "ALTER TABLE d0.imported IMPORT TABLESPACE")
}

/// Everything logged so far reaches the log file. The last table is renamed, so that each history renames a file that
/// is there at its end.
fn make_durable(server: &Server) -> Result<()> {
    let mut conn = server.connect()?;
    execute(&mut conn, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")?;
    execute(&mut conn, "CREATE TABLE mysql.oracle_created (a INT) ENGINE=InnoDB")?;
    execute(&mut conn, "RENAME TABLE mysql.oracle_created TO mysql.oracle_end")?;
    execute(&mut conn, "INSERT INTO mysql.oracle_end VALUES (1)")
}

/// Replaces the log of a clean directory by a sparse one of `size_bytes` that begins at the checkpoint.
fn renew_log(path: &Path, size_bytes: u64) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let what = path.display().to_string();
    let log = LogFile::open(path)?;
    let scan = LogScan::open(&log).map_err(parse(&what))?;
    let at = scan.checkpoint().checkpoint_lsn;
    let header = LogHeader { first_lsn: at, ..scan.header().clone() };
    fs::remove_file(path).map_err(Error::io_at("remove", path))?;
    let file = fs::File::create(path).map_err(Error::io_at("create", path))?;
    file.set_len(size_bytes).map_err(Error::io_at("set the length of", path))?;
    let write = |bytes: &[u8], offset| file.write_all_at(bytes, offset).map_err(Error::io_at("write", path));
    write(&header.build(), 0)?;
    write(&CheckpointBlock { checkpoint_lsn: at, end_lsn: at }.build(), 4096)?;
    write(&checkpoint_mtr(at), 12_288)
}

/// The mini-transaction that is all there is after a clean checkpoint, with the sequence bit of a first lap.
fn checkpoint_mtr(at: Lsn) -> Vec<u8> {
    let mut mtr = vec![0xfa, 0, 0];
    mtr.extend_from_slice(&at.0.to_be_bytes());
    let checksum = crc32c::crc32c(&mtr);
    mtr.push(1);
    mtr.extend_from_slice(&checksum.to_be_bytes());
    mtr
}
