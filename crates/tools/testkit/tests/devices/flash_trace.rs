//! A recording of a real server is complete, and its origins match the server's own counters.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::path::Path;

use clap::Parser;
use redoubt_flash::trace::{Op, Origin, TraceInfo, TraceReader};
use redoubt_measurements::flash_trace::{self, Options, Recording};
use redoubt_workload::error::Error;

const PAGE_LEN_BYTES: u64 = 16384;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// A small database on a small disk; `None`, with a message, where this machine cannot record.
fn options(out: &Path, layout: &str) -> Option<Options> {
    if let Err(error @ Error::Unavailable(_)) = flash_trace::check() {
        redoubt_test_support::skip("recording of block writes", error);
        return None;
    }
    let sizes = "flash-trace --transactions 2000 --warm-up 500 --warehouses 2 --customers 300 --items 2000 --pool 16 \
                 --log-mib 64 --image-mib 768 --clients 4 --journal-mb 16 --layout";
    let words = sizes.split_whitespace().chain([layout, "--out", out.to_str().unwrap()]);
    Some(Arguments::parse_from(words).options)
}

/// Runs one recording and checks it. A machine may have the files of loop devices and still refuse to make one.
fn record(options: &Options, check: impl Fn(&Recording)) {
    let mut recordings = 0;
    let result = flash_trace::run(options, |recording| {
        recordings += 1;
        assert_eq!(recording.window.transactions, 2000);
        assert!(recording.window.flushes > 0);
        check(recording);
        Ok(())
    });
    match result {
        Err(error @ Error::Unavailable(_)) => redoubt_test_support::skip("recording of block writes", error),
        result => {
            result.unwrap();
            assert_eq!(recordings, 1);
        }
    }
}

/// Counters are read a moment after the part that counts has begun or ended.
#[track_caller]
fn assert_about(recorded: u64, counted: u64, what: &str) {
    assert!(recorded.abs_diff(counted) <= counted / 20, "{what}: {recorded} recorded, {counted} counted");
}

#[test]
fn doublewrite_and_redo_are_what_the_server_counted() {
    let out = tempfile::tempdir().unwrap();
    let Some(options) = options(out.path(), "stock-doublewrite") else { return };
    record(&options, |recording| {
        let window = &recording.window;
        // Each page goes to the doublewrite area and to its place.
        let doublewrite = window.bytes(Origin::Doublewrite);
        assert!(doublewrite > 1000 * PAGE_LEN_BYTES, "{doublewrite}");
        assert_about(doublewrite, recording.doublewrite_pages() * PAGE_LEN_BYTES, "doublewrite");
        let data = window.bytes(Origin::Data);
        assert!(
            data.abs_diff(doublewrite) <= doublewrite / 5,
            "{data} in place, {doublewrite} doublewritten"
        );

        // Redo goes out in blocks of 4096 bytes: up to one more before and after what is new.
        let (redo, redo_bytes) = (window.bytes(Origin::Redo), recording.redo_bytes());
        let most = redo_bytes + redo_bytes / 20 + window.by_origin["redo"].writes * 8192;
        assert!(redo % 4096 == 0 && redo >= redo_bytes - redo_bytes / 20, "{redo}, {redo_bytes} counted");
        assert!(redo <= most, "{redo}, {redo_bytes} counted, {most} at most");

        // The trace says the same as the sums.
        let path = out.path().join("1-stock-doublewrite.trace");
        let info = TraceInfo::load(&path).unwrap();
        assert_eq!((info.transactions, info.device_sectors), (2000, 768 * 2048));
        let (mut sectors, mut transactions) = (0, 0);
        for record in TraceReader::open(&path).unwrap().map(Result::unwrap) {
            match record.op {
                Op::Write => {
                    sectors += u64::from(record.sectors);
                    assert!(record.sector + u64::from(record.sectors) <= info.device_sectors);
                }
                Op::Mark => transactions += record.sectors,
                Op::Trim | Op::Flush => {}
            }
        }
        assert_eq!((sectors * 512, transactions), (window.total_bytes(), 2000));
    });
}

#[test]
fn the_journal_and_the_pages_of_a_node_are_what_it_counted() {
    let out = tempfile::tempdir().unwrap();
    let Some(mut options) = options(out.path(), "redoubt-journal") else { return };
    // Batches that are small for so few transactions.
    options.node_options = "--ring 16MiB --batch 1MiB".to_owned();
    record(&options, |recording| {
        let (window, counters) = (&recording.window, recording.node_counters());
        assert!(window.bytes(Origin::Journal) > 100 * PAGE_LEN_BYTES, "{window:?}");
        for (origin, counter, rounding) in [
            (Origin::Journal, "page_journal_written_bytes", 0),
            (Origin::Data, "page_home_written_bytes", 0),
            // Written in blocks of the device: up to one more before and after what is new.
            (Origin::Redo, "log_device_written_bytes", window.by_origin["redo"].writes * 8192),
        ] {
            let (recorded, counted) = (window.bytes(origin), counters[counter]);
            println!("{origin:?}: {recorded} recorded, {counted} counted");
            // A batch that is being written when the part that counts begins or ends is in one of the two only.
            assert!(recorded >= counted - counted / 5, "{origin:?}: {recorded} recorded, {counted} counted");
            assert!(
                recorded <= counted + counted / 5 + rounding,
                "{origin:?}: {recorded}, {counted} counted"
            );
        }
        assert_eq!(window.bytes(Origin::Doublewrite), 0);
    });
}
