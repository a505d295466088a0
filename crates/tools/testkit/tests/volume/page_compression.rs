//! PAGE_COMPRESSED tables on the way out: an export's files are as small as the server's own, hold the same pages, and
//! are read by a stock server and by `innochecksum`. The format is compared with pages that the server itself wrote.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_harness::plugins;
use redoubt_page::layout::{page_lsn, page_type};
use redoubt_page::{
    PageCompression, compress, decompress, finalize, flags_of_page0, is_page_compressed_image,
    page_is_never_written, verify,
};
use redoubt_workload::check::{Snapshot, check_all, finish_purge};
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

/// Allowance for a file's bytes beside its pages, and for pages that were written at other times.
const SLACK_BYTES: u64 = 512 << 10;
const TABLES: [&str; 2] = ["shop/packed.ibd", "shop/mixed.ibd"];

/// A server's settings.
struct Case {
    checksum: &'static str,
    page_size_bytes: u32,
    algorithm: &'static str,
}

const PLAIN: Case = Case { checksum: "full_crc32", page_size_bytes: 16384, algorithm: "zlib" };

fn config(launcher: Launcher, case: &Case) -> ServerConfig {
    let mut config =
        ServerConfig::new(launcher).innodb_arg(format!("--innodb-checksum-algorithm={}", case.checksum));
    config.page_size_bytes = case.page_size_bytes;
    // All but zlib are plugins.
    if case.algorithm != "zlib" {
        let provider = plugins::load(&format!("provider_{}", case.algorithm));
        config.server_args.extend(provider.unwrap_or_else(|error| panic!("{error}")));
        config.server_args.push(format!("--innodb-compression-algorithm={}", case.algorithm));
    }
    config.log_file_size_bytes = 32 << 20;
    config.buffer_pool_bytes = 48 << 20;
    config
}

/// A table whose pages all compress, a table with pages that do not, and a table that is not page-compressed.
fn fill(server: &Server) {
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE packed (id INT PRIMARY KEY, a INT, b VARCHAR(500), KEY (b(100))) ENGINE=InnoDB \
         PAGE_COMPRESSED=1",
        "INSERT INTO packed SELECT seq, seq % 97, REPEAT(MD5(seq), 12) FROM seq_1_to_30000",
        "CREATE TABLE mixed (id INT PRIMARY KEY, b BLOB) ENGINE=InnoDB PAGE_COMPRESSED=1",
        "INSERT INTO mixed SELECT seq, RANDOM_BYTES(1000) FROM seq_1_to_3000",
        "INSERT INTO mixed SELECT seq + 10000, REPEAT('x', 20000) FROM seq_1_to_100",
        "CREATE TABLE plain (id INT PRIMARY KEY, b VARCHAR(500)) ENGINE=InnoDB",
        "INSERT INTO plain SELECT seq, REPEAT(MD5(seq), 12) FROM seq_1_to_2000",
        "UPDATE packed SET a = a + 1 WHERE id % 3 = 0",
    ] {
        execute(&mut conn, statement).unwrap();
    }
    finish_purge(&mut conn).unwrap();
}

fn redoubt(node: &Node, args: &[&str]) -> String {
    let address = node.address().to_string();
    let args = [args, &["--node", &address]].concat();
    let outcome = Outcome::of(node.redoubt_bin(), args, PATIENCE).unwrap();
    outcome.require_success().unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)))
}

fn contents(server: &Server) -> Snapshot {
    let mut conn = server.connect().unwrap();
    check_all(&mut conn).unwrap_or_else(|error| panic!("{error}\n{}", server.error_log_tail(20)));
    Snapshot::take(&mut conn, Some("shop"), &[]).unwrap()
}

fn taken_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

fn innochecksum(path: &Path) {
    let outcome = Outcome::of(Path::new("innochecksum"), [path], PATIENCE).unwrap();
    outcome.require_success().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Every page of the server's file is one that we decode, and where the server compressed a page so do we, to a length
/// that takes as many blocks. Answers how many it compressed.
fn compare_with_our_images(path: &Path) -> usize {
    let file = std::fs::read(path).unwrap();
    let flags = flags_of_page0(&file).unwrap();
    assert_ne!(flags.page_compression(), PageCompression::None, "{}", path.display());
    let (mut compressed, mut ours_bytes, mut theirs_bytes) = (0, 0, 0);
    for (page_no, image) in file.chunks(flags.physical_page_size_bytes()).enumerate() {
        if page_is_never_written(image) {
            continue;
        }
        verify(image, flags).unwrap_or_else(|error| panic!("page {page_no}: {error}"));
        let unpacked = decompress(image, flags).unwrap_or_else(|error| panic!("page {page_no}: {error}"));
        let is_compressed = unpacked.is_some();
        let mut page = unpacked.unwrap_or_else(|| image.to_vec());
        finalize(&mut page, flags).unwrap();
        let Some(mut ours) = compress(&page, flags) else {
            assert!(!is_compressed, "page {page_no} is compressed by the server, not by us");
            continue;
        };
        assert!(
            is_compressed,
            "page {page_no} of type {:?}, LSN {:?}, is compressed by us to {} bytes, not by the server",
            page_type(&page),
            page_lsn(&page),
            ours.len()
        );
        compressed += 1;
        let theirs = image.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        ours_bytes += ours.len().next_multiple_of(4096);
        theirs_bytes += theirs.next_multiple_of(4096);
        ours.resize(page.len(), 0);
        assert!(is_page_compressed_image(&ours, flags));
        assert_eq!(decompress(&ours, flags).unwrap(), Some(page), "page {page_no}");
    }
    println!(
        "{}: {compressed} pages, {theirs_bytes} bytes of the server, {ours_bytes} of ours",
        path.display()
    );
    assert!(ours_bytes * 100 <= theirs_bytes * 103, "{ours_bytes} {theirs_bytes}");
    compressed
}

fn an_export_is_as_small(case: &Case) {
    let mut stock = Server::create(config(Launcher::Stock, case)).unwrap();
    fill(&stock);
    let original = contents(&stock);
    stock.shutdown().unwrap();
    let compressed: usize =
        TABLES.iter().map(|table| compare_with_our_images(&stock.datadir().join(table))).sum();
    assert!(compressed > 100, "{compressed}");

    // Once as a server wrote it on a volume, once as an import took it in, which unpacks it.
    let node = Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--batch", "1MiB"]).unwrap();
    node.create_volume("written").unwrap();
    let on_volume = config(node.launcher("written", Verify::All), case);
    let mut server =
        Server::create(on_volume).unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    fill(&server);
    let written = contents(&server);
    server.shutdown().unwrap();
    let datadir = stock.datadir();
    elsewhere(&node, case, &written);
    redoubt(&node, &["volume", "import", "imported", "--from", datadir.to_str().unwrap()]);

    let directory = tempfile::tempdir().unwrap();
    for (volume, expected) in [("written", &written), ("imported", &original)] {
        let target = directory.path().join(volume);
        let data = target.join("data");
        std::fs::create_dir(&target).unwrap();
        redoubt(&node, &["volume", "export", volume, "--to", data.to_str().unwrap()]);
        for table in TABLES {
            let (theirs, ours) = (datadir.join(table), data.join(table));
            let (theirs_bytes, ours_bytes) = (taken_bytes(&theirs), taken_bytes(&ours));
            let len_bytes = std::fs::metadata(&ours).unwrap().len();
            println!(
                "{volume} {table}: {len_bytes} long, the server's takes {theirs_bytes}, exported {ours_bytes}"
            );
            assert!(ours_bytes <= theirs_bytes + theirs_bytes / 10 + SLACK_BYTES, "{volume} {table}");
            innochecksum(&ours);
            compare_with_our_images(&ours);
        }
        let packed = data.join(TABLES[0]);
        assert!(taken_bytes(&packed) * 2 < std::fs::metadata(&packed).unwrap().len());
        let mut opened = Server::in_directory(config(Launcher::Stock, case), &target).unwrap();
        opened.start().unwrap_or_else(|error| panic!("stock server on the export: {error}"));
        expected.require_same(&contents(&opened), "in the export").unwrap();
        // It writes into these files as well.
        opened.query("UPDATE shop.packed SET a = a + 1").unwrap();
        opened.query("DELETE FROM shop.mixed WHERE id % 2 = 0").unwrap();
        opened.shutdown().unwrap();
        TABLES.iter().for_each(|table| innochecksum(&data.join(table)));
        opened.start().unwrap();
        check_all(&mut opened.connect().unwrap()).unwrap();
        let log = opened.error_log_tail(1000);
        assert!(!log.contains("[ERROR]") && !log.contains("orrupt"), "{log}");
        opened.shutdown().unwrap();
    }
    // None differed. Pages are compared when they are applied, which here is later for most.
    for volume in ["written", "imported"] {
        node.require_verified(volume, 0).unwrap();
    }
}

/// Another, empty directory has the same tables, and they are still compressed by this algorithm.
fn elsewhere(node: &Node, case: &Case, expected: &Snapshot) {
    let directory = tempfile::tempdir().unwrap();
    let mut server =
        Server::in_directory(config(node.launcher("written", Verify::All), case), directory.path()).unwrap();
    server.start().unwrap_or_else(|error| panic!("{error}\n{}", node.log_tail(20)));
    expected.require_same(&contents(&server), "in another directory").unwrap();
    let algorithm = &server.query("SELECT @@innodb_compression_algorithm").unwrap()[0][0];
    assert_eq!(algorithm, case.algorithm);
    let pages = "SELECT variable_value FROM information_schema.global_status \
                 WHERE variable_name = 'Innodb_num_pages_page_compressed'";
    server.query("UPDATE shop.packed SET a = a + 1").unwrap();
    server.query("UPDATE shop.packed SET a = a - 1").unwrap();
    server.query("FLUSH TABLES shop.packed FOR EXPORT").unwrap();
    let compressed: u64 = server.query(pages).unwrap()[0][0].parse().unwrap();
    assert!(compressed > 100, "{compressed}");
    server.shutdown().unwrap();
}

#[test]
fn exported_page_compressed_files_are_as_small_as_the_servers() {
    an_export_is_as_small(&PLAIN);
}

#[test]
fn export_of_crc32_pages_is_as_small_as_the_servers() {
    an_export_is_as_small(&Case { checksum: "crc32", ..PLAIN });
}

#[test]
fn export_of_64_kib_pages_is_as_small_as_the_servers() {
    an_export_is_as_small(&Case { page_size_bytes: 65536, ..PLAIN });
}

#[test]
fn export_of_lz4_pages_is_as_small_as_the_servers() {
    an_export_is_as_small(&Case { algorithm: "lz4", ..PLAIN });
}

#[test]
fn export_of_crc32_lz4_pages_is_as_small_as_the_servers() {
    an_export_is_as_small(&Case { checksum: "crc32", algorithm: "lz4", ..PLAIN });
}
