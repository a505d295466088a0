use super::*;

const WAITS: Boundary = Boundary::Command { may_wait: true, keeps: false };
const KEEPS: Boundary = Boundary::Command { may_wait: false, keeps: true };
const HOLDS: Boundary = Boundary::Command { may_wait: false, keeps: false };

fn packet(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes =
        vec![content.len() as u8, (content.len() >> 8) as u8, (content.len() >> 16) as u8, number];
    bytes.extend_from_slice(content);
    bytes
}

fn ok(status: u16) -> Vec<u8> {
    let [low, high] = status.to_le_bytes();
    vec![0, 0xfc, 1, 2, 0xfe, 1, 2, 3, 4, 5, 6, 7, 8, low, high, 0, 0]
}

fn end_of_rows(status: u16) -> Vec<u8> {
    let [low, high] = status.to_le_bytes();
    vec![0xfe, 0, 0, low, high]
}

fn error(code: u16) -> Vec<u8> {
    let [low, high] = code.to_le_bytes();
    [&[0xff, low, high][..], b"#40001something"].concat()
}

fn login(flags: u32, user: &str) -> Vec<u8> {
    let mut content = flags.to_le_bytes().to_vec();
    content.resize(32, 0);
    content.extend_from_slice(user.as_bytes());
    content.extend_from_slice(b"\0\x14aaaaaaaaaaaaaaaaaaaa");
    content
}

/// A client that has logged in.
fn logged_in() -> Tracker {
    let mut tracker = Tracker::accepted();
    tracker.sent(&packet(0, b"\x0a10.11.0-MariaDB"));
    assert_eq!(tracker.asks(4), Boundary::None);
    tracker.received(&packet(1, &login(0x1, "app")));
    tracker.sent(&packet(2, b"\xfemysql_native_password\0salt"));
    assert_eq!(tracker.asks(4), Boundary::None);
    tracker.received(&packet(3, b"secret"));
    tracker.sent(&packet(4, &ok(AUTOCOMMIT)));
    assert_eq!((tracker.asks(4), tracker.user()), (WAITS, &b"app"[..]));
    tracker
}

fn command(tracker: &mut Tracker, content: &[u8]) {
    let bytes = packet(0, content);
    tracker.received(&bytes[..4]);
    assert_eq!(tracker.boundary(), Boundary::None);
    tracker.received(&bytes[4..]);
    assert!(!tracker.lost());
}

fn query(tracker: &mut Tracker, text: &str, answer: &[u8]) -> Boundary {
    command(tracker, &[b"\x03", text.as_bytes()].concat());
    tracker.sent(&packet(1, answer));
    tracker.asks(4)
}

#[test]
fn transactions_are_followed_by_the_last_packet_of_an_answer() {
    let mut tracker = logged_in();
    assert_eq!(query(&mut tracker, "BEGIN", &ok(3)), KEEPS);
    // Rows: some look like anything.
    command(&mut tracker, b"\x03SELECT * FROM t");
    let rows: Vec<&[u8]> =
        vec![b"\x01", b"\x03def", b"\xfe\0\0\x03\0", b"\xfb", b"\0\0\0\x02\0\0\0", b"\xfe\0\0\x03\0"];
    let stream: Vec<u8> = rows.iter().zip(1..).flat_map(|(row, number)| packet(number, row)).collect();
    stream.chunks(3).for_each(|piece| tracker.sent(piece));
    assert_eq!(tracker.asks(4), KEEPS);
    assert_eq!(query(&mut tracker, "COMMIT", &ok(2)), WAITS);
    // The form without EOF.
    let mut end = ok(3);
    end[0] = 0xfe;
    assert_eq!(query(&mut tracker, "SELECT 1", &end), KEEPS);
    assert_eq!(query(&mut tracker, "ROLLBACK", &end_of_rows(2)), WAITS);
}

#[test]
fn several_results_end_with_the_last() {
    let mut tracker = logged_in();
    command(&mut tracker, b"\x03BEGIN; COMMIT");
    tracker.sent(&packet(1, &ok(3 | MORE_RESULTS)));
    assert_eq!(tracker.asks(4), Boundary::None);
    tracker.sent(&packet(2, &ok(2)));
    assert_eq!(tracker.asks(4), WAITS);
}

#[test]
fn errors_have_no_status() {
    let mut tracker = logged_in();
    assert_eq!(query(&mut tracker, "INSERT INTO t VALUES (1)", &error(1062)), WAITS);
    assert_eq!(query(&mut tracker, "CALL p()", &error(1062)), KEEPS);
    assert_eq!(query(&mut tracker, "INSERT INTO t VALUES (1)", &error(1062)), KEEPS);
    assert_eq!(query(&mut tracker, "SELECT 1", &end_of_rows(2)), WAITS);
    assert_eq!(query(&mut tracker, "BEGIN", &ok(3)), KEEPS);
    assert_eq!(query(&mut tracker, "UPDATE t SET a = 1", &error(1205)), KEEPS);
    assert_eq!(query(&mut tracker, "UPDATE t SET a = 1", &error(1213)), WAITS);
    // Without autocommit a failed statement may have begun a transaction.
    assert_eq!(query(&mut tracker, "SET autocommit = 0", &ok(0)), WAITS);
    assert_eq!(query(&mut tracker, "INSERT INTO t VALUES (1)", &error(1062)), KEEPS);
    assert_eq!(query(&mut tracker, "COMMIT", &ok(0)), WAITS);
}

#[test]
fn prepared_statements() {
    let mut tracker = logged_in();
    command(&mut tracker, b"\x16UPDATE t SET a = ?");
    // Looks like an OK with a transaction.
    tracker.sent(&packet(1, &[0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(tracker.asks(4), WAITS);
    command(&mut tracker, b"\x18\x01\0\0\0\0\0long data");
    assert_eq!(tracker.asks(4), WAITS);
    command(&mut tracker, b"\x17\x01\0\0\0");
    tracker.sent(&packet(1, &error(1062)));
    assert_eq!(tracker.asks(4), WAITS);
    command(&mut tracker, b"\x17\x01\0\0\0");
    tracker.sent(&packet(1, &ok(3)));
    assert_eq!(tracker.asks(4), KEEPS);
    command(&mut tracker, b"\x19\x01\0\0\0");
    assert_eq!(tracker.asks(4), KEEPS);
    assert_eq!(query(&mut tracker, "COMMIT", &ok(2)), WAITS);
    command(&mut tracker, b"\x16CALL p()");
    tracker.sent(&packet(1, &[0; 12]));
    assert_eq!(tracker.asks(4), WAITS);
    command(&mut tracker, b"\x17\x02\0\0\0");
    tracker.sent(&packet(1, &error(1062)));
    assert_eq!(tracker.asks(4), KEEPS);
    command(&mut tracker, b"\x16SELECT GET_LOCK(?, 1)");
    assert_ne!(tracker.holds(), 0);
}

#[test]
fn locks_outside_of_transactions() {
    let mut tracker = logged_in();
    assert_eq!(query(&mut tracker, "LOCK TABLES t WRITE", &ok(2)), HOLDS);
    assert_eq!(query(&mut tracker, "UNLOCK TABLES", &error(1)), HOLDS);
    assert_eq!(query(&mut tracker, "UNLOCK TABLES", &ok(2)), WAITS);
    assert_eq!(query(&mut tracker, "SELECT GET_LOCK('a', 1)", &end_of_rows(2)), HOLDS);
    assert_eq!(query(&mut tracker, "UNLOCK TABLES", &ok(2)), HOLDS);
    command(&mut tracker, b"\x1f");
    tracker.sent(&packet(1, &ok(2)));
    assert_eq!(tracker.asks(4), WAITS);
    assert_eq!(query(&mut tracker, "SELECT GET_LOCK('a', 1)", &end_of_rows(2)), HOLDS);
    // Another user, which has to send a password.
    command(&mut tracker, b"\x11root\0");
    assert_eq!(tracker.user(), b"");
    tracker.sent(&packet(1, b"\xfemysql_native_password\0salt"));
    assert_eq!(tracker.asks(4), Boundary::None);
    tracker.received(&packet(2, b"secret"));
    tracker.sent(&packet(3, &ok(2)));
    assert_eq!(tracker.asks(4), WAITS);
}

#[test]
fn a_file_of_the_client_is_no_command() {
    let mut tracker = logged_in();
    command(&mut tracker, b"\x03LOAD DATA LOCAL INFILE 'x' INTO TABLE t");
    tracker.sent(&packet(1, b"\xfbx"));
    for number in 2..1000u32 {
        assert_eq!(tracker.asks(4), Boundary::None);
        tracker.received(&packet(number as u8, b"\x03LOCK TABLES t READ"));
    }
    tracker.received(&packet(1000u32 as u8, b""));
    tracker.sent(&packet(1001u32 as u8, &ok(2)));
    assert_eq!((tracker.asks(4), tracker.holds()), (WAITS, 0));
}

#[test]
fn it_joins_in_the_middle_and_waits_for_a_status() {
    let mut tracker = Tracker::joining();
    tracker.received(b"anything");
    assert_eq!(tracker.asks(4), Boundary::None);
    tracker.sent(b"the end of an answer");
    assert_eq!(tracker.asks(5), Boundary::None);
    assert_eq!(tracker.asks(4), KEEPS);
    assert_eq!(query(&mut tracker, "INSERT INTO t VALUES (1)", &error(1062)), KEEPS);
    assert_eq!(query(&mut tracker, "SELECT 1", &end_of_rows(2)), WAITS);
}

#[test]
fn what_does_not_fit_makes_it_lost() {
    for spoil in [
        |tracker: &mut Tracker| tracker.sent(&packet(9, &ok(2))),
        |tracker: &mut Tracker| tracker.received(&packet(1, b"\x03SELECT 1")),
        |tracker: &mut Tracker| tracker.received(&packet(0, b"")),
        |tracker: &mut Tracker| assert_eq!(tracker.asks(7), Boundary::None),
        |tracker: &mut Tracker| assert_eq!(query(tracker, "SELECT 1", b"what"), Boundary::None),
    ] {
        let mut tracker = logged_in();
        spoil(&mut tracker);
        assert!(tracker.lost());
        assert_eq!(tracker.asks(4), Boundary::None);
    }
    let mut tracker = logged_in();
    command(&mut tracker, b"\x12binlog");
    tracker.sent(&packet(77, b"event"));
    assert_eq!((tracker.asks(4), tracker.lost()), (Boundary::None, false));
}

#[test]
fn what_need_not_wait_is_seen_in_what_has_come() {
    let tracker = logged_in();
    for (content, free) in [
        (&b"\x03KILL 5"[..], true),
        (b"\x03SELECT 1", true),
        (b"\x03SELECT a FROM t", false),
        (b"\x0e", true),
        (b"\x01", true),
        (b"\x16SELECT", true),
        (b"\x17\x01\0\0\0", false),
        (b"\xfa", false),
    ] {
        assert_eq!(tracker.is_free(&packet(0, content)), free, "{content:?}");
    }
    let kill = packet(0, b"\x03KILL 5");
    assert!(!tracker.is_free(&kill[..9]) && !tracker.is_free(&kill[..4]) && !tracker.is_free(b""));
}

#[test]
fn what_follows_a_command_of_replication_is_not_looked_at() {
    let mut tracker = logged_in();
    tracker.received(&[packet(0, b"\x12binlog"), packet(7, b"anything")].concat());
    assert!(!tracker.lost());
    tracker.received(&packet(9, b"anything"));
    assert_eq!((tracker.asks(4), tracker.lost()), (Boundary::None, false));
}

/// Bytes of any kind: no panic, and the same in pieces.
#[test]
fn pieces_make_no_difference() {
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..3000 {
        let mut whole = logged_in();
        let mut pieces = whole.clone();
        for _ in 0..rng.usize(1..8) {
            let content: Vec<u8> = match rng.u8(0..6) {
                0 => b"\x03LOCK TABLES t READ".to_vec(),
                1 => b"\x17\x01\0\0\0".to_vec(),
                2 => ok(rng.u16(0..4)),
                3 => end_of_rows(rng.u16(0..16)),
                4 => error(1213),
                _ => (0..rng.usize(0..30)).map(|_| rng.u8(..)).collect(),
            };
            let bytes = packet(if rng.u8(..) < 20 { rng.u8(..) } else { rng.u8(0..3) }, &content);
            let size = rng.usize(1..6);
            if rng.bool() {
                whole.sent(&bytes);
                bytes.chunks(size).for_each(|piece| pieces.sent(piece));
            } else {
                whole.received(&bytes);
                bytes.chunks(size).for_each(|piece| pieces.received(piece));
            }
            assert_eq!(
                (whole.asks(4), whole.holds(), whole.lost()),
                (pieces.asks(4), pieces.holds(), pieces.lost())
            );
        }
    }
}

#[test]
fn a_login_goes_on_inside_of_tls() {
    let request = packet(1, &[&(1u32 | CLIENT_TLS).to_le_bytes()[..], &[0; 28]].concat());
    let asked = || {
        let mut tracker = Tracker::accepted();
        tracker.sent(&packet(0, b"\x0a10.11.0-MariaDB"));
        tracker.received(&request[..4]);
        tracker.received(&request[4..]);
        assert!(!tracker.lost());
        tracker
    };
    let mut tracker = asked();
    tracker.encrypt();
    assert_eq!(tracker.asks(4), Boundary::None);
    tracker.received(&packet(2, &login(1 | CLIENT_TLS, "app")));
    tracker.sent(&packet(3, &ok(AUTOCOMMIT)));
    assert_eq!((tracker.asks(4), tracker.user()), (WAITS, &b"app"[..]));
    // Without a call of `encrypt` the bytes of TLS are not packets.
    for pass in [Tracker::received, Tracker::sent] {
        let mut tracker = asked();
        pass(&mut tracker, b"\x16\x03\x01\x02\0");
        assert!(tracker.lost());
    }
    // TLS begins although the client has not asked for it.
    let mut tracker = logged_in();
    tracker.encrypt();
    assert!(tracker.lost());
}
