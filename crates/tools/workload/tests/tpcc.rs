//! TPC-C on a real server: its conditions hold after runs, and each is noticed when it does not hold.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use indicatif::ProgressBar;
use redoubt_workload::error::Error;
use redoubt_workload::launcher::Launcher;
use redoubt_workload::load::Until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{connect_to, execute};
use redoubt_workload::tpcc::{self, DATABASE, Scale, Tpcc, check};

/// A fault for each condition that all before it do not notice.
const FAULTS: [(u32, &[&str]); 12] = [
    (1, &["UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 3"]),
    (2, &["UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 2 AND d_id = 1"]),
    (3, &["DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 2 AND no_o_id = 39"]),
    (4, &["DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 2 AND ol_number = 1"]),
    (5, &["UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1"]),
    (
        6,
        &[
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1",
            "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 2",
        ],
    ),
    (7, &["UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 2 AND ol_o_id = 1"]),
    (
        8,
        &[
            "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1",
            "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1",
        ],
    ),
    (
        9,
        &[
            "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1",
            "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 1 AND d_id = 2",
        ],
    ),
    (
        10,
        &[
            "UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1 WHERE c_w_id = 1 AND \
             c_d_id = 1 AND c_id = 1",
        ],
    ),
    (
        11,
        &[
            "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        ],
    ),
    (
        12,
        &[
            "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        ],
    ),
];

#[test]
fn conditions_hold_after_runs_and_each_fault_is_noticed() {
    let server = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    let socket = server.socket();
    let scale = Scale { customers: 40, items: 500, ..Scale::new(2) };
    tpcc::load(&socket, scale, 7, 2, &ProgressBar::hidden()).unwrap();
    let mut conn = connect_to(&socket, DATABASE).unwrap();
    assert_eq!(check::conditions(&mut conn, u32::MAX).unwrap(), 12);

    let tpcc = Tpcc::begin(&socket, scale, 7, false).unwrap();
    for _ in 0..2 {
        let window = tpcc.run(&socket, 4, Until::Transactions(115)).unwrap();
        assert!(window.samples.len() >= 115, "{window:?}");
        let mut kinds: Vec<_> = window.samples.iter().map(|sample| usize::from(sample.kind)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), tpcc::KINDS.len(), "{kinds:?}");
    }
    assert_eq!(tpcc.check(&socket, u32::MAX).unwrap(), 14);

    for (number, statements) in FAULTS {
        execute(&mut conn, "START TRANSACTION").unwrap();
        for statement in statements {
            execute(&mut conn, statement).unwrap();
        }
        let error = check::conditions(&mut conn, u32::MAX).unwrap_err();
        assert!(matches!(error, Error::Violation(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.contains(&format!("condition {number} ")), "{statements:?}: {error}");
        if number > check::REQUIRED {
            check::conditions(&mut conn, check::REQUIRED).unwrap();
        }
        execute(&mut conn, "ROLLBACK").unwrap();
    }
    // Commits that were acknowledged and are gone, though nothing contradicts itself.
    execute(&mut conn, "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 1 AND d_id = 1").unwrap();
    let lost = tpcc.check_growth(&socket).unwrap_err().to_string();
    assert!(lost.contains("acknowledged"), "{lost}");
    execute(&mut conn, "DELETE FROM history LIMIT 1").unwrap();
    let lost = tpcc.check_counts(&socket).unwrap_err().to_string();
    assert!(lost.contains("history"), "{lost}");
}

/// Delivery then takes orders that are newer than what its transaction has read before.
#[test]
fn districts_whose_new_orders_run_out_are_no_fault() {
    let server = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    let socket = server.socket();
    let scale = Scale { customers: 10, items: 2000, ..Scale::new(1) };
    tpcc::load(&socket, scale, 3, 1, &ProgressBar::hidden()).unwrap();
    let tpcc = Tpcc::begin(&socket, scale, 3, false).unwrap();
    tpcc.run(&socket, 8, Until::Transactions(4000)).unwrap();
    assert!(tpcc.tally().without_new_orders() > 0, "no district ran out");
    assert_eq!(tpcc.check(&socket, u32::MAX).unwrap(), 14);
}

#[test]
fn a_scale_without_room_is_refused() {
    let socket = std::path::Path::new("/no/such/socket");
    let result = tpcc::load(socket, Scale::new(0), 1, 1, &ProgressBar::hidden());
    assert!(result.unwrap_err().to_string().contains("too small"));
}
