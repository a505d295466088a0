//! The TPC-C-like mix on a real server: its conditions hold after a run, and are noticed when they do not.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::time::Duration;

use redoubt_testkit::error::Error;
use redoubt_testkit::launcher::Launcher;
use redoubt_testkit::server::{Server, ServerConfig, execute};
use redoubt_testkit::tpcc::{DATABASE, Scale, Tpcc, check};

#[test]
fn conditions_hold_after_a_run_and_faults_are_noticed() {
    let server = Server::create(ServerConfig::new(Launcher::Stock)).unwrap();
    let scale = Scale { warehouses: 2, customers: 20, items: 200 };
    let socket = server.socket();
    let tpcc = Tpcc { socket: &socket, scale, seed: 7 };
    tpcc.prepare().unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, &format!("USE {DATABASE}")).unwrap();
    check::consistency(&mut conn).unwrap();
    let report = tpcc.run(4, Duration::from_secs(3)).unwrap();
    assert!(report.by_kind.iter().all(|count| *count > 0), "{report:?}");
    assert!(report.commit_share > 0.0 && report.commit_share < 1.0, "{report:?}");

    for fault in [
        "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 3",
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 2 AND d_id = 1",
        "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 2 AND ol_number = 1",
        "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1",
        "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 2 AND ol_o_id = 1",
        "UPDATE customer SET c_balance = c_balance + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
    ] {
        execute(&mut conn, "START TRANSACTION").unwrap();
        execute(&mut conn, fault).unwrap();
        let result = check::consistency(&mut conn);
        assert!(matches!(result, Err(Error::Violation(_))), "{fault}: {result:?}");
        execute(&mut conn, "ROLLBACK").unwrap();
    }
    check::consistency(&mut conn).unwrap();
}

#[test]
fn a_scale_without_room_is_refused() {
    let scale = Scale { warehouses: 0, ..Scale::default() };
    let result = Tpcc { socket: std::path::Path::new("/no/such/socket"), scale, seed: 1 }.prepare();
    assert!(result.unwrap_err().to_string().contains("too small"));
}
