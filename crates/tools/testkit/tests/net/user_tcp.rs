//! Real servers with TCP in user space, and clients in another network namespace, whose TCP is the kernel's. Clients
//! get the same as from the kernel's TCP, and the same causes end a connection or a wait.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use crate::lab::{ADDRESS, Lab, PORT, config, large_results_and_files, pair, script};
use mysql::Conn;
use mysql::prelude::Queryable;
use redoubt_harness::command::PATIENCE;
use redoubt_harness::connections::{
    certificates, require_idle_timeout, require_kills, require_login_timeout, statements,
};
use redoubt_harness::fetched::find_or_skip;
use redoubt_test_support::{NetworkPair, Side, run};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::process::{find_program, poll_until};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::ServerConfig;
use redoubt_workload::sql::{execute, query_text};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// MySQL with its pool of threads.
fn start_with_thread_pool(pair: NetworkPair, product: Product) -> Lab {
    let config = config(&pair, NetworkPair::INTERFACE, &find_redoubt().unwrap()).product(product);
    let arguments = ["--plugin-load-add=thread_pool.so", "--connect-timeout=2", "--mysqlx=OFF"];
    let lab = Lab::start(pair, arguments.into_iter().fold(config, ServerConfig::server_arg));
    let status = "SELECT plugin_status FROM information_schema.plugins WHERE plugin_name = 'thread_pool'";
    assert_eq!(query_text(&mut lab.server.connect().unwrap(), status).unwrap(), [["ACTIVE"]]);
    lab
}

#[test]
fn clients_of_every_kind_get_what_they_ask_for() {
    let test = "clients_of_every_kind_get_what_they_ask_for (user space)";
    let directory = tempfile::tempdir().unwrap();
    let tls = certificates(directory.path(), ADDRESS).unwrap();
    let arguments: Vec<&str> = tls.iter().map(String::as_str).collect();
    let Some(mut lab) = Lab::create(test, &arguments) else { return };
    let (script, expected) = script();
    let with_tls = ["--ssl", "--ssl-verify-server-cert=0"];
    let cipher = lab.answer(&with_tls, "SHOW STATUS LIKE 'Ssl_cipher'");
    assert!(cipher.len() > "Ssl_cipher\t\n".len());
    for way in
        [&["--ssl=0"][..], &["--ssl=0", "--compress"], &with_tls, &[&with_tls[..], &["--compress"]].concat()]
    {
        let before = lab.number("opened");
        assert!(lab.answer(way, &script) == expected, "{way:?}");
        lab.wait_for("opened", |opened| opened > before);
    }
    // Over IPv6 as well, and by the kernel's TCP on the loopback interface.
    let before = lab.number("opened");
    let mut conn = lab.try_connect_to(Side::Client, "fd79::1").unwrap();
    let user: String = conn.query_first("SELECT USER()").unwrap().unwrap();
    assert_eq!(user, "x@fd79::2");
    statements(&mut conn, 100).unwrap();
    lab.wait_for("opened", |opened| opened == before + 1);
    let mut conn = lab.try_connect_to(Side::Server, "127.0.0.1").unwrap();
    statements(&mut conn, 100).unwrap();
    let user: String = lab.connect().query_first("SELECT USER()").unwrap().unwrap();
    assert_eq!(user, "x@10.79.0.2");
    lab.wait_for("opened", |opened| opened == before + 2);
    assert_eq!((lab.number("bad_checksums"), lab.number("frames_dropped")), (0, 0), "{}", lab.status());
    lab.server.shutdown().unwrap();
}

#[test]
fn large_results_and_files_arrive_whole() {
    let Some(lab) = Lab::create("large_results_and_files_arrive_whole", &[]) else { return };
    large_results_and_files(&lab, 28);
    // The same when two packets of a hundred are lost, in both directions. (Packets that this link sends pass no rules
    // of its own host, so the rules are on the other host.)
    let name = lab.pair.name(Side::Client);
    let nft = |rule: &str| {
        let program = find_program("nft", "nftables").unwrap();
        run("ip", &["netns", "exec", &name, &program.to_string_lossy(), rule]);
    };
    nft("add table inet bad");
    for hook in ["prerouting", "output"] {
        nft(&format!("add chain inet bad {hook} {{ type filter hook {hook} priority -300; }}"));
        nft(&format!("add rule inet bad {hook} numgen random mod 50 == 0 drop"));
    }
    large_results_and_files(&lab, 28);
    lab.wait_for("segments_retransmitted", |count| count > 0);
    println!("{}", lab.status());
}

/// A client that connects and says nothing is ended after connect_timeout, which the server was started with.
fn silent_login(lab: &Lab) {
    let connect = || lab.pair.within(Side::Client, || TcpStream::connect((ADDRESS, PORT))).unwrap();
    require_login_timeout(&mut lab.server.connect().unwrap(), 2, &connect).unwrap();
}

fn shutdown_with_clients(lab: &mut Lab) {
    let mut clients: Vec<Conn> = (0..20).map(|_| lab.connect()).collect();
    clients.iter_mut().for_each(|conn| statements(conn, 5).unwrap());
    lab.server.shutdown().unwrap();
    assert!(clients.iter_mut().all(|conn| conn.query_drop("SELECT 1").is_err()));
}

#[test]
fn what_ends_a_wait_ends_it() {
    let test = "what_ends_a_wait_ends_it (user space)";
    let Some(mut lab) = Lab::create(test, &["--connect-timeout=2"]) else { return };
    require_kills(&|| Ok(lab.connect()), 20).unwrap();
    require_idle_timeout(&|| Ok(lab.connect()), 20).unwrap();
    silent_login(&lab);
    lab.wait_for("opened", |opened| opened >= 6);
    shutdown_with_clients(&mut lab);
}

#[test]
fn the_pool_of_threads_is_served() {
    let arguments = ["--thread-handling=pool-of-threads", "--connect-timeout=2"];
    let Some(lab) = Lab::create("the_pool_of_threads_is_served", &arguments) else { return };
    a_pool_is_served(lab);
}

#[test]
fn the_pool_of_threads_of_mysql_is_served() {
    let test = "the_pool_of_threads_of_mysql_is_served";
    let (Some(product), Some(pair)) = (find_or_skip(FetchedServer::MySql97, test), pair(test)) else {
        return;
    };
    a_pool_is_served(start_with_thread_pool(pair, product));
}

fn a_pool_is_served(mut lab: Lab) {
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| statements(&mut lab.connect(), 100).unwrap());
        }
    });
    require_kills(&|| Ok(lab.connect()), 20).unwrap();
    require_idle_timeout(&|| Ok(lab.connect()), 20).unwrap();
    large_results_and_files(&lab, 28);
    lab.wait_for("opened", |opened| opened >= 45);
    shutdown_with_clients(&mut lab);
}

#[test]
fn mysql_is_served() {
    let Some(product) = find_or_skip(FetchedServer::MySql97, "mysql_is_served (user space)") else { return };
    let Some(pair) = pair("mysql_is_served (user space)") else { return };
    let config = config(&pair, NetworkPair::INTERFACE, &find_redoubt().unwrap()).product(product);
    let mut lab = Lab::start(pair, config.server_arg("--connect-timeout=2").server_arg("--mysqlx=OFF"));
    statements(&mut lab.connect(), 200).unwrap();
    require_kills(&|| Ok(lab.connect()), 20).unwrap();
    require_idle_timeout(&|| Ok(lab.connect()), 20).unwrap();
    large_results_and_files(&lab, 28);
    lab.wait_for("opened", |opened| opened >= 6);
    shutdown_with_clients(&mut lab);
}

#[test]
fn whoever_is_killed_leaves_nothing_behind() {
    let Some(mut lab) = Lab::create("whoever_is_killed_leaves_nothing_behind", &[]) else { return };
    // A client, in the middle of a large answer.
    let mut child = lab.client(&["--ssl=0", "-q"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "SELECT CONNECTION_ID(); SELECT REPEAT('x', 100000000);").unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let id: u64 = line.trim().parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    lab.wait_for_end(id, PATIENCE);
    lab.wait_for("connections", |count| count == 0);
    // The server, several times, and begun again at once: the interface is taken again.
    for _ in 0..3 {
        let mut conn = lab.connect();
        statements(&mut conn, 5).unwrap();
        lab.server.kill9().unwrap();
        lab.server.start().unwrap();
        assert!(conn.query_drop("SELECT 1").is_err());
        statements(&mut lab.connect(), 5).unwrap();
        lab.wait_for("opened", |opened| opened == 1);
    }
    assert_eq!(lab.status()["interfaces"][0]["mode"], "native");
}

#[test]
fn an_address_that_is_taken_away_is_served_no_more() {
    let Some(lab) = Lab::create("an_address_that_is_taken_away_is_served_no_more", &[]) else { return };
    let name = lab.pair.name(Side::Server);
    let address = |change: &str| {
        run("ip", &["-n", &name, "address", change, "10.79.0.9/24", "dev", NetworkPair::INTERFACE]);
    };
    let mut clock = lab.connect();
    for _ in 0..2 {
        // It comes while the server runs; until it is seen, within a second or so, its connections are the kernel's.
        address("add");
        lab.refresh(&mut clock);
        let before = lab.number("opened");
        let conn = poll_until("a connection past the kernel", PATIENCE, || {
            let mut conn = lab.try_connect_to(Side::Client, "10.79.0.9").unwrap();
            statements(&mut conn, 10).unwrap();
            lab.refresh(&mut clock);
            Ok((lab.number("opened") > before).then_some(conn))
        })
        .unwrap();
        address("del");
        poll_until("the end of an address", PATIENCE, || {
            let conn = lab.try_connect_within(Side::Client, "10.79.0.9", Duration::from_secs(3));
            Ok(conn.is_err().then_some(()))
        })
        .unwrap();
        statements(&mut lab.connect(), 10).unwrap();
        drop(conn);
    }
}

#[test]
fn connections_outlive_an_address_that_comes_back() {
    let Some(lab) = Lab::create("connections_outlive_an_address_that_comes_back", &[]) else { return };
    let name = lab.pair.name(Side::Server);
    let mut conn = lab.connect();
    statements(&mut conn, 10).unwrap();
    let mut sleeper = lab.connect();
    // Until this test releases the lock.
    let mut holder = lab.server.connect().unwrap();
    assert_eq!(holder.query_first("SELECT GET_LOCK('address', 0)").unwrap(), Some(1));
    let waiting =
        std::thread::spawn(move || sleeper.query_first::<u32, _>("SELECT GET_LOCK('address', 100000)"));
    let change = |change: &str| {
        let address = format!("{ADDRESS}/24");
        run("ip", &["-n", &name, "address", change, &address, "dev", NetworkPair::INTERFACE]);
    };
    change("del");
    // Until the removal has been noticed: no new connection is accepted then, and packets of clients are not answered.
    poll_until("the end of an address", PATIENCE, || {
        let conn = lab.try_connect_within(Side::Client, ADDRESS, Duration::from_secs(3));
        Ok(conn.is_err().then_some(()))
    })
    .unwrap();
    let statement = std::thread::spawn(move || {
        let result = statements(&mut conn, 10);
        (conn, result.map_err(|error| error.to_string()))
    });
    poll_until("a statement that is sent again", PATIENCE, || Ok(lab.retransmits().then_some(()))).unwrap();
    assert!(!statement.is_finished() && !waiting.is_finished());
    change("add");
    let (mut conn, result) = statement.join().unwrap();
    result.unwrap();
    statements(&mut conn, 10).unwrap();
    assert_eq!(holder.query_first("SELECT RELEASE_LOCK('address')").unwrap(), Some(1));
    assert_eq!(waiting.join().unwrap().unwrap(), Some(1));
    statements(&mut lab.connect(), 10).unwrap();
}

/// More is queued while it is down than there is room for.
#[test]
fn an_interface_that_was_down_goes_on() {
    const CLIENTS: u64 = 70;
    let Some(lab) = Lab::create("an_interface_that_was_down_goes_on", &[]) else { return };
    let name = lab.pair.name(Side::Server);
    let change = |state: &str| run("ip", &["-n", &name, "link", "set", NetworkPair::INTERFACE, state]);
    let mut conn = lab.connect();
    execute(&mut conn, "USE d").unwrap();
    execute(&mut conn, "CREATE TABLE t SELECT seq, REPEAT('x', 100000) AS v FROM seq_1_to_200").unwrap();
    let (rows, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A failure ends the load, too.
        let _end = End(&ended);
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut conn = lab.connect();
                while !ended.load(Ordering::Acquire) {
                    let all = conn.query_iter("SELECT v FROM d.t").unwrap();
                    all.for_each(|row| {
                        row.unwrap();
                        rows.fetch_add(1, Ordering::AcqRel);
                    });
                }
            });
        }
        let more = |count: u64| {
            let wanted = rows.load(Ordering::Acquire) + count;
            poll_until("rows", PATIENCE, || Ok((rows.load(Ordering::Acquire) >= wanted).then_some(())))
        };
        more(20 * CLIENTS).unwrap();
        change("down");
        // All is sent again that was under way.
        poll_until("silence", PATIENCE, || {
            let before = rows.load(Ordering::Acquire);
            std::thread::sleep(Duration::from_secs(6));
            Ok((rows.load(Ordering::Acquire) == before).then_some(()))
        })
        .unwrap();
        change("up");
        more(200 * CLIENTS).unwrap();
        statements(&mut lab.connect(), 10).unwrap();
    });
}

/// The server continues without the interface, and reports it.
#[test]
fn an_interface_that_is_deleted_is_said_to_be_gone() {
    let Some(mut lab) = Lab::create("an_interface_that_is_deleted_is_said_to_be_gone", &[]) else { return };
    let mut conn = lab.connect();
    statements(&mut conn, 20).unwrap();
    lab.wait_for("connections", |count| count == 1);
    assert_eq!(lab.status()["interfaces"][0]["mode"], "native");
    run("ip", &["-n", &lab.pair.name(Side::Server), "link", "delete", NetworkPair::INTERFACE]);
    poll_until("an interface that is gone", PATIENCE, || {
        Ok((lab.status()["interfaces"][0]["mode"] == "failed").then_some(()))
    })
    .unwrap();
    statements(&mut lab.server.connect().unwrap(), 20).unwrap();
    drop(conn);
    lab.server.shutdown().unwrap();
}

#[test]
fn a_thousand_connections_are_served() {
    let arguments = ["--max-connections=1100", "--back-log=200"];
    let Some(lab) = Lab::create("a_thousand_connections_are_served (user space)", &arguments) else { return };
    let mut clients: Vec<Conn> = (0..1000).map(|_| lab.connect()).collect();
    for _ in 0..2 {
        clients.iter_mut().for_each(|conn| statements(conn, 5).unwrap());
    }
    lab.wait_for("connections", |count| count == 1000);
    clients.truncate(100);
    lab.wait_for("connections", |count| count == 100);
    clients.iter_mut().for_each(|conn| statements(conn, 20).unwrap());
    drop(clients);
    // All at the same moment.
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| statements(&mut lab.connect(), 20).unwrap());
        }
    });
    lab.wait_for("opened", |count| count == 1200);
    lab.wait_for("connections", |count| count == 0);
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn it_is_switched_under_load() {
    let Some(lab) = Lab::create("it_is_switched_under_load", &[]) else { return };
    let ended = AtomicBool::new(false);
    let mut clock = lab.connect();
    std::thread::scope(|scope| {
        // A failure ends the load, too.
        let _end = End(&ended);
        for _ in 0..2 {
            // One connection that stays, and new ones all the time: the stack that accepted a connection serves it to
            // its end.
            scope.spawn(|| {
                let mut conn = lab.connect();
                while !ended.load(Ordering::Acquire) {
                    statements(&mut conn, 50).unwrap();
                }
            });
            scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    statements(&mut lab.connect(), 10).unwrap();
                }
            });
        }
        for round in 0..4 {
            let state = ["off", "on"][round % 2];
            lab.switch(state);
            // Connections that were being made before are served, too.
            poll_until(&format!("new connections to be {state}"), PATIENCE, || {
                lab.refresh(&mut clock);
                let before = lab.number("opened");
                (0..20).for_each(|_| statements(&mut lab.connect(), 1).unwrap());
                lab.refresh(&mut clock);
                let opened = lab.number("opened") - before;
                Ok((if state == "on" { opened >= 20 } else { opened == 0 }).then_some(()))
            })
            .unwrap();
            assert_eq!(lab.status()["is_on"], state == "on");
            assert!(lab.number("connections") >= 2);
        }
    });
    drop(clock);
    lab.wait_for("connections", |count| count == 0);
}

#[test]
fn without_what_it_needs_the_kernel_serves() {
    let Some(pair) = pair("without_what_it_needs_the_kernel_serves") else { return };
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("redoubt");
    let redoubt = find_redoubt().unwrap();
    let text = format!(
        "#!/bin/sh\nexec setpriv --bounding-set=-net_admin,-net_raw,-bpf,-sys_admin,-perfmon {} \"$@\"\n",
        redoubt.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = config(&pair, NetworkPair::INTERFACE, &script);
    let mut lab = Lab::start(pair, config);
    statements(&mut lab.connect(), 20).unwrap();
    assert_eq!(lab.status()["interfaces"][0]["mode"], "failed");
    assert!(lab.server.error_log_tail(1000).contains("CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"));
    lab.server.shutdown().unwrap();
    let wrong =
        Launcher::Net { redoubt_bin: redoubt, options: ["--user-tcp", "lo"].map(str::to_owned).to_vec() };
    lab.server.config_mut().launcher = wrong;
    lab.server.start().unwrap();
    statements(&mut lab.connect(), 20).unwrap();
    let log = lab.server.error_log_tail(1000);
    assert!(log.contains("it is not an interface of Ethernet"), "{log}");
    // A name that is misspelt is refused before the server starts.
    let mut command = lab.pair.command(Side::Server, find_redoubt().unwrap());
    command.args(["net", "run", "--user-tcp", "nothing-there", "--", "mariadbd", "--version"]);
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("there is no network interface nothing-there") && text.contains("v0"), "{text}");
}

/// How often the interface's thread has gone to sleep.
fn switches_of_the_stack(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_stack = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let count = |line: &str| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok();
        name.starts_with("redoubt-tcp").then(|| status.lines().filter_map(count).sum::<u64>())
    });
    let all: Vec<u64> = of_stack.collect();
    assert_eq!(all.len(), 1);
    all[0]
}

/// A statement of a thread that waits for it goes from the card to that thread, without the interface's in between.
fn statements_need_no_other_thread(lab: &Lab) {
    let mut conn = lab.connect();
    statements(&mut conn, 20).unwrap();
    let mut shares = Vec::new();
    for _ in 0..5 {
        let before = switches_of_the_stack(lab.server.process_id().unwrap());
        let start = Instant::now();
        for _ in 0..2000 {
            assert_eq!(conn.query_first::<u32, _>("SELECT 7").unwrap(), Some(7));
        }
        // It looks a hundred times a second what else there is to do.
        let for_time = start.elapsed().as_millis() as u64 / 10;
        let switches = switches_of_the_stack(lab.server.process_id().unwrap()) - before;
        shares.push(switches.saturating_sub(for_time));
    }
    // Other programs make it more, never less: if a statement needed the thread, each share would be 2000 and above.
    let least = shares.iter().min().unwrap();
    assert!(*least < 200, "sleeps of the interface's thread, for 2000 statements each: {shares:?}");
}

#[test]
fn a_statement_needs_no_other_thread() {
    let test = "a_statement_needs_no_other_thread";
    let Some(lab) = Lab::create(test, &[]) else { return };
    statements_need_no_other_thread(&lab);
    drop(lab);
    let (Some(product), Some(pair)) = (find_or_skip(FetchedServer::MySql97, test), pair(test)) else {
        return;
    };
    let config = config(&pair, NetworkPair::INTERFACE, &find_redoubt().unwrap()).product(product);
    statements_need_no_other_thread(&Lab::start(pair, config.server_arg("--mysqlx=OFF")));
}

#[test]
fn a_statement_under_a_pool_of_threads_needs_no_other_thread() {
    let test = "a_statement_under_a_pool_of_threads_needs_no_other_thread";
    let Some(lab) = Lab::create(test, &["--thread-handling=pool-of-threads"]) else { return };
    statements_need_no_other_thread(&lab);
    drop(lab);
    let (Some(product), Some(pair)) = (find_or_skip(FetchedServer::MySql97, test), pair(test)) else {
        return;
    };
    let lab = start_with_thread_pool(pair, product);
    statements_need_no_other_thread(&lab);
}

#[test]
fn what_waits_for_the_network_goes_on_while_the_server_is_at_work() {
    let test = "what_waits_for_the_network_goes_on_while_the_server_is_at_work";
    let Some(lab) = Lab::create(test, &[]) else { return };
    let mut conn = lab.connect();
    statements(&mut conn, 20).unwrap();
    let before = lab.number("frames_sent");
    // Until this test releases the lock.
    let mut holder = lab.server.connect().unwrap();
    assert_eq!(holder.query_first("SELECT GET_LOCK('work', 0)").unwrap(), Some(1));
    // A row that is more than the network takes at once; then the server's thread does not look at what comes.
    let client = std::thread::spawn(move || {
        let rows: Vec<String> = conn
            .query(
                "SELECT REPEAT('x', 900000) UNION ALL SELECT GET_LOCK('work', 100000) UNION ALL SELECT 'end'",
            )
            .unwrap();
        assert_eq!(rows.iter().map(String::len).collect::<Vec<_>>(), [900_000, 1, 3]);
    });
    // But for what the server itself keeps back.
    lab.wait_for("frames_sent", |count| count > before + 500);
    assert!(!client.is_finished());
    assert_eq!(holder.query_first("SELECT RELEASE_LOCK('work')").unwrap(), Some(1));
    client.join().unwrap();
}
