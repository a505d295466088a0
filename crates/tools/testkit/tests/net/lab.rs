//! A server behind an interface and clients in another network namespace, with their operations.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use mysql::prelude::Queryable;
use mysql::{Conn, LocalInfileHandler, OptsBuilder};
use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_test_support::{NetworkPair, Side, skip};
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::process::{find_program, poll_until};
use redoubt_workload::server::{Server, ServerConfig};
use redoubt_workload::sql::{execute, query_text};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub const PORT: u16 = 3306;
pub const ADDRESS: &str = "10.79.0.1";

/// A server behind an interface, and clients elsewhere.
pub struct Lab {
    pub server: Server,
    pub pair: NetworkPair,
}

/// Two networks, unless there is no root.
pub fn pair(test: &str) -> Option<NetworkPair> {
    let pair = NetworkPair::create();
    if pair.is_none() {
        skip(test, "network namespaces need root");
    }
    pair
}

/// A server with TCP in user space on this interface, if any.
pub fn config(pair: &NetworkPair, interface: &str, redoubt_bin: &Path) -> ServerConfig {
    let options = ["--user-tcp", interface].map(str::to_owned).to_vec();
    let mut config = ServerConfig::new(Launcher::Net { redoubt_bin: redoubt_bin.to_owned(), options })
        .server_arg("--skip-networking=0")
        .server_arg(format!("--port={PORT}"))
        .server_arg("--max-allowed-packet=512M")
        .server_arg("--skip-name-resolve")
        .server_arg("--local-infile=1");
    config.network = Some(pair.name(Side::Server));
    config
}

impl Lab {
    pub fn start(pair: NetworkPair, config: ServerConfig) -> Self {
        let server = Server::create(config).unwrap();
        let mut conn = server.connect().unwrap();
        execute(&mut conn, "CREATE USER 'x'@'%'").unwrap();
        execute(&mut conn, "GRANT ALL ON *.* TO 'x'@'%'").unwrap();
        execute(&mut conn, "CREATE DATABASE d").unwrap();
        Self { server, pair }
    }

    /// A plain server and its network, unless there is no root.
    pub fn create(test: &str, arguments: &[&str]) -> Option<Self> {
        let pair = pair(test)?;
        let mut config = config(&pair, NetworkPair::INTERFACE, &find_redoubt().unwrap());
        config.server_args.extend(arguments.iter().map(ToString::to_string));
        Some(Self::start(pair, config))
    }

    pub fn try_connect_to(&self, side: Side, address: &str) -> mysql::Result<Conn> {
        self.try_connect_within(side, address, Duration::from_secs(120))
    }

    pub fn try_connect_within(&self, side: Side, address: &str, patience: Duration) -> mysql::Result<Conn> {
        let options = OptsBuilder::new()
            .ip_or_hostname(Some(address))
            .tcp_port(PORT)
            .user(Some("x"))
            .prefer_socket(false)
            .max_allowed_packet(Some(512 << 20))
            .tcp_connect_timeout(Some(Duration::from_secs(5)))
            .read_timeout(Some(patience));
        self.pair.within(side, || Conn::new(options))
    }

    pub fn connect(&self) -> Conn {
        self.try_connect_to(Side::Client, ADDRESS).unwrap()
    }

    pub fn client(&self, options: &[&str]) -> Command {
        let mut command = self.pair.command(Side::Client, find_program("mariadb", "mariadb-client").unwrap());
        command.args(["--no-defaults", "-N", "--max-allowed-packet=512M", "--host", ADDRESS, "--user=x"]);
        command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn answer(&self, options: &[&str], script: &str) -> Vec<u8> {
        let mut child = self.client(options).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let script = script.to_owned();
        let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    pub fn status(&self) -> serde_json::Value {
        let datadir = self.server.datadir();
        let arguments = ["net", "status", "--json", "--datadir", datadir.to_str().unwrap()];
        let outcome = Outcome::of(&find_redoubt().unwrap(), arguments, PATIENCE).unwrap();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        serde_json::from_str::<serde_json::Value>(&outcome.stdout).unwrap()[0]["user_tcp"].clone()
    }

    /// Waits until what is shown is newer than this call. `clock` is a connection past the kernel: its frames are in
    /// each look at the interface. The second look from now on began after this call.
    pub fn refresh(&self, clock: &mut Conn) {
        for _ in 0..2 {
            let shown = self.number("frames_received");
            poll_until("a look at the interface", PATIENCE, || {
                clock.query_drop("DO 1").unwrap();
                Ok((self.number("frames_received") != shown).then_some(()))
            })
            .unwrap();
        }
    }

    /// The columns of the kernel's table of TCP sockets where clients are.
    fn sockets_of_clients(&self) -> Vec<Vec<String>> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let table = self.pair.within(Side::Client, read);
        table.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    /// Whether a client's kernel has sent something again that is not acknowledged.
    pub fn retransmits(&self) -> bool {
        // State 1 is an established connection; the seventh column counts.
        self.sockets_of_clients().iter().any(|columns| columns[3] == "01" && columns[6] != "00000000")
    }

    /// Clients' addresses, and how much each of these has not read, where that is anything.
    pub fn unread(&self) -> BTreeMap<String, String> {
        let sockets = self.sockets_of_clients().into_iter();
        let unread = sockets.filter_map(|columns| {
            let (_, unread) = columns[4].split_once(':')?;
            (unread != "00000000").then(|| (columns[1].clone(), unread.to_owned()))
        });
        unread.collect()
    }

    /// A number of the only interface, as of a second ago at most.
    pub fn number(&self, name: &str) -> u64 {
        self.status()["interfaces"][0][name].as_u64().unwrap_or(0)
    }

    /// Waits until a number is so.
    pub fn wait_for(&self, name: &str, is_so: impl Fn(u64) -> bool) {
        let what = format!("{name}, of {}", self.status());
        poll_until(&what, PATIENCE, || Ok(is_so(self.number(name)).then_some(()))).unwrap();
    }

    /// Waits until a connection is gone from the server.
    pub fn wait_for_end(&self, id: u64, longest: Duration) {
        let mut other = self.server.connect().unwrap();
        let gone = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
        poll_until("the end of a connection", longest, || {
            Ok((query_text(&mut other, &gone)? == [["0"]]).then_some(()))
        })
        .unwrap();
    }

    pub fn switch(&self, state: &str) {
        let datadir = self.server.datadir();
        let arguments = ["net", "set", "user-tcp", state, "--datadir", datadir.to_str().unwrap()];
        let outcome = Outcome::of(&find_redoubt().unwrap(), arguments, PATIENCE).unwrap();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    }
}

/// Many statements, and some that are large in both directions.
pub fn script() -> (String, Vec<u8>) {
    let (mut script, mut expected) = (String::new(), String::new());
    for number in 0..200 {
        script.push_str(&format!("SELECT {number}, LENGTH('{}');\n", "y".repeat(number * 37)));
        expected.push_str(&format!("{number}\t{}\n", number * 37));
    }
    script.push_str(&format!("SELECT LENGTH('{}');\n", "z".repeat(20 << 20)));
    expected.push_str(&format!("{}\n", 20 << 20));
    script.push_str("SELECT REPEAT('abcdefg', 3000000);\n");
    expected.push_str(&"abcdefg".repeat(3_000_000));
    expected.push('\n');
    (script, expected.into_bytes())
}

/// More than any buffer, in both directions, with the bytes compared.
pub fn large_results_and_files(lab: &Lab, megabytes: u32) {
    let mut conn = lab.connect();
    execute(&mut conn, "CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)").unwrap();
    let large: Vec<u8> =
        (0..megabytes << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    conn.exec_drop("INSERT INTO d.t VALUES (?, ?)", (1, &large)).unwrap();
    for id in 2..=4 {
        conn.exec_drop("INSERT INTO d.t SELECT ?, v FROM d.t WHERE id = 1", (id,)).unwrap();
    }
    let all: Vec<Vec<u8>> = conn.query("SELECT v FROM d.t").unwrap();
    assert!(all.len() == 4 && all.iter().all(|value| *value == large));
    execute(&mut conn, "CREATE TABLE d.l (id INT PRIMARY KEY, v VARCHAR(100))").unwrap();
    let rows: String = (0..200_000).map(|id| format!("{id}\tvalue {id}\n")).collect();
    conn.set_local_infile_handler(Some(LocalInfileHandler::new(move |_, writer| {
        rows.as_bytes().chunks(7001).try_for_each(|piece| writer.write_all(piece))
    })));
    execute(&mut conn, "LOAD DATA LOCAL INFILE 'x' INTO TABLE d.l").unwrap();
    let right: u64 =
        conn.query_first("SELECT COUNT(*) FROM d.l WHERE v = CONCAT('value ', id)").unwrap().unwrap();
    assert_eq!(right, 200_000);
    execute(&mut conn, "DROP TABLE d.l, d.t").unwrap();
}
