//! Volumes over NFS: `redoubt node --nfs`. Real servers, libnfs' tools, and a client that says what it wants.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_readers::nfs::xdr::{Reader, Writer};
use redoubt_test_support::port::with_port;
use redoubt_workload::check::checksums;
use redoubt_workload::launcher::{Launcher, find_redoubt};
use redoubt_workload::process::poll_until;
use redoubt_workload::server::Server;
use redoubt_workload::sql::execute;

use crate::bank::{Load, config, fill, require_consistent, require_transfers};

const MOUNT: u32 = 100_005;
const NFS: u32 = 100_003;
const OK: u32 = 0;
const READ_ONLY: u32 = 30;
const STALE: u32 = 70;

/// A node that serves NFS, and where.
fn node(options: &[&str]) -> (Node, SocketAddr) {
    // The address must be known, and the same after a restart.
    with_port(|port| {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let nfs = address.to_string();
        let fixed = ["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1", "--nfs", &nfs];
        match Node::create(&find_redoubt().unwrap(), &[&fixed[..], options].concat()) {
            Ok(node) => Some((node, address)),
            Err(error) if error.to_string().contains("ddress already in use") => None,
            Err(error) => panic!("{error}"),
        }
    })
}

fn filled(node: &Node) -> Server {
    node.create_volume("shop").unwrap();
    let server = Server::create(config(node)).unwrap_or_else(|error| panic!("{error}"));
    fill(&server);
    server
}

fn url(nfs: SocketAddr, path: &str) -> String {
    format!("nfs://{}{path}?version=3&nfsport={}&mountport={}", nfs.ip(), nfs.port(), nfs.port())
}

fn tool(program: &str, arguments: &[&str]) -> Outcome {
    Outcome::of(Path::new(program), arguments, PATIENCE).unwrap()
}

/// Paths of all files of an export, and its directories.
fn list(nfs: SocketAddr, export: &str) -> (Vec<String>, Vec<String>) {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    let mut left = vec![String::new()];
    while let Some(directory) = left.pop() {
        let said = tool("nfs-ls", &[&url(nfs, &format!("{export}{directory}"))]).require_success().unwrap();
        for line in said.lines() {
            // Mode, links, user, group, length, name.
            let words: Vec<_> = line.split_whitespace().collect();
            let [mode, .., name] = words[..] else { panic!("{line}") };
            let path = format!("{directory}/{name}");
            if mode.starts_with('d') {
                directories.push(path.clone());
                left.push(path);
            } else {
                files.push(path);
            }
        }
    }
    (files, directories)
}

/// Copies an export into `directory/data`, file by file.
fn copy(nfs: SocketAddr, export: &str, directory: &Path) -> PathBuf {
    let data = directory.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let (files, directories) = list(nfs, export);
    for path in directories {
        std::fs::create_dir_all(data.join(&path[1..])).unwrap();
    }
    assert!(files.len() > 100 && files.iter().any(|path| path == "/shop/account.ibd"), "{files:?}");
    for path in files {
        let to = data.join(&path[1..]);
        tool("nfs-cp", &[&url(nfs, &format!("{export}{path}")), to.to_str().unwrap()])
            .require_success()
            .unwrap();
    }
    data
}

fn stock_on(directory: &Path, like: &Server) -> Server {
    let mut stock = like.config().clone();
    stock.launcher = Launcher::Stock;
    let mut opened = Server::in_directory(stock, directory).unwrap();
    opened.start().unwrap_or_else(|error| panic!("{error}\n{}", opened.error_log_tail(30)));
    opened
}

/// A client that sends exactly the given calls.
struct Client(TcpStream);

impl Client {
    fn connect(nfs: SocketAddr) -> Self {
        let stream = TcpStream::connect(nfs).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(stream)
    }

    /// Calls a procedure; returns the answer after its head.
    fn call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl for<'w> FnOnce(&'w mut Writer) -> &'w mut Writer,
    ) -> Vec<u8> {
        let mut call = Writer::default();
        call.u32(7).u32(0).u32(2).u32(program).u32(3).u32(procedure).u64(0).u64(0);
        arguments(&mut call);
        self.send(&call.finish());
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).unwrap();
        let mut record = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        self.0.read_exact(&mut record).unwrap();
        let mut head = Writer::default();
        head.u32(7).u32(1).u32(0).u64(0).u32(0);
        assert_eq!(record[..24], head.finish());
        record.split_off(24)
    }

    fn send(&mut self, record: &[u8]) {
        let mark = u32::try_from(record.len()).unwrap() | 1 << 31;
        self.0.write_all(&[&mark.to_be_bytes()[..], record].concat()).unwrap();
    }

    fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        handle_of(&self.call(MOUNT, 1, |out| out.opaque(path.as_bytes())))
    }

    fn lookup(&mut self, directory: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        handle_of(&self.call(NFS, 3, |out| out.opaque(directory).opaque(name.as_bytes())))
    }

    /// Status and length.
    fn attributes(&mut self, handle: &[u8]) -> (u32, u64) {
        let answer = self.call(NFS, 1, |out| out.opaque(handle));
        let mut answer = Reader::new(&answer);
        let status = answer.u32().unwrap();
        if status != OK {
            return (status, 0);
        }
        for _ in 0..5 {
            answer.u32().unwrap();
        }
        (status, answer.u64().unwrap())
    }

    /// The first bytes of a file, or the status.
    fn read(&mut self, handle: &[u8], len_bytes: u32) -> Result<Vec<u8>, u32> {
        let answer = self.call(NFS, 6, |out| out.opaque(handle).u64(0).u32(len_bytes));
        let mut answer = Reader::new(&answer);
        match answer.u32().unwrap() {
            OK => {
                let (_, _, _) = (answer.u32().unwrap(), answer.u32().unwrap(), answer.u32().unwrap());
                Ok(answer.opaque(1 << 20).unwrap().to_vec())
            }
            status => Err(status),
        }
    }
}

fn handle_of(answer: &[u8]) -> Result<Vec<u8>, u32> {
    let mut answer = Reader::new(answer);
    match answer.u32().unwrap() {
        OK => Ok(answer.opaque(64).unwrap().to_vec()),
        status => Err(status),
    }
}

fn redoubt(node: &Node, args: &[&str]) -> Outcome {
    let address = node.address().to_string();
    Outcome::of(node.redoubt_bin(), [args, &["--node", &address]].concat(), PATIENCE).unwrap()
}

/// Contents of all plain files of a directory, by `cksum`.
fn sums(directory: &Path) -> String {
    let script = "cd \"$0\"; find . -type f ! -name ib_logfile0 | sort | xargs cksum; stat -c %s ib_logfile0";
    tool("sh", &["-euc", script, directory.to_str().unwrap()]).require_success().unwrap()
}

#[test]
fn a_copy_of_a_server_at_rest_is_a_data_directory_and_what_a_reader_sees() {
    let (node, nfs) = node(&[]);
    let mut server = filled(&node);
    let before = checksums(&mut server.connect().unwrap()).unwrap();
    server.shutdown().unwrap();
    let target = tempfile::tempdir().unwrap();
    let data = copy(nfs, "/shop", target.path());
    let view = target.path().join("view");
    let address = node.address().to_string();
    let script = format!(
        "cd {}; find . -type f ! -name ib_logfile0 | sort | xargs cksum; stat -c %s ib_logfile0",
        view.display()
    );
    let program = ["--datadir", view.to_str().unwrap(), "--", "sh", "-euc", &script];
    let fixed = ["run", "--reader", "--node", &address, "--volume", "shop"];
    let seen = Outcome::of(node.redoubt_bin(), [&fixed[..], &program].concat(), PATIENCE).unwrap();
    assert_eq!(sums(&data), seen.require_success().unwrap());
    let shown = tool("nfs-cat", &[&url(nfs, "/shop/shop/db.opt")]).require_success().unwrap();
    assert_eq!(shown, std::fs::read_to_string(data.join("shop/db.opt")).unwrap());
    let mut opened = stock_on(target.path(), &server);
    require_consistent(&opened);
    assert_eq!(checksums(&mut opened.connect().unwrap()).unwrap(), before);
    opened.shutdown().unwrap();
}

#[test]
fn a_moment_of_a_server_that_writes_is_recovered_by_a_stock_server() {
    let (node, nfs) = node(&["--nfs-moment-idle", "5"]);
    let mut server = filled(&node);
    let load = Load::start(&server);
    load.wait_for_more(300);
    let target = tempfile::tempdir().unwrap();
    let (first, second) = (target.path().join("first"), target.path().join("second"));
    let before = load.transfers.load(std::sync::atomic::Ordering::Relaxed);
    copy(nfs, "/shop@backup", &first);
    load.wait_for_more(100);
    // Pages of a live volume are whole, whatever happens beside.
    for table in ["account", "transfer", "packed"] {
        let to = target.path().join(format!("{table}.ibd"));
        let from = url(nfs, &format!("/shop/shop/{table}.ibd"));
        tool("nfs-cp", &[&from, to.to_str().unwrap()]).require_success().unwrap();
        tool("innochecksum", &[to.to_str().unwrap()]).require_success().unwrap();
    }
    // The same moment, long after: the copies are equal, the redo log too.
    let mut client = Client::connect(nfs);
    client.mount("/shop@backup").unwrap();
    assert!(client.mount("/shop@other").is_err(), "two moments at a time");
    copy(nfs, "/shop@backup", &second);
    let (first_data, second_data) = (first.join("data"), second.join("data"));
    let args = ["-r", first_data.to_str().unwrap(), second_data.to_str().unwrap()];
    tool("diff", &args).require_success().unwrap();
    // The node releases the state once no client uses it.
    let exported = target.path().join("exported");
    poll_until("an export", PATIENCE, || {
        let outcome = redoubt(&node, &["volume", "export", "shop", "--to", exported.to_str().unwrap()]);
        Ok((outcome.code == Some(0)).then_some(()))
    })
    .unwrap();
    let root = client.mount("/shop@other").unwrap();
    assert_eq!(client.attributes(&root).0, OK);
    load.end();
    require_consistent(&server);
    let mut opened = stock_on(&first, &server);
    require_consistent(&opened);
    require_transfers(&opened, before);
    opened.shutdown().unwrap();
    server.shutdown().unwrap();
}

#[test]
fn a_moment_ends_when_all_have_unmounted_it() {
    let (node, nfs) = node(&[]);
    let mut server = filled(&node);
    let (mut one, mut other) = (Client::connect(nfs), Client::connect(nfs));
    let root = one.mount("/shop@now").unwrap();
    assert_eq!(other.mount("/shop@now").unwrap(), root);
    let unmount = |client: &mut Client| client.call(MOUNT, 3, |out| out.opaque(b"/shop@now"));
    unmount(&mut one);
    assert_eq!(other.attributes(&root).0, OK);
    let target = tempfile::tempdir().unwrap();
    let to = target.path().join("exported");
    let export = ["volume", "export", "shop", "--to", to.to_str().unwrap()];
    let refused = redoubt(&node, &export);
    assert!(refused.code == Some(1) && refused.stderr.contains("read as of a moment"), "{}", refused.stderr);
    unmount(&mut other);
    assert_eq!(other.attributes(&root).0, STALE);
    redoubt(&node, &export).require_success().unwrap();
    assert_ne!(other.mount("/shop@now").unwrap(), root);
    server.shutdown().unwrap();
}

#[test]
fn handles_outlive_the_node_and_end_with_their_volume() {
    let (mut node, nfs) = node(&[]);
    let mut server = filled(&node);
    let mut client = Client::connect(nfs);
    let root = client.mount("/shop").unwrap();
    let directory = client.lookup(&root, "shop").unwrap();
    let file = client.lookup(&directory, "account.ibd").unwrap();
    let moment = client.mount("/shop@now").unwrap();
    let (before, len_bytes) = (client.read(&file, 16384).unwrap(), client.attributes(&file).1);
    assert_eq!(before.len(), 16384);
    // Another table under the same name is another file.
    execute(&mut server.connect().unwrap(), "TRUNCATE TABLE shop.transfer").unwrap();
    let truncated = client.lookup(&directory, "transfer.ibd").unwrap();
    execute(&mut server.connect().unwrap(), "TRUNCATE TABLE shop.transfer").unwrap();
    assert_eq!(client.attributes(&truncated).0, STALE);
    assert_eq!(client.read(&truncated, 10), Err(STALE));
    server.shutdown().unwrap();
    node.stop().unwrap();
    node.start().unwrap();
    let mut client = Client::connect(nfs);
    assert_eq!(client.attributes(&file), (OK, len_bytes));
    assert_eq!(client.lookup(&directory, "account.ibd").unwrap(), file);
    assert_eq!(client.read(&file, 16384).unwrap(), before);
    assert_eq!(client.attributes(&moment).0, STALE);
    redoubt(&node, &["volume", "delete", "shop", "--yes"]).require_success().unwrap();
    for handle in [&root, &directory, &file] {
        assert_eq!(client.attributes(handle).0, STALE);
        assert_eq!(client.read(handle, 10), Err(STALE));
    }
    assert_eq!(client.mount("/shop"), Err(2));
}

#[test]
fn nothing_is_written() {
    let (node, nfs) = node(&[]);
    let mut server = filled(&node);
    let mut client = Client::connect(nfs);
    let root = client.mount("/shop").unwrap();
    let file = client.lookup(&root, "ibdata1").unwrap();
    // SETATTR, WRITE, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK, COMMIT.
    for procedure in [2, 7, 8, 9, 10, 11, 12, 13, 14, 15, 21] {
        let answer = client.call(NFS, procedure, |out| {
            out.opaque(if procedure == 7 { &file } else { &root }).u64(0).u32(4).u32(2).opaque(b"none")
        });
        assert_eq!(Reader::new(&answer).u32().unwrap(), READ_ONLY, "{procedure}");
    }
    let own = server.directory().join("own");
    std::fs::write(&own, b"new").unwrap();
    let put = tool("nfs-cp", &[own.to_str().unwrap(), &url(nfs, "/shop/new")]);
    assert_ne!(put.code, Some(0), "{}", put.stdout);
    let (files, _) = list(nfs, "/shop");
    assert!(!files.iter().any(|path| path == "/new"), "{files:?}");
    server.shutdown().unwrap();
}

fn resident_kib(node: &Node) -> u64 {
    let path = format!("/proc/{}/status", node.process_id().unwrap());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn thread_count(node: &Node) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", node.process_id().unwrap())).unwrap().count()
}

/// Clients that send what is no request, or a request that is cut.
fn send_garbage(nfs: SocketAddr, file: &[u8]) {
    let mut seed = fastrand::Rng::with_seed(14);
    for round in 0..300 {
        let mut client = TcpStream::connect(nfs).unwrap();
        let bytes: Vec<u8> = match round % 4 {
            // Anything; a length of 2 GiB; a call with anything in it; a real call that is cut.
            0 => (0..seed.usize(1..5000)).map(|_| seed.u8(..)).collect(),
            1 => vec![0xff; 64],
            2 => {
                let mut call = Writer::default();
                call.u32(7).u32(0).u32(2).u32(if seed.bool() { MOUNT } else { NFS }).u32(3);
                call.u32(seed.u32(..23)).u64(0).u64(0);
                for _ in 0..seed.u32(..20) {
                    call.u32(if seed.bool() { 41 } else { seed.u32(..) });
                }
                let call = call.finish();
                [&(u32::try_from(call.len()).unwrap() | 1 << 31).to_be_bytes()[..], &call].concat()
            }
            _ => {
                let mut call = Writer::default();
                call.u32(7).u32(0).u32(2).u32(NFS).u32(3).u32(seed.u32(1..22)).u64(0).u64(0).opaque(file);
                let call = call.finish();
                let cut = &call[..seed.usize(..call.len())];
                [&(u32::try_from(cut.len()).unwrap() | 1 << 31).to_be_bytes()[..], cut].concat()
            }
        };
        // It may be closed while it is written to.
        let _ = client.write_all(&bytes);
    }
}

/// Clients that send garbage, clients that are many, clients that take no answers: others go on, and nothing grows.
#[test]
fn bad_clients_harm_nobody() {
    let (mut node, nfs) = node(&[]);
    let mut server = filled(&node);
    let load = Load::start(&server);
    load.wait_for_more(100);
    let mut good = Client::connect(nfs);
    let root = good.mount("/shop").unwrap();
    let file = good.lookup(&root, "ibdata1").unwrap();
    let (before_kib, before_threads) = (resident_kib(&node), thread_count(&node));
    send_garbage(nfs, &file);
    // Ask for much and take nothing; each holds one answer at most.
    let silent: Vec<_> = (0..100)
        .map(|_| {
            let mut client = Client::connect(nfs);
            for _ in 0..100 {
                let mut call = Writer::default();
                call.u32(7)
                    .u32(0)
                    .u32(2)
                    .u32(NFS)
                    .u32(3)
                    .u32(6)
                    .u64(0)
                    .u64(0)
                    .opaque(&file)
                    .u64(0)
                    .u32(1 << 20);
                let call = call.finish();
                let mark = u32::try_from(call.len()).unwrap() | 1 << 31;
                let _ = client.0.write_all(&[&mark.to_be_bytes()[..], &call].concat());
            }
            client
        })
        .collect();
    let idle: Vec<_> = (0..1000).map(|_| TcpStream::connect(nfs).unwrap()).collect();
    load.wait_for_more(100);
    // A client that was closed to make room connects again, as NFS clients do.
    let mut good = Client::connect(nfs);
    assert_eq!(good.read(&file, 16384).unwrap().len(), 16384);
    assert!(thread_count(&node) < before_threads + 140, "{} of {before_threads}", thread_count(&node));
    let grown_kib = resident_kib(&node).saturating_sub(before_kib);
    println!("grown by {grown_kib} KiB, {} threads", thread_count(&node));
    assert!(grown_kib < 300 << 10, "{grown_kib} KiB");
    load.end();
    require_consistent(&server);
    server.shutdown().unwrap();
    // And its end waits for none of them.
    node.stop().unwrap();
    drop((silent, idle, good));
    assert!(!node.log_tail(10_000).contains("panicked"), "{}", node.log_tail(100));
}

#[test]
fn it_is_off_by_default_and_for_this_host_only() {
    let redoubt_bin = find_redoubt().unwrap();
    let data = tempfile::tempdir().unwrap();
    let refused = Outcome::of(
        &redoubt_bin,
        ["node", "--data", data.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--nfs", "0.0.0.0:0"],
        PATIENCE,
    );
    let refused = refused.unwrap();
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("--nfs-allow-remote") && refused.stderr.contains("no authentication"),
        "{}",
        refused.stderr
    );
    let node = Node::create(&redoubt_bin, &[]).unwrap();
    assert!(!node.log_tail(1000).contains("NFS"), "{}", node.log_tail(1000));
    let help = Outcome::of(&redoubt_bin, ["node", "--help"], PATIENCE).unwrap().require_success().unwrap();
    assert!(help.contains("NO authentication"), "{help}");
}
