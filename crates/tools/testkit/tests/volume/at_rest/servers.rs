//! Real servers on encrypted volumes.

use std::io::Read;

use redoubt_harness::encryption::KeyPlugin;
use redoubt_workload::check::{Snapshot, check_all, finish_purge};
use redoubt_workload::launcher::{Launcher, Verify};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

use super::*;

const DISK_BYTES: u64 = 3 << 30;
/// In rows of encrypted volumes, and of no other.
const WORD: &str = "a-word-that-no-disk-is-to-have";
/// The same of a volume in clear: what is looked for can be found.
const CONTROL: &str = "a-word-that-every-disk-may-have";

fn small(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher);
    config.log_file_size_bytes = 32 << 20;
    config.buffer_pool_bytes = 16 << 20;
    config.server_arg("--log-bin=binlog").server_arg("--server-id=1")
}

fn sql(server: &Server, statements: &[&str]) {
    let mut conn = server.connect().unwrap();
    for statement in statements {
        execute(&mut conn, statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}\n{}", server.error_log_tail(20)));
    }
}

/// Tables of all engines whose files a volume has, with a name, a column and rows that have the word.
fn fill(server: &Server, word: &str, options: &[&str]) {
    sql(server, &["CREATE DATABASE shop"]);
    for (number, options) in options.iter().enumerate() {
        let table = format!("shop.`{word}-{number}`");
        sql(
            server,
            &[
                &format!(
                    "CREATE TABLE {table} (id INT PRIMARY KEY, `{word}` INT, b VARCHAR(200), KEY (b)) {options}"
                ),
                &format!(
                    "INSERT INTO {table} SELECT seq, seq, CONCAT('{word}', MD5(seq)) FROM mysql.seq_1_to_5000"
                ),
                &format!("UPDATE {table} SET b = CONCAT(b, '{word}') WHERE id % 7 = 0"),
            ],
        );
    }
}

fn contents(server: &Server) -> Snapshot {
    let mut conn = server.connect().unwrap();
    finish_purge(&mut conn).unwrap();
    check_all(&mut conn).unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(20)));
    Snapshot::take(&mut conn, Some("shop"), &[]).unwrap()
}

/// How often a word is in a file.
fn count(path: &Path, word: &str) -> usize {
    const PIECE_LEN_BYTES: usize = 4 << 20;
    let (word, mut file) = (word.as_bytes(), File::open(path).unwrap());
    let (mut found, mut kept, mut piece) = (0, 0, vec![0; PIECE_LEN_BYTES + word.len()]);
    loop {
        let len = file.read(&mut piece[kept..]).unwrap();
        if len == 0 {
            return found;
        }
        let seen = &piece[..kept + len];
        found += seen.windows(word.len()).filter(|bytes| bytes[0] == word[0] && *bytes == word).count();
        let rest = seen.len().min(word.len() - 1);
        let from = seen.len() - rest;
        piece.copy_within(from..from + rest, 0);
        kept = rest;
    }
}

/// The node, and then the server too, are killed while clients commit.
fn kill_under_load(setup: &mut Setup, server: &mut Server) {
    let file = server.directory().join("ledger");
    for round in 0..3 {
        let run = Run::start(&server.socket(), &file, Options::default()).unwrap();
        run.wait_for_more(150, PATIENCE).unwrap();
        setup.node.kill9().unwrap();
        if round > 0 {
            server.kill9().unwrap();
        }
        setup.node.start().unwrap();
        if round > 0 {
            server.start().unwrap_or_else(|error| panic!("{error}\n{}", setup.node.log_tail(20)));
        }
        run.wait_for_more(50, PATIENCE)
            .unwrap_or_else(|error| panic!("{error}\n{}", setup.node.log_tail(20)));
        run.stop().unwrap();
        let mut conn = server.connect().unwrap();
        let entries = Entries::read(&file).unwrap();
        ledger::verify(&mut conn, &entries).unwrap().require_sound().unwrap();
        println!("round {round}: {} commits acknowledged and found", entries.acknowledged());
    }
}

fn import_encrypted(setup: &Setup) -> Server {
    let mut stock = Server::create(small(Launcher::Stock)).unwrap();
    fill(&stock, WORD, &["ENGINE=InnoDB", "ENGINE=Aria"]);
    let before = contents(&stock);
    stock.kill9().unwrap();
    let datadir = stock.datadir();
    let from = ["import", "imported", "--encrypted", "--from", datadir.to_str().unwrap()];
    let said = setup.volume_command(&from).require_success().unwrap();
    assert!(said.contains("imported.key") && said.contains("keep a copy"), "{said}");
    let mut server = Server::new(small(setup.node.launcher("imported", Verify::All))).unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\n{}", setup.node.log_tail(20)));
    before.require_same(&contents(&server), "after the import").unwrap();
    server.shutdown().unwrap();
    server
}

fn export(setup: &Setup) {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("data");
    setup.volume_command(&["export", VOLUME, "--to", to.to_str().unwrap()]).require_success().unwrap();
    assert!(
        count(&to.join("shop").join(encoded(&format!("{WORD}-1")) + ".ibd"), WORD) > 0,
        "an export is in clear"
    );
}

/// A table's name as its file has it.
fn encoded(name: &str) -> String {
    name.replace('-', "@002d")
}

#[test]
fn what_servers_wrote_is_nowhere_on_the_disk_and_nothing_is_lost() {
    let Some(mut setup) = Setup::new(DISK_BYTES, &[]) else { return };
    let said = setup.create_encrypted();
    assert!(said.contains("secret.key") && said.contains("keep a copy"), "{said}");
    setup.node.create_volume("open").unwrap();

    let plugin = KeyPlugin::new().unwrap();
    let config = plugin.on(small(setup.node.launcher_with(VOLUME, Verify::All, &["--clear-pages"])));
    let mut server =
        Server::create(config).unwrap_or_else(|error| panic!("{error}\n{}", setup.node.log_tail(20)));
    let engines = ["ENGINE=InnoDB ENCRYPTED=YES", "ENGINE=InnoDB", "ENGINE=Aria", "ENGINE=MyISAM"];
    fill(&server, WORD, &engines);
    let mut control = Server::create(small(setup.node.launcher("open", Verify::All))).unwrap();
    fill(&control, CONTROL, &["ENGINE=InnoDB", "ENGINE=Aria"]);

    kill_under_load(&mut setup, &mut server);
    let (expected, expected_control) = (contents(&server), contents(&control));
    server.kill9().unwrap();
    server.start().unwrap();
    expected.require_same(&contents(&server), "after a kill of the server").unwrap();
    export(&setup);
    server.shutdown().unwrap();
    control.shutdown().unwrap();
    let mut imported = import_encrypted(&setup);

    setup.node.stop().unwrap();
    let log = setup.node.log_tail(100);
    assert!(log.contains("removed from the kernel") && !log.contains("still open"), "{log}");
    assert!(!setup.volume_directory(VOLUME).join("volume").exists(), "its names can be read without a key");
    setup.disk.remount().unwrap();
    assert_eq!(count(&setup.disk.image(), WORD), 0);
    assert_eq!(count(&setup.disk.image(), &encoded(WORD)), 0);
    let found = count(&setup.disk.image(), CONTROL);
    println!("the control is found {found} times");
    assert!(found > 1000 && count(&setup.disk.image(), &encoded(CONTROL)) > 0);

    setup.node.start().unwrap();
    for (server, expected) in
        [(&mut server, Some(&expected)), (&mut control, Some(&expected_control)), (&mut imported, None)]
    {
        server.empty_data_directory().unwrap();
        server.start().unwrap_or_else(|error| panic!("{error}\n{}", setup.node.log_tail(20)));
        let seen = contents(server);
        expected.map(|expected| expected.require_same(&seen, "after the node's end")).transpose().unwrap();
        server.shutdown().unwrap();
    }
    let volume = setup.node.status(VOLUME).unwrap();
    assert_eq!(volume["volumes"][0]["counters"]["page_mismatches"].as_u64(), Some(0), "{volume}");
}
