//! Replays the redo log of a real server from its first byte onto nothing, and compares every page with the
//! server's own files, byte for byte.
//!
//! Each test creates a database, runs a load over all row formats, shuts the server down cleanly, and reads
//! the log and the files. The only pages left out are those for which redo promises nothing: freed pages,
//! the doublewrite area, and pages of an undo tablespace that was truncated.

#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod load;
mod replay;
mod server;

use load::Options;

/// Runs one configuration; `min_pages` is how many pages must have been compared.
fn replay_and_compare(options: &Options, min_pages: usize) {
    let server = server::Server::create(options);
    server.run_sql(&load::sql(options));
    let data_dir = server.shut_down();
    let replayed = replay::Replayed::from_log(data_dir.path(), options.page_size_bytes);
    replayed.check_chains();
    let report = replayed.compare_with_files(data_dir.path());
    println!("{options:?}: {report:?}");
    assert_eq!(report.differing, 0, "{report:?}");
    assert!(report.compared >= min_pages, "{report:?}");
    // With checksum and trailer, too, unless the server stored the page in another form.
    assert_eq!(
        report.identical_to_the_last_byte + report.page_compressed_images,
        report.compared,
        "{report:?}"
    );
    assert!(report.records >= 100_000, "{report:?}");
    for (kind, count) in &report.record_kinds {
        assert!(*count > 0, "no {kind} record in the load: {report:?}");
    }
    if options.page_size_bytes <= 16384 {
        assert!(report.row_format_compressed >= 100, "{report:?}");
    }
    assert!(report.page_compressed_images >= 10, "{report:?}");
}

#[test]
fn page_size_16k_full_crc32() {
    replay_and_compare(&Options { page_size_bytes: 16384, checksum: "full_crc32" }, 2000);
}

#[test]
fn page_size_16k_crc32() {
    replay_and_compare(&Options { page_size_bytes: 16384, checksum: "crc32" }, 2000);
}

#[test]
fn page_size_4k_full_crc32() {
    replay_and_compare(&Options { page_size_bytes: 4096, checksum: "full_crc32" }, 4000);
}

#[test]
fn page_size_64k_full_crc32() {
    replay_and_compare(&Options { page_size_bytes: 65536, checksum: "full_crc32" }, 500);
}
