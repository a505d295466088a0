//! A real server's redo as a recording of the stream: frames with their positions, and the content of each page after
//! each mini-transaction that touched it.

use super::client::frame;
use redoubt_page::{Change, SpaceFlags, apply_changes, digest, flags_of_page0, layout};
use redoubt_redo::mariadb::{CheckpointBlock, LogScan};
use redoubt_redo::mariadb::{SequenceRule, walk_mtrs};
use redoubt_redo::{FileRecord, Lsn, Mtr, PageId, SpaceFlagsChange, SpaceId};
use redoubt_wire::frame::{COMPRESSED, append_frame, compress};
use redoubt_wire::stream::{FileKind, StreamFrame, SystemFile, Verify};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const FIRST_LSN: Lsn = Lsn(12_288);

/// One frame of the stream.
pub struct Item {
    pub start: u64,
    pub end: u64,
    pub logged: bool,
    pub wire: Vec<u8>,
}

/// A page after a mini-transaction.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// End of the frame that made it.
    pub seq: u64,
    pub lsn: Lsn,
    pub digest: u32,
}

#[derive(Default)]
pub struct ModelPage {
    pub image: Vec<u8>,
    pub freed: bool,
    pub versions: Vec<Version>,
}

/// The stream of a server from its first byte to its end, and the resulting state.
#[derive(Default)]
pub struct Recording {
    pub items: Vec<Item>,
    pub end: u64,
    pub end_lsn: Lsn,
    pub verifies: u64,
    pub checkpoint_lsn: Lsn,
    pub pages: HashMap<PageId, ModelPage>,
    pub flags: HashMap<SpaceId, SpaceFlags>,
    /// Live tablespaces by path.
    pub spaces: BTreeMap<String, SpaceId>,
    pub plain: BTreeMap<String, Vec<u8>>,
    /// Paths that held more than one tablespace in turn.
    pub shared_paths: HashSet<String>,
    named: HashMap<String, SpaceId>,
    touched: HashSet<PageId>,
    redo: Vec<u8>,
    redo_lsn: Lsn,
    fresh: Vec<(PageId, Lsn, u32)>,
    boundaries: Vec<Lsn>,
}

/// Files of a stock server that was shut down cleanly.
pub struct Stock {
    pub log: Vec<u8>,
    /// Tablespaces by path.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// The server's files; created once. They are kept in memory, because nothing would remove a directory at the end.
pub fn stock() -> &'static Stock {
    static STOCK: OnceLock<Stock> = OnceLock::new();
    STOCK.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let datadir = dir.path().join("data");
        let tmpdir = format!("--tmpdir={}", dir.path().display());
        let install = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--user=root",
            ])
            .arg(format!("--datadir={}", datadir.display()))
            .arg(&tmpdir)
            .output()
            .expect("mariadb-install-db (package mariadb-server-core) is needed for this test");
        assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
        let mut server = Command::new("mariadbd")
            .args(["--no-defaults", "--bootstrap", "--user=root", "--innodb-use-native-aio=OFF"])
            .args(["--innodb-log-file-mmap=OFF", "--innodb-fast-shutdown=1"])
            .arg(format!("--datadir={}", datadir.display()))
            .arg(&tmpdir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mariadbd is needed for this test");
        server.stdin.take().unwrap().write_all(load().as_bytes()).unwrap();
        let output = server.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut files = BTreeMap::new();
        read_tablespaces(&datadir, "", &mut files);
        Stock { log: std::fs::read(datadir.join("ib_logfile0")).unwrap(), files }
    })
}

fn read_tablespaces(directory: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            read_tablespaces(&entry.path(), &format!("{name}/"), files);
        } else if name.ends_with(".ibd") || name == "ibdata1" {
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
}

fn load() -> String {
    let mut sql = String::from(
        "CREATE DATABASE d;\nUSE d;\n\
         CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, n INT, v VARCHAR(200), KEY (n)) ENGINE=InnoDB;\n\
         CREATE TABLE b (id INT PRIMARY KEY, v BLOB) ENGINE=InnoDB ROW_FORMAT=REDUNDANT;\n\
         CREATE TABLE c (id INT PRIMARY KEY, v TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED;\n\
         INSERT INTO a (n, v) VALUES (1, 'one'), (2, REPEAT('two', 60));\n",
    );
    for _ in 0..8 {
        sql.push_str("INSERT INTO a (n, v) SELECT id * 7, CONCAT(v, id) FROM a WHERE LENGTH(v) < 190;\n");
        sql.push_str("INSERT INTO a (n, v) SELECT n, 'x' FROM a;\n");
        sql.push_str("UPDATE a SET n = n + 3, v = CONCAT('u', id) WHERE id % 5 = 0;\n");
        sql.push_str("DELETE FROM a WHERE id % 11 = 0;\n");
    }
    sql.push_str("INSERT INTO b SELECT id, REPEAT(v, 90) FROM a LIMIT 500;\n");
    sql.push_str("INSERT INTO c SELECT id, REPEAT(v, 90) FROM a LIMIT 500;\n");
    for _ in 0..40 {
        // One hot page, so that chains become long.
        sql.push_str("UPDATE b SET v = CONCAT('h', id) WHERE id < 60;\n");
    }
    sql.push_str("ALTER TABLE a ADD INDEX (v);\nRENAME TABLE b TO e;\nTRUNCATE c;\n");
    sql.push_str("CREATE TABLE gone ENGINE=InnoDB SELECT * FROM a;\nDROP TABLE gone;\n");
    sql.push_str("INSERT INTO c SELECT id, REPEAT(v, 9) FROM a LIMIT 300;\nDROP TABLE e;\n");
    sql
}

impl Recording {
    /// Cuts the server's redo into frames at random and puts other frames in between.
    pub fn new(seed: u64) -> Self {
        let image = &stock().log;
        let scan = LogScan::open(image.as_slice()).unwrap();
        let end = scan.checkpoint().end_lsn.advance(16);
        let mut redo = vec![0; (end.0 - FIRST_LSN.0) as usize];
        scan.read_stream(FIRST_LSN, &mut redo).unwrap();
        let mut this = Self { redo_lsn: FIRST_LSN, checkpoint_lsn: FIRST_LSN, ..Self::default() };
        let mut random = fastrand::Rng::with_seed(seed);
        this.begin(image);
        let mut limit = 0;
        let mut visit = |mtr: &Mtr<'_, '_>| {
            if !mtr.files.is_empty() || this.redo.len() >= limit {
                this.flush(&mut random);
                limit = if random.u8(..) < 40 { 0 } else { random.usize(..40_000) };
            }
            this.mtr(mtr);
            if !mtr.files.is_empty() {
                this.flush(&mut random);
                this.after_file_records(mtr);
            }
        };
        let walked = walk_mtrs(&redo, FIRST_LSN, SequenceRule::Any, &mut visit).unwrap();
        this.flush(&mut random);
        assert_eq!(walked.end_lsn, end);
        this.end_lsn = end;
        this
    }

    fn begin(&mut self, image: &[u8]) {
        let header = image.first_chunk().unwrap();
        self.push(&StreamFrame::SystemFiles(vec![SystemFile { path: b"ibdata1".to_vec(), len_bytes: 0 }]));
        self.push(&StreamFrame::Create { path: b"ibdata1", kind: FileKind::Tablespace, mode: 0o660 });
        self.spaces.insert("ibdata1".to_owned(), SpaceId(0));
        let checkpoints = [&[0; 64], &[0; 64]];
        let file_size_bytes = image.len() as u64;
        self.push(&StreamFrame::LogFile { file_size_bytes, header, checkpoints, next_lsn: FIRST_LSN });
        for (path, mode) in [("mysql", 0o700), ("d", 0o700)] {
            self.push(&StreamFrame::Mkdir { path: path.as_bytes(), mode });
        }
    }

    fn push(&mut self, stream_frame: &StreamFrame<'_>) {
        let wire = frame(self.end, stream_frame);
        self.push_wire(wire, stream_frame.is_logged());
    }

    fn push_wire(&mut self, wire: Vec<u8>, logged: bool) {
        let start = self.end;
        if logged {
            self.end += wire.len() as u64;
        }
        self.items.push(Item { start, end: self.end, logged, wire });
    }

    /// Sends the redo gathered so far as one frame, and sometimes another frame after it.
    fn flush(&mut self, random: &mut fastrand::Rng) {
        if self.redo.is_empty() {
            return;
        }
        let redo = std::mem::take(&mut self.redo);
        self.redo_lsn = self.redo_lsn.advance(redo.len() as u64);
        let mut wire = Vec::new();
        let kind = StreamFrame::Redo(&redo).kind();
        match compress(&redo).filter(|_| random.bool()) {
            Some(packed) => append_frame(&mut wire, kind | COMPRESSED, self.end, &packed).unwrap(),
            None => append_frame(&mut wire, kind, self.end, &redo).unwrap(),
        }
        self.push_wire(wire, true);
        for (page, lsn, digest) in std::mem::take(&mut self.fresh) {
            if let Some(model) = self.pages.get_mut(&page) {
                model.versions.push(Version { seq: self.end, lsn, digest });
            }
        }
        let mut touched: Vec<_> = self.touched.drain().collect();
        touched.sort_unstable();
        if !touched.is_empty() && random.u8(..) < 60 {
            self.verify(touched[random.usize(..touched.len())]);
        }
        match random.u8(..) {
            0..8 => self.checkpoint(random),
            8..30 => self.plain_change(random),
            _ => {}
        }
    }

    fn verify(&mut self, page: PageId) {
        let Some(model) = self.pages.get(&page).filter(|model| !model.freed) else { return };
        let Some(path) = self.spaces.iter().find(|(_, space)| **space == page.space) else { return };
        let verify = Verify {
            path: path.0.as_bytes(),
            page_no: page.page_no.0,
            lsn: layout::page_lsn(&model.image).unwrap(),
            digest: digest(&model.image, self.flags[&page.space]),
        };
        let wire = frame(self.end, &StreamFrame::Verify(verify));
        self.push_wire(wire, false);
        self.verifies += 1;
    }

    fn checkpoint(&mut self, random: &mut fastrand::Rng) {
        let after = self.boundaries.partition_point(|lsn| *lsn <= self.checkpoint_lsn);
        if after == self.boundaries.len() {
            return;
        }
        let lsn = self.boundaries[random.usize(after..self.boundaries.len())];
        self.checkpoint_lsn = lsn;
        let block = CheckpointBlock { checkpoint_lsn: lsn, end_lsn: lsn }.build();
        self.push(&StreamFrame::Checkpoint { slot: random.u8(..2), block: &block });
    }

    fn plain_change(&mut self, random: &mut fastrand::Rng) {
        let path = format!("d/plain{}", random.u8(..6));
        match (self.plain.contains_key(&path), random.u8(..10)) {
            (false, _) => {
                self.push(&StreamFrame::Create { path: path.as_bytes(), kind: FileKind::Plain, mode: 0o660 });
                self.plain.insert(path, Vec::new());
            }
            (true, 0) => {
                self.push(&StreamFrame::Unlink { path: path.as_bytes() });
                self.plain.remove(&path);
            }
            (true, 1) => {
                let to = format!("d/plain{}", random.u8(..6));
                if to != path {
                    self.push(&StreamFrame::Rename { from: path.as_bytes(), to: to.as_bytes() });
                    let contents = self.plain.remove(&path).unwrap();
                    self.plain.insert(to, contents);
                }
            }
            (true, 2) => {
                let len = random.usize(..3000);
                self.push(&StreamFrame::SetLen { path: path.as_bytes(), len_bytes: len as u64 });
                self.plain.get_mut(&path).unwrap().resize(len, 0);
            }
            (true, _) => {
                let offset = random.usize(..3000);
                let data: Vec<u8> = (0..random.usize(1..3000)).map(|_| random.u8(..)).collect();
                self.push(&StreamFrame::Write {
                    path: path.as_bytes(),
                    offset_bytes: offset as u64,
                    data: &data,
                });
                let contents = self.plain.get_mut(&path).unwrap();
                contents.resize(contents.len().max(offset + data.len()), 0);
                contents[offset..][..data.len()].copy_from_slice(&data);
            }
        }
    }

    fn mtr(&mut self, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            if let FileRecord::Create { path } = note.record {
                let path = relative(path);
                self.push(&StreamFrame::Create {
                    path: path.as_bytes(),
                    kind: FileKind::Tablespace,
                    mode: 0o660,
                });
                self.name(path, note.space);
            }
        }
        self.redo.extend_from_slice(mtr.bytes);
        self.boundaries.push(mtr.end_lsn);
        for run in mtr.runs {
            if let SpaceFlagsChange::Set(flags) = run.space_flags {
                self.flags.insert(run.page.space, SpaceFlags(flags));
            }
        }
        let mut touched: Vec<PageId> = mtr.runs.iter().map(|run| run.page).collect();
        touched.sort_unstable();
        touched.dedup();
        for page in touched {
            let flags = self.flags.get(&page.space).copied().unwrap_or_default();
            let model = self.pages.entry(page).or_default();
            model.image.resize(flags.physical_page_size_bytes(), 0);
            let changes = mtr.runs.iter().filter(|run| run.page == page).map(|run| Change {
                start_lsn: mtr.start_lsn,
                end_lsn: mtr.end_lsn,
                run: mtr.run_bytes(run),
            });
            model.freed = apply_changes(&mut model.image, page, flags, true, changes).unwrap().freed;
            let lsn = layout::page_lsn(&model.image).unwrap();
            self.fresh.push((page, lsn, digest(&model.image, flags)));
            if page.page_no.0 == 0 {
                let flags = flags_of_page0(&model.image).unwrap();
                self.flags.insert(page.space, flags);
            }
            self.touched.insert(page);
        }
    }

    fn name(&mut self, path: String, space: SpaceId) {
        if self.named.insert(path.clone(), space).is_some_and(|before| before != space) {
            self.shared_paths.insert(path.clone());
        }
        self.spaces.insert(path, space);
    }

    /// The server's system calls that go with FILE_ records.
    fn after_file_records(&mut self, mtr: &Mtr<'_, '_>) {
        for note in mtr.files {
            match note.record {
                FileRecord::Rename { old_path, new_path } => {
                    let (from, to) = (relative(old_path), relative(new_path));
                    self.push(&StreamFrame::Rename { from: from.as_bytes(), to: to.as_bytes() });
                    self.spaces.remove(&from);
                    self.name(to, note.space);
                }
                FileRecord::Delete { path } => {
                    let path = relative(path);
                    self.push(&StreamFrame::Unlink { path: path.as_bytes() });
                    self.spaces.remove(&path);
                    self.pages.retain(|page, _| page.space != note.space);
                }
                _ => {}
            }
        }
    }

    /// Number of the first item to send when the node requests `seq`.
    pub fn item_at(&self, seq: u64) -> usize {
        let index = self.items.partition_point(|item| item.start < seq);
        assert!(
            seq == self.end || self.items[index].start == seq,
            "the node wants {seq}, which is inside a frame"
        );
        // Unlogged frames before it were lost with the connection.
        index + self.items[index..].iter().take_while(|item| !item.logged).count()
    }
}

fn relative(path: &[u8]) -> String {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    String::from_utf8(path.to_vec()).unwrap()
}
