//! Peers that have not identified themselves, and peers that may use one volume only: their limits.
//!
//! All limits are short ones set for the test; only the deliberately slow peers sleep.

use super::client::{ControlClient, LogClient, PageClient, connect, hello};
use super::encoder::MtrWriter;
use super::protocol::Stream;
use super::running::{LocalNode, SMALL, options};
use redoubt_certificates::Wanted;
use redoubt_node::{ConnectionLimits, NodeOptions};
use redoubt_transport::{ClientTls, Connection, Connector, CredentialFiles, ServerTls};
use redoubt_wire::control::{KIND_JSON, NodeStatus, Reply, Request, decode_json, encode_json};
use redoubt_wire::frame::append_frame;
use redoubt_wire::hello::{Hello, Role, Status, Welcome, decode_len};
use redoubt_wire::stream::{FileKind, StreamFrame};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn limited(directory: &Path, limits: ConnectionLimits) -> NodeOptions {
    NodeOptions { connections: limits, ..options(directory, SMALL) }
}

/// The node ended it. A peer that still sends may find it reset.
fn wait_ended(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

/// Connects until there is room: the node counts a connection until its thread has seen that the peer is gone.
fn until_admitted<C>(connect: impl Fn() -> std::io::Result<C>) -> C {
    let began = Instant::now();
    loop {
        match connect() {
            Ok(client) => return client,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    }
}

#[test]
fn a_byte_now_and_then_does_not_hold_a_connection() {
    let directory = tempfile::tempdir().unwrap();
    let limits =
        ConnectionLimits { greeting_timeout: Duration::from_millis(300), ..ConnectionLimits::default() };
    let node = LocalNode::open(&limited(directory.path(), limits));
    let hello = hello(Role::Log, &"v".repeat(200), 1, 1, 0).encode();
    let drips: Vec<_> = (0..20)
        .map(|_| {
            let (address, hello) = (node.address, hello.clone());
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                let sent = hello.iter().take_while(|byte| {
                    // A hundred of the node's limits for the whole greeting.
                    std::thread::sleep(Duration::from_millis(100));
                    stream.write_all(&[**byte]).is_ok()
                });
                assert!(sent.count() < hello.len(), "it took the whole greeting, byte by byte");
            })
        })
        .collect();
    drips.into_iter().for_each(|drip| drip.join().unwrap());
    // A peer that sends nothing at all.
    wait_ended(&mut TcpStream::connect(node.address).unwrap());
    node.stop();
}

#[test]
fn thousands_of_connections_lock_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits {
        greeting: 16,
        greeting_timeout: PATIENCE,
        // A quarter is for commands.
        total: 20,
        per_volume: 5,
        ..ConnectionLimits::default()
    };
    let node = LocalNode::open(&limited(directory.path(), limits));
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut log = LogClient::connect(node.address, "v", generation, 1, 0).unwrap();
    let mut silent = Vec::new();
    for n in 0..3000 {
        silent.push(TcpStream::connect(node.address).unwrap());
        if n % 500 == 499 {
            // A new client gets in among them, and an existing one is served.
            assert_eq!(until_admitted(|| ControlClient::connect(node.address)).status().name, "v");
            assert_eq!(control.status().name, "v");
            // The test's own descriptors are not under test.
            silent.drain(..silent.len() - 16);
        }
    }
    let mut stream = Stream::new();
    log.send(&stream.begin(2)).unwrap();
    assert!(log.wait_durable(stream.seq), "the server was thrown out");
    // Admitted peers are limited too, each volume by itself.
    let pages: Vec<_> =
        (0..3).map(|_| until_admitted(|| PageClient::connect(node.address, "v", generation))).collect();
    let refused = connect(node.address, &hello(Role::Page, "v", generation, 0, 0)).unwrap().1;
    assert_eq!(refused.status, Status::TryLater, "{}", refused.message);
    assert!(refused.message.contains("volume v has its 5 connections"), "{}", refused.message);
    let more: Vec<_> = (0..4).map(|_| until_admitted(|| ControlClient::connect(node.address))).collect();
    let refused = connect(node.address, &hello(Role::Control, "", 0, 0, 0)).unwrap().1;
    assert!(refused.message.contains("the command has its 5 connections"), "{}", refused.message);
    drop((pages, more));
    // And they make room when they go.
    until_admitted(|| PageClient::connect(node.address, "v", generation));
    drop((control, log));
    node.stop();
}

#[test]
fn idle_commands_and_peers_that_do_not_read_are_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits {
        idle_control: Duration::from_millis(300),
        write_timeout: Duration::from_millis(300),
        ..ConnectionLimits::default()
    };
    let node = LocalNode::open(&limited(directory.path(), limits));
    let mut idle = ControlClient::connect(node.address).unwrap();
    idle.create("v");
    wait_ended(&mut idle.stream);
    let mut deaf = ControlClient::connect(node.address).unwrap();
    deaf.stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let request = encode_json(&Request::Status).unwrap();
    let sent = (0..3_000_000).take_while(|_| deaf.send(KIND_JSON, &request).is_ok()).count();
    assert!(sent < 3_000_000, "the node never gave up");
    assert_eq!(ControlClient::connect(node.address).unwrap().status().name, "v");
    node.stop();
}

#[test]
fn giant_lengths_and_garbage_end_only_their_connection() {
    let directory = tempfile::tempdir().unwrap();
    let node = LocalNode::open(&options(directory.path(), SMALL));
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..300 {
        let mut stream = match round % 4 {
            0 => TcpStream::connect(node.address).unwrap(),
            1 => connect(node.address, &hello(Role::Control, "", 0, 0, 0)).unwrap().0,
            2 => connect(node.address, &hello(Role::Page, "v", generation, 0, 0)).unwrap().0,
            _ => connect(node.address, &hello(Role::Log, "v", generation, round, 0)).unwrap().0,
        };
        let mut bytes: Vec<_> = (0..random.usize(8..200)).map(|_| random.u8(..)).collect();
        if random.bool() {
            // A header that announces all that a header can.
            bytes[1..4].copy_from_slice(&[0xff; 3]);
        }
        // The node may have ended it already.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        wait_ended(&mut stream);
    }
    // No server is connected any more, and nothing has stopped the volume.
    control.wait_state("ready");
    drop(control);
    node.stop();
}

/// Everything below a directory, by name.
fn tree(path: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
        out.push(entry.path().display().to_string());
        if entry.file_type().unwrap().is_dir() {
            tree(&entry.path(), out);
        }
    }
}

fn hostile_paths() -> Vec<Vec<u8>> {
    let mut paths: Vec<Vec<u8>> = [
        "",
        "/",
        "/etc/passwd",
        "..",
        ".",
        "../x",
        "a/../x",
        "a/..",
        "a//b",
        "a/",
        "./a",
        "a\0b",
        "a/./b",
        "a/b/../../../x",
    ]
    .iter()
    .map(|path| path.as_bytes().to_vec())
    .collect();
    paths.push(vec![b'x'; 256]);
    paths.push(b"d/".repeat(2100));
    let pieces: [&[u8]; 9] = [b"..", b".", b"/", b"a", b"\0", b"\\", b"\xff\xfe", b"t.ibd", b"~"];
    let mut random = fastrand::Rng::with_seed(3);
    while paths.len() < 120 {
        let path: Vec<u8> =
            (0..random.usize(1..8)).flat_map(|_| pieces[random.usize(..pieces.len())].to_vec()).collect();
        if path.split(|byte| *byte == b'/').any(|part| part.is_empty() || part == b".." || part == b".") {
            paths.push(path);
        }
    }
    paths
}

#[test]
fn no_file_name_in_the_stream_leads_out_of_the_volume() {
    let top = tempfile::tempdir().unwrap();
    let directory = top.path().join("node");
    let node = LocalNode::open(&options(&directory, SMALL));
    let mut control = ControlClient::connect(node.address).unwrap();
    control.create("v");
    let generation = control.attach("v").generation;
    for (n, path) in hostile_paths().into_iter().enumerate() {
        let good = b"d/t.frm";
        let frame = match n % 7 {
            0 => StreamFrame::Create { path: &path, kind: FileKind::Plain, mode: 0o660 },
            1 => StreamFrame::Rename { from: &path, to: good },
            2 => StreamFrame::Rename { from: good, to: &path },
            3 => StreamFrame::Unlink { path: &path },
            4 => StreamFrame::Mkdir { path: &path, mode: 0o700 },
            5 => StreamFrame::Write { path: &path, offset_bytes: 0, data: b"evil" },
            _ => StreamFrame::SetLen { path: &path, len_bytes: 1 << 20 },
        };
        let mut log = LogClient::connect(node.address, "v", generation, n as u64 + 1, 0).unwrap();
        let wire = super::client::frame(log.welcome.next_seq.0, &frame);
        log.send(&wire).unwrap();
        assert!(log.wait_closed(), "{:?} was taken", String::from_utf8_lossy(&path));
    }
    assert_eq!(control.status().w_lsn, 0);
    // The same names in redo: the volume stops and reports which.
    for (n, name) in
        [&b"../../evil.ibd"[..], b"/tmp/evil.ibd", b"./d/../../evil.ibd", b"d/e\0vil.ibd"].iter().enumerate()
    {
        let volume = format!("r{n}");
        let mut control = ControlClient::connect(node.address).unwrap();
        control.create(&volume);
        let generation = control.attach(&volume).generation;
        let mut log = LogClient::connect(node.address, &volume, generation, 1, 0).unwrap();
        let mut stream = Stream::new();
        log.send(&stream.begin(1)).unwrap();
        let mut mtr = MtrWriter::new();
        mtr.file(0x80, 9, name);
        log.send(&stream.redo(&mtr)).unwrap();
        let stopped = log.wait(|notice, _| matches!(notice, redoubt_wire::notice::Notice::Stopped { .. }));
        assert!(stopped.is_some(), "{:?} was taken", String::from_utf8_lossy(name));
    }
    drop(control);
    node.stop();
    let mut names = Vec::new();
    tree(top.path(), &mut names);
    assert!(names.iter().all(|name| !name.contains("evil") && !name.ends_with("/x")), "{names:#?}");
    assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 1);
}

/// A control connection over TLS.
struct SecureControl {
    connection: Arc<dyn Connection>,
    written: u64,
    read: u64,
}

fn greet(connector: &Connector, hello: &Hello) -> (Arc<dyn Connection>, Welcome) {
    let connection = connector.connect(PATIENCE, PATIENCE).unwrap();
    connection.write_all(&hello.encode()).unwrap();
    let mut reader = &*connection;
    let mut len = [0; 4];
    reader.read_exact(&mut len).unwrap();
    let mut bytes = vec![0; decode_len(len).unwrap()];
    reader.read_exact(&mut bytes).unwrap();
    let welcome = Welcome::decode(&bytes).unwrap();
    (connection, welcome)
}

impl SecureControl {
    fn connect(connector: &Connector) -> Self {
        let (connection, welcome) = greet(connector, &hello(Role::Control, "", 0, 0, 0));
        assert_eq!(welcome.status, Status::Accepted, "{}", welcome.message);
        Self { connection, written: 0, read: 0 }
    }

    fn ask(&mut self, request: &Request) -> Reply {
        let mut out = Vec::new();
        append_frame(&mut out, KIND_JSON, self.written, &encode_json(request).unwrap()).unwrap();
        self.written += 1;
        self.connection.write_all(&out).unwrap();
        let mut reader = &*self.connection;
        let mut header = [0; HEADER_LEN_BYTES];
        reader.read_exact(&mut header).unwrap();
        let header = FrameHeader::decode(&header);
        let mut payload = vec![0; header.len_bytes as usize];
        reader.read_exact(&mut payload).unwrap();
        header.check(self.read, &payload).unwrap();
        self.read += 1;
        decode_json(&payload).unwrap()
    }

    fn refusal(&mut self, request: &Request) -> String {
        match self.ask(request) {
            Reply::Failed { retry: false, message } => message,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn status(&mut self) -> NodeStatus {
        match self.ask(&Request::Status) {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }
}

fn connector(authority: &Path, bundle: &str, address: SocketAddr) -> Connector {
    let tls = ClientTls::load(CredentialFiles::in_directory(&authority.join(bundle))).unwrap();
    Connector {
        address: address.to_string(),
        tls: Some(Arc::new(tls)),
        silence_limit: None,
        local_socket: false,
    }
}

fn attach(volume: &str, who: &str) -> Request {
    let (volume, who) = (volume.to_owned(), who.to_owned());
    Request::Attach { volume, who, server: None, seen_generation: None }
}

#[test]
fn a_certificate_is_for_its_volume_and_says_nothing_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let authority = directory.path().join("ca");
    let (nodes, volumes) = (vec![vec!["127.0.0.1".to_owned()]], ["mine", "yours"].map(str::to_owned).into());
    let wanted = Wanted { nodes, volumes, administrator: true, ..Wanted::default() };
    redoubt_certificates::create(&authority, &wanted, 1, 1).unwrap();
    let mut options = options(&directory.path().join("data"), SMALL);
    let files = CredentialFiles::in_directory(&authority.join("node-127.0.0.1"));
    options.tls = Some(Arc::new(ServerTls::load(files).unwrap()));
    let node = LocalNode::open(&options);
    let mut administrator = SecureControl::connect(&connector(&authority, "administrator", node.address));
    for volume in ["mine", "yours"] {
        let reply = administrator.ask(&Request::VolumeCreate { volume: volume.to_owned(), encrypted: false });
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    }
    let mine = connector(&authority, "volume-mine", node.address);
    let mut control = SecureControl::connect(&mine);
    // Existing and missing volumes are refused with the same words.
    for (volume, role) in ["yours", "nothing"].iter().flat_map(|v| [(v, Role::Log), (v, Role::Page)]) {
        let welcome = greet(&mine, &hello(role, volume, 1, 1, 0)).1;
        assert_eq!(welcome.status, Status::Refused);
        let expected = format!(
            "this certificate is for volume mine; for volume {volume:?} use that volume's certificate or the administrator's"
        );
        assert_eq!(welcome.message, expected);
        let volume = (*volume).to_owned();
        for request in [
            attach(&volume, "me"),
            Request::Fetch { volume: volume.clone(), path: "ibdata1".to_owned() },
            Request::List { volume: volume.clone() },
            Request::ExportBegin { volume: volume.clone() },
        ] {
            assert_eq!(control.refusal(&request), expected);
        }
        for request in [
            Request::VolumeCreate { volume: volume.clone(), encrypted: false },
            Request::VolumeDelete { volume: volume.clone(), force: true },
            Request::ImportBegin {
                volume,
                family: "MariaDB".to_owned(),
                system_files: Vec::new(),
                encrypted: false,
            },
        ] {
            assert!(control.refusal(&request).contains("needs the administrator's certificate"));
        }
    }
    assert!(control.refusal(&Request::ImportEnd).contains("needs the administrator's"));
    let seen: Vec<_> = control.status().volumes.into_iter().map(|volume| volume.name).collect();
    assert_eq!(seen, ["mine"]);
    assert_eq!(administrator.status().volumes.len(), 2);
    let Reply::Attached(attached) = control.ask(&attach("mine", &"m\x1b[2Je\n".repeat(200))) else {
        panic!("not attached")
    };
    for role in [Role::Log, Role::Page] {
        let welcome = greet(&mine, &hello(role, "mine", attached.generation, 1, 0)).1;
        assert_eq!(welcome.status, Status::Accepted, "{}", welcome.message);
    }
    let by = control.status().volumes.remove(0).attached_by;
    assert!(!by.contains(char::is_control) && by.chars().count() <= 256, "{by:?}");
    // A plain-text peer gets a clear answer at this port.
    let refused = connect(node.address, &hello(Role::Control, "", 0, 0, 0)).unwrap().1;
    assert_eq!(refused.status, Status::Refused);
    assert!(refused.message.contains("speaks TLS only"), "{}", refused.message);
    drop((control, administrator));
    node.stop();
}

#[test]
fn plain_text_is_for_this_host_only_unless_the_network_is_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path(), SMALL);
    options.listen = "0.0.0.0:0".to_owned();
    let error = redoubt_node::Node::open(options.clone()).err().unwrap().to_string();
    assert!(error.contains("--tls DIR") && error.contains("--allow-plain-text"), "{error}");
    options.allow_plain_text = true;
    let node = LocalNode::open(&options);
    let address = SocketAddr::from(([127, 0, 0, 1], node.address.port()));
    ControlClient::connect(address).unwrap().create("v");
    node.stop();
    for loopback in ["127.0.0.1:0", "[::1]:0"] {
        options.listen = loopback.to_owned();
        options.allow_plain_text = false;
        match redoubt_node::Node::open(options.clone()) {
            Ok(node) => node.stop(),
            Err(error) => assert!(error.to_string().contains("cannot listen"), "{error}"),
        }
    }
}
