//! The parser against the redo log of a real MySQL 9.7: a load that makes it write every type of record, read back
//! without loss, composed again byte for byte, and composed for another server to start from.
//!
//! Needs the server that `scripts/fetch-server` fetches; without it the tests are skipped, with a message.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redoubt_redo::mysql::record_reader::RecordReader;
use redoubt_redo::mysql::{
    Body, FirstGroups, LogFileName, LogObserver, LogSet, LogSetRead, LogSetStop, Observed, from_server_lsn,
};
use redoubt_redo::{Lsn, Mtr, MtrVisitor};

const LOAD: &str = include_str!("support/mysql_load.sql");
const PATIENCE: Duration = Duration::from_secs(120);

fn programs() -> PathBuf {
    let folder = redoubt_test_support::setting_os("REDOUBT_MYSQL_9_7").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/mysql-9.7"),
        PathBuf::from,
    );
    let bin = folder.join("bin");
    assert!(
        bin.join("mysqld").exists(),
        "there is no MySQL 9.7 in {}: scripts/fetch-server mysql-9.7",
        folder.display()
    );
    bin
}

/// A server of its own, killed when dropped.
struct Server {
    bin: PathBuf,
    folder: PathBuf,
    child: Child,
}

impl Server {
    fn initialise(bin: &Path, folder: &Path) {
        let output = Command::new(bin.join("mysqld"))
            .args(["--no-defaults", "--user=root", "--initialize-insecure"])
            .arg(format!("--datadir={}", folder.join("data").display()))
            .arg("--innodb-redo-log-capacity=1073741824")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn start(bin: &Path, folder: &Path) -> Self {
        let at = |name: &str| folder.join(name).display().to_string();
        let child = Command::new(bin.join("mysqld"))
            .args(["--no-defaults", "--user=root", "--skip-networking", "--mysqlx=OFF", "--skip-log-bin"])
            .args(["--innodb-redo-log-capacity=1073741824", "--innodb-buffer-pool-size=67108864"])
            .args(["--innodb-undo-log-truncate=ON", "--innodb-max-undo-log-size=10485760"])
            .args([
                format!("--datadir={}", at("data")),
                format!("--socket={}", at("s")),
                format!("--tmpdir={}", at("")),
            ])
            .args([format!("--pid-file={}", at("pid")), format!("--log-error={}", at("error.log"))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self { bin: bin.to_owned(), folder: folder.to_owned(), child };
        let started = Instant::now();
        while !server.try_sql("SELECT 1").is_some_and(|answer| answer.contains('1')) {
            let died = server.child.try_wait().unwrap();
            assert!(died.is_none() && started.elapsed() < PATIENCE, "no server: {}", server.error_log());
            std::thread::sleep(Duration::from_millis(200));
        }
        server
    }

    fn error_log(&self) -> String {
        fs::read_to_string(self.folder.join("error.log")).unwrap_or_default()
    }

    fn client(&self) -> Command {
        let mut client = Command::new(self.bin.join("mysql"));
        client.args(["--no-defaults", "-uroot", "-N", "-B"]).arg("-S").arg(self.folder.join("s"));
        client
    }

    fn try_sql(&self, sql: &str) -> Option<String> {
        let output = self.client().args(["-e", sql]).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|| panic!("{sql} failed: {}", self.error_log()))
    }

    /// Run the load up to its end in a session that stays: what it registered keeps the log files.
    fn load(&self) -> Child {
        let path = self.folder.join("script.sql");
        fs::write(&path, LOAD).unwrap();
        let mut client = self.client();
        client.arg("--unbuffered").stdin(fs::File::open(path).unwrap());
        let mut client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(client.stdout.take().unwrap()).lines();
        let is_done = lines.map_while(Result::ok).any(|line| line == "the load is done");
        if !is_done {
            let output = client.wait_with_output().unwrap();
            panic!("the load failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        client
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The files in a data directory.
struct Files(BTreeMap<u64, fs::File>);

impl Files {
    fn open(datadir: &Path) -> Self {
        let entries = fs::read_dir(datadir.join("#innodb_redo")).unwrap().map(Result::unwrap);
        let files =
            entries.filter_map(|entry| match LogFileName::parse(entry.file_name().as_encoded_bytes()) {
                Some(LogFileName::Log(number)) => Some((number, fs::File::open(entry.path()).unwrap())),
                _ => None,
            });
        Self(files.collect())
    }

    fn sizes(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(&number, file)| (number, file.metadata().unwrap().len())).collect()
    }
}

impl LogSetRead for Files {
    type Error = std::io::Error;

    fn read_at(&self, number: u64, offset: u64, buf: &mut [u8]) -> Result<(), std::io::Error> {
        self.0[&number].read_exact_at(buf, offset)
    }
}

/// Result of a walk.
#[derive(Default)]
struct Found {
    mtrs: u64,
    runs: u64,
    largest: usize,
    types: BTreeMap<u8, u64>,
    first_groups: FirstGroups,
    stream: Vec<u8>,
    file_notes: u64,
    index_loads: u64,
    versioned: u64,
    alone: bool,
}

impl MtrVisitor for Found {
    fn visit_mtr(&mut self, mtr: &Mtr<'_, '_>) {
        self.mtrs += 1;
        self.runs += mtr.runs.len() as u64;
        self.largest = self.largest.max(mtr.bytes.len());
        self.first_groups.visit_mtr(mtr);
        self.stream.extend_from_slice(mtr.bytes);
        self.file_notes += mtr.files.len() as u64;
        self.index_loads += mtr.index_loads.len() as u64;
        self.alone &= mtr.files.is_empty() || (mtr.runs.is_empty() && mtr.files.len() == 1);
        let mut reader = RecordReader::new(mtr.records);
        let mut at = 0;
        while let Some(record) = reader.next() {
            let record = record.unwrap();
            *self.types.entry(mtr.records[at] & 0x7f).or_default() += 1;
            at = reader.offset_in_bytes();
            if let Body::Insert { index, .. }
            | Body::Delete { index, .. }
            | Body::UpdateInPlace { index, .. } = record.body
            {
                self.versioned += u64::from(index.has_row_versions());
                index.columns(&mut Vec::new()).unwrap();
            }
        }
        let in_runs: usize = mtr.runs.iter().map(|run| run.len_bytes).sum();
        assert!(in_runs <= mtr.records.len());
        for run in mtr.runs {
            assert!(RecordReader::new(mtr.run_bytes(run)).all(|record| record.unwrap().page == run.page));
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}

fn fetch_from(stream: &[u8], start: Lsn) -> impl FnMut(Lsn, &mut [u8]) -> Result<(), Infallible> {
    move |position, part: &mut [u8]| {
        let at = (position.0 - start.0) as usize;
        part.copy_from_slice(&stream[at..at + part.len()]);
        Ok(())
    }
}

/// Every block that the server wrote is the same when it is composed, and the writes can be observed.
fn check_blocks(files: &Files, set: &LogSet<'_, Files>, found: &Found, start: Lsn, end: Lsn) {
    let sizes: Vec<u64> = set.files().iter().map(|file| file.range.size_bytes).collect();
    let same_size = sizes.iter().take_while(|&&size| size == sizes[0]).count();
    let mut image = set.image(start, end).unwrap();
    let starts = set.files().iter().map(|file| (file.number, file.range.start_lsn));
    let mut observer = LogObserver::new(start, starts);
    let mut rng = fastrand::Rng::with_seed(9);
    let mut blocks = 0;
    let mut handed_out = 0;
    for (file, _) in set.files().iter().zip(0..same_size) {
        image.checkpoint = set.checkpoint();
        let mut real = vec![0; file.range.size_bytes as usize];
        files.read_at(file.number, 0, &mut real).unwrap();
        let mut composed = vec![0; real.len()];
        let fetch = fetch_from(&found.stream, start);
        image.compose(file.number, 0, &mut composed, &found.first_groups, fetch).unwrap();
        let mut at = 2048;
        while at + 512 <= real.len() {
            let lsn = file.range.lsn_at(at as u64).unwrap();
            let is_whole = from_server_lsn(lsn) >= start && from_server_lsn(lsn + 512) <= end;
            if is_whole {
                assert!(real[at..at + 512] == composed[at..at + 512], "block at server LSN {lsn}");
                blocks += 1;
            }
            at += 512;
        }
        // The log in writes of any size.
        let mut offset =
            (2048 + start.0.saturating_sub(from_server_lsn(file.range.start_lsn).0) / 496 * 512) as usize;
        while offset < real.len() {
            let lsn = file.range.lsn_at(offset as u64).unwrap();
            if from_server_lsn(lsn + 512) > end {
                break;
            }
            let to_end = (end.0 - from_server_lsn(lsn).0) / 496;
            let count = rng.u64(1..40).min(to_end).min((real.len() - offset) as u64 / 512);
            let buf = &real[offset..offset + count as usize * 512];
            let name = LogFileName::Log(file.number);
            match observer.on_write(name, offset as u64, buf, &mut |_: &Mtr<'_, '_>| {}).unwrap() {
                Observed::Redo(redo) => {
                    let at = (redo.start_lsn.0 - start.0) as usize;
                    assert!(found.stream[at..at + redo.bytes.len()] == *redo.bytes);
                    handed_out += redo.bytes.len();
                }
                other => panic!("{other:?}"),
            }
            offset += buf.len();
        }
    }
    println!(
        "{blocks} blocks composed as the server wrote them, {handed_out} bytes observed, {same_size} files"
    );
    assert!(blocks > 1000 && handed_out > 1_000_000);
}

/// The types that [`LOAD`] must cause, by number. Not 74 (ZIP_PAGE_COMPRESS_NO_DATA), for which a page must be
/// compressed again with a record that its space for changes does not hold. Not 32 (DUMMY_RECORD) either, which the
/// server writes when it cannot wait for a file to fill up.
const TYPES: &[(u8, &str)] = &[
    (1, "1BYTE"),
    (2, "2BYTES"),
    (4, "4BYTES"),
    (8, "8BYTES"),
    (11, "REC_SEC_DELETE_MARK"),
    (19, "PAGE_CREATE"),
    (20, "UNDO_INSERT"),
    (21, "UNDO_ERASE_END"),
    (22, "UNDO_INIT"),
    (24, "UNDO_HDR_REUSE"),
    (25, "UNDO_HDR_CREATE"),
    (26, "REC_MIN_MARK"),
    (27, "IBUF_BITMAP_INIT"),
    (30, "WRITE_STRING"),
    (33, "FILE_CREATE"),
    (34, "FILE_RENAME"),
    (35, "FILE_DELETE"),
    (36, "COMP_REC_MIN_MARK"),
    (37, "COMP_PAGE_CREATE"),
    (48, "ZIP_WRITE_NODE_PTR"),
    (49, "ZIP_WRITE_BLOB_PTR"),
    (50, "ZIP_WRITE_HEADER"),
    (51, "ZIP_PAGE_COMPRESS"),
    (57, "PAGE_CREATE_RTREE"),
    (58, "COMP_PAGE_CREATE_RTREE"),
    (59, "INIT_FILE_PAGE2"),
    (61, "INDEX_LOAD"),
    (62, "TABLE_DYNAMIC_META"),
    (64, "COMP_PAGE_CREATE_SDI"),
    (65, "FILE_EXTEND"),
    (67, "REC_INSERT"),
    (68, "REC_CLUST_DELETE_MARK"),
    (69, "REC_DELETE"),
    (70, "REC_UPDATE_IN_PLACE"),
    (71, "LIST_END_COPY_CREATED"),
    (72, "PAGE_REORGANIZE"),
    (73, "ZIP_PAGE_REORGANIZE"),
    (75, "LIST_END_DELETE"),
    (76, "LIST_START_DELETE"),
];

const TABLES: &str = "load_test.numbers, load_test.compact_rows, load_test.redundant_rows, load_test.dynamic_rows, \
    load_test.compressed_rows, load_test.backwards, load_test.places, load_test.texts, \
    load_test.objects, load_test.instant, load_test.instant_redundant, load_test.in_general, load_test.partitioned";

/// CHECKSUM TABLE gives a table with an index on parts of JSON another sum in the second server, with the same rows.
const DOCUMENTS: &str = "SELECT COUNT(*), SUM(CRC32(j)), SUM(v), SUM(w) FROM load_test.documents";

/// Content of the tables.
fn contents(server: &Server) -> String {
    server.sql(&format!("CHECKSUM TABLE {TABLES}")) + &server.sql(DOCUMENTS)
}

#[test]
#[ignore = "make batteries"]
fn the_log_of_a_load_is_read_composed_and_recovered_from() {
    let bin = programs();
    let folder = tempfile::Builder::new().prefix("redoubt-mysql-").tempdir().unwrap();
    let folder = folder.path();
    Server::initialise(&bin, folder);
    let server = Server::start(&bin, folder);
    let mut session = server.load();
    let expected = contents(&server);
    server.kill();
    session.wait().unwrap();

    let files = Files::open(&folder.join("data"));
    let set = LogSet::open(&files, &files.sizes()).unwrap();
    let oldest = from_server_lsn(set.files()[0].range.start_lsn);
    let start = set.first_mtr_from(oldest).unwrap().unwrap();
    let mut found = Found { alone: true, ..Found::default() };
    let end = set.walk(start, &mut found).unwrap();
    println!(
        "{} files, {} mini-transactions, {} runs, {} bytes, largest {}, {} records of versioned indexes, {} notes, \
         {} index loads, end {end:?}, checkpoint {}",
        set.files().len(),
        found.mtrs,
        found.runs,
        found.stream.len(),
        found.largest,
        found.versioned,
        found.file_notes,
        found.index_loads,
        set.checkpoint(),
    );
    println!("{:?}", found.types);
    // For the benchmark of the same crate.
    if let Some(path) = redoubt_test_support::setting_os("REDOUBT_MYSQL_STREAM_TO") {
        fs::write(path, &found.stream).unwrap();
    }
    assert!(matches!(end.stop, LogSetStop::NotFull | LogSetStop::NoBlock(_)));
    assert_eq!(end.end_lsn, start.advance(found.stream.len() as u64));
    assert!(found.alone, "a record about a file is a mini-transaction of its own");
    assert!(found.versioned > 1000);
    let missing: Vec<_> = TYPES.iter().filter(|(number, _)| !found.types.contains_key(number)).collect();
    assert!(missing.is_empty(), "the load caused no {missing:?}");

    check_blocks(&files, &set, &found, start, end.end_lsn);

    check_recovery(&bin, folder, &set, &found, start, end.end_lsn, &expected);
}

/// Another server starts from files of another layout, composed from the checkpoint on.
fn check_recovery(
    bin: &Path,
    folder: &Path,
    set: &LogSet<'_, Files>,
    found: &Found,
    start: Lsn,
    end: Lsn,
    expected: &str,
) {
    let first = set.first_mtr().unwrap().unwrap_or(set.checkpoint());
    let composed = folder.join("composed");
    fs::create_dir(&composed).unwrap();
    copy_folder(&folder.join("data"), &composed.join("data"));
    let directory = composed.join("data/#innodb_redo");
    fs::remove_dir_all(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    let mut image = set.image(first, end).unwrap();
    image.first_number = 7;
    image.start_lsn = redoubt_redo::mysql::position::block_start(first);
    image.file_size_bytes = 1 << 17;
    image.set_id ^= 0x5555;
    image.checkpoint = set.checkpoint().max(first);
    // Only what its documentation says is needed.
    let mut groups = FirstGroups::default();
    let mut near_end = None;
    let checkpoint = set.checkpoint();
    set.walk(start, &mut |mtr: &Mtr<'_, '_>| {
        if mtr.end_lsn.0 + 2000 > checkpoint.0 && mtr.start_lsn.0 < checkpoint.0 + 2000 {
            groups.visit_mtr(mtr);
        }
        if mtr.end_lsn.0 / 496 == end.0 / 496 && near_end.is_none() {
            near_end = Some(if mtr.start_lsn.0 / 496 == end.0 / 496 { mtr.start_lsn } else { mtr.end_lsn });
        }
    })
    .unwrap();
    groups.insert(near_end.unwrap());
    for number in image.numbers() {
        let mut bytes = vec![0; image.file_size_bytes as usize];
        image.compose(number, 0, &mut bytes, &groups, fetch_from(&found.stream, start)).unwrap();
        fs::write(directory.join(LogFileName::Log(number).to_string()), bytes).unwrap();
    }
    println!("composed {} files, {} bytes from the checkpoint on", image.numbers().count(), end.0 - first.0);
    let recovered = Server::start(bin, &composed);
    assert_eq!(contents(&recovered), expected);
    let check = recovered.sql(&format!("CHECK TABLE {TABLES}, load_test.documents"));
    assert!(check.lines().all(|line| line.ends_with("OK")), "{check}");
    let log = recovered.error_log();
    assert!(!log.contains("first_rec_group") && !log.contains("MY-014066"), "{log}");
    for line in log.lines().filter(|line| line.contains("redo") || line.contains("log sequence")) {
        println!("{line}");
    }
}
