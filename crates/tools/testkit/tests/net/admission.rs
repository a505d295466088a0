//! Real servers with a limit of connections inside a transaction. The limit holds, a connection with locks never waits,
//! and every end of a wait leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::fetched::find_or_skip;
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::process::{find_program, poll_until};
use redoubt_workload::product::FetchedServer;
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod clients;

/// Bound for operations that need no wait, on a busy machine too; far below the admission timeout.
const SOON: Duration = PATIENCE;
/// A timeout that never expires during a test.
const NEVER: &str = "600";

fn config(options: &[&str]) -> ServerConfig {
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    ServerConfig::new(Launcher::Net { redoubt_bin: find_redoubt().unwrap(), options })
}

/// A server with a limit, a user who is no administrator, and a table of ten rows.
fn with_limit(limit: &str, options: &[&str]) -> Server {
    let mut options = [&["--admission", limit], options].concat();
    for option in ["--admission-lease", "--admission-longest-wait"] {
        if !options.contains(&option) {
            options.extend([option, NEVER]);
        }
    }
    let server = Server::create(config(&options)).unwrap();
    prepare(&server);
    server
}

fn prepare(server: &Server) {
    let mut conn = server.connect().unwrap();
    for statement in [
        "CREATE USER app@localhost",
        "GRANT ALL ON *.* TO app@localhost",
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL) ENGINE=InnoDB",
        "INSERT INTO d.t VALUES (0,0),(1,0),(2,0),(3,0),(4,0),(5,0),(6,0),(7,0),(8,0),(9,0)",
    ] {
        execute(&mut conn, statement).unwrap();
    }
}

fn connect(socket: String) -> mysql::Result<Conn> {
    Conn::new(OptsBuilder::new().user(Some("app")).socket(Some(socket)).db_name(Some("d")))
}

/// A connection. The first queries of drivers are statements, too: they need room.
fn app(server: &Server) -> Conn {
    connect(server.socket().display().to_string()).unwrap()
}

fn redoubt(arguments: &[&str]) -> Outcome {
    Outcome::of(&find_redoubt().unwrap(), arguments, PATIENCE).unwrap()
}

fn status(server: &Server) -> serde_json::Value {
    let datadir = server.datadir();
    let outcome = redoubt(&["net", "status", "--json", "--datadir", datadir.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str::<serde_json::Value>(&outcome.stdout).unwrap()[0].clone()
}

fn set(server: &Server, what: &str, value: &str) {
    let datadir = server.datadir();
    let outcome = redoubt(&["net", "set", what, value, "--datadir", datadir.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

fn counter(server: &Server, name: &str) -> u64 {
    status(server)["counters"][name].as_u64().unwrap()
}

/// Until as many wait.
fn await_waiting(server: &Server, count: u64) {
    poll_until("connections that wait", PATIENCE, || {
        Ok((status(server)["admission"]["waiting"] == count).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {}", status(server)));
}

/// Waits until the gate is empty: no connection waits or is inside.
fn await_empty(server: &Server) {
    poll_until("an empty gate", PATIENCE, || {
        let found = status(server);
        Ok((found["admission"]["waiting"] == 0 && found["admission"]["inside"] == 0).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {}", status(server)));
}

/// A statement of a client, in a thread since it may have to wait.
fn run(mut conn: Conn, statement: &'static str) -> JoinHandle<(Conn, mysql::Result<()>)> {
    std::thread::spawn(move || {
        let result = conn.query_drop(statement);
        (conn, result)
    })
}

/// As [`run`], on a connection of its own.
fn start(server: &Server, statement: &'static str) -> JoinHandle<mysql::Result<Conn>> {
    let socket = server.socket().display().to_string();
    std::thread::spawn(move || {
        let mut conn = connect(socket)?;
        conn.query_drop(statement)?;
        Ok(conn)
    })
}

fn soon<T>(what: &str, thread: JoinHandle<T>) -> T {
    poll_until(what, SOON, || Ok(thread.is_finished().then_some(()))).unwrap();
    thread.join().unwrap()
}

/// A connection whose transaction is open.
fn inside(server: &Server) -> Conn {
    let mut conn = app(server);
    execute(&mut conn, "BEGIN").unwrap();
    execute(&mut conn, "UPDATE t SET v = v + 1 WHERE id = 0").unwrap();
    conn
}

/// Clients that know that their transaction is open.
#[derive(Default)]
struct Open {
    now: AtomicU64,
    most: AtomicU64,
}

impl Open {
    fn change(&self, begins: bool) {
        if begins {
            self.most.fetch_max(self.now.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
        } else {
            self.now.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// One of the ways to change two rows.
fn transaction(conn: &mut Conn, way: u64, row: u64, open: &Open) {
    let other = (row + 1) % 10;
    let (first, second) = (row.min(other), row.max(other));
    match way % 4 {
        0 => {
            execute(conn, "BEGIN").unwrap();
            open.change(true);
            execute(conn, &format!("UPDATE t SET v = v + 1 WHERE id = {first}")).unwrap();
            execute(conn, &format!("UPDATE t SET v = v + 1 WHERE id = {second}")).unwrap();
            open.change(false);
            execute(conn, "COMMIT").unwrap();
        }
        1 => {
            execute(conn, "SET autocommit = 0").unwrap();
            for id in [first, second] {
                conn.exec_drop("UPDATE t SET v = v + 1 WHERE id = ?", (id,)).unwrap();
                if id == first {
                    open.change(true);
                }
            }
            open.change(false);
            execute(conn, "COMMIT").unwrap();
            execute(conn, "SET autocommit = 1").unwrap();
        }
        2 => {
            let text = format!(
                "START TRANSACTION; UPDATE t SET v = v + 1 WHERE id = {first};
                 UPDATE t SET v = v + 1 WHERE id = {second}; SELECT COUNT(*) FROM t; COMMIT"
            );
            conn.query_iter(text).map(drop).unwrap();
        }
        _ => {
            conn.exec_drop("UPDATE t SET v = v + 1 WHERE id IN (?, ?)", (first, second)).unwrap();
            assert!(conn.query_drop("INSERT INTO t VALUES (1, 1)").is_err());
        }
    }
}

/// Runs many clients; returns the largest number of transactions open at the same time, as the clients count them. The
/// server's own figures must not exceed the limit.
fn most_at_once(server: &Server, limit: u64, clients: u64, rounds: u64) -> u64 {
    let (ended, most, open) = (AtomicBool::new(false), AtomicU64::new(0), Open::default());
    let mut root = server.connect().unwrap();
    let mut shown = || -> u64 {
        let text = "SELECT COUNT(*) FROM information_schema.innodb_trx
                    WHERE trx_mysql_thread_id NOT IN (0, CONNECTION_ID())";
        // The server renews its figures only for a connection that has not read them for a tenth of a second.
        execute(&mut root, "DO SLEEP(0.12)").unwrap();
        root.query_first(text).unwrap().unwrap()
    };
    // The server's figures do count such transactions; without this, 0 would prove nothing.
    let mut one = inside(server);
    poll_until("an open transaction in the server's figures", PATIENCE, || Ok((shown() == 1).then_some(())))
        .unwrap();
    execute(&mut one, "ROLLBACK").unwrap();
    drop(one);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                most.fetch_max(shown(), Ordering::AcqRel);
            }
        });
        let threads: Vec<_> = (0..clients)
            .map(|number| {
                let open = &open;
                scope.spawn(move || {
                    let mut conn = app(server);
                    for round in 0..rounds {
                        transaction(&mut conn, number + round, (number * 3 + round) % 10, open);
                    }
                })
            })
            .collect();
        let all_well: Vec<_> = threads.into_iter().map(|thread| thread.join().is_ok()).collect();
        ended.store(true, Ordering::Release);
        assert!(all_well.into_iter().all(|is_well| is_well));
    });
    let most = most.load(Ordering::Acquire);
    // It looks every 0.1 s only, so it may have seen none of a short run: the clients count, too.
    println!("the server has shown {most} at most");
    assert!(most <= limit, "{most}");
    open.most.load(Ordering::Acquire)
}

#[test]
fn the_limit_holds_for_clients_of_every_kind() {
    const CLIENTS: u64 = 64;
    const ROUNDS: u64 = 40;
    for collapser in ["off", "read-ahead", "on"] {
        let mut server = with_limit("3", &["--collapser", collapser]);
        let most = most_at_once(&server, 3, CLIENTS, ROUNDS);
        await_empty(&server);
        let found = status(&server);
        println!("{collapser}: {most} at once; {found}");
        assert_eq!(most, 3, "{found}");
        let sum: Option<u64> = server.connect().unwrap().query_first("SELECT SUM(v) FROM d.t").unwrap();
        assert_eq!(sum, Some(CLIENTS * ROUNDS * 2));
        for (name, least) in [("waited", 100), ("entered", 1), ("administrators", 1)] {
            assert!(found["counters"][name].as_u64().unwrap() >= least, "{name}: {found}");
        }
        for name in ["not_understood", "holders", "let_in_late", "leases_ended", "waits_ended"] {
            assert_eq!(found["counters"][name], 0, "{name}: {found}");
        }
        server.shutdown().unwrap();
    }
}

#[test]
fn without_a_limit_nobody_waits() {
    let server = with_limit("off", &[]);
    let first = inside(&server);
    let mut second = app(&server);
    execute(&mut second, "UPDATE t SET v = 1 WHERE id = 5").unwrap();
    let found = status(&server);
    assert_eq!(
        (&found["admission"]["limit"], &found["admission"]["inside"]),
        (&serde_json::Value::Null, &0.into())
    );
    assert_eq!(counter(&server, "entered"), 0);
    drop(first);
}

#[test]
fn whatever_ends_a_wait_leaves_nothing_behind() {
    for collapser in ["off", "on"] {
        let mut server = with_limit("1", &["--collapser", collapser]);
        let mut root = server.connect().unwrap();
        let (killed, mut timed, left, mut last) = (app(&server), app(&server), app(&server), app(&server));
        let killed_id = killed.connection_id();
        execute(&mut timed, "SET SESSION wait_timeout = 3").unwrap();
        execute(&mut last, "DO 1").unwrap();
        let mut holder = inside(&server);

        let thread = run(killed, "UPDATE t SET v = v + 100 WHERE id = 1");
        await_waiting(&server, 1);
        let found = status(&server);
        let thread_id = found["admission"]["waiters"][0]["thread_id"].as_u64().unwrap();
        let tid: Option<u64> = root
            .query_first(format!("SELECT TID FROM information_schema.processlist WHERE id = {killed_id}"))
            .unwrap();
        assert_eq!(Some(thread_id), tid, "{found}");
        execute(&mut root, &format!("KILL {killed_id}")).unwrap();
        assert!(soon("the end of a killed connection", thread).1.is_err());
        await_waiting(&server, 0);

        let start = Instant::now();
        let thread = run(timed, "UPDATE t SET v = v + 100 WHERE id = 1");
        assert!(soon("the end after wait_timeout", thread).1.is_err());
        let took = start.elapsed();
        assert!(took > Duration::from_millis(2500), "{took:?}");
        await_waiting(&server, 0);

        let left = run(left, "UPDATE t SET v = v + 1000 WHERE id = 2");
        await_waiting(&server, 1);
        let thread = run(last, "UPDATE t SET v = v + 10 WHERE id = 1");
        await_waiting(&server, 2);
        execute(&mut holder, "COMMIT").unwrap();
        soon("one who waited", left).1.unwrap();
        soon("the last who waited", thread).1.unwrap();
        drop(holder);
        await_empty(&server);
        let values = query_text(&mut root, "SELECT v FROM d.t WHERE id IN (1, 2) ORDER BY id").unwrap();
        assert_eq!(values, [["10"], ["1000"]]);
        server.shutdown().unwrap();
    }
}

/// Queries of drivers at the login, and of connection pools now and then.
#[test]
fn logins_do_not_wait() {
    let server = with_limit("1", &[]);
    let holder = inside(&server);
    let mut late = soon(
        "a login",
        std::thread::spawn({
            let socket = server.socket().display().to_string();
            move || connect(socket).unwrap()
        }),
    );
    let free = [
        "SELECT 1",
        "SET NAMES utf8mb4",
        "SELECT @@max_allowed_packet, @@wait_timeout",
        "SET autocommit = 0",
    ];
    for statement in free {
        let (conn, result) = soon(statement, run(late, statement));
        result.unwrap();
        late = conn;
    }
    let thread = run(late, "UPDATE t SET v = 1 WHERE id = 7");
    await_waiting(&server, 1);
    drop(holder);
    soon("one who waited", thread).1.unwrap();
    await_empty(&server);
}

#[test]
fn a_client_that_dies_in_the_queue_is_not_left_in_it() {
    let server = with_limit("1", &[]);
    let mut holder = inside(&server);
    let program = find_program("mariadb", "mariadb-client").unwrap();
    let mut client = std::process::Command::new(program)
        .args(["--no-defaults", "--user=app", "--database=d", "--execute=UPDATE t SET v = 7 WHERE id = 3"])
        .arg(format!("--socket={}", server.socket().display()))
        .spawn()
        .unwrap();
    await_waiting(&server, 1);
    client.kill().unwrap();
    client.wait().unwrap();
    let thread = start(&server, "UPDATE t SET v = v + 10 WHERE id = 1");
    await_waiting(&server, 2);
    execute(&mut holder, "ROLLBACK").unwrap();
    soon("one behind a dead client", thread).unwrap();
    await_empty(&server);
}

#[test]
fn the_end_of_the_server_ends_waits() {
    let mut server = with_limit("1", &[]);
    let holder = inside(&server);
    let threads: Vec<_> = (0..10).map(|_| start(&server, "UPDATE t SET v = 1 WHERE id = 4")).collect();
    await_waiting(&server, 10);
    server.shutdown().unwrap();
    for thread in threads {
        assert!(soon("a client of a server that has ended", thread).is_err());
    }
    drop(holder);
}

/// A connection that holds locks continues; others, inside and without room, wait for it.
#[test]
fn who_holds_locks_never_waits() {
    let server = with_limit("1", &[]);
    for (take, want, give) in [
        ("LOCK TABLES t WRITE", "SELECT COUNT(*) FROM t", "UNLOCK TABLES"),
        ("FLUSH TABLES WITH READ LOCK", "UPDATE t SET v = 3 WHERE id = 6", "UNLOCK TABLES"),
        ("SELECT GET_LOCK('a', 0)", "SELECT GET_LOCK('a', 100)", "SELECT RELEASE_LOCK('a')"),
        ("DO /* a */ get_lock('b', 0)", "SELECT GET_LOCK('b', 100)", "DO RELEASE_LOCK('b')"),
        ("BACKUP STAGE START", "BACKUP STAGE START", "BACKUP STAGE END"),
    ] {
        let mut holder = app(&server);
        execute(&mut holder, take).unwrap();
        let thread = start(&server, want);
        poll_until("one inside", SOON, || Ok((status(&server)["admission"]["inside"] == 1).then_some(())))
            .unwrap();
        let waiter = start(&server, "SELECT * FROM t");
        await_waiting(&server, 1);
        let statement = if take.starts_with("FLUSH") { "SELECT 1 FROM t" } else { "SELECT 1" };
        if !take.starts_with("LOCK") {
            assert!(!query_text(&mut holder, statement).unwrap().is_empty());
        }
        assert!(!thread.is_finished(), "{want}");
        execute(&mut holder, give).unwrap();
        soon(want, thread).unwrap();
        soon("one who waited", waiter).unwrap();
        await_empty(&server);
    }
    // A prepared statement that locks.
    let mut holder = app(&server);
    let prepared = holder.prep("SELECT GET_LOCK(?, 0)").unwrap();
    let taken: Option<u64> = holder.exec_first(&prepared, ("c",)).unwrap();
    assert_eq!(taken, Some(1));
    let thread = start(&server, "SELECT GET_LOCK('c', 100)");
    poll_until("one inside", SOON, || Ok((status(&server)["admission"]["inside"] == 1).then_some(())))
        .unwrap();
    let give = run(holder, "SELECT RELEASE_LOCK('c')");
    soon("a lock that is given back", give).1.unwrap();
    soon("a lock that was waited for", thread).unwrap();
    // After UNLOCK TABLES a connection waits again.
    let mut unlocked = app(&server);
    execute(&mut unlocked, "LOCK TABLES t WRITE").unwrap();
    execute(&mut unlocked, "UNLOCK TABLES").unwrap();
    let mut inside = inside(&server);
    let thread = run(unlocked, "UPDATE t SET v = 1 WHERE id = 9");
    await_waiting(&server, 1);
    execute(&mut inside, "COMMIT").unwrap();
    soon("one who held tables", thread).1.unwrap();
}

#[test]
fn prepared_transactions_and_kills_get_through() {
    let server = with_limit("1", &[]);
    let mut first = app(&server);
    for statement in ["XA START 'x'", "UPDATE t SET v = 1 WHERE id = 1", "XA END 'x'", "XA PREPARE 'x'"] {
        execute(&mut first, statement).unwrap();
    }
    // With its connection gone it is prepared, and holds its row.
    let id = first.connection_id();
    drop(first);
    let mut root = server.connect().unwrap();
    poll_until("a connection that is gone", SOON, || {
        let text = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
        Ok((query_text(&mut root, &text)? == [["0"]]).then_some(()))
    })
    .unwrap();
    let mut other = app(&server);
    execute(&mut other, "DO 1").unwrap();
    let thread = start(&server, "UPDATE t SET v = v + 1 WHERE id = 1");
    poll_until("one inside", SOON, || Ok((status(&server)["admission"]["inside"] == 1).then_some(())))
        .unwrap();
    let end = run(other, "XA COMMIT 'x'");
    soon("the end of a prepared transaction", end).1.unwrap();
    soon("one who waited for its row", thread).unwrap();

    let mut killer = app(&server);
    let holder = inside(&server);
    let holder_id = holder.connection_id();
    let thread = start(&server, "SELECT v FROM t WHERE id = 1");
    await_waiting(&server, 1);
    execute(&mut killer, &format!("KILL {holder_id}")).unwrap();
    assert!(!query_text(&mut killer, "SHOW PROCESSLIST").unwrap().is_empty());
    soon("one who waited for a killed one", thread).unwrap();
    drop(holder);
    await_empty(&server);
}

#[test]
fn clients_that_leave_a_transaction_alone_lose_their_room() {
    let server = with_limit("1", &["--admission-lease", "1"]);
    let mut holder = inside(&server);
    let thread = start(&server, "UPDATE t SET v = 1 WHERE id = 7");
    soon("one who waited for a lease", thread).unwrap();
    assert_eq!(counter(&server, "leases_ended"), 1);
    // It continues all the same.
    execute(&mut holder, "UPDATE t SET v = 1 WHERE id = 8").unwrap();
    execute(&mut holder, "COMMIT").unwrap();
    await_empty(&server);
    // It has to enter again.
    let other = inside(&server);
    set(&server, "admission-lease", NEVER);
    let thread = run(holder, "UPDATE t SET v = 1 WHERE id = 7");
    await_waiting(&server, 1);
    set(&server, "admission-longest-wait", "1");
    let late = start(&server, "UPDATE t SET v = 1 WHERE id = 8");
    soon("one who has waited for the longest time", late).unwrap();
    assert!(counter(&server, "let_in_late") >= 1);
    drop(other);
    soon("one who waited", thread).1.unwrap();
    await_empty(&server);
}

/// While the whole server is stopped, neither the lease of a connection nor a wait expires.
#[test]
fn a_stopped_server_counts_no_time() {
    let server = with_limit("1", &[]);
    let begin = Instant::now();
    let mut holder = inside(&server);
    let threads: Vec<_> = (1..=5).map(|_| start(&server, "UPDATE t SET v = 1 WHERE id = 7")).collect();
    await_waiting(&server, 5);
    // Eight seconds are left of both times, however slow the machine is, and the server is stopped for longer.
    let limit_s = begin.elapsed().as_secs() + 8;
    for what in ["admission-lease", "admission-longest-wait"] {
        set(&server, what, &limit_s.to_string());
    }
    let process_id = Pid::from_raw(server.process_id().unwrap() as i32).unwrap();
    kill_process(process_id, Signal::STOP).unwrap();
    // A fixed time instead of a condition: the time itself is tested.
    std::thread::sleep(Duration::from_secs(limit_s + 1));
    kill_process(process_id, Signal::CONT).unwrap();
    // It takes a while until those who wait have noticed.
    holder.query_drop("SELECT SLEEP(0.5)").unwrap();
    holder.query_drop("COMMIT").unwrap();
    for thread in threads {
        soon("one who waited", thread).unwrap();
    }
    let found = status(&server)["counters"].clone();
    assert_eq!((&found["let_in_late"], &found["leases_ended"]), (&0.into(), &0.into()), "{found}");
    await_empty(&server);
}

/// One packet of the protocol.
fn read_packet(socket: &mut UnixStream) -> Vec<u8> {
    let mut header = [0; 4];
    socket.read_exact(&mut header).unwrap();
    let len = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let mut content = vec![0; len as usize];
    socket.read_exact(&mut content).unwrap();
    content
}

/// A client that has sent the beginning of a statement.
fn half_a_statement(server: &Server) -> UnixStream {
    const PROTOCOL_41_AND_SECURE: u32 = 0x8200;
    let mut socket = UnixStream::connect(server.socket()).unwrap();
    read_packet(&mut socket);
    let mut login =
        [&PROTOCOL_41_AND_SECURE.to_le_bytes()[..], &[0, 0, 0, 1, 33], &[0; 23], b"app\0\0"].concat();
    login.splice(0..0, [login.len() as u8, 0, 0, 1]);
    socket.write_all(&login).unwrap();
    assert_eq!(read_packet(&mut socket)[0], 0);
    socket.write_all(b"\x64\0\0\0\x03SELECT 1 FROM").unwrap();
    socket
}

#[test]
fn clients_that_stop_in_the_middle_lose_their_room() {
    let server = with_limit("1", &["--admission-lease", "1"]);
    // Of a result: more than all buffers on the way take.
    let mut reader = app(&server);
    let result = reader.query_iter("SELECT REPEAT('x', 1000000) FROM t JOIN t AS u").unwrap();
    let thread = start(&server, "UPDATE t SET v = 1 WHERE id = 7");
    soon("one who waited for a reader", thread).unwrap();
    assert_eq!(counter(&server, "leases_ended"), 1);
    assert_eq!(result.count(), 100);
    reader.query_drop("UPDATE t SET v = 1 WHERE id = 8").unwrap();
    await_empty(&server);
    // Of a statement.
    let socket = half_a_statement(&server);
    let is_inside = || Ok((status(&server)["admission"]["inside"] == 1).then_some(()));
    poll_until("half a statement inside", SOON, is_inside).unwrap();
    let thread = start(&server, "UPDATE t SET v = 1 WHERE id = 7");
    soon("one who waited for a sender", thread).unwrap();
    assert_eq!(counter(&server, "leases_ended"), 2);
    drop(socket);
    await_empty(&server);
}

#[test]
fn a_deadlock_ends_a_transaction() {
    let server = with_limit("2", &[]);
    let (mut one, mut two) = (app(&server), app(&server));
    for (conn, id) in [(&mut one, 1), (&mut two, 2)] {
        execute(conn, "BEGIN").unwrap();
        execute(conn, &format!("UPDATE t SET v = 1 WHERE id = {id}")).unwrap();
    }
    let first = run(one, "UPDATE t SET v = 1 WHERE id = 2");
    let second = run(two, "UPDATE t SET v = 1 WHERE id = 1");
    let (one, result) = soon("one side of a deadlock", first);
    let (two, other) = soon("the other side of a deadlock", second);
    assert!(result.is_err() != other.is_err(), "{result:?} {other:?}");
    let error = result.and(other).unwrap_err().to_string();
    assert!(error.contains("1213"), "{error}");
    // The victim says nothing more; its room is free.
    drop(soon("one more", start(&server, "BEGIN")).unwrap());
    drop((one, two));
    await_empty(&server);
}

#[test]
fn without_autocommit_the_first_table_begins_a_transaction() {
    let server = with_limit("1", &[]);
    let mut first = app(&server);
    execute(&mut first, "SET autocommit = 0").unwrap();
    let mut second = app(&server);
    execute(&mut second, "UPDATE t SET v = 2 WHERE id = 2").unwrap();
    // It fails and leaves a lock.
    assert!(first.query_drop("INSERT INTO t VALUES (3, 3)").is_err());
    let thread = run(second, "UPDATE t SET v = 2 WHERE id = 2");
    await_waiting(&server, 1);
    execute(&mut first, "SELECT * FROM t FOR UPDATE").unwrap();
    execute(&mut first, "COMMIT").unwrap();
    soon("one who waited", thread).1.unwrap();
    await_empty(&server);
}

#[test]
fn the_limit_is_changed_while_many_wait() {
    let server = with_limit("1", &[]);
    let mut holder = inside(&server);
    let threads: Vec<_> = (0..20).map(|_| start(&server, "BEGIN")).collect();
    await_waiting(&server, 20);
    set(&server, "admission", "5");
    await_waiting(&server, 16);
    let text = redoubt(&["net", "status", "--datadir", server.datadir().to_str().unwrap()]).stdout;
    for word in ["5 of 5 inside, 16 waiting", "a local client"] {
        assert!(text.contains(word), "{text}");
    }
    set(&server, "admission", "off");
    let conns: Vec<Conn> =
        threads.into_iter().map(|thread| soon("one who waited", thread).unwrap()).collect();
    // On again: the state of these connections is unknown, so they continue.
    set(&server, "admission", "1");
    for mut conn in conns {
        execute(&mut conn, "UPDATE t SET v = v + 1 WHERE id = 9").unwrap();
        execute(&mut conn, "COMMIT").unwrap();
    }
    execute(&mut holder, "COMMIT").unwrap();
    execute(&mut holder, "COMMIT").unwrap();
    await_empty(&server);
    execute(&mut holder, "BEGIN").unwrap();
    let thread = start(&server, "BEGIN");
    await_waiting(&server, 1);
    execute(&mut holder, "COMMIT").unwrap();
    soon("one who waited", thread).unwrap();
    assert_eq!(most_at_once(&server, 1, 16, 40), 1);
}

#[test]
fn the_limit_is_switched_under_load() {
    let server = with_limit("2", &[]);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16u64)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut conn = app(server);
                    for round in 0..150 {
                        transaction(&mut conn, number + round, number % 10, &Open::default());
                    }
                })
            })
            .collect();
        let mut round = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            set(&server, "admission", ["off", "3", "1", "50"][round % 4]);
            round += 1;
        }
        assert!(round > 3);
    });
    await_empty(&server);
    set(&server, "admission", "2");
    assert_eq!(most_at_once(&server, 2, 16, 40), 2);
}

#[test]
fn the_pool_of_threads_is_left_alone() {
    let options = ["--admission", "1", "--admission-lease", NEVER, "--admission-longest-wait", NEVER];
    let server = Server::create(config(&options).server_arg("--thread-handling=pool-of-threads")).unwrap();
    prepare(&server);
    let first = inside(&server);
    let mut second = app(&server);
    execute(&mut second, "UPDATE t SET v = 1 WHERE id = 5").unwrap();
    assert!(counter(&server, "not_understood") >= 2);
    drop(first);
}

#[test]
fn admission_limit_holds_for_mysql() {
    let Some(product) = find_or_skip(FetchedServer::MySql97, "admission_limit_holds_for_mysql") else {
        return;
    };
    let options = ["--admission", "3", "--admission-lease", NEVER, "--admission-longest-wait", NEVER];
    let mut server = Server::create(config(&options).product(product)).unwrap();
    prepare(&server);
    let most = most_at_once(&server, 3, 32, 20);
    await_empty(&server);
    let found = status(&server);
    assert_eq!((most, &found["counters"]["not_understood"]), (3, &0.into()), "{found}");
    set(&server, "admission", "1");
    let killed = app(&server);
    let holder = inside(&server);
    let id = killed.connection_id();
    let thread = run(killed, "UPDATE t SET v = 1 WHERE id = 1");
    await_waiting(&server, 1);
    execute(&mut server.connect().unwrap(), &format!("KILL {id}")).unwrap();
    assert!(soon("the end of a killed connection", thread).1.is_err());
    drop(holder);
    await_empty(&server);
    server.shutdown().unwrap();
}
