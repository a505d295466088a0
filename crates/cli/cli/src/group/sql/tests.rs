use super::*;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SCRAMBLE: &[u8; SCRAMBLE_LEN] = b"abcdefgh0123456789AB";

/// A packet of a server.
fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = (payload.len() as u32).to_le_bytes().to_vec();
    packet[3] = sequence;
    packet.extend(payload);
    packet
}

fn greeting() -> Vec<u8> {
    let mut payload = vec![PROTOCOL_VERSION];
    payload.extend(b"5.5.5-10.11.19-MariaDB\0");
    payload.extend([7, 0, 0, 0]);
    payload.extend(&SCRAMBLE[..8]);
    payload.extend([0; 19]);
    payload.extend(&SCRAMBLE[8..]);
    payload.push(0);
    payload.extend(NATIVE_PASSWORD);
    payload.push(0);
    payload
}

/// A connection to a server that sends these bytes, whatever it receives; and what it has received.
fn scripted(answers: &[Vec<u8>]) -> (Connection, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&answers.concat()).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    (Connection { stream: Timed { socket: Socket::Unix(ours), until }, sequence: 0 }, theirs)
}

fn received(connection: Connection, mut server: UnixStream) -> Vec<u8> {
    drop(connection);
    let mut bytes = Vec::new();
    server.read_to_end(&mut bytes).unwrap();
    bytes
}

fn words(result: Result<impl std::fmt::Debug>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn login_proves_password_by_scramble() {
    let (mut connection, server) = scripted(&[packet(0, &greeting()), packet(2, &[OK, 0, 0])]);
    connection.log_in("watcher", b"secret").unwrap();
    let sent = received(connection, server);
    let proof = native_password(b"secret", SCRAMBLE);
    // Computed with Python's hashlib.
    assert_eq!(proof[..4], [0x64, 0xbe, 0x60, 0x1a]);
    let expected = [&CAPABILITIES.to_le_bytes()[..], &[0xff, 0xff, 0xff, 0, COLLATION], &[0; 23]].concat();
    let expected = [&expected[..], b"watcher\0", &[20], &proof, NATIVE_PASSWORD, &[0]].concat();
    assert_eq!(sent, packet(1, &expected));
    assert!(native_password(b"", SCRAMBLE).is_empty());
}

#[test]
fn login_repeats_proof_with_new_scramble() {
    let switch = [&[END][..], NATIVE_PASSWORD, b"\0ABCDEFGHIJKLMNOPQRST\0"].concat();
    let answers = [packet(0, &greeting()), packet(2, &switch), packet(4, &[OK, 0, 0])];
    let (mut connection, server) = scripted(&answers);
    connection.log_in("watcher", b"secret").unwrap();
    let sent = received(connection, server);
    assert!(sent.ends_with(&packet(3, &native_password(b"secret", b"ABCDEFGHIJKLMNOPQRST"))));
}

#[test]
fn login_reports_refusal_and_unknown_plugin() {
    let refusal = b"\xff\x15\x04#28000Access denied for user 'x'";
    let (mut connection, _server) = scripted(&[packet(0, &greeting()), packet(2, refusal)]);
    assert_eq!(words(connection.log_in("x", b"")), "ERROR 1045 (28000): Access denied for user 'x'");
    let (mut connection, _server) = scripted(&[packet(0, b"\xff\x10\x04Too many connections")]);
    assert_eq!(words(connection.log_in("x", b"")), "ERROR 1040: Too many connections");
    let switch = packet(2, b"\xfeclient_ed25519\0AAAA");
    let (mut connection, _server) = scripted(&[packet(0, &greeting()), switch]);
    assert!(words(connection.log_in("x", b"")).contains("plugin client_ed25519"));
}

#[test]
fn query_returns_rows_as_text() {
    let long = "x".repeat(300);
    let long_cell = [&[0xfc, 44, 1][..], long.as_bytes()].concat();
    let answers = [
        packet(1, &[2]),
        packet(2, b"first definition"),
        packet(3, b"second definition"),
        packet(4, &[END, 0, 0, 0, 0]),
        packet(5, b"\x03abc\xfb"),
        packet(6, &[&b"\0"[..], &long_cell].concat()),
        packet(7, &[END, 0, 0, 0, 0]),
        packet(1, &[OK, 0, 0]),
    ];
    let (mut connection, server) = scripted(&answers);
    let rows = connection.query("SHOW x").unwrap();
    assert_eq!(rows, [["abc".to_owned(), "NULL".to_owned()], [String::new(), long]]);
    assert_eq!(connection.query("SET x").unwrap(), Vec::<Vec<String>>::new());
    assert_eq!(received(connection, server), [packet(0, b"\x03SHOW x"), packet(0, b"\x03SET x")].concat());
}

#[test]
fn invalid_answers_are_errors() {
    let query = |answers: &[Vec<u8>]| words(scripted(answers).0.query("SHOW x"));
    assert!(query(&[packet(1, &[2])]).starts_with("cannot receive from the server"));
    assert!(query(&[packet(1, &[LOCAL_FILE])]).contains("local file"));
    assert!(query(&[vec![0xff, 0xff, 0xff, 1]]).contains("too long"));
    let end = packet(3, &[END, 0, 0, 0, 0]);
    let rows = |row: &[u8]| [packet(1, &[1]), packet(2, b"definition"), end.clone(), packet(4, row)];
    assert!(query(&rows(b"\x05abc")).contains("cut short"));
    assert!(query(&rows(b"\xff\x1f\x04#08S01gone")).contains("ERROR 1055 (08S01): gone"));
    let (mut connection, _server) = scripted(&[packet(0, b"SSH-2.0-OpenSSH_9.2")]);
    assert!(words(connection.log_in("x", b"")).contains("another version"));
    for len in 0..greeting().len() - NATIVE_PASSWORD.len() - 2 {
        let (mut connection, _server) = scripted(&[packet(0, &greeting()[..len])]);
        assert!(words(connection.log_in("x", b"")).contains("not that of a MariaDB server"), "{len}");
    }
}
