use super::*;

fn cell(log: &'static str, per_second: &[f64]) -> Cell {
    let mut cell = Cell {
        group: "node".to_owned(),
        server: "test".to_owned(),
        log,
        label: "disk",
        load: "load",
        clients: 2,
        transactions_per_second: 0.0,
        ratio: 0.0,
        rounds: Vec::new(),
    };
    for per_second in per_second {
        let figures = Figures {
            transactions: 100,
            per_second: *per_second,
            seconds: 5.0,
            latency_p95_ms: 1.0,
            commit_share: None,
        };
        let log =
            LogCounters { redo_bytes: 51_200, waits: 50, wait_micros: 1_000_000, ..LogCounters::default() };
        cell.push(&figures, log);
    }
    cell
}

#[test]
fn ratios_are_taken_within_a_round() {
    // The second round ran on a machine half as fast: the ratio of the medians would say 1.5.
    let mut cells = [cell("file", &[1000.0, 500.0]), cell("pmem", &[1200.0, 800.0])];
    finish(&mut cells);
    let ratios: Vec<_> = cells[1].rounds.iter().map(|round| round.ratio).collect();
    assert_eq!(ratios, [1.2, 1.6]);
    assert!((cells[1].ratio - 1.4).abs() < 1e-9);
    assert!((cells[1].transactions_per_second - 1000.0).abs() < 1e-9);
    assert_eq!(cells[0].rounds.iter().map(|round| round.ratio).collect::<Vec<_>>(), [1.0, 1.0]);
}

#[test]
fn log_share_is_of_all_clients_time() {
    let cell = cell("file", &[1000.0]);
    let round = &cell.rounds[0];
    assert!((round.log_share - 0.1).abs() < 1e-9);
    assert!((round.wait_mean_us - 20_000.0).abs() < 1e-9);
    assert!((round.redo_bytes_per_transaction - 512.0).abs() < 1e-9);
    assert_eq!((round.device_written_per_byte, round.wakeups_per_wait), (None, None));
}

#[test]
fn the_table_has_a_row_per_cell_and_a_column_per_heading() {
    let mut cells = [cell("file", &[1000.0]), cell("pmem", &[1200.0])];
    finish(&mut cells);
    let text = table(&cells);
    let columns: Vec<_> = text.lines().map(|line| line.matches('|').count()).collect();
    assert_eq!(columns, [15; 4]);
    assert!(text.contains("1.20 (1.20..1.20)"), "{text}");
}

#[test]
fn the_median_of_two_is_between_them() {
    assert_eq!(median([1.0, 3.0].into_iter()), 2.0);
    assert_eq!(median([5.0, 1.0, 3.0].into_iter()), 3.0);
    assert_eq!(median(std::iter::empty()), 0.0);
}
