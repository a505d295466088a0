//! `redoubt volume import`: its refusals and its repairs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use redoubt_harness::node::Node;
use redoubt_page::doublewrite::{copies, locate};
use redoubt_page::layout::{page_id, page_lsn};
use redoubt_page::{SpaceFlags, flags_of_page0, verify};
use redoubt_redo::mariadb::log_file::{CHECKPOINT_OFFSETS, CheckpointBlock};
use redoubt_redo::{Lsn, PageId};
use redoubt_workload::check::{Snapshot, check_all};
use redoubt_workload::launcher::{Launcher, Verify};
use redoubt_workload::process::{poll_until, run_to_end};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

use super::{FAILED, PATIENCE, node, redoubt, refused, text};

const PAGE_LEN_BYTES: usize = 16384;

fn stock_server() -> Server {
    let mut config = ServerConfig::new(Launcher::Stock).innodb_arg("--innodb-doublewrite=1");
    config.log_file_size_bytes = 16 << 20;
    Server::create(config).unwrap_or_else(|error| panic!("{error}"))
}

fn fill(server: &Server, table: &str) {
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE IF NOT EXISTS shop".to_owned(),
        format!(
            "CREATE TABLE shop.{table} (id INT PRIMARY KEY, a INT, b VARCHAR(200), KEY by_a (a)) ENGINE=InnoDB"
        ),
        "USE shop".to_owned(),
        format!("INSERT INTO shop.{table} SELECT seq, seq % 97, REPEAT(MD5(seq), 5) FROM seq_1_to_4000"),
    ] {
        execute(&mut conn, &statement).unwrap();
    }
}

/// A node and directories to import into it.
struct Setup {
    node: Node,
    address: String,
    directory: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let node = node();
        let address = node.address().to_string();
        Self { node, address, directory: tempfile::tempdir().unwrap() }
    }

    fn copy(&self, source: &Path, name: &str) -> PathBuf {
        let target = self.directory.path().join(name);
        run_to_end(Command::new("cp").arg("-a").arg(source).arg(&target)).unwrap();
        target
    }

    fn refused(&self, from: &Path, parts: &[&str]) {
        refused(&["volume", "import", "v", "--node", &self.address, "--from", text(from)], FAILED, parts);
        let list = redoubt(&["volume", "list", "--json", "--node", &self.address]).require_success().unwrap();
        assert_eq!(list.trim(), "[]", "a refused import left a volume");
        let volumes = self.node.data().join("volumes");
        // The node cleans up when it notices that the command is gone.
        poll_until("the removal of a refused import on the node", PATIENCE, || {
            Ok(std::fs::read_dir(&volumes).unwrap().next().is_none().then_some(()))
        })
        .unwrap();
    }
}

fn page_0(path: &Path) -> Vec<u8> {
    let mut page = vec![0; PAGE_LEN_BYTES];
    File::open(path).unwrap().read_exact_at(&mut page, 0).unwrap();
    page
}

/// Inverts 64 bytes in the middle of a page.
fn damage(path: &Path, page_no: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let offset = page_no * PAGE_LEN_BYTES as u64 + 5000;
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, offset).unwrap();
    for byte in &mut bytes {
        *byte = !*byte;
    }
    file.write_all_at(&bytes, offset).unwrap();
}

fn checkpoint_of(datadir: &Path) -> CheckpointBlock {
    let file = File::open(datadir.join("ib_logfile0")).unwrap();
    let blocks = CHECKPOINT_OFFSETS.map(|offset| {
        let mut block = [0; 64];
        file.read_exact_at(&mut block, offset).unwrap();
        CheckpointBlock::parse(&block)
    });
    CheckpointBlock::newest(blocks[0], blocks[1]).unwrap()
}

#[test]
fn what_is_no_data_directory_of_a_stopped_server_is_refused() {
    let setup = Setup::new();
    let missing = setup.directory.path().join("missing");
    setup.refused(&missing, &[text(&missing), "not a directory", "--from"]);
    let empty = setup.directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    setup.refused(&empty, &[text(&empty), "no ibdata1", "--innodb-data-file-path"]);

    let mut server = stock_server();
    fill(&server, "t");
    let datadir = server.datadir();
    let process_id = server.process_id().unwrap().to_string();
    setup.refused(&datadir, &[text(&datadir), "in use by process", &process_id, "stop that server"]);
    server.shutdown().unwrap();

    let copy = setup.copy(&datadir, "no-log");
    std::fs::remove_file(copy.join("ib_logfile0")).unwrap();
    setup.refused(&copy, &[text(&copy), "no redo log", "ib_logfile0"]);

    let copy = setup.copy(&datadir, "second-file");
    std::fs::write(copy.join("ibdata2"), vec![0; 1 << 20]).unwrap();
    setup.refused(&copy, &["ibdata2", "--innodb-data-file-path"]);

    let copy = setup.copy(&datadir, "damaged");
    let table = copy.join("shop/t.ibd");
    damage(&table, 7);
    setup.refused(&copy, &["shop/t.ibd", "page 7", "checksum", "copy of the directory"]);

    let copy = setup.copy(&datadir, "link");
    std::os::unix::fs::symlink("/etc/hostname", copy.join("shop/link.ibd")).unwrap();
    setup.refused(&copy, &["shop/link.ibd", "symbolic link", "move"]);

    truncated_logs_are_refused(&setup, &datadir);

    let from = ["volume", "import", "v", "--node", &setup.address, "--from", text(&datadir)];
    let said = redoubt(&from).require_success().unwrap();
    assert!(said.contains("volume v") && said.contains("files"), "{said}");
    refused(&from, FAILED, &["v exists already", "redoubt volume delete"]);
}

fn truncated_logs_are_refused(setup: &Setup, datadir: &Path) {
    let cut = |name: &str, len_bytes: u64| {
        let copy = setup.copy(datadir, name);
        File::options().write(true).open(copy.join("ib_logfile0")).unwrap().set_len(len_bytes).unwrap();
        copy
    };
    let checkpoint = checkpoint_of(datadir);
    // The first lap: LSN and offset go in step. The last whole block before the checkpoint's own record.
    let before = (checkpoint.end_lsn.0 - 12288 + 12288) / 4096 * 4096;
    setup.refused(&cut("cut-log", before), &["ib_logfile0", "damaged or cut", "undamaged copy"]);
    setup.refused(&cut("cut-odd", before + 1000), &["ib_logfile0", "4096", "undamaged copy"]);
    setup.refused(&cut("cut-head", 8192), &["ib_logfile0"]);
    setup.refused(&cut("cut-all", 0), &["ib_logfile0"]);
}

/// A page of table `t` that has a usable copy in the doublewrite area.
fn page_with_a_copy(datadir: &Path, newer_than: Lsn) -> Option<(PageId, Lsn)> {
    let system = datadir.join("ibdata1");
    let system_flags = flags_of_page0(&page_0(&system)).unwrap();
    let file = File::open(&system).unwrap();
    let mut trx_sys = vec![0; PAGE_LEN_BYTES];
    file.read_exact_at(&mut trx_sys, 5 * PAGE_LEN_BYTES as u64).unwrap();
    let area = locate(&trx_sys, system_flags).unwrap().unwrap();
    let mut blocks = Vec::new();
    for first in [area.block_1_page_no, area.block_2_page_no] {
        let mut block = vec![0; area.block_size_pages as usize * PAGE_LEN_BYTES];
        file.read_exact_at(&mut block, u64::from(first) * PAGE_LEN_BYTES as u64).unwrap();
        blocks.extend_from_slice(&block);
    }
    let table = datadir.join("shop/t.ibd");
    let page0 = page_0(&table);
    let (space, flags): (_, SpaceFlags) = (page_id(&page0).unwrap().space, flags_of_page0(&page0).unwrap());
    copies(&blocks, system_flags)
        .filter(|copy| verify(copy, flags).is_ok())
        .filter_map(|copy| Some((page_id(copy)?, page_lsn(copy)?)))
        // Page 0 is read before the others; B-tree pages have the same contents at home and in the copy.
        .filter(|(page, lsn)| page.space == space && page.page_no.0 > 3 && *lsn >= newer_than)
        .find(|(page, lsn)| {
            let mut home = vec![0; PAGE_LEN_BYTES];
            let offset = u64::from(page.page_no.0) * PAGE_LEN_BYTES as u64;
            File::open(&table).unwrap().read_exact_at(&mut home, offset).unwrap();
            page_lsn(&home) == Some(*lsn)
        })
}

/// Kills a server whose newest page writes went through the doublewrite area and are not before a checkpoint.
fn crashed_after_page_writes(server: &mut Server) -> (PageId, Lsn) {
    let mut conn = server.connect().unwrap();
    // A later checkpoint would make the copies too old to be of use; only the next start may make one.
    for round in 0..20 {
        execute(&mut conn, "UPDATE shop.t SET a = a + 1 WHERE id % 50 = 7").unwrap();
        execute(&mut conn, "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0").unwrap();
        // Writes the table's dirty pages, a few among them through the doublewrite area again.
        execute(&mut conn, "FLUSH TABLES shop.t FOR EXPORT").unwrap();
        execute(&mut conn, "UNLOCK TABLES").unwrap();
        let datadir = server.datadir();
        if let Some(found) = page_with_a_copy(&datadir, checkpoint_of(&datadir).checkpoint_lsn) {
            server.kill9().unwrap();
            let found_after = page_with_a_copy(&datadir, checkpoint_of(&datadir).checkpoint_lsn);
            return found_after.unwrap_or_else(|| panic!("round {round}: {found:?} is gone after the kill"));
        }
    }
    panic!("no page of the table is in the doublewrite area");
}

#[test]
fn a_torn_page_is_taken_from_the_doublewrite_area() {
    let setup = Setup::new();
    let mut server = stock_server();
    fill(&server, "t");
    let (page, lsn) = crashed_after_page_writes(&mut server);
    let datadir = server.datadir();

    let torn = setup.copy(&datadir, "torn");
    damage(&torn.join("shop/t.ibd"), u64::from(page.page_no.0));
    println!("damaged page {page}, whose copy has LSN {lsn}");
    let address = &setup.address;
    let said = redoubt(&["volume", "import", "v", "--node", address, "--from", text(&torn)])
        .require_success()
        .unwrap();
    assert!(said.contains("1 torn pages repaired"), "{said}");

    // The undamaged directory on the stock server gives the expected contents.
    server.start().unwrap();
    let expected = Snapshot::take(&mut server.connect().unwrap(), None, &[]).unwrap();
    server.shutdown().unwrap();
    let mut config = server.config().clone();
    config.launcher = setup.node.launcher("v", Verify::All);
    let mut attached = Server::new(config).unwrap();
    attached.start().unwrap_or_else(|error| panic!("{error}\nnode: {}", setup.node.log_tail(20)));
    let mut conn = attached.connect().unwrap();
    expected.require_same(&Snapshot::take(&mut conn, None, &[]).unwrap(), "after the import").unwrap();
    check_all(&mut conn).unwrap();
    attached.shutdown().unwrap();

    // After the orderly shutdown the checkpoint is above every copy: what is there is left from earlier writes
    // and must not be used.
    let stale = setup.copy(&datadir, "stale");
    let (page, _) = page_with_a_copy(&stale, Lsn(0)).unwrap();
    damage(&stale.join("shop/t.ibd"), u64::from(page.page_no.0));
    refused(
        &["volume", "import", "w", "--node", address, "--from", text(&stale)],
        FAILED,
        &["shop/t.ibd", &format!("page {}", page.page_no), "checksum"],
    );
}
