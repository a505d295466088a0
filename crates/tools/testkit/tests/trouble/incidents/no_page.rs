//! A node that takes the log, and does not answer for pages.

use redoubt_chaos::faults::Injector;
use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Verify, find_redoubt};

use super::{NODE_ARGS, PATIENCE, Setup, in_background};

/// The server must not be given an error to continue with: its rollbacks leave out what they cannot read, and their redo
/// would become durable, for the log is well.
#[test]
fn a_server_whose_pages_do_not_come_ends() {
    let directory = tempfile::Builder::new().prefix("rdtn-").tempdir().unwrap();
    let node = Node::in_directory(&find_redoubt().unwrap(), directory.path(), &NODE_ARGS).unwrap();
    let mut setup = Setup::on(node, Verify::All, &["--timeout", "3"]);
    setup.sql(&[
        "CREATE DATABASE d",
        "CREATE TABLE d.cold (id INT PRIMARY KEY, b BLOB) ENGINE=InnoDB",
        "INSERT INTO d.cold SELECT seq, REPEAT('x', 5000) FROM d.seq_1_to_300",
        "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB",
        "SET GLOBAL innodb_buffer_pool_dump_at_shutdown = OFF",
    ]);
    setup.server.shutdown().unwrap();
    let injector = Injector::new(directory.path(), "redoubt").unwrap();
    setup.node.stop().unwrap();
    setup.node.set_environment(injector.environment());
    setup.node.start().unwrap();
    setup.server.start().unwrap_or_else(|error| panic!("{error}"));
    // The table is known; its rows are on the node alone.
    setup.sql(&["INSERT INTO d.t VALUES (1)", "SELECT * FROM d.cold LIMIT 1"]);
    injector.set(1, "read delay kind=file path=*/pages/* us=5000000..5000000").unwrap();
    setup.sql(&["INSERT INTO d.t VALUES (2)"]);
    let read = in_background(&setup.server, "SELECT SUM(LENGTH(b)) FROM d.cold");
    let code = setup.server.wait_exit_code(PATIENCE);
    let code = code.unwrap_or_else(|error| panic!("{error}\n{}", setup.server.error_log_tail(20)));
    assert_eq!(code, Some(1), "{}", setup.server.error_log_tail(20));
    assert!(read.recv_timeout(PATIENCE).unwrap().is_err());
    setup.wait_for_log(&[
        "[ERROR]",
        "[redoubt]",
        "a page request",
        "not answered within 3 s",
        "the server ends now",
    ]);

    injector.clear().unwrap();
    setup.node.crash_and_restart().unwrap();
    setup.server.start().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(setup.server.query("SELECT COUNT(*) FROM d.t").unwrap(), [["2"]]);
    assert_eq!(setup.server.query("SELECT SUM(LENGTH(b)) FROM d.cold").unwrap(), [["1500000"]]);
    setup.server.shutdown().unwrap();
}
