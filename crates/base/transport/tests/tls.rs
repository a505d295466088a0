//! Both sides of TLS with real certificates: admission, error messages of both sides, and concurrent directions.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyIdMethod, SanType};
use redoubt_certificates::key::Key;
use redoubt_certificates::{Wanted, WantedMember, add, create, remove};
use redoubt_transport::certificate::{CertificateFacts, now};
use redoubt_transport::credentials::certificates;
use redoubt_transport::tls::Rejected;
use redoubt_transport::{
    ClientTls, Connection, Connector, CredentialFiles, Identity, MemberTls, ServerTls, SocketConnection,
    TransportError, Written,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

struct Fixture {
    directory: tempfile::TempDir,
}

fn wanted() -> Wanted {
    Wanted {
        nodes: vec![vec!["node".to_owned(), "127.0.0.1".to_owned()], vec!["elsewhere".to_owned()]],
        volumes: vec!["shop".to_owned()],
        members: [("shop", "db1"), ("shop", "db2"), ("other", "db3")].map(member).into(),
        administrator: true,
    }
}

fn member((group, name): (&str, &str)) -> WantedMember {
    WantedMember { group: group.to_owned(), name: name.to_owned(), hosts: vec!["127.0.0.1".to_owned()] }
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        create(&directory.path().join("ca"), &wanted(), 10, 20).unwrap();
        Self { directory }
    }

    fn authority(&self) -> PathBuf {
        self.directory.path().join("ca")
    }

    fn files(&self, bundle: &str) -> CredentialFiles {
        CredentialFiles::in_directory(&self.authority().join(bundle))
    }
}

type Accepted = Result<Arc<dyn Connection>, String>;

/// One connection: the results of the client and of the node.
fn meet(
    server: &Arc<ServerTls>,
    client: CredentialFiles,
) -> (Result<Arc<dyn Connection>, TransportError>, Accepted) {
    meet_loaded(server, ClientTls::load(client).map(Arc::new))
}

fn meet_loaded(
    server: &Arc<ServerTls>,
    tls: Result<Arc<ClientTls>, TransportError>,
) -> (Result<Arc<dyn Connection>, TransportError>, Accepted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepting = accept(Arc::clone(server), listener);
    let connected = tls.and_then(|tls| {
        Connector { address: address.clone(), tls: Some(tls), silence_limit: None, local_socket: false }
            .connect(PATIENCE, PATIENCE)
    });
    if matches!(connected, Err(TransportError::Credentials(_))) {
        drop(TcpStream::connect(address).unwrap());
    }
    (connected, accepting.join().unwrap())
}

fn accept(server: Arc<ServerTls>, listener: TcpListener) -> JoinHandle<Accepted> {
    std::thread::spawn(move || {
        let tcp = SocketConnection::new(listener.accept().unwrap().0);
        tcp.set_deadline(Some(PATIENCE)).unwrap();
        match server.accept(tcp).0 {
            Ok(connection) => Ok(Arc::new(connection) as Arc<dyn Connection>),
            Err(rejected) => Err(match *rejected {
                Rejected::PlainText(_) => "plain text".to_owned(),
                Rejected::Handshake(tcp, error) => {
                    tcp.end_softly(Duration::from_secs(5));
                    error.to_string()
                }
                Rejected::Denied(connection, why) => {
                    connection.write_all(why.as_bytes()).unwrap();
                    connection.end_softly(Duration::from_secs(5));
                    why
                }
            }),
        }
    })
}

fn server(files: CredentialFiles) -> Arc<ServerTls> {
    Arc::new(ServerTls::load(files).unwrap())
}

#[test]
fn both_sides_know_each_other_and_bytes_go_both_ways_at_once() {
    let fixture = Fixture::new();
    let (client, node) = meet(&server(fixture.files("node-node")), fixture.files("volume-shop"));
    let (client, node) = (client.unwrap(), node.unwrap());
    assert_eq!(node.identity(), &Identity::Volume("shop".to_owned()));
    assert_eq!(client.identity(), &Identity::Node);
    client.set_deadline(None).unwrap();
    node.set_deadline(None).unwrap();
    // More bytes in each direction than sockets buffer: without concurrent reads and writes, both sides would block.
    const LEN: usize = 20 << 20;
    let pattern = |n: usize| (n.wrapping_mul(31) >> 3) as u8;
    let ends: Vec<_> = [client, node]
        .into_iter()
        .flat_map(|end| {
            let writer = Arc::clone(&end);
            [
                std::thread::spawn(move || {
                    let bytes: Vec<_> = (0..LEN).map(pattern).collect();
                    let mut rest = &bytes[..];
                    let mut piece = 1;
                    while !rest.is_empty() {
                        let (now, later) = rest.split_at(piece.min(rest.len()));
                        writer.write_all(now).unwrap();
                        (rest, piece) = (later, piece * 7 % 300_001);
                    }
                }),
                std::thread::spawn(move || {
                    let (mut buffer, mut at) = (vec![0; 100_000], 0);
                    while at < LEN {
                        let len = end.read(&mut buffer).unwrap();
                        assert!(len > 0, "ended after {at} bytes");
                        assert!((0..len).all(|n| buffer[n] == pattern(at + n)), "differs near {at}");
                        at += len;
                    }
                }),
            ]
        })
        .collect();
    for end in ends {
        end.join().unwrap();
    }
}

#[test]
fn an_end_is_seen_and_a_shutdown_ends_a_read() {
    let fixture = Fixture::new();
    let (client, node) = meet(&server(fixture.files("node-node")), fixture.files("administrator"));
    let (client, node) = (client.unwrap(), node.unwrap());
    assert_eq!(node.identity(), &Identity::Administrator);
    let reading = Arc::clone(&node);
    let reader = std::thread::spawn(move || reading.read(&mut [0; 10]));
    client.write_all(b"last").unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 4);
    client.shutdown();
    assert_eq!(node.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn who_is_of_another_authority_is_refused_on_both_sides() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let node = server(fixture.files("node-node"));
    // The client does not know the node's authority.
    let (client, accepted) = meet(&node, other.files("volume-shop"));
    assert!(client.unwrap_err().to_string().contains("another authority"));
    assert!(accepted.unwrap_err().contains("does not know the authority"));
    // The client's own certificate is of another authority: TLS 1.3 reports that with the first read.
    let mixed =
        CredentialFiles { authority: fixture.files("node-node").authority, ..other.files("volume-shop") };
    let (client, accepted) = meet(&node, mixed);
    assert!(accepted.unwrap_err().contains("another authority"));
    let error =
        client.and_then(|client| client.read(&mut [0; 1]).map_err(TransportError::from_io)).unwrap_err();
    assert!(
        matches!(&error, TransportError::Trust(why) if why.contains("does not know the authority")),
        "{error}"
    );
}

#[test]
fn a_node_under_another_name_or_a_client_in_its_place_is_refused() {
    let fixture = Fixture::new();
    let (client, _) = meet(&server(fixture.files("node-elsewhere")), fixture.files("volume-shop"));
    let error = client.unwrap_err().to_string();
    assert!(error.contains("not for 127.0.0.1, but for elsewhere"), "{error}");
    // Neither role accepts the other's certificate as its own.
    let error = ServerTls::load(fixture.files("volume-shop")).unwrap_err().to_string();
    assert!(error.contains("volume shop, not of a storage node"), "{error}");
    let error = ClientTls::load(fixture.files("node-node")).unwrap_err().to_string();
    assert!(error.contains("is the certificate of a storage node"), "{error}");
}

#[test]
fn peers_that_speak_no_tls_or_say_nothing_are_sent_away_and_soon() {
    let fixture = Fixture::new();
    let node = server(fixture.files("node-node"));
    let hostile: [(&[u8], &str); 4] = [
        (b"GET / HTTP/1.0\r\n\r\n", "plain text"),
        (&[0x16; 4000], "TLS"),
        (&[0x16, 3, 1, 0xff, 0xff, 1, 0xff, 0xff, 0xff], "TLS"),
        (&[], "took too long|temporarily unavailable|end"),
    ];
    for (bytes, expected) in hostile {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tcp = SocketConnection::new(listener.accept().unwrap().0);
        tcp.set_deadline(Some(Duration::from_millis(200))).unwrap();
        peer.write_all(bytes).unwrap();
        let shown = match *node.accept(tcp).0.unwrap_err() {
            Rejected::PlainText(_) => "plain text".to_owned(),
            Rejected::Handshake(_, error) => error.to_string(),
            Rejected::Denied(_, why) => why,
        };
        let fits = expected.split('|').any(|part| shown.contains(part)) || shown.contains("too long");
        assert!(fits || shown.contains("os error 11"), "{expected}: {shown}");
    }
    // Single bytes at intervals do not keep the handshake alive.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let tcp = SocketConnection::new(listener.accept().unwrap().0);
    tcp.set_deadline(Some(Duration::from_millis(300))).unwrap();
    let drip = std::thread::spawn(move || {
        let hello = [&[0x16u8, 3, 1, 0x10, 0][..], &[0; 4096]].concat();
        hello
            .iter()
            .take_while(|byte| {
                std::thread::sleep(Duration::from_millis(5));
                peer.write_all(&[**byte]).is_ok()
            })
            .count()
    });
    // The handshake ends before the slow peer has sent all its bytes.
    assert!(node.accept(tcp).0.is_err());
    assert!(drip.join().unwrap() < 4000);
}

#[test]
fn a_client_of_a_plain_node_is_told() {
    let fixture = Fixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node = std::thread::spawn(move || {
        let mut peer = listener.accept().unwrap().0;
        peer.write_all(b"\x20\0\0\0RDBTwhatever a plain node says here").unwrap();
        let _ = peer.read(&mut [0; 4096]);
    });
    let tls = Some(Arc::new(ClientTls::load(fixture.files("volume-shop")).unwrap()));
    let connector = Connector { address, tls, silence_limit: None, local_socket: false };
    let error = connector.connect(PATIENCE, PATIENCE).unwrap_err().to_string();
    assert!(error.contains("does not speak TLS"), "{error}");
    node.join().unwrap();
}

#[test]
fn removed_and_renewed_certificates_count_for_the_next_connection() {
    let fixture = Fixture::new();
    let node = server(fixture.files("node-node"));
    let (_, accepted) = meet(&node, fixture.files("volume-shop"));
    assert!(accepted.is_ok());
    remove(&fixture.authority(), &["volume-shop".to_owned()]).unwrap();
    let (client, accepted) = meet(&node, fixture.files("volume-shop"));
    assert!(accepted.unwrap_err().contains("was removed"));
    let mut text = [0; 200];
    let len = client.unwrap().read(&mut text).unwrap();
    assert!(String::from_utf8_lossy(&text[..len]).contains("was removed"));
    let shop = Wanted { volumes: vec!["shop".to_owned()], ..Wanted::default() };
    assert!(add(&fixture.authority(), &shop, 10, false).unwrap_err().to_string().contains("--renew"));
    add(&fixture.authority(), &shop, 10, true).unwrap();
    let (_, accepted) = meet(&node, fixture.files("volume-shop"));
    accepted.unwrap();
    // An invalid list admits no peer that was rejected before: the last valid list stays in use.
    std::fs::write(fixture.authority().join("node-node/removed"), "what is this\n").unwrap();
    let (_, accepted) = meet(&node, fixture.files("volume-shop"));
    accepted.unwrap();
    assert!(ServerTls::load(fixture.files("node-node")).unwrap_err().to_string().contains("hexadecimal"));
}

/// Puts a new certificate for the same identity, valid from 2 hours ago until `not_after`, into a bundle.
fn make_valid_until(fixture: &Fixture, bundle: &str, not_after: i64) {
    let authority = fixture.authority().join("authority");
    let authority_key = Key::from_pem(&std::fs::read(authority.join("key.pem")).unwrap()).unwrap();
    let files = fixture.files(bundle);
    let facts = |path: &Path| CertificateFacts::read(&certificates(path).unwrap()[0]).unwrap();
    let (issuer, own) = (facts(&authority.join("certificate.pem")), facts(&files.certificate));
    let mut params = CertificateParams::new(own.hosts.clone()).unwrap();
    params.serial_number = Some(vec![7].into());
    params.subject_alt_names.push(SanType::URI(own.identity().unwrap().uri().unwrap().try_into().unwrap()));
    let time = |seconds| time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
    (params.not_before, params.not_after) = (time(now() - 7200), time(not_after));
    let mut issuer_params = CertificateParams::default();
    issuer_params.distinguished_name = DistinguishedName::new();
    issuer_params.distinguished_name.push(DnType::CommonName, issuer.subject);
    issuer_params.key_identifier_method = KeyIdMethod::PreSpecified(authority_key.identifier());
    let key = Key::from_pem(&std::fs::read(&files.key).unwrap()).unwrap();
    params.key_identifier_method = KeyIdMethod::PreSpecified(key.identifier());
    let made = params.signed_by(&key, &rcgen::Issuer::new(issuer_params, authority_key)).unwrap();
    std::fs::write(&files.certificate, made.pem()).unwrap();
}

#[test]
fn an_expired_certificate_is_refused_by_its_owner_and_on_both_sides() {
    let fixture = Fixture::new();
    // Loaded while they are valid, like in a long-running process. On a slow machine that takes more than one attempt.
    let loaded = [2, 4, 8, 16, 32, 64, 128, 256].into_iter().find_map(|lifetime_s| {
        let not_after = now() + lifetime_s;
        make_valid_until(&fixture, "volume-shop", not_after);
        make_valid_until(&fixture, "node-node", not_after);
        let client = ClientTls::load(fixture.files("volume-shop")).ok()?;
        let node = ServerTls::load(fixture.files("node-node")).ok()?;
        Some((Arc::new(client), Arc::new(node), not_after))
    });
    let (client, node, not_after) = loaded.unwrap();
    while now() <= not_after {
        std::thread::sleep(Duration::from_millis(20));
    }

    // At a start with expired files, the process's own side reports the expiry and the fix.
    for refused in [
        ClientTls::load(fixture.files("volume-shop")).map(|_| ()).unwrap_err().to_string(),
        ServerTls::load(fixture.files("node-node")).map(|_| ()).unwrap_err().to_string(),
    ] {
        assert!(refused.contains("certificate.pem expired at 20"), "{refused}");
        assert!(refused.contains("redoubt certificates add"), "{refused}");
    }

    // A node that started before, with expired files: the client reports the reason for its rejection.
    let administrator = ClientTls::load(fixture.files("administrator")).map(Arc::new);
    let (connected, accepted) = meet_loaded(&node, administrator);
    let error = connected.unwrap_err().to_string();
    assert!(error.contains("the other side's certificate expired at 20"), "{error}");
    assert!(error.contains("redoubt certificates add"), "{error}");
    let why = accepted.unwrap_err();
    assert!(why.contains("this side's certificate has expired"), "{why}");

    // After a renewal, the same node uses its new files, and rejects a client with expired ones. The client gets the
    // error with its first read.
    add(&fixture.authority(), &Wanted { nodes: wanted().nodes, ..Wanted::default() }, 10, true).unwrap();
    let (connected, accepted) = meet_loaded(&node, Ok(client));
    let why = accepted.unwrap_err();
    assert!(why.contains("the other side's certificate expired at 20"), "{why}");
    assert!(why.contains("redoubt certificates add"), "{why}");
    let error =
        connected.and_then(|client| client.read(&mut [0; 1]).map_err(TransportError::from_io)).unwrap_err();
    assert!(error.to_string().contains("this side's certificate has expired"), "{error}");
    assert!(matches!(error, TransportError::Trust(_)), "{error:?}");
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn refusal(files: CredentialFiles) -> String {
    ClientTls::load(files).unwrap_err().to_string()
}

#[test]
fn credential_files_that_must_not_be_used_are_refused_with_what_to_do() {
    let fixture = Fixture::new();
    let files = fixture.files("volume-shop");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&files.key), 0o600);
    assert_eq!(mode(files.key.parent().unwrap()), 0o700);
    for open in [0o640, 0o604, 0o620] {
        set_mode(&files.key, open);
        let why = refusal(files.clone());
        assert!(why.contains("chmod 600") && why.contains(&format!("{open:04o}")), "{why}");
    }
    set_mode(&files.key, 0o400);
    ClientTls::load(files.clone()).unwrap();
    set_mode(&files.authority, 0o664);
    assert!(refusal(files.clone()).contains("chmod go-w"));
    set_mode(&files.authority, 0o644);

    let admin = fixture.files("administrator");
    let swapped = CredentialFiles { key: admin.key.clone(), ..files.clone() };
    assert!(refusal(swapped).contains("copy both from the same bundle"));
    let missing = CredentialFiles { key: files.key.with_file_name("nothing.pem"), ..files.clone() };
    assert!(refusal(missing).contains("redoubt certificates create"));
    let wrong = CredentialFiles { certificate: files.key.clone(), ..files.clone() };
    assert!(refusal(wrong).contains("no certificate"));
    let directory = CredentialFiles { key: fixture.authority(), ..files.clone() };
    assert!(refusal(directory).contains("not a regular file"));
    std::fs::write(&files.certificate, vec![b'x'; 2 << 20]).unwrap();
    assert!(refusal(files).contains("longer than 1 MiB"));
}

/// One connection between members: the results of the accepting and the connecting one.
fn meet_members(accepting: MemberTls, connecting: &MemberTls) -> (Accepted, Accepted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepting = std::thread::spawn(move || {
        let tcp = SocketConnection::new(listener.accept().unwrap().0);
        tcp.set_deadline(Some(PATIENCE)).unwrap();
        match accepting.accept(tcp).0 {
            Ok(connection) => Ok(Arc::new(connection) as Arc<dyn Connection>),
            Err(rejected) => Err(match *rejected {
                Rejected::PlainText(_) => "plain text".to_owned(),
                Rejected::Handshake(_, error) => error.to_string(),
                Rejected::Denied(_, why) => why,
            }),
        }
    });
    let tcp = redoubt_transport::connect::connect_tcp(&address, PATIENCE, PATIENCE).unwrap();
    let connected = connecting.connect(tcp, "127.0.0.1");
    let connected = connected.map(|connection| Arc::new(connection) as Arc<dyn Connection>);
    (connected.map_err(|error| error.to_string()), accepting.join().unwrap())
}

#[test]
fn members_of_a_group_know_each_other() {
    let fixture = Fixture::new();
    let load = |bundle: &str| MemberTls::load(fixture.files(bundle)).unwrap();
    let (first, second) = meet_members(load("member-shop-db1"), &load("member-shop-db2"));
    let (first, second) = (first.unwrap(), second.unwrap());
    let identity = |name: &str| Identity::Member { group: "shop".to_owned(), name: name.to_owned() };
    assert_eq!((first.identity(), second.identity()), (&identity("db1"), &identity("db2")));

    let piece = |number: u32| number.to_le_bytes().repeat(4096);
    let mut count = 0;
    let mut write = || {
        count += 1;
        first.write_now(&piece(count)).unwrap()
    };
    while write() == Written::All {}
    assert_eq!(write(), Written::Held, "there is no room still");
    let writer = std::thread::spawn({
        let first = Arc::clone(&first);
        move || first.write_all(&[]).unwrap()
    });
    let mut got = vec![0; piece(0).len()];
    for number in 1..=count {
        (&*second).read_exact(&mut got).unwrap();
        assert!(got == piece(number), "piece {number}");
    }
    writer.join().unwrap();
    assert_eq!(first.write_now(b"more").unwrap(), Written::All);
}

#[test]
fn nobody_else_is_a_member() {
    let fixture = Fixture::new();
    let load = |bundle: &str| MemberTls::load(fixture.files(bundle));
    let of_another_group = meet_members(load("member-shop-db1").unwrap(), &load("member-other-db3").unwrap());
    let why = of_another_group.1.unwrap_err();
    assert!(why.contains("member db3 of group other"), "{why}");
    for bundle in ["volume-shop", "node-node", "administrator"] {
        let why = load(bundle).unwrap_err().to_string();
        assert!(why.contains("not of a member"), "{why}");
    }
    remove(&fixture.authority(), &["member-shop-db2".to_owned()]).unwrap();
    let removed = meet_members(load("member-shop-db1").unwrap(), &load("member-shop-db2").unwrap());
    let why = removed.1.unwrap_err();
    assert!(why.contains("was removed"), "{why}");
    // A node rejects a member's certificate, as its own and as a client's.
    let why = ServerTls::load(fixture.files("member-shop-db1")).unwrap_err().to_string();
    assert!(why.contains("not of a storage node"), "{why}");
    let (_, node) = meet_loaded(
        &server(fixture.files("node-node")),
        ClientTls::load(fixture.files("member-shop-db1")).map(Arc::new),
    );
    assert!(node.is_err());
}
