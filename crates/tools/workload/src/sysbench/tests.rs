use super::*;

const REPORT: &str = "\
SQL statistics:
    queries performed:
        read:                            1400
        write:                           398
        other:                           200
        total:                           1998
    transactions:                        99     (48.92 per sec.)
    queries:                             1998   (987.36 per sec.)
    ignored errors:                      1      (0.49 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          2.0230s
    total number of events:              99

Latency (ms):
         min:                                   30.12
         avg:                                   81.06
         max:                                  250.50
         95th percentile:                      123.28
         sum:                                 8025.18
";

#[test]
fn reads_the_final_report() {
    let report = parse_report(REPORT).unwrap();
    assert_eq!((report.transactions, report.queries, report.ignored_errors), (99, 1998, 1));
    assert!((report.transactions_per_second - 48.92).abs() < 1e-9);
    assert!((report.latency_mean_ms - 81.06).abs() < 1e-9);
    assert!((report.latency_p95_ms - 123.28).abs() < 1e-9);
    assert!((report.latency_max_ms - 250.5).abs() < 1e-9);
}

#[test]
fn names_the_line_that_is_missing() {
    let cut = REPORT.replace("95th percentile", "99th percentile");
    assert!(parse_report(&cut).unwrap_err().to_string().contains("95th percentile"));
    assert!(parse_report("FATAL: no driver").is_err());
}
