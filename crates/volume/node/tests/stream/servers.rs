//! Which servers may have a volume: the newest that changed it is noted before its first change is stored. And which
//! attach of several counts.

use super::client::{ControlClient, LogClient, frame};
use super::protocol::{Fixture, Stream};
use super::running::{LocalNode, SMALL, options};
use redoubt_redo::{Lsn, mysql};
use redoubt_wire::control::{Attachment, Reply, Request};
use redoubt_wire::notice::Notice;
use redoubt_wire::stream::{FileKind, StreamFrame};

const MARIADB_10_11: &str = "MariaDB 10.11.19";
const MARIADB_11_8: &str = "MariaDB 11.8.9";
const MYSQL: &str = "MySQL 9.7.4";

fn ask_to_attach(control: &mut ControlClient, server: &str) -> Reply {
    let (who, server) = (format!("the test of {server}"), Some(server.parse().unwrap()));
    control.ask(&Request::Attach { volume: "v".to_owned(), who, server, seen_generation: None }).unwrap()
}

fn attach(fixture: &mut Fixture, server: &str) -> Attachment {
    match ask_to_attach(&mut fixture.control(), server) {
        Reply::Attached(attachment) => {
            fixture.generation = attachment.generation;
            attachment
        }
        other => panic!("{other:?}"),
    }
}

fn require_refused(fixture: &Fixture, server: &str, reason: &str) {
    match ask_to_attach(&mut fixture.control(), server) {
        Reply::Failed { message, .. } => {
            assert!(message.contains(reason) && message.contains("No server was fenced"), "{message}");
        }
        other => panic!("{server}: {other:?}"),
    }
    assert_eq!(fixture.control().status().generation, fixture.generation);
}

/// Format of the file `volume`; 0.1.0 opens a volume of format 1 only.
fn format_of(fixture: &Fixture) -> u64 {
    let text = std::fs::read_to_string(fixture.directory.path().join("volumes/v/volume")).unwrap();
    let json: serde_json::Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
    json["format"].as_u64().unwrap()
}

#[test]
fn first_redo_of_a_fenced_newer_server_is_refused() {
    let mut fixture = Fixture::new();
    let mut stream = Stream::new();
    attach(&mut fixture, MARIADB_10_11);
    let mut first = fixture.log(1, 0);
    first.send(&stream.begin(3)).unwrap();
    assert!(first.wait_durable(stream.seq));
    let end = (stream.seq, stream.lsn);
    drop(first);

    attach(&mut fixture, MARIADB_11_8);
    let mut newer = fixture.log(2, 0);
    let attaching = {
        let mut control = fixture.control();
        std::thread::spawn(move || ask_to_attach(&mut control, MARIADB_10_11))
    };
    // The generation is given out, and the attach waits for the rest of the newer server's stream.
    assert!(newer.wait(|notice, _| matches!(notice, Notice::Fenced { .. })).is_some());
    newer.send(&stream.change(3, b"of 11.8")).unwrap();
    assert!(newer.wait_closed());
    let Reply::Attached(attachment) = attaching.join().unwrap() else { panic!("not attached") };
    assert_eq!(attachment.end_lsn, end.1.0, "redo of 11.8 is in a volume of 10.11");
    assert_eq!(format_of(&fixture), 1);
    fixture.generation = attachment.generation;
    assert_eq!(fixture.log(3, 0).welcome.next_seq.0, end.0);
}

#[test]
fn newer_server_noted_during_an_attach_keeps_the_volume() {
    let mut fixture = Fixture::new();
    attach(&mut fixture, MARIADB_11_8);
    let mut stream = Stream::new();
    let mut newer = fixture.log(1, 0);
    newer.send(&stream.begin(1)).unwrap();
    assert!(newer.wait_durable(stream.seq));
    assert_eq!(format_of(&fixture), 2);
    require_refused(&fixture, MARIADB_10_11, "MariaDB 11.8.9 has run on it");
    // It was not fenced.
    newer.send(&stream.change(3, b"later")).unwrap();
    assert!(newer.wait_durable(stream.seq));
}

#[test]
fn log_files_of_mysql_bind_an_empty_volume_to_mysql() {
    let path: &[u8] = b"#innodb_redo/#ib_redo0";
    let flags = mysql::LogFlags::default();
    let header = mysql::LogFileHeader { set_id: 7, start_lsn: 8192, creator: b"MySQL 9.7.4".to_vec(), flags };
    let block = header.build();
    let create = StreamFrame::Create { path, kind: FileKind::Redo, mode: 0o640 };
    let front = StreamFrame::LogFront { path, offset_bytes: 0, next_lsn: Lsn(8208), block: &block };
    for frames in [vec![&create], vec![&create, &front]] {
        let mut fixture = Fixture::new();
        attach(&mut fixture, MYSQL);
        let mut log = fixture.log(1, 0);
        let mut at = 0;
        for one in frames {
            let wire = frame(at, one);
            at += wire.len() as u64;
            log.send(&wire).unwrap();
        }
        assert!(log.wait_durable(at));
        drop(log);
        require_refused(&fixture, MARIADB_10_11, "MySQL 9.7.4 has run on it");
        assert_eq!(format_of(&fixture), 2);
        attach(&mut fixture, MYSQL);
    }
}

#[test]
fn plain_files_of_a_newer_server_bind_no_volume() {
    let mut fixture = Fixture::new();
    attach(&mut fixture, MARIADB_11_8);
    let mut log = fixture.log(1, 0);
    let system = frame(0, &StreamFrame::SystemFiles(Vec::new()));
    let create =
        frame(system.len() as u64, &StreamFrame::Create { path: b"a", kind: FileKind::Plain, mode: 0o660 });
    log.send(&[system.clone(), create.clone()].concat()).unwrap();
    assert!(log.wait_durable((system.len() + create.len()) as u64));
    drop(log);
    attach(&mut fixture, MARIADB_10_11);
    assert_eq!(format_of(&fixture), 1);
}

/// A node of 0.1.0 noted no server.
#[test]
fn redo_log_without_a_noted_server_has_its_family() {
    let mut fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut log: LogClient = fixture.log(1, 0);
    log.send(&stream.begin(1)).unwrap();
    assert!(log.wait_durable(stream.seq));
    drop(log);
    forget_servers(&mut fixture);
    require_refused(&fixture, MYSQL, "its redo log is of MariaDB");
    attach(&mut fixture, MARIADB_10_11);
}

/// Removes what 0.1.0 does not write from the file `volume`.
fn forget_servers(fixture: &mut Fixture) {
    fixture.node.take().unwrap().stop();
    let path = fixture.directory.path().join("volumes/v/volume");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
    let fields = json.as_object_mut().unwrap();
    assert!(fields.remove("newest_server").is_some() && fields.remove("attached_server").is_some());
    let body = json.to_string();
    std::fs::write(&path, format!("{:08x}\n{body}", crc32c::crc32c(body.as_bytes()))).unwrap();
    fixture.node = Some(LocalNode::open(&options(fixture.directory.path(), SMALL)));
    assert!(fixture.control().status().newest_server.is_none());
}

fn attach_seen(control: &mut ControlClient, seen_generation: Option<u64>) -> Reply {
    let (volume, who) = ("v".to_owned(), "the test".to_owned());
    control.ask(&Request::Attach { volume, who, server: None, seen_generation }).unwrap()
}

fn require_outdated(reply: &Reply) {
    match reply {
        Reply::Failed { retry: true, message } => {
            assert!(message.contains("No server was fenced"), "{message}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn attach_that_has_seen_another_generation_is_refused() {
    let fixture = Fixture::new();
    let mut control = fixture.control();
    let first = fixture.generation;
    assert!(matches!(attach_seen(&mut control, Some(first)), Reply::Attached(_)));
    for seen in [0, first, first + 2, u64::MAX] {
        require_outdated(&attach_seen(&mut control, Some(seen)));
    }
    assert_eq!(control.status().generation, first + 1);
    // A client of 0.1.0.
    assert!(matches!(attach_seen(&mut control, None), Reply::Attached(_)));
}

#[test]
fn attach_that_waited_for_another_fences_no_server() {
    let fixture = Fixture::new();
    let seen = Some(fixture.generation);
    let mut old = fixture.log(1, 0);
    let ask = || {
        let mut control = fixture.control();
        std::thread::spawn(move || attach_seen(&mut control, seen))
    };
    let faster = ask();
    // It has its generation, and waits for the old server.
    assert!(old.wait(|notice, _| matches!(notice, Notice::Fenced { .. })).is_some());
    let waiting = ask();
    drop(old);
    let Reply::Attached(attachment) = faster.join().unwrap() else { panic!("not attached") };
    require_outdated(&waiting.join().unwrap());
    LogClient::connect(fixture.address(), "v", attachment.generation, 2, 0).unwrap();
}
