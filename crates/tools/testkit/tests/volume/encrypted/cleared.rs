//! With consent: the server works as a stock server does, the node holds pages in clear, and the way back is open.
//!
//! The tests compare the server's answers, not pages: a stock server's recovery writes encrypted pages, which nothing
//! here can read.

use std::path::{Path, PathBuf};

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::encryption::KeyPlugin;
use redoubt_page::encryption::{CryptData, key_version};
use redoubt_page::{flags_of_page0, page_is_never_written};
use redoubt_redo::PageId;
use redoubt_workload::check::{Snapshot, check_all, finish_purge};
use redoubt_workload::process::poll_until;

use super::*;

/// In rows of every table.
const WORD: &[u8] = b"a-word-that-nobody-is-to-read";
/// Every second of these tables is encrypted from its beginning.
const OPTIONS: [(&str, &str); 8] = [
    ("redundant", "ROW_FORMAT=REDUNDANT ENCRYPTED=YES"),
    ("compact", "ROW_FORMAT=COMPACT ENCRYPTED=YES ENCRYPTION_KEY_ID=2"),
    ("dynamic", "ROW_FORMAT=DYNAMIC ENCRYPTED=YES"),
    ("compressed", "ROW_FORMAT=COMPRESSED ENCRYPTED=YES ENCRYPTION_KEY_ID=2"),
    ("packed", "PAGE_COMPRESSED=1 ENCRYPTED=YES"),
    ("parted", "ENCRYPTED=YES PARTITION BY HASH(id) PARTITIONS 3"),
    ("plain", "ENCRYPTED=NO"),
    ("later", ""),
];
const ENCRYPTED: [&str; 6] = ["redundant", "compact", "dynamic", "compressed", "packed", "later"];

#[derive(Clone, Copy)]
struct Kind {
    checksum: &'static str,
    page_size_bytes: u32,
}

fn config(launcher: Launcher, plugin: &KeyPlugin, kind: Kind) -> ServerConfig {
    let mut config = plugin.on(small(launcher)
        .innodb_arg(format!("--innodb-checksum-algorithm={}", kind.checksum))
        .innodb_arg("--innodb-undo-tablespaces=2"));
    config.page_size_bytes = kind.page_size_bytes;
    // Less than the tables take.
    config.buffer_pool_bytes = 16 << 20;
    config
}

fn fill(server: &Server) {
    let word = std::str::from_utf8(WORD).unwrap();
    sql(server, &["CREATE DATABASE shop", "USE shop"]);
    for (table, options) in OPTIONS {
        sql(
            server,
            &[
                "USE shop",
                &format!(
                    "CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b VARCHAR(200), c MEDIUMTEXT, KEY (a), KEY (b(60))) \
                     ENGINE=InnoDB {options}"
                ),
                &format!(
                    "INSERT INTO {table} SELECT seq, seq % 97, CONCAT(MD5(seq), '{word}'), REPEAT(SHA1(seq), 6) FROM seq_1_to_4000"
                ),
                &format!("UPDATE {table} SET c = REPEAT(c, 80) WHERE id % 400 = 0"),
            ],
        );
    }
}

/// The same for every server, `round` by `round`.
fn change(server: &Server, round: u32) {
    for (table, _) in OPTIONS {
        sql(
            server,
            &[
                "USE shop",
                &format!("UPDATE {table} SET a = a + {round}, b = REVERSE(b) WHERE id % 3 = {}", round % 3),
                &format!("DELETE FROM {table} WHERE id % 29 = {round}"),
                &format!(
                    "INSERT INTO {table} SELECT seq + {round} * 100000, seq, SHA1(seq), REPEAT(MD5(seq), 9) FROM seq_1_to_700"
                ),
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

/// Waits until the server's threads have brought all tablespaces into this state.
fn wait_for_threads(server: &Server, scheme: u32, min_key_version: u32) {
    let done = format!(
        "SELECT SUM(NAME = 'shop/later' AND ENCRYPTION_SCHEME = {scheme} AND MIN_KEY_VERSION = {min_key_version}), \
         SUM(ROTATING_OR_FLUSHING) \
         FROM information_schema.INNODB_TABLESPACES_ENCRYPTION"
    );
    poll_until("the encryption threads", PATIENCE / 2, || {
        Ok((server.query(&done)? == [["1", "0"]]).then_some(()))
    })
    .unwrap_or_else(|error| {
        let spaces = server.query("SELECT * FROM information_schema.INNODB_TABLESPACES_ENCRYPTION");
        panic!("{error}: {spaces:?}\n{}", server.error_log_tail(20))
    });
}

const THREADS: [&str; 4] = [
    "SET GLOBAL innodb_encryption_rotation_iops = 100000",
    "SET GLOBAL innodb_encryption_rotate_key_age = 1",
    "SET GLOBAL innodb_encrypt_tables = ON",
    "SET GLOBAL innodb_encryption_threads = 4",
];

const AT_WORK: [&str; 3] = [
    "--innodb-encrypt-tables=ON",
    "--innodb-encryption-threads=4",
    "--innodb-encryption-rotation-iops=100000",
];

/// The steps of a server; `crash` is called where a server on a volume is killed.
fn live(server: &mut Server, mut crash: impl FnMut(&mut Server, &[&str])) -> Snapshot {
    fill(server);
    crash(server, &[]);
    // By ALTER, with and without a copy.
    sql(
        server,
        &[
            "ALTER TABLE shop.plain ENCRYPTED=YES",
            "ALTER TABLE shop.dynamic ENCRYPTED=NO, ALGORITHM=COPY",
            "ALTER TABLE shop.dynamic ENCRYPTED=YES ENCRYPTION_KEY_ID=2",
            "ALTER TABLE shop.plain ENCRYPTED=NO",
        ],
    );
    change(server, 1);
    sql(server, &THREADS);
    change(server, 2);
    // The threads are at work.
    crash(server, &AT_WORK);
    change(server, 3);
    wait_for_threads(server, 1, 1);
    change(server, 4);
    crash(server, &AT_WORK);
    sql(server, &["SET GLOBAL innodb_encrypt_tables = OFF"]);
    change(server, 5);
    wait_for_threads(server, 0, 0);
    crash(server, &AT_WORK);
    wait_for_threads(server, 1, 1);
    contents(server)
}

/// Pages of the file that are encrypted, and that could be and are not; and whether the word is in it.
fn look(path: &Path) -> (usize, usize, bool) {
    let file = std::fs::read(path).unwrap();
    let flags = flags_of_page0(&file).unwrap();
    let space = redoubt_page::layout::page_id(&file).unwrap().space;
    let (mut encrypted, mut clear) = (0, 0);
    for (page, page_no) in file.chunks(flags.physical_page_size_bytes()).zip(0..) {
        if page_no == 0 || page_is_never_written(page) || redoubt_page::layout::page_type(page) == Some(0) {
            continue;
        }
        match key_version(page, PageId::new(space.0, page_no), flags) {
            0 => clear += 1,
            _ => encrypted += 1,
        }
    }
    (encrypted, clear, file.windows(WORD.len()).any(|bytes| bytes == WORD))
}

fn crypt_data(path: &Path) -> CryptData {
    let file = std::fs::read(path).unwrap();
    CryptData::of_page0(&file, flags_of_page0(&file).unwrap()).unwrap()
}

fn tables(datadir: &Path) -> Vec<PathBuf> {
    ENCRYPTED.iter().map(|table| datadir.join(format!("shop/{table}.ibd"))).collect()
}

fn a_server_with_encrypted_tables_is_as_a_stock_one(kind: Kind, run_options: &[&str]) {
    let plugin = KeyPlugin::new().unwrap();
    let mut stock = Server::create(config(Launcher::Stock, &plugin, kind)).unwrap();
    let expected = live(&mut stock, |server, options| {
        server.shutdown().unwrap();
        server.start_with(options).unwrap();
    });
    stock.shutdown().unwrap();
    for path in tables(&stock.datadir()) {
        let (encrypted, ..) = look(&path);
        assert!(encrypted > 20, "{}: {encrypted}", path.display());
    }

    let node = new_node();
    let options = [&["--clear-pages"], run_options].concat();
    let launcher = node.launcher_with(VOLUME, Verify::All, &options);
    let mut server = create(config(launcher, &plugin, kind), &node);
    let seen = live(&mut server, |server, options| {
        let before = contents(server);
        server.kill9().unwrap();
        server.empty_data_directory().unwrap();
        server.start_with(options).unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
        before.require_same(&contents(server), "after a kill").unwrap();
    });
    expected.require_same(&seen, "on a volume").unwrap();
    server.shutdown().unwrap();
    let log = log(&server);
    assert!(!log.contains("[ERROR]") && !log.contains("orrupt"), "{log}");
    // Those in clear.
    node.require_verified(VOLUME, 1).unwrap();
    the_way_back(&node, config(Launcher::Stock, &plugin, kind), &expected);
}

/// An export has the pages in clear, and a stock server's threads encrypt them again.
fn the_way_back(node: &Node, config: ServerConfig, expected: &Snapshot) {
    let directory = tempfile::Builder::new().prefix("rdt-").tempdir().unwrap();
    let data = directory.path().join("data");
    let address = node.address().to_string();
    let args = ["volume", "export", VOLUME, "--to", data.to_str().unwrap(), "--node", &address];
    let outcome = Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap();
    assert!(outcome.stderr.contains("encrypted tablespaces are in clear"), "{}", outcome.stderr);
    outcome.require_success().unwrap();
    for path in tables(&data) {
        let (encrypted, clear, _) = look(&path);
        assert!(encrypted == 0 && clear > 20, "{}: {encrypted} {clear}", path.display());
        let crypt = crypt_data(&path);
        assert!(crypt.is_encrypted && crypt.min_key_version == 0, "{}: {crypt:?}", path.display());
    }
    assert!(look(&data.join("shop/dynamic.ibd")).2, "the export is in clear");

    let mut opened = Server::in_directory(config, directory.path()).unwrap();
    opened.start().unwrap_or_else(|error| panic!("stock server on the export: {error}"));
    expected.require_same(&contents(&opened), "in the export").unwrap();
    sql(&opened, &THREADS);
    wait_for_threads(&opened, 1, 1);
    // With a plugin that has no other versions of a key the threads pass by tables with an option of their own.
    let own = ENCRYPTED.iter().filter(|table| **table != "later");
    own.for_each(|table| sql(&opened, &[&format!("ALTER TABLE shop.{table} FORCE")]));
    opened.shutdown().unwrap();
    for path in tables(&data) {
        let (encrypted, clear, has_word) = look(&path);
        println!("{}: {encrypted} encrypted, {clear} in clear", path.display());
        let is_later = path.ends_with("later.ibd");
        // The threads leave out pages that are free.
        assert!(encrypted > 20 && (is_later || (clear == 0 && !has_word)), "{}: {clear}", path.display());
        assert_eq!(crypt_data(&path).min_key_version, 1, "{}", path.display());
    }
    opened.start().unwrap();
    expected.require_same(&contents(&opened), "encrypted again").unwrap();
    opened.shutdown().unwrap();
}

#[test]
fn full_crc32() {
    let kind = Kind { checksum: "full_crc32", page_size_bytes: 16384 };
    a_server_with_encrypted_tables_is_as_a_stock_one(kind, &[]);
}

#[test]
fn the_older_format_with_a_page_cache() {
    let kind = Kind { checksum: "crc32", page_size_bytes: 8192 };
    a_server_with_encrypted_tables_is_as_a_stock_one(kind, &["--page-cache", "8MiB"]);
}
