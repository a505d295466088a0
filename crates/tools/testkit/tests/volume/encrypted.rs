//! Encrypted tables: refused by name without consent that the node may hold their pages in clear, and sound with
//! `redoubt run --clear-pages`.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod cleared;
mod refused;
mod rotation;

use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Launcher, Verify, find_redoubt};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;

const VOLUME: &str = "secret";

fn new_node() -> Node {
    let node = Node::create(&find_redoubt().unwrap(), &["--ring", "64MiB", "--batch", "1MiB"]).unwrap();
    node.create_volume(VOLUME).unwrap();
    node
}

fn small(launcher: Launcher) -> ServerConfig {
    let mut config = ServerConfig::new(launcher);
    config.log_file_size_bytes = 32 << 20;
    config.buffer_pool_bytes = 32 << 20;
    config
}

fn create(config: ServerConfig, node: &Node) -> Server {
    Server::create(config).unwrap_or_else(|error| panic!("{error}\nnode: {}", node.log_tail(20)))
}

fn sql(server: &Server, statements: &[&str]) {
    let mut conn = server.connect().unwrap();
    for statement in statements {
        execute(&mut conn, statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}\n{}", server.error_log_tail(20)));
    }
}

fn log(server: &Server) -> String {
    std::fs::read_to_string(server.error_log_path()).unwrap()
}

#[test]
fn doublewrite_of_an_older_format_is_not_taken_for_an_encrypted_page() {
    let node = new_node();
    let config = small(node.launcher(VOLUME, Verify::All)).innodb_arg("--innodb-doublewrite=1");
    let mut server = create(config, &node);
    sql(
        &server,
        &[
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, b VARCHAR(300)) ENGINE=InnoDB ROW_FORMAT=COMPRESSED",
            "USE d",
            "INSERT INTO d.t SELECT seq, REPEAT(MD5(seq), 8) FROM seq_1_to_3000",
            "FLUSH TABLES t FOR EXPORT",
            "UNLOCK TABLES",
            // Pages that the server has initialised since their last write are not written twice.
            "UPDATE t SET b = REPEAT(MD5(id), 7) WHERE id % 5 = 0",
            "FLUSH TABLES t FOR EXPORT",
        ],
    );
    server.shutdown().unwrap();
    let log = log(&server);
    assert!(!log.contains("[ERROR]"), "{log}");
    let status = node.status(VOLUME).unwrap();
    let dropped = status["volumes"][0]["server_counters"]["doublewrite_bytes_dropped"].as_u64();
    assert!(dropped.is_some_and(|bytes| bytes > 0), "{status}");
}
