//! `redoubt volume check` on a volume that a real server uses: nothing is wrong with a whole one; a lost write of the drive
//! is repaired; a page and a plain file that rot are named, and the server continues.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use super::quarantine::{
    GOOD_ROWS, NODE_ARGS, PAGE_LEN_BYTES, VOLUME, count, damage, find_leaf, number, server_with_tables, sql,
    volume, wait_for,
};
use super::scrubbing::wait_flushed;
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_page::layout::page_lsn;
use redoubt_workload::check::finish_purge;
use redoubt_workload::launcher::find_redoubt;
use redoubt_workload::server::Server;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn check(node: &Node) -> (Option<i32>, Value, String) {
    let address = node.address().to_string();
    let args = ["volume", "check", VOLUME, "--json", "--node", &address];
    let outcome = Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap();
    println!("{outcome:?}");
    (outcome.code, serde_json::from_str(&outcome.stdout).unwrap_or_default(), outcome.stderr)
}

fn require_whole(node: &Node, repaired: u64) {
    let (code, checked, _) = check(node);
    assert_eq!(
        (code, number(&checked, "damaged"), number(&checked, "unchecked")),
        (Some(0), 0, 0),
        "{checked}"
    );
    assert_eq!(number(&checked, "repaired"), repaired, "{checked}");
    assert!(number(&checked, "pages") > 100 && number(&checked, "files") > 10, "{checked}");
}

fn read_page(file: &Path, page_no: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_LEN_BYTES];
    File::open(file).unwrap().read_exact_at(&mut page, page_no * PAGE_LEN_BYTES as u64).unwrap();
    page
}

fn write_page(file: &Path, page_no: u64, page: &[u8]) {
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(page, page_no * PAGE_LEN_BYTES as u64).unwrap();
    file.sync_all().unwrap();
}

fn stored(node: &Node, part: &str) -> PathBuf {
    node.data().join("volumes").join(VOLUME).join(part)
}

/// All changes are in the page files, those of the purge included.
fn wait_applied(server: &Server, node: &Node) {
    finish_purge(&mut server.connect().unwrap()).unwrap();
    // Its commit sends the redo of the purge.
    sql(server, &["UPDATE d.good SET c = REVERSE(c) WHERE id = 3"]);
    node.wait_applied(VOLUME).unwrap();
}

/// The log proves a lost write while it has the changes of the page, so while the server makes no checkpoint after them.
fn lose_a_write(server: &Server, node: &Node) {
    // No write is under way, and there is no reason for another one: neither dirty pages nor the age of the log.
    finish_purge(&mut server.connect().unwrap()).unwrap();
    wait_flushed(server);
    sql(
        server,
        &["SET GLOBAL innodb_adaptive_flushing_lwm = 70", "SET GLOBAL innodb_max_dirty_pages_pct = 90"],
    );
    sql(server, &["UPDATE d.bad SET c = CONCAT('first', c)"]);
    wait_applied(server, node);
    let (file, page_no) = find_leaf(&stored(node, "pages"));
    let older = read_page(&file, page_no);
    sql(server, &["UPDATE d.bad SET c = SUBSTR(c, 6)"]);
    wait_applied(server, node);
    let newest = read_page(&file, page_no);
    assert_ne!(older, newest);
    let older_lsn = page_lsn(&older).unwrap().0;
    let require_in_log = || {
        let checkpoint = number(&volume(node), "server_checkpoint_lsn");
        assert!(
            checkpoint <= older_lsn,
            "the server's checkpoint {checkpoint} is after the older page, {older_lsn}"
        );
    };
    require_in_log();
    write_page(&file, page_no, &older);
    require_whole(node, 1);
    require_in_log();
    assert_eq!(read_page(&file, page_no), newest);
    sql(server, &["SET GLOBAL innodb_adaptive_flushing_lwm = 10"]);
    wait_flushed(server);
}

/// Checks of the volume, all of them beside a server that writes. Returns how many rows it has added.
fn check_beside_writes(server: &Server, node: &Node) -> usize {
    const CHECKS: usize = 3;
    std::thread::scope(|scope| {
        let checking = scope.spawn(|| {
            for _ in 0..CHECKS {
                require_whole(node, 0);
            }
        });
        let mut rows = 0;
        while !checking.is_finished() {
            sql(server, &[&format!("INSERT INTO d.good VALUES ({}, 'more')", 2_000_000 + rows)]);
            rows += 1;
        }
        checking.join().unwrap();
        assert!(rows > 0, "no row beside {CHECKS} checks");
        rows
    })
}

#[test]
fn check_of_a_volume_with_a_server_repairs_and_names_damage() {
    let mut node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap();
    node.create_volume(VOLUME).unwrap();
    let mut server = server_with_tables(&node);
    require_whole(&node, 0);
    lose_a_write(&server, &node);
    let added_rows = check_beside_writes(&server, &node);

    // Nothing can rebuild the page, but the server still has it, and is asked for it.
    let page_no = damage(&stored(&node, "pages"));
    let (code, checked, stderr) = check(&node);
    assert_eq!((code, number(&checked, "damaged")), (Some(5), 1), "{checked}");
    assert_eq!(checked["damage"][0]["file"], "d/bad.ibd");
    assert_eq!(checked["damage"][0]["page_no"].as_u64(), Some(page_no));
    assert!(stderr.contains("1 damaged pages or files"), "{stderr}");
    sql(&server, &["UPDATE d.bad SET c = CONCAT('healed', c)"]);
    wait_for(&node, "the image of the server", |volume| number(volume, "quarantined") == 0);
    wait_applied(&server, &node);
    require_whole(&node, 0);

    // A definition rots after the node has its checksum.
    node.stop().unwrap();
    node.start().unwrap();
    let (_, checked, _) = check(&node);
    assert!(number(&checked, "new_files") > 0, "{checked}");
    let frm = std::fs::read(server.datadir().join("d/good.frm")).unwrap();
    let mut files = std::fs::read_dir(stored(&node, "plain")).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| std::fs::read(path).unwrap() == frm).expect("the definition");
    let mut rotten = frm.clone();
    rotten[10] ^= 1;
    std::fs::write(&file, rotten).unwrap();
    let (code, checked, _) = check(&node);
    assert_eq!((code, number(&checked, "damaged")), (Some(5), 1), "{checked}");
    assert_eq!(checked["damage"][0]["file"], "d/good.frm");
    assert_eq!(count(&server, "d.good"), GOOD_ROWS + added_rows);
    server.shutdown().unwrap();
}
