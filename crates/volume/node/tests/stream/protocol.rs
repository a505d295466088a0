//! Fencing, resuming, damaged and misplaced frames: clear errors, nothing lost, the node continues.

use super::client::{ControlClient, LogClient, PageClient, connect, frame, hello};
use super::encoder::MtrWriter;
use super::running::{LocalNode, SMALL, Sizes, options};
use redoubt_page::{SpaceFlags, digest, finalize, layout};
use redoubt_redo::Lsn;
use redoubt_redo::mariadb::LogHeader;
use redoubt_wire::hello::{Role, Status};
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{FileKind, StreamFrame, Verify};
use redoubt_wire::{HEADER_LEN_BYTES, Seq};
use std::io::{Read, Write};
use std::net::TcpStream;

pub const FIRST_LSN: Lsn = Lsn(12_288);
const FLAGS: SpaceFlags = SpaceFlags(0x15);
const PAGE_BYTES: u64 = 16_384;

/// A node with volume `v`, attached once.
pub struct Fixture {
    pub directory: tempfile::TempDir,
    pub node: Option<LocalNode>,
    pub generation: u64,
}

impl Fixture {
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir(), SMALL)
    }

    /// With its directory in `parent`.
    pub fn within(parent: &std::path::Path, sizes: Sizes) -> Self {
        let directory = tempfile::tempdir_in(parent).unwrap();
        let node = LocalNode::open(&options(directory.path(), sizes));
        let mut control = ControlClient::connect(node.address).unwrap();
        control.create("v");
        let generation = control.attach("v").generation;
        Self { directory, node: Some(node), generation }
    }

    pub fn address(&self) -> std::net::SocketAddr {
        self.node.as_ref().unwrap().address
    }

    pub fn restart(&mut self) {
        self.restart_with(SMALL);
    }

    pub fn restart_with(&mut self, sizes: Sizes) {
        self.node.take().unwrap().stop();
        self.node = Some(LocalNode::open(&options(self.directory.path(), sizes)));
    }

    pub fn control(&self) -> ControlClient {
        ControlClient::connect(self.address()).unwrap()
    }

    pub fn log(&self, session: u64, resume: u64) -> LogClient {
        LogClient::connect(self.address(), "v", self.generation, session, resume).unwrap()
    }

    /// Position of the node, which also shows that it still answers.
    fn next_seq(&self, session: u64) -> u64 {
        self.log(session, 0).welcome.next_seq.0
    }
}

/// A stream under construction.
pub struct Stream {
    pub seq: u64,
    pub lsn: Lsn,
}

impl Stream {
    pub fn new() -> Self {
        Self { seq: 0, lsn: Lsn(0) }
    }

    pub fn frame(&mut self, stream_frame: &StreamFrame<'_>) -> Vec<u8> {
        let wire = frame(self.seq, stream_frame);
        if stream_frame.is_logged() {
            self.seq += wire.len() as u64;
        }
        wire
    }

    /// The redo log file and tablespace 5, `d/t.ibd`, with `pages` pages besides page 0.
    pub fn begin(&mut self, pages: u32) -> Vec<u8> {
        let header = LogHeader { first_lsn: FIRST_LSN, creator: b"test".to_vec() }.build();
        let checkpoints = [&[0; 64], &[0; 64]];
        let file_size_bytes = 12_288 + (1 << 20);
        let log_file =
            StreamFrame::LogFile { file_size_bytes, header: &header, checkpoints, next_lsn: FIRST_LSN };
        let mut out = self.frame(&log_file);
        self.lsn = FIRST_LSN;
        out.extend(self.frame(&StreamFrame::Create {
            path: b"d/t.ibd",
            kind: FileKind::Tablespace,
            mode: 0o660,
        }));
        let mut create = MtrWriter::new();
        create.file(0x80, 5, b"./d/t.ibd");
        create.init((5, 0)).write_absolute((5, 0), 34, &[0, 0, 0, 5]).write_absolute(
            (5, 0),
            54,
            &FLAGS.0.to_be_bytes(),
        );
        out.extend(self.redo(&create));
        for page_no in 3..3 + pages {
            let mut mtr = MtrWriter::new();
            mtr.init((5, page_no)).write((5, page_no), 100, b"first");
            out.extend(self.redo(&mtr));
        }
        out
    }

    pub fn redo(&mut self, mtr: &MtrWriter) -> Vec<u8> {
        let bytes = mtr.finish(1);
        self.lsn = self.lsn.advance(bytes.len() as u64);
        self.frame(&StreamFrame::Redo(&bytes))
    }

    pub fn change(&mut self, page_no: u32, data: &[u8]) -> Vec<u8> {
        let mut mtr = MtrWriter::new();
        mtr.write((5, page_no), 200, data);
        self.redo(&mtr)
    }
}

/// Bytes at offset 200 of a page.
pub fn changed(pages: &mut PageClient, need: u64, page_no: u32, len: usize) -> Vec<u8> {
    let file = pages.open(need, "d/t.ibd").unwrap().unwrap();
    let page = pages.read(need, file, u64::from(page_no) * PAGE_BYTES, PAGE_BYTES as u32).unwrap();
    page[200..200 + len].to_vec()
}

#[test]
fn a_peer_that_speaks_something_else_is_sent_away() {
    let fixture = Fixture::new();
    for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[255; 40], &[4, 0, 0, 0, 1, 2, 3, 4], &[0; 4]] {
        let mut stream = TcpStream::connect(fixture.address()).unwrap();
        stream.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        // Closed or reset, with or without a refusal; never accepted.
        let _ = stream.read_to_end(&mut answer);
        if let Some(bytes) = answer.get(4..) {
            let welcome = redoubt_wire::hello::Welcome::decode(bytes).unwrap();
            assert_eq!(welcome.status, Status::Refused, "{garbage:?}");
        }
    }
    let mut other_version = hello(Role::Log, "v", 1, 1, 0).encode();
    other_version[8] = 99;
    let mut stream = TcpStream::connect(fixture.address()).unwrap();
    stream.write_all(&other_version).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let refused = redoubt_wire::hello::Welcome::decode(&answer[4..]).unwrap();
    assert_eq!(refused.status, Status::Refused);
    assert!(refused.message.contains("version 99"), "{}", refused.message);
    assert_eq!(fixture.next_seq(1), 0);
}

#[test]
fn wrong_volume_and_wrong_generations_are_refused_by_name() {
    let mut fixture = Fixture::new();
    let ask = |fixture: &Fixture, role, volume: &str, generation| {
        connect(fixture.address(), &hello(role, volume, generation, 1, 0)).unwrap().1
    };
    let welcome = ask(&fixture, Role::Log, "w", 1);
    assert_eq!(welcome.status, Status::Refused);
    assert!(welcome.message.contains("no volume \"w\""), "{}", welcome.message);
    for role in [Role::Log, Role::Page] {
        let welcome = ask(&fixture, role, "v", fixture.generation + 1);
        assert_eq!(welcome.status, Status::Refused);
        assert!(welcome.message.contains("never given out"), "{}", welcome.message);
        let welcome = ask(&fixture, role, "v", fixture.generation - 1);
        assert_eq!(welcome.status, Status::Fenced);
        assert!(welcome.message.contains("attached by the test"), "{}", welcome.message);
    }
    // A generation outlives the node.
    fixture.control().attach("v");
    fixture.restart();
    assert_eq!(ask(&fixture, Role::Log, "v", fixture.generation).status, Status::Fenced);
}

#[test]
fn a_fenced_server_appends_nothing_more() {
    let fixture = Fixture::new();
    let mut old = fixture.log(1, 0);
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    let mut stream = Stream::new();
    old.send(&stream.begin(1)).unwrap();
    assert!(old.wait_durable(stream.seq));
    let attachment = fixture.control().attach("v");
    assert_eq!(attachment.end_lsn, stream.lsn.0);
    let end = stream.seq;
    let _ = old.send(&stream.change(3, b"too late"));
    assert!(old.wait(|notice, _| matches!(notice, Notice::Fenced { .. })).is_some());
    assert!(old.wait_closed());
    let new = LogClient::connect(fixture.address(), "v", attachment.generation, 2, 0).unwrap();
    assert_eq!(new.welcome.next_seq, Seq(end));
    // Nor does it read. It receives no error, after which a server could go on.
    pages.ask(&PageRequest::LogState, |reply| panic!("{reply:?}")).unwrap_err();
    let hello = hello(Role::Page, "v", fixture.generation, 1, 0);
    assert_eq!(connect(fixture.address(), &hello).unwrap().1.status, Status::Fenced);
}

#[test]
fn read_that_waits_while_the_volume_stops_gets_no_answer() {
    let fixture = Fixture::new();
    let mut client = fixture.log(1, 0);
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    let mut stream = Stream::new();
    client.send(&stream.begin(1)).unwrap();
    assert!(client.wait_durable(stream.seq));
    let file = pages.open(stream.seq, "d/t.ibd").unwrap().unwrap();
    // Nothing of this was sent.
    let request =
        PageRequest::Read { need: Seq(stream.seq + 10_000), file, offset_bytes: 0, len_bytes: 16_384 };
    let waits = std::thread::spawn(move || pages.ask(&request, |reply| format!("{reply:?}")));
    let mut mtr = MtrWriter::new();
    mtr.init((6, 0)).write_absolute((6, 0), 54, &[0xff; 4]);
    client.send(&stream.redo(&mtr)).unwrap();
    let answered = waits.join().unwrap();
    assert!(answered.is_err(), "{answered:?}");
    assert!(client.wait(|notice, _| matches!(notice, Notice::Stopped { .. })).is_some());
}

#[test]
fn what_a_server_sent_before_it_died_is_there_for_the_next() {
    let fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut wire = stream.begin(200);
    let filler = vec![7; 12_000];
    for n in 0..1500_u32 {
        wire.extend(stream.change(3 + n % 200, &filler));
    }
    let mut log = fixture.log(1, 0);
    // Everything is on the connection, and the node has not taken much of it.
    log.send(&wire).unwrap();
    log.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let attachment = fixture.control().attach("v");
    assert_eq!(attachment.end_lsn, stream.lsn.0);
}

#[test]
fn one_session_at_a_time() {
    let fixture = Fixture::new();
    let first = fixture.log(1, 0);
    let (_, welcome) = connect(fixture.address(), &hello(Role::Log, "v", fixture.generation, 2, 0)).unwrap();
    assert_eq!(welcome.status, Status::TryLater);
    drop(first);
    // The node notices the end of the first by itself.
    let deadline = std::time::Instant::now() + super::client::PATIENCE;
    loop {
        let (_, welcome) =
            connect(fixture.address(), &hello(Role::Log, "v", fixture.generation, 2, 0)).unwrap();
        if welcome.status == Status::Accepted {
            break;
        }
        assert!(std::time::Instant::now() < deadline);
    }
}

#[test]
fn a_server_that_was_acknowledged_more_than_the_log_holds_is_refused_even_after_a_restart() {
    let mut fixture = Fixture::new();
    for _ in 0..2 {
        let (_, welcome) =
            connect(fixture.address(), &hello(Role::Log, "v", fixture.generation, 1, 1000)).unwrap();
        assert_eq!(welcome.status, Status::Refused, "{}", welcome.message);
        assert!(welcome.message.contains("1000 was acknowledged"), "{}", welcome.message);
        fixture.restart();
    }
}

#[test]
fn damaged_repeated_and_truncated_frames_end_the_connection_and_nothing_else() {
    let fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut client = fixture.log(1, 0);
    client.send(&stream.begin(2)).unwrap();
    assert!(client.wait_durable(stream.seq));
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..20 {
        let from = stream.seq;
        assert_eq!(client.welcome.next_seq.0.max(client.durable), from);
        let good = stream.change(3, format!("round {round:02}").as_bytes());
        match round % 4 {
            0 => {
                let mut bad = good.clone();
                // Not the length: the node would wait for bytes that never come.
                let at = *[0, 4, 5, 6, 7, 8, 20].get(random.usize(..7)).unwrap();
                bad[at] ^= 1 << random.u8(..8);
                client.send(&bad).unwrap();
                assert!(client.wait_closed(), "a damaged frame was taken");
            }
            1 => {
                client.send(&good).unwrap();
                assert!(client.wait_durable(stream.seq));
                client.send(&good).unwrap();
                assert!(client.wait_closed(), "a repeated frame was taken");
            }
            2 => {
                client.send(&good[..random.usize(1..good.len())]).unwrap();
            }
            _ => {
                let later = stream.change(4, b"later");
                client.send(&later).unwrap();
                assert!(client.wait_closed(), "a frame was left out and nobody noticed");
                stream.seq -= later.len() as u64;
                stream.lsn = Lsn(stream.lsn.0 - (later.len() - HEADER_LEN_BYTES) as u64);
            }
        }
        drop(client);
        client = fixture.log(1, from);
        let expected = if round % 4 == 1 { stream.seq } else { from };
        assert_eq!(client.welcome.next_seq.0, expected, "round {round}");
        if expected == from {
            client.send(&good).unwrap();
        }
        assert!(client.wait_durable(stream.seq));
        let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
        assert_eq!(changed(&mut pages, stream.seq, 3, 8), format!("round {round:02}").as_bytes());
        assert!(client.welcome.next_lsn <= stream.lsn);
        client.welcome.next_seq = Seq(stream.seq);
    }
}

#[test]
fn redo_needs_a_log_file_first() {
    let fixture = Fixture::new();
    let mut client = fixture.log(1, 0);
    let mut mtr = MtrWriter::new();
    mtr.init((5, 3));
    client.send(&Stream::new().redo(&mtr)).unwrap();
    assert!(client.wait_closed());
    assert_eq!(fixture.next_seq(1), 0);
    fixture.control().wait_state("ready");
}

#[test]
fn impossible_tablespace_flags_stop_the_volume_and_only_that() {
    let fixture = Fixture::new();
    fixture.control().create("w");
    let mut stream = Stream::new();
    let mut client = fixture.log(1, 0);
    client.send(&stream.begin(1)).unwrap();
    let mut mtr = MtrWriter::new();
    mtr.init((6, 0)).write_absolute((6, 0), 54, &[0xff; 4]);
    client.send(&stream.redo(&mtr)).unwrap();
    let stopped = client.wait(|notice, _| matches!(notice, Notice::Stopped { .. }));
    let Some(Notice::Stopped { reason }) = stopped else { panic!("{stopped:?}") };
    assert!(reason.contains("flags 0xffffffff"), "{reason}");
    let generation = fixture.control().attach("w").generation;
    LogClient::connect(fixture.address(), "w", generation, 1, 0).unwrap();
}

#[test]
fn reads_outside_of_any_tablespace_are_refused() {
    let fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut client = fixture.log(1, 0);
    client.send(&stream.begin(1)).unwrap();
    assert!(client.wait_durable(stream.seq));
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    let file = pages.open(stream.seq, "d/t.ibd").unwrap().unwrap();
    let need = Seq(stream.seq);
    let request = PageRequest::Read { need, file, offset_bytes: u64::MAX - 5, len_bytes: 16_384 };
    assert!(pages.ask(&request, |reply| matches!(reply, PageReply::Failed { retry: false, .. })).unwrap());
}

#[test]
fn a_differing_page_stops_the_volume_with_a_report_and_its_redo_stays() {
    let mut fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut client = fixture.log(1, 0);
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    client.send(&stream.begin(1)).unwrap();
    client.send(&stream.change(3, b"same")).unwrap();
    assert!(client.wait_durable(stream.seq));
    let file = pages.open(stream.seq, "d/t.ibd").unwrap().unwrap();
    let mut page = pages.read(stream.seq, file, 3 * PAGE_BYTES, PAGE_BYTES as u32).unwrap();
    let lsn = layout::page_lsn(&page).unwrap();
    assert_eq!(lsn, stream.lsn);
    let verify = |digest| StreamFrame::Verify(Verify { path: b"d/t.ibd", page_no: 3, lsn, digest });
    client.send(&stream.frame(&verify(digest(&page, FLAGS)))).unwrap();
    page[200] ^= 1;
    finalize(&mut page, FLAGS).unwrap();
    // The previous change may be applied by now; this one comes after the difference.
    let differing = stream.frame(&verify(digest(&page, FLAGS)));
    client.send(&[differing, stream.change(4, b"later")].concat()).unwrap();
    let needed = client.wait(|notice, _| matches!(notice, Notice::NeedImage { .. }));
    assert_eq!(needed, Some(Notice::NeedImage { path: b"d/t.ibd".to_vec(), page_no: 3, lsn }));
    let stopped = client.wait(|notice, _| matches!(notice, Notice::Stopped { .. })).unwrap();
    assert!(
        matches!(&stopped, Notice::Stopped { reason } if reason.contains("d/t.ibd differs")),
        "{stopped:?}"
    );
    // A read gets no error, after which the server could go on. The image is taken all the same.
    let read = PageRequest::Read { need: Seq(stream.seq), file, offset_bytes: 0, len_bytes: 16_384 };
    pages.ask(&read, |reply| panic!("{reply:?}")).unwrap_err();
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    let image = PageRequest::MismatchImage { path: b"d/t.ibd", page_no: 3, lsn, page: &page };
    pages.ask(&image, |reply| assert_eq!(reply, PageReply::Done)).unwrap();
    let status = fixture.control().status();
    assert_eq!(status.state, "stopped");
    assert!(status.a_lsn < stream.lsn.0, "what comes after the difference was applied");
    let report = fixture.directory.path().join(format!("volumes/v/mismatch-5-3-{lsn}.txt"));
    let text = std::fs::read_to_string(&report).unwrap();
    assert!(text.contains("200..201: 72 / 73"), "{text}");
    assert_eq!(std::fs::read(report.with_extension("server.page")).unwrap(), page);
    fixture.restart();
    let status = fixture.control().wait_state("unusable");
    assert!(
        status.reason.contains("d/t.ibd differs") && status.reason.contains("remove"),
        "{}",
        status.reason
    );
    std::fs::remove_file(fixture.directory.path().join("volumes/v/stopped")).unwrap();
    fixture.restart();
    // Frames after the difference were not given up: they are applied now. The digest was not logged.
    fixture.control().wait_applied(stream.lsn.0);
}
