//! A bank in a server: accounts, and clients that move money between them. Every consistent read must add up.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use redoubt_harness::command::PATIENCE;
use redoubt_harness::node::Node;
use redoubt_workload::launcher::Verify;
use redoubt_workload::process::poll_until;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};

const ACCOUNTS: i64 = 2000;
const TOTAL: i64 = ACCOUNTS * 1000;

/// A small log and pool, so that pages go out and the server's checkpoint moves during a read.
pub fn config(node: &Node) -> ServerConfig {
    let mut config = ServerConfig::new(node.launcher("shop", Verify::All));
    config.log_file_size_bytes = 32 << 20;
    config.buffer_pool_bytes = 16 << 20;
    config
}

/// Fills the bank.
pub fn fill(server: &Server) {
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL, pad VARCHAR(200)) ENGINE=InnoDB",
        "INSERT INTO account SELECT seq, 1000, REPEAT('x', 150) FROM seq_1_to_2000",
        "CREATE TABLE transfer (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b INT, pad VARCHAR(500), KEY (a), KEY (b)) \
         ENGINE=InnoDB",
        "CREATE TABLE packed (id INT PRIMARY KEY, b TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4",
        "INSERT INTO packed SELECT seq, REPEAT(MD5(seq), 20) FROM seq_1_to_5000",
        "CREATE TABLE aria (id INT PRIMARY KEY, b TEXT) ENGINE=Aria TRANSACTIONAL=1",
        "INSERT INTO aria SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_3000",
        "CREATE TABLE myisam (id INT PRIMARY KEY, b TEXT) ENGINE=MyISAM",
        "INSERT INTO myisam SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_3000",
    ] {
        execute(&mut conn, statement).unwrap();
    }
}

/// The bank of `server` has at least the `count` transfers that were counted before it was copied.
pub fn require_transfers(server: &Server, count: u64) {
    let transfers = &server.query("SELECT COUNT(*) FROM shop.transfer").unwrap()[0][0];
    assert!(transfers.parse::<u64>().unwrap() >= count, "{transfers} of {count}");
}

/// Clients that move money between accounts, and a client that makes and drops tables, until this is dropped.
pub struct Load {
    stop: Arc<AtomicBool>,
    pub transfers: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start(server: &Server) -> Self {
        let (stop, transfers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut clients = Vec::new();
        for client in 0..3i64 {
            let (mut conn, stop, transfers) =
                (server.connect().unwrap(), Arc::clone(&stop), Arc::clone(&transfers));
            clients.push(std::thread::spawn(move || {
                for round in (client..).step_by(3) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // Always in the same order, so that no two clients wait for each other.
                    let (one, other) = (1 + round * 7 % ACCOUNTS, 1 + round * 13 % ACCOUNTS);
                    let (a, b) = (one.min(other), one.max(other));
                    for statement in [
                        "START TRANSACTION".to_owned(),
                        format!("UPDATE shop.account SET balance = balance - 1 WHERE id = {a}"),
                        format!("UPDATE shop.account SET balance = balance + 1 WHERE id = {b}"),
                        format!("INSERT INTO shop.transfer (a, b, pad) VALUES ({a}, {b}, REPEAT(MD5({round}), 10))"),
                        "COMMIT".to_owned(),
                    ] {
                        execute(&mut conn, &statement).unwrap();
                    }
                    transfers.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        let (mut conn, stopped) = (server.connect().unwrap(), Arc::clone(&stop));
        execute(&mut conn, "USE shop").unwrap();
        clients.push(std::thread::spawn(move || {
            for round in 0u32.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                for statement in [
                    format!("CREATE TABLE shop.new{round} (id INT PRIMARY KEY, b TEXT) ENGINE=InnoDB"),
                    format!("INSERT INTO shop.new{round} SELECT seq, REPEAT(MD5(seq), 10) FROM seq_1_to_500"),
                    format!("RENAME TABLE shop.new{round} TO shop.renamed{round}"),
                    format!("INSERT INTO shop.myisam VALUES ({}, 'new')", 100_000 + round),
                    format!("DROP TABLE shop.renamed{round}"),
                ] {
                    execute(&mut conn, &statement).unwrap();
                }
            }
        }));
        Self { stop, transfers, clients }
    }

    pub fn wait_for_more(&self, more: u64) {
        let wanted = self.transfers.load(Ordering::Relaxed) + more;
        poll_until("transfers", PATIENCE, || {
            Ok((self.transfers.load(Ordering::Relaxed) >= wanted).then_some(()))
        })
        .unwrap();
    }

    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        self.transfers.load(Ordering::Relaxed)
    }
}

/// Sound tables, and no transfer by half.
pub fn require_consistent(server: &Server) {
    let mut conn = server.connect().unwrap();
    let total = query_text(&mut conn, "SELECT SUM(balance), COUNT(*) FROM shop.account").unwrap();
    assert_eq!(total, [[TOTAL.to_string(), ACCOUNTS.to_string()]]);
    let moved = "SELECT COUNT(*) FROM shop.account c WHERE balance <> 1000 \
                 + (SELECT COUNT(*) FROM shop.transfer WHERE b = c.id) \
                 - (SELECT COUNT(*) FROM shop.transfer WHERE a = c.id)";
    assert_eq!(query_text(&mut conn, moved).unwrap(), [["0"]], "a transfer is there by half");
    let tables = "CHECK TABLE shop.account, shop.transfer, shop.packed, shop.aria, shop.myisam EXTENDED";
    for row in query_text(&mut conn, tables).unwrap() {
        let is_open_elsewhere = row[2] == "warning" && row[3].contains("hasn't closed the table");
        assert!(is_open_elsewhere || row[3] == "OK", "{row:?}");
    }
    let counted = "SELECT (SELECT COUNT(*) FROM shop.packed WHERE BINARY b = BINARY REPEAT(MD5(id), 20)), \
                   (SELECT COUNT(*) FROM shop.aria), (SELECT COUNT(*) FROM shop.myisam WHERE id < 100000)";
    assert_eq!(query_text(&mut conn, counted).unwrap(), [["5000", "3000", "3000"]]);
}
