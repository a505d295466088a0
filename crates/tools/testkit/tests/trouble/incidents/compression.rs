//! `--compress`: the same load with and without, side by side; and nothing is lost with it.

use redoubt_harness::node::Node;
use redoubt_workload::check::{check_all, finish_purge};
use redoubt_workload::launcher::{Verify, find_redoubt};
use redoubt_workload::ledger::{self, Entries, Options, Run};
use redoubt_workload::load::Until;
use redoubt_workload::oltp::Mix;
use redoubt_workload::process::poll_until;
use redoubt_workload::sysbench::{Report, Sysbench};

use super::{NODE_ARGS, PATIENCE, Setup};

/// The cost of a load.
#[derive(Debug)]
#[allow(dead_code, reason = "shown as a whole")]
struct Cost {
    sent_bytes: u64,
    received_bytes: u64,
    server_cpu_ms: u64,
    node_cpu_ms: u64,
    report: Report,
}

/// User and system time of a process in milliseconds, from clock ticks of 10 ms.
fn cpu_ms(process_id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

fn cost(run_options: &[&str]) -> Cost {
    let node = Node::create(&find_redoubt().unwrap(), &NODE_ARGS).unwrap();
    // Without digests of dropped pages, which are the same with both.
    let mut setup = Setup::on(node, Verify::Off, run_options);
    // Smaller than the tables: pages are read as well.
    setup.server.shutdown().unwrap();
    setup.server.config_mut().buffer_pool_bytes = 8 << 20;
    setup.server.start().unwrap();
    let load = Sysbench { rows: 30_000, ..Sysbench::small(&setup.server.socket()) };
    load.prepare().unwrap();
    let server_id = setup.server.process_id().unwrap();
    let node_id = setup.node.process_id().unwrap();
    let before = (cpu_ms(server_id), cpu_ms(node_id));
    let report = load.run(Mix::ReadWrite, Until::Transactions(2000)).unwrap();
    let (server_cpu_ms, node_cpu_ms) = (cpu_ms(server_id) - before.0, cpu_ms(node_id) - before.1);
    let mut conn = setup.server.connect().unwrap();
    finish_purge(&mut conn).unwrap();
    check_all(&mut conn).unwrap();
    setup.server.shutdown().unwrap();
    let volume = setup.volume();
    let counter = |name: &str| {
        volume["server_counters"][name].as_u64().unwrap_or_else(|| panic!("no counter {name}: {volume}"))
    };
    Cost {
        sent_bytes: counter("sent_bytes"),
        received_bytes: counter("received_bytes"),
        server_cpu_ms,
        node_cpu_ms,
        report,
    }
}

#[test]
fn compression_sends_fewer_bytes() {
    let (plain, compressed) = (cost(&["--compress=off"]), cost(&["--compress"]));
    println!("without: {plain:#?}\nwith --compress: {compressed:#?}");
    // The rows are random digits, which can hardly be shortened but where a row was there before; the rest of the
    // redo it can.
    assert!(compressed.sent_bytes * 10 < plain.sent_bytes * 7, "{plain:?} {compressed:?}");
    assert!(compressed.received_bytes < plain.received_bytes, "{plain:?} {compressed:?}");
}

#[test]
fn nothing_is_compressed_by_itself_on_one_host() {
    let setup = Setup::new(&[]);
    let load = Sysbench { rows: 5_000, ..Sysbench::small(&setup.server.socket()) };
    load.prepare().unwrap();
    load.run(Mix::ReadWrite, Until::Transactions(500)).unwrap();
    // The server reports its counters a few times a second.
    let counter = |of: &str, name: &str| setup.volume()[of][name].as_u64();
    poll_until("counters", PATIENCE, || {
        Ok((counter("server_counters", "redo_bytes") > Some(100_000)).then_some(()))
    })
    .unwrap();
    assert_eq!(counter("server_counters", "log_writes_compressed"), Some(0));
    assert_eq!(counter("counters", "page_replies_compressed"), Some(0));
}

#[test]
fn nothing_is_lost_with_compression_when_node_and_server_are_killed() {
    loses_nothing(&["--compress"]);
}

#[test]
fn nothing_is_lost_in_parts_when_node_and_server_are_killed() {
    loses_nothing(&["--compress=auto"]);
}

fn loses_nothing(options: &[&str]) {
    let mut setup = Setup::new(options);
    let file = setup.server.directory().join("ledger");
    for round in 0..2 {
        let run = Run::start(&setup.server.socket(), &file, Options::default()).unwrap();
        run.wait_for_more(200, PATIENCE).unwrap();
        for _ in 0..3 {
            // Frames that were sent and are not durable go out again on a stream of their own.
            setup.node.crash_and_restart().unwrap();
            run.wait_for_more(200, PATIENCE)
                .unwrap_or_else(|error| panic!("{error}\n{}", setup.server.error_log_tail(20)));
        }
        // The server reports its counters a few times a second, which may be later than 200 commits.
        let reconnects = || setup.volume()["server_counters"]["reconnects"].as_u64();
        poll_until("three reconnections", PATIENCE, || Ok((reconnects() >= Some(3)).then_some(()))).unwrap();
        // The last frames before the kill are decoded without the rest of their stream.
        setup.server.kill9().unwrap();
        setup.server.start().unwrap_or_else(|error| panic!("{error}\n{}", setup.node.log_tail(20)));
        let summary = run.stop().unwrap();
        println!("round {round}: {summary:?}");
    }
    let mut conn = setup.server.connect().unwrap();
    ledger::verify(&mut conn, &Entries::read(&file).unwrap()).unwrap().require_sound().unwrap();
    finish_purge(&mut conn).unwrap();
    check_all(&mut conn).unwrap();
    setup.server.shutdown().unwrap();
    setup.require_verified();
}
