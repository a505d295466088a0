//! The status page of a node that a real server works on: figures move, a scraper accepts the metrics, and a browser
//! draws the page (pictures are kept in `status-page` in the target directory). Clients that misuse it do not keep the
//! server from its work.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{browser, http, strict};
use indicatif::ProgressBar;
use redoubt_harness::node::Node;
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::load::Until;
use redoubt_workload::process::timed;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::execute;
use redoubt_workload::tpcc::{self, Scale, Tpcc};

const VOLUME: &str = "shop";

fn node() -> (Node, SocketAddr) {
    let options = ["--ring", "16MiB", "--batch", "1MiB", "--apply-interval", "1", "--apply-workers", "2"];
    let page = ["--status-listen", "127.0.0.1:0"];
    let node = Node::create(&find_redoubt().unwrap(), &[&options[..], &page[..]].concat()).unwrap();
    node.create_volume(VOLUME).unwrap();
    let address = node.status(VOLUME).unwrap()["status_page"].as_str().unwrap().parse().unwrap();
    (node, address)
}

fn server(node: &Node) -> Server {
    let mut config = ServerConfig::new(node.launcher(VOLUME, Verify::All));
    // So small that pages go out and are read again.
    config.buffer_pool_bytes = 8 << 20;
    Server::create(config).unwrap()
}

/// The metrics, once `reached` returns true.
fn metrics_when(
    address: SocketAddr,
    mut reached: impl FnMut(&strict::Exposition) -> bool,
) -> strict::Exposition {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let text = http::get(address, "/metrics").text();
        let metrics = strict::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        if reached(&metrics) {
            return metrics;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn check_figures(node: &Node, address: SocketAddr, commits: f64) {
    let volume = [("volume", VOLUME)];
    let (reads, timed) = ("redoubt_page_reads_total", "redoubt_page_read_duration_seconds_count");
    // Counters of the server come a little later than those of the node; a read is timed after it was counted.
    let metrics = metrics_when(address, |metrics| {
        let moves = |name: &&str| metrics.sum(name, &volume) > 0.0;
        metrics.sum("redoubt_server_durability_waits_total", &volume) >= commits
            // Reads of the log are no page reads: every one is in both.
            && metrics.sum(timed, &volume) >= metrics.sum(reads, &volume)
            && [
                "redoubt_tables_applied_total",
                "redoubt_page_reads_total",
                "redoubt_pages_verified_total",
                "redoubt_received_bytes_total",
                "redoubt_server_page_writes_avoided_bytes_total",
                "redoubt_log_write_duration_seconds_count",
                "redoubt_page_read_duration_seconds_sum",
                "redoubt_apply_worker_runs_total",
                "redoubt_apply_worker_busy_seconds_total",
                "redoubt_volume_files",
            ]
            .iter()
            .all(moves)
    });
    assert_eq!(metrics.sum("redoubt_page_mismatches_total", &volume), 0.0);
    let positions =
        |position| metrics.sum("redoubt_volume_lsn", &[("volume", VOLUME), ("position", position)]);
    assert!(positions("durable") <= positions("received") && positions("applied") <= positions("parsed"));
    // The command and the page show the same object.
    let (by_command, by_page) = (node.status(VOLUME).unwrap(), http::get(address, "/status.json").json());
    let fields = |value: &serde_json::Value| {
        value["volumes"][0].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(fields(&by_command), fields(&by_page));
    let history = http::get(address, "/history.json").json();
    assert!(history["moments"].as_array().unwrap().len() > 2);
}

/// `redoubt status --watch` where standard output is no terminal.
fn check_terminal(node: &Node) {
    let address = node.address().to_string();
    let watch = |more: &[&str]| {
        let command = ["status", "--node", &address, "--volume", VOLUME, "--watch", "--count", "3"];
        node.redoubt(&[&command[..], more].concat()).unwrap()
    };
    let text = watch(&[]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines.iter().all(|line| line.contains("shop attached") && line.contains("commits ")), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    // One second without a commit may be the disk's.
    let has_commits = |line: &str| line.split("commits ").nth(1).is_some_and(|rest| !rest.starts_with("0/s"));
    assert!(lines[1..].iter().any(|line| has_commits(line)), "{text}");
    for line in watch(&["--json"]).lines() {
        let status: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(status["volumes"][0]["name"], VOLUME);
    }
}

/// A trace of the load has both kinds and all stages, and the stages add up to the total.
fn check_trace(node: &Node) {
    let address = node.address().to_string();
    let trace = || {
        let command =
            ["trace", "--node", &address, "--volume", VOLUME, "--seconds", "3", "--one-in", "2", "--json"];
        node.redoubt(&command)
    };
    // Of two at the same time one is refused.
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(trace);
        (trace(), one.join().unwrap())
    });
    let (text, refused) = match (one, other) {
        (Ok(text), Err(error)) | (Err(error), Ok(text)) => (text, error.to_string()),
        both => panic!("{both:?}"),
    };
    assert!(refused.contains("is being traced already"), "{refused}");
    println!("{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (kind, stages) in [("commits", 5), ("page_reads", 6)] {
        let part = &report[kind];
        assert!(part["samples"].as_u64().unwrap() > 10, "{kind}: {report}");
        let found = part["stages"].as_array().unwrap();
        assert_eq!(found.len(), stages);
        let sum: f64 = found.iter().map(|stage| stage["mean_micros"].as_f64().unwrap()).sum();
        let total = part["total"]["mean_micros"].as_f64().unwrap();
        assert!((sum - total).abs() < total * 0.01 + 0.1, "{sum} and {total}: {report}");
        let shares: f64 = found.iter().map(|stage| stage["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 0.01, "{report}");
        let slowest = part["slowest"].as_array().unwrap();
        assert_eq!(slowest.len(), 5);
        assert_eq!(slowest[0]["stages"].as_object().unwrap().len(), stages);
    }
    for slow in report["page_reads"]["slowest"].as_array().unwrap() {
        // The system tablespace has no directory and no ending; which file is the slowest is chance.
        let path = slow["path"].as_str().unwrap();
        let is_table = path.starts_with("tpcc/") || path.starts_with("mysql/");
        let is_tablespace = path == "ibdata1" || is_table && path.ends_with(".ibd");
        assert!(is_tablespace, "{path}: {report}");
    }
    let device = &report["commits"]["stages"][3];
    assert!(device["stage"] == "device" && device["mean_micros"].as_f64().unwrap() > 0.0, "{report}");
}

/// Ends the load, also when a check fails.
#[derive(Default)]
struct Done(Arc<AtomicBool>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_node_at_work_is_seen_by_scrapers_and_in_a_browser() {
    let (node, address) = node();
    let server = server(&node);
    let socket = server.socket();
    let scale = Scale::small(2);
    tpcc::load(&socket, scale, 7, 2, &ProgressBar::hidden()).unwrap();
    let tpcc = Tpcc::begin(&socket, scale, 7, false).unwrap();
    std::thread::scope(|scope| {
        let done = Done::default();
        let ends = Arc::clone(&done.0);
        let (tpcc, socket) = (&tpcc, &socket);
        let load = scope.spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                tpcc.run(socket, 4, Until::Elapsed(Duration::from_secs(2))).unwrap();
            }
        });
        check_figures(&node, address, 50.0);
        check_terminal(&node);
        check_trace(&node);
        if let Some(browser) = browser::find("pictures of the status page") {
            let url = format!("http://{address}/");
            let pictures = browser::pictures();
            browser::screenshot(browser, &url, &pictures.join("wide.png"), (1280, 2300), false);
            browser::screenshot(browser, &url, &pictures.join("phone.png"), (500, 4600), true);
            let dom = browser::dom(browser, &url);
            assert!(
                dom.contains(&format!("Volume {VOLUME}")) && dom.matches("<canvas").count() == 13,
                "{dom}"
            );
            assert!(dom.contains("attached"), "{dom}");
        }
        drop(done);
        load.join().unwrap();
    });
}

/// Does something while three busy clients misuse a page.
fn while_misused<T>(address: SocketAddr, does: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = Vec::new();
            while !done.load(Ordering::Relaxed) {
                // Slow ones, one after the other; too long a head now and then.
                if let Ok(mut stream) = TcpStream::connect(address) {
                    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
                    held.push(stream);
                }
                if held.len() % 10 == 0 {
                    let _ = http::exchange(address, &[b'x'; 100_000]);
                }
                if held.len() > 300 {
                    held.clear();
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let request =
                        "GET /history.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                    let _ = http::exchange(address, request.as_bytes());
                }
            });
        }
        let end = End(&done);
        let result = does();
        drop(end);
        result
    })
}

/// Ends the clients though what is done beside them fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn clients_that_misuse_the_page_do_not_keep_the_server_from_its_work() {
    let (node, address) = node();
    let server = server(&node);
    let mut connection = server.connect().unwrap();
    execute(&mut connection, "CREATE DATABASE d").unwrap();
    execute(&mut connection, "CREATE TABLE d.t (a INT PRIMARY KEY AUTO_INCREMENT, b INT) ENGINE=InnoDB")
        .unwrap();
    let mut insert = || {
        let insert = "INSERT INTO d.t (b) VALUES (1)";
        timed(|| (0..200).try_for_each(|_| execute(&mut connection, insert))).unwrap().1
    };
    let threads = || {
        let process = format!("/proc/{}/task", node.process_id().unwrap());
        std::fs::read_dir(process).unwrap().count()
    };
    // The same misuse of another node, which has no server, takes as much of the machine.
    let (_idle_node, idle_address) = self::node();
    let (quiet, threads_before) = (insert(), threads());
    let beside = while_misused(idle_address, &mut insert);
    let disturbed = while_misused(address, || {
        let disturbed = insert();
        assert!(threads() <= threads_before + 2, "{} threads, {threads_before} before", threads());
        assert_eq!(node.status(VOLUME).unwrap()["volumes"][0]["state"], "attached");
        disturbed
    });
    println!(
        "200 commits took {quiet:?}; {beside:?} while another node's page was misused, {disturbed:?} while its own was"
    );
    assert!(disturbed < beside * 5, "{disturbed:?}, and {beside:?} beside the misuse of another node");
}
