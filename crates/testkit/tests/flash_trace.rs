//! A recording of a real server is complete, and its origins are what the server says of itself.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use clap::Parser;
use redoubt_flash::trace::{Op, Origin, TraceInfo, TraceReader};
use redoubt_testkit::error::Error;
use redoubt_testkit::flash_trace::{self, Options};

const PAGE_LEN_BYTES: u64 = 16384;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

#[test]
fn doublewrite_and_redo_are_what_the_server_counted() {
    if let Err(error @ Error::Unavailable(_)) = flash_trace::check() {
        println!("SKIP recording of block writes: {error}");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let sizes = "flash-trace --layout stock-doublewrite --transactions 2000 --warm-up 500 --warehouses 2 \
                 --customers 300 --items 2000 --pool 16 --log-mib 64 --image-mib 512 --clients 4 --out";
    let out_text = out.path().to_str().unwrap();
    let arguments = Arguments::parse_from(sizes.split_whitespace().chain([out_text]));
    let mut recordings = 0;
    let result = flash_trace::run(&arguments.options, |recording| {
        recordings += 1;
        let window = &recording.window;
        assert_eq!(window.transactions, 2000);
        assert!(window.flushes > 0);

        // Each page goes to the doublewrite area and to its place. Counters are read a moment after the part that counts.
        let doublewrite = window.bytes(Origin::Doublewrite);
        let counted = recording.doublewrite_pages() * PAGE_LEN_BYTES;
        assert!(doublewrite > 1000 * PAGE_LEN_BYTES, "{doublewrite}");
        assert!(doublewrite.abs_diff(counted) <= counted / 20, "{doublewrite} recorded, {counted} counted");
        let data = window.bytes(Origin::Data);
        assert!(
            data.abs_diff(doublewrite) <= doublewrite / 5,
            "{data} in place, {doublewrite} doublewritten"
        );

        // Redo goes out in blocks of 4096 bytes: up to one more before and after what is new.
        let (redo, redo_bytes) = (window.bytes(Origin::Redo), recording.redo_bytes());
        let writes = window.by_origin["redo"].writes;
        assert!(
            redo % 4096 == 0 && redo >= redo_bytes - redo_bytes / 20,
            "{redo} recorded, {redo_bytes} counted"
        );
        assert!(redo <= redo_bytes + redo_bytes / 20 + writes * 8192, "{redo}, {redo_bytes}, {writes}");

        // The trace says the same as the sums.
        let path = out.path().join("1-stock-doublewrite.trace");
        let info = TraceInfo::load(&path).unwrap();
        assert_eq!((info.transactions, info.device_sectors), (2000, 512 * 2048));
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
        Ok(())
    });
    // A machine may have the files of loop devices and still refuse to make one.
    match result {
        Err(error @ Error::Unavailable(_)) => println!("SKIP recording of block writes: {error}"),
        result => {
            result.unwrap();
            assert_eq!(recordings, 1);
        }
    }
}
