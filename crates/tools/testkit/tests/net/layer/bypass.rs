//! Clients that were started with the same-host bypass, beside clients that were not.

use super::{counter, find_redoubt, redoubt, script, status};
use redoubt_harness::command::PATIENCE;
use redoubt_harness::connections::{certificates, statements};
use redoubt_harness::fetched::find_or_skip;
use redoubt_harness::tcp_server::create_with_tcp;
use redoubt_workload::launcher::Launcher;
use redoubt_workload::process::{find_program, poll_until};
use redoubt_workload::product::{FetchedServer, Product};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};
use std::io::Write;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

/// A server with the bypass, its port, and an account for clients over TCP.
fn server(collapser: &str, arguments: &[String]) -> (Server, String) {
    let options = ["--bypass", "--collapser", collapser].map(str::to_owned).to_vec();
    let launcher = Launcher::Net { redoubt_bin: find_redoubt().unwrap(), options };
    let mut config = ServerConfig::new(launcher).server_arg("--max-allowed-packet=256M");
    config.server_args.extend(arguments.iter().cloned());
    let (server, port) = create_with_tcp(config).unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE USER ''@'127.0.0.1'").unwrap();
    execute(&mut conn, "GRANT ALL ON *.* TO ''@'127.0.0.1'").unwrap();
    (server, port.to_string())
}

/// The command line client on TCP, with the bypass or without.
fn client(port: &str, bypass: bool, options: &[&str]) -> Command {
    let program = find_program("mariadb", "mariadb-client").unwrap();
    let mut command = if bypass {
        let mut command = Command::new(find_redoubt().unwrap());
        command.args(["net", "run", "--bypass", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(["--no-defaults", "-N", "--max-allowed-packet=256M", "--host=127.0.0.1", "--user=x"]);
    command.arg(format!("--port={port}")).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(mut command: Command, text: &str) -> Output {
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    // A client whose connection is ended reads no further.
    let writer = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn answer(command: Command, text: &str) -> String {
    let output = run(command, text);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Ends of TCP connections of this port, as the kernel has them.
fn established(port: &str) -> usize {
    let suffix = format!(":{:04X}", port.parse::<u16>().unwrap());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let is_ours = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(3) == Some(&"01") && words[1..3].iter().any(|address| address.ends_with(&suffix))
    };
    table.lines().filter(is_ours).count()
}

/// Waits for the end of a client, which would sleep for a day.
fn end_of(child: &mut Child) -> ExitStatus {
    poll_until("the end of a client", PATIENCE, || Ok(child.try_wait().unwrap())).unwrap()
}

/// A client that sleeps in a statement, and the number of its connection.
fn sleeper(server: &Server, port: &str, bypass: bool) -> (Child, String) {
    let mut child = client(port, bypass, &["--ssl=0", "--execute=SELECT SLEEP(100000)"]).spawn().unwrap();
    drop(child.stdin.take());
    let mut conn = server.connect().unwrap();
    let question = "SELECT id FROM information_schema.processlist WHERE info = 'SELECT SLEEP(100000)'";
    let id = poll_until("a client that sleeps", PATIENCE, || {
        Ok(query_text(&mut conn, question)?.first().and_then(|row| row.first().cloned()))
    });
    (child, id.unwrap())
}

#[test]
fn clients_of_every_kind_get_the_same_with_and_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = certificates(directory.path(), "127.0.0.1").unwrap();
    for (collapser, handling) in
        [("off", "one-thread-per-connection"), ("on", "one-thread-per-connection"), ("on", "pool-of-threads")]
    {
        arguments.push(format!("--thread-handling={handling}"));
        let (mut server, port) = server(collapser, &arguments);
        let (script, expected) = script();
        let tls = ["--ssl", "--ssl-verify-server-cert=0"];
        for way in [&["--ssl=0"][..], &["--ssl=0", "--compress"], &tls, &[&tls[..], &["--compress"]].concat()]
        {
            for bypass in [true, false] {
                let got = answer(client(&port, bypass, way), &script);
                assert!(got == expected, "{collapser} {handling} {way:?} {bypass}");
            }
        }
        let question = "SELECT USER(), CURRENT_USER(), host LIKE 'localhost:%' OR host LIKE '127.0.0.1:%' \
                        FROM information_schema.processlist WHERE id = CONNECTION_ID();";
        let seen = [true, false].map(|bypass| answer(client(&port, bypass, &["--ssl=0"]), question));
        assert!(seen[0] == seen[1] && seen[0].trim_end().ends_with("\t1"), "{seen:?}");
        assert_eq!(counter(&server, "bypassed"), 4 + 1, "each client with it, and none without");
        server.shutdown().unwrap();
    }
}

#[test]
fn connections_are_off_tcp_and_end_when_they_are_to() {
    let (mut server, port) = server("on", &[]);
    let mut conn = server.connect().unwrap();
    for bypass in [true, false] {
        let (mut child, id) = sleeper(&server, &port, bypass);
        assert_eq!(established(&port), if bypass { 0 } else { 2 });
        execute(&mut conn, &format!("KILL {id}")).unwrap();
        assert!(!end_of(&mut child).success());
    }
    // A client that dies.
    let (mut child, id) = sleeper(&server, &port, true);
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
    poll_until("the end of a client's connection", PATIENCE, || {
        Ok((query_text(&mut conn, &gone)? == [["0"]]).then_some(()))
    })
    .unwrap();
    // A client that is silent for too long.
    let silent = "SET SESSION wait_timeout = 1;\nSELECT 'before';\n\\! sleep 4\nSELECT 'after';\n";
    let output = run(client(&port, true, &["--ssl=0", "--skip-reconnect"]), silent);
    assert!(!output.status.success() && output.stdout == b"before\n", "{output:?}");
    // A server that dies.
    let (mut child, _) = sleeper(&server, &port, true);
    server.kill9().unwrap();
    assert!(!end_of(&mut child).success());
}

#[test]
fn much_is_sent_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    for id in 0..100_000 {
        writeln!(file, "{id}\t{}", format!("{id:010}").repeat(100)).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    let (mut server, port) = server("on", &["--local-infile=1".to_owned()]);
    let load = format!(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT) ENGINE=MyISAM;
         LOAD DATA LOCAL INFILE '{}' INTO TABLE d.t;
         SELECT COUNT(*), SUM(v = REPEAT(LPAD(id, 10, '0'), 100)) FROM d.t;",
        path.display()
    );
    assert_eq!(answer(client(&port, true, &["--ssl=0", "--local-infile=1"]), &load), "100000\t100000\n");
    let all = answer(client(&port, true, &["--ssl=0", "--quick"]), "SELECT * FROM d.t ORDER BY id;");
    assert!(all == std::fs::read_to_string(&path).unwrap());
    let large = answer(client(&port, true, &["--ssl=0"]), "SELECT REPEAT('0123456789', 20000000);");
    assert!(large.len() == 200_000_001 && large.trim_end() == "0123456789".repeat(20_000_000));
    server.shutdown().unwrap();
}

fn switch(server: &Server, state: &str) {
    let datadir = server.datadir();
    let outcome = redoubt(&["net", "set", "bypass", state, "--datadir", datadir.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    assert_eq!(status(server)["bypass"], state == "on");
    let text = redoubt(&["net", "status", "--datadir", datadir.to_str().unwrap()]).stdout;
    assert!(text.contains(&format!("bypass         {state}\n")), "{text}");
}

/// Only new connections change, and none waits because of it.
#[test]
fn it_is_switched_in_a_running_server() {
    let launcher = Launcher::Net { redoubt_bin: find_redoubt().unwrap(), options: Vec::new() };
    let (mut server, port) = create_with_tcp(ServerConfig::new(launcher)).unwrap();
    let port = port.to_string();
    let mut conn = server.connect().unwrap();
    for statement in ["CREATE USER ''@'127.0.0.1'", "GRANT ALL ON *.* TO ''@'127.0.0.1'"] {
        execute(&mut conn, statement).unwrap();
    }
    assert_eq!(status(&server)["bypass"], false);
    let ask = || assert_eq!(answer(client(&port, true, &["--ssl=0"]), "SELECT 'x';"), "x\n");
    for round in 0..3 {
        ask();
        assert_eq!(counter(&server, "bypassed"), round * 3);
        switch(&server, "on");
        // The first connection of a port only makes the rendezvous socket.
        ask();
        let (mut child, id) = sleeper(&server, &port, true);
        assert_eq!((established(&port), counter(&server, "bypassed")), (0, round * 3 + 1));
        switch(&server, "off");
        ask();
        assert_eq!(counter(&server, "bypassed"), round * 3 + 1);
        // An earlier connection stays.
        assert!(child.try_wait().unwrap().is_none());
        switch(&server, "on");
        ask();
        ask();
        ask();
        assert_eq!(counter(&server, "bypassed"), round * 3 + 3);
        switch(&server, "off");
        execute(&mut conn, &format!("KILL {id}")).unwrap();
        assert!(!child.wait().unwrap().success());
    }
    server.shutdown().unwrap();
}

#[test]
fn mysql_takes_bypass_offers() {
    let Some(product) = find_or_skip(FetchedServer::MySql97, "mysql_takes_bypass_offers") else { return };
    check_mysql(product);
}

fn check_mysql(product: Product) {
    let options = ["--bypass", "--admission", "2"].map(str::to_owned).to_vec();
    let launcher = Launcher::Net { redoubt_bin: find_redoubt().unwrap(), options };
    let (mut server, port) = create_with_tcp(ServerConfig::new(launcher).product(product.clone())).unwrap();
    let mut conn = server.connect().unwrap();
    execute(&mut conn, "CREATE USER x@'%'").unwrap();
    let program = product.program().unwrap().with_file_name("mysql");
    for tls in ["--ssl-mode=DISABLED", "--ssl-mode=REQUIRED"] {
        for bypass in [true, false] {
            let before = counter(&server, "bypassed");
            let mut command = Command::new(find_redoubt().unwrap());
            command.args(["net", "run"]).args(bypass.then_some("--bypass")).arg("--").arg(&program);
            command.args(["--no-defaults", "-N", "--host=127.0.0.1", "--user=x", tls]);
            command.args([&format!("--port={port}"), "--get-server-public-key"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let text: String = (0..300).map(|number| format!("SELECT {number};")).collect();
            let expected: String = (0..300).map(|number| format!("{number}\n")).collect();
            let got = answer(command, &format!("{text}SELECT USER();"));
            let accounts = ["localhost", "127.0.0.1"].map(|host| format!("{expected}x@{host}\n"));
            assert!(accounts.contains(&got), "{tls} {bypass}: {got}");
            assert_eq!(counter(&server, "bypassed") - before, u64::from(bypass), "{tls}");
        }
    }
    assert_eq!(counter(&server, "not_understood"), 0);
    // The client asks some things by itself.
    assert!(counter(&server, "entered") >= 4 * 301);
    server.shutdown().unwrap();
}

/// The mode in force follows from the server's waits.
#[test]
fn the_status_knows_what_auto_is() {
    let mut products = vec![(Product::MariaDb, "on")];
    products.extend(
        find_or_skip(FetchedServer::MySql97, "the_status_knows_what_auto_is").map(|mysql| (mysql, "off")),
    );
    for (product, expected) in products {
        let launcher = Launcher::Net { redoubt_bin: find_redoubt().unwrap(), options: Vec::new() };
        let mut server = Server::create(ServerConfig::new(launcher).product(product)).unwrap();
        let text = || redoubt(&["net", "status", "--datadir", server.datadir().to_str().unwrap()]).stdout;
        assert!(text().contains("collapser      auto\n"), "{}", text());
        assert_eq!(status(&server)["collapser_in_force"], serde_json::Value::Null);
        // A server on a busy machine may find the next statement there already: then there is no wait to judge by.
        let mut conn = server.connect().unwrap();
        let in_force = poll_until("what auto is", PATIENCE, || {
            statements(&mut conn, 50)?;
            let in_force = status(&server)["collapser_in_force"].clone();
            Ok((!in_force.is_null()).then_some(in_force))
        });
        assert_eq!(in_force.unwrap(), expected);
        let line = format!("collapser      auto, which is {expected} in this server\n");
        assert!(text().contains(&line), "{}", text());
        server.shutdown().unwrap();
    }
}
