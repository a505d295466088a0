//! The stream against a real listener in this process.

use super::*;
use redoubt_transport::Connector;
use redoubt_wire::FrameHeader;
use redoubt_wire::WireError;
use redoubt_wire::compression::{Decompressor, Step};
use redoubt_wire::frame::append_frame as frame_bytes;
use redoubt_wire::hello::{Compression, Hello, Role, Status, Welcome, decode_len};
use redoubt_wire::notice::Notice;
use redoubt_wire::parts::PartReader;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{self, Receiver};

struct Node {
    listener: TcpListener,
    /// Compression that the server requests.
    compression: Compression,
    /// Compression that the node grants.
    granted: Compression,
    /// Data directory of the server.
    datadir: tempfile::TempDir,
}

type Unpack = Box<dyn FnMut(&[u8], &mut [u8]) -> Result<Step, WireError>>;

/// An accepted log connection with its notices connection, or one of another role.
struct Session {
    socket: TcpStream,
    notices_socket: Option<TcpStream>,
    notices: u64,
    hello: Hello,
    /// Decompressor of a compressed log connection, with the bytes that were received and not yet read.
    packed: Option<(Unpack, Vec<u8>)>,
}

impl Node {
    fn new() -> Self {
        Self::with_compression(Compression::Off)
    }

    fn with_compression(compression: Compression) -> Self {
        let datadir = tempfile::tempdir().unwrap();
        crate::connections::unsent_file::tests::make(datadir.path());
        Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            compression,
            granted: compression,
            datadir,
        }
    }

    fn accept(&self, status: Status, next_seq: u64) -> Session {
        let (socket, hello) = self.accept_one(status, next_seq);
        let notices_socket = (status == Status::Accepted && hello.role == Role::Log).then(|| {
            let (socket, hello) = self.accept_one(status, next_seq);
            assert_eq!(hello.role, Role::Notices);
            socket
        });
        let unpack: Option<Unpack> = match self.granted {
            Compression::Off => None,
            Compression::On => {
                let mut decompressor = Decompressor::new().unwrap();
                Some(Box::new(move |input, out| decompressor.unpack(input, out)))
            }
            Compression::Auto => {
                let mut reader = PartReader::default();
                Some(Box::new(move |input, out| reader.unpack(input, out)))
            }
        };
        let packed = unpack.map(|unpack| (unpack, Vec::new()));
        Session { socket, notices_socket, notices: 0, hello, packed }
    }

    fn accept_one(&self, status: Status, next_seq: u64) -> (TcpStream, Hello) {
        let (mut socket, _) = self.listener.accept().unwrap();
        let mut len = [0; 4];
        socket.read_exact(&mut len).unwrap();
        let mut body = vec![0; decode_len(len).unwrap()];
        socket.read_exact(&mut body).unwrap();
        let welcome = Welcome {
            status,
            compression: self.granted,
            next_seq: Seq(next_seq),
            next_lsn: Lsn(77),
            message: "because".to_owned(),
        };
        socket.write_all(&welcome.encode()).unwrap();
        (socket, Hello::decode(&body).unwrap())
    }

    fn stream(&self, timeout: Duration) -> (Arc<Stream>, Receiver<Wanted>) {
        let peer = Peer {
            connector: Connector {
                address: self.listener.local_addr().unwrap().to_string(),
                tls: None,
                silence_limit: None,
                local_socket: false,
            },
            greeting_timeout: timeout,
            volume: "v".to_owned(),
            generation: 3,
            session: 9,
            compression: self.compression,
            announced: redoubt_wire::greeting::ANNOUNCED,
        };
        let (sender, receiver) = mpsc::channel();
        let datadir = self.datadir.path().as_os_str().as_bytes().to_vec();
        let config = StreamConfig { peer, timeout, system_files: Vec::new(), datadir, end_server: || {} };
        let stream = Stream::new(config, Arc::default(), sender);
        let runner = Arc::clone(&stream);
        std::thread::spawn(move || runner.run());
        let watcher = Arc::clone(&stream);
        std::thread::spawn(move || watcher.watch());
        (stream, receiver)
    }
}

impl Session {
    fn read_exact(&mut self, mut out: &mut [u8]) {
        let Some((unpack, packed)) = &mut self.packed else {
            return self.socket.read_exact(out).unwrap();
        };
        while !out.is_empty() {
            let step = unpack(packed, out).unwrap();
            packed.drain(..step.taken_bytes);
            out = &mut out[step.given_bytes..];
            if step.given_bytes == 0 && packed.is_empty() {
                let mut some = [0; 1000];
                let len_bytes = self.socket.read(&mut some).unwrap();
                assert!(len_bytes > 0, "the connection ended");
                packed.extend_from_slice(&some[..len_bytes]);
            }
        }
    }

    /// Reads a frame that must be valid at `position`; returns kind, payload and the position after it.
    fn frame(&mut self, position: u64) -> (u8, Vec<u8>, u64) {
        let mut head = [0; 8];
        self.read_exact(&mut head);
        let header = FrameHeader::decode(&head);
        let mut payload = vec![0; header.len_bytes as usize];
        self.read_exact(&mut payload);
        header.check(position, &payload).unwrap();
        (header.kind, payload, position + header.total_len_bytes())
    }

    fn notify(&mut self, notice: &Notice) {
        let (kind, payload) = notice.encode();
        let mut out = Vec::new();
        frame_bytes(&mut out, kind, self.notices, &payload).unwrap();
        self.notices += 1;
        self.notices_socket.as_mut().unwrap().write_all(&out).unwrap();
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn durable_frames_release_the_waiter() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 1000);
    assert_eq!((session.hello.generation, session.hello.session, session.hello.resume), (3, 9, Seq(0)));
    let start = stream.wait_connected().unwrap();
    assert_eq!((start.seq, start.next_lsn), (Seq(1000), Lsn(77)));
    let (kind, _, at) = session.frame(1000);
    assert_eq!(kind, StreamFrame::SystemFiles(Vec::new()).kind());
    let end = stream.append(&StreamFrame::Redo(b"abc")).unwrap();
    let (_, payload, at) = session.frame(at);
    assert_eq!((payload.as_slice(), Seq(at)), (&b"abc"[..], end));
    let waiter = Arc::clone(&stream);
    let waiting = std::thread::spawn(move || waiter.wait_durable(end));
    session.notify(&Notice::Durable(Seq(end.0 - 1)));
    session.notify(&Notice::Durable(end));
    waiting.join().unwrap().unwrap();
    // Nothing more to wait for, and later bytes are not durable.
    stream.wait_durable(end).unwrap();
    assert!(stream.waiters.durable() == end.0);
}

#[test]
fn durable_bytes_wake_their_own_waiter_and_death_wakes_the_rest() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let end = stream.append(&StreamFrame::Redo(b"commit")).unwrap();
            let waiter = Arc::clone(&stream);
            (end, std::thread::spawn(move || waiter.wait_durable(end)))
        })
        .collect();
    redoubt_test_support::wait::until("eight threads that wait for durability", || {
        stream.waiters.stats().waits >= 8
    });
    let mut durable = waiting;
    let rest = durable.split_off(4);
    session.notify(&Notice::Durable(durable[3].0));
    for (_, thread) in durable {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(stream.waiters.stats().wakeups, 4);
    assert!(rest.iter().all(|(_, thread)| !thread.is_finished()));
    session.notify(&Notice::Stopped { reason: "end of test".to_owned() });
    for (_, thread) in rest {
        assert_eq!(thread.join().unwrap(), Err(Errno::EIO));
    }
    assert_eq!(stream.waiters.stats().wakeups_not_reached, 0);
}

#[test]
fn lost_connection_sends_again_what_is_not_durable() {
    sends_again(&Node::new());
}

#[test]
fn lost_compressed_connection_sends_again_without_the_history_of_the_lost_one() {
    sends_again(&Node::with_compression(Compression::On));
}

#[test]
fn lost_connection_in_parts_sends_again() {
    sends_again(&Node::with_compression(Compression::Auto));
}

#[test]
fn a_node_that_knows_nothing_of_parts_gets_frames_as_they_are() {
    sends_again(&Node { granted: Compression::Off, ..Node::with_compression(Compression::Auto) });
}

#[test]
fn a_connection_in_parts_on_one_host_is_not_compressed() {
    let node = Node::with_compression(Compression::Auto);
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let (_, _, mut at) = session.frame(0);
    for _ in 0..200 {
        stream.append(&StreamFrame::Redo(&[7; 2000])).unwrap();
        let (_, payload, next) = session.frame(at);
        assert_eq!(payload, [7; 2000]);
        at = next;
    }
    assert_eq!(stream.counters.get(Counter::LogWritesCompressed), 0);
    assert!(stream.counters.get(Counter::SentBytes) > 200 * 2000);
}

fn sends_again(node: &Node) {
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let first = stream.append(&StreamFrame::Redo(b"first")).unwrap();
    let second = stream.append(&StreamFrame::Redo(b"second")).unwrap();
    let (_, _, at) = session.frame(0);
    let (_, _, at) = session.frame(at);
    assert_eq!(Seq(at), first);
    session.notify(&Notice::Durable(first));
    stream.wait_durable(first).unwrap();
    drop(session);
    // Goes into the queue whether or not the loss was noticed yet.
    let third = stream.append(&StreamFrame::Redo(b"third")).unwrap();
    let mut session = node.accept(Status::Accepted, first.0);
    assert_eq!(session.hello.session, 9);
    assert!(session.hello.resume <= first);
    let (_, payload, at) = session.frame(first.0);
    assert_eq!((payload.as_slice(), Seq(at)), (&b"second"[..], second));
    let (_, payload, at) = session.frame(at);
    assert_eq!((payload.as_slice(), Seq(at)), (&b"third"[..], third));
    session.notify(&Notice::Durable(third));
    stream.wait_durable(third).unwrap();
    assert_eq!(stream.counters.get(Counter::Reconnects), 1);
}

#[test]
fn a_compressed_connection_refers_to_earlier_frames_of_itself() {
    let node = Node::with_compression(Compression::On);
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let row: Vec<u8> = (0..2000).map(|_| random.u8(..)).collect();
    let (_, _, mut at) = session.frame(0);
    let mut sent_bytes = Vec::new();
    for _ in 0..3 {
        let before = stream.counters.get(Counter::SentBytes);
        stream.append_unlogged(&StreamFrame::Counters(vec![(1, 2)]));
        let end = stream.append(&StreamFrame::Redo(&row)).unwrap();
        sent_bytes.push(stream.counters.get(Counter::SentBytes) - before);
        let (kind, _, _) = session.frame(at);
        assert_eq!(kind, StreamFrame::Counters(Vec::new()).kind());
        let (_, payload, next) = session.frame(at);
        assert!(payload == row && Seq(next) == end);
        at = next;
    }
    assert!(sent_bytes[0] > 2000 && sent_bytes[1] < 150 && sent_bytes[2] < 150, "{sent_bytes:?}");
}

#[test]
fn node_that_lost_acknowledged_bytes_ends_the_stream() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let end = stream.append(&StreamFrame::Redo(b"first")).unwrap();
    session.notify(&Notice::Durable(end));
    stream.wait_durable(end).unwrap();
    let last = stream.append(&StreamFrame::Redo(b"second")).unwrap();
    drop(session);
    let _session = node.accept(Status::Accepted, 0);
    assert_eq!(stream.wait_durable(last), Err(Errno::EIO));
    assert!(stream.death().unwrap().contains("lost acknowledged data"));
    assert_eq!(stream.append(&StreamFrame::Redo(b"x")), Err(Errno::EIO));
}

#[test]
fn fenced_and_stopped_fail_every_waiter() {
    for notice in [Notice::Fenced { generation: 8 }, Notice::Stopped { reason: "disk".to_owned() }] {
        let node = Node::new();
        let (stream, _images) = node.stream(LONG);
        let mut session = node.accept(Status::Accepted, 0);
        stream.wait_connected().unwrap();
        let end = stream.append(&StreamFrame::Redo(b"first")).unwrap();
        session.notify(&notice);
        assert_eq!(stream.wait_durable(end), Err(Errno::EIO));
        assert!(stream.death().is_some());
    }
}

#[test]
fn refusal_is_final_and_later_is_not() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    node.accept(Status::TryLater, 0);
    node.accept(Status::Refused, 0);
    assert!(matches!(stream.wait_connected(), Err(Errno::EIO)));
    assert!(stream.death().unwrap().contains("because"));
}

#[test]
fn stranger_at_the_nodes_address_ends_no_running_server() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    drop(session);
    // As a proxy does while the node restarts.
    let (mut stranger, _) = node.listener.accept().unwrap();
    stranger.write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").unwrap();
    drop(stranger);
    let mut session = node.accept(Status::Accepted, 0);
    let end = stream.append(&StreamFrame::Redo(b"first")).unwrap();
    let (_, _, at) = session.frame(0);
    let (_, payload, at) = session.frame(at);
    assert_eq!((payload.as_slice(), Seq(at)), (&b"first"[..], end));
    assert!(stream.death().is_none());
}

#[test]
fn stranger_at_the_nodes_address_ends_a_starting_server() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let (mut stranger, _) = node.listener.accept().unwrap();
    stranger.write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\n").unwrap();
    assert!(matches!(stream.wait_connected(), Err(Errno::EIO)));
    assert!(stream.death().unwrap().contains("does not speak the Redoubt protocol"));
}

#[test]
fn node_that_stays_away_fails_the_waiter_after_the_time_out() {
    let node = Node::new();
    let (stream, _images) = node.stream(Duration::from_millis(300));
    let session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let end = stream.append(&StreamFrame::Redo(b"first")).unwrap();
    drop(node);
    drop(session);
    assert_eq!(stream.wait_durable(end), Err(Errno::EIO));
    assert!(stream.death().unwrap().contains("REDOUBT_TIMEOUT_S"));
}

#[test]
fn unlogged_frames_go_in_front_of_the_next_logged_one() {
    let node = Node::new();
    let (stream, images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let (_, _, at) = session.frame(0);
    stream.append_unlogged(&StreamFrame::Counters(vec![(1, 5)]));
    let end = stream.append(&StreamFrame::Redo(b"abc")).unwrap();
    let (kind, _, _) = session.frame(at);
    assert_eq!(kind, StreamFrame::Counters(Vec::new()).kind());
    let (_, payload, at) = session.frame(at);
    assert_eq!((payload.as_slice(), Seq(at)), (&b"abc"[..], end));
    session.notify(&Notice::NeedImage { path: b"db/t.ibd".to_vec(), page_no: 4, lsn: Lsn(8) });
    let Wanted::Image(ImageWanted::ForReport(wanted)) = images.recv().unwrap() else {
        panic!("not for the report")
    };
    assert_eq!((wanted.path.as_slice(), wanted.page_no, wanted.lsn), (&b"db/t.ibd"[..], 4, Lsn(8)));
    session.notify(&Notice::UnknownFile { path: b"db/t.MYD".to_vec() });
    assert!(matches!(images.recv().unwrap(), Wanted::File(path) if path == b"db/t.MYD"));
    // The request stays until the page is sent, and the helper gets it once.
    for _ in 0..2 {
        session.notify(&Notice::WantImage { path: b"db/t.ibd".to_vec(), page_no: 5 });
    }
    session.notify(&Notice::WantImage { path: b"db/t.ibd".to_vec(), page_no: 6 });
    for expected in [5, 6] {
        let wanted = images.recv().unwrap();
        assert!(
            matches!(wanted, Wanted::Image(ImageWanted::ForStream { page_no, .. }) if page_no == expected),
            "{wanted:?}"
        );
        assert!(stream.wanted_pages().contains(b"db/t.ibd", expected));
    }
}

#[test]
fn frame_that_is_not_due_any_more_is_not_appended() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let (_, _, at) = session.frame(0);
    assert_eq!(stream.append_if(&StreamFrame::Redo(b"abc"), || false), Ok(None));
    assert_eq!(stream.end(), Seq(at));
    let end = stream.append_if(&StreamFrame::Redo(b"def"), || true).unwrap();
    let (_, payload, at) = session.frame(at);
    assert_eq!((payload.as_slice(), Some(Seq(at))), (&b"def"[..], end));
}

#[test]
fn node_without_the_feature_is_sent_comparisons_that_stop() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let (_, _, at) = session.frame(0);
    let verify = Verify { path: b"d/t.ibd", page_no: 3, lsn: Lsn(9), digest: 7 };
    let mut kinds = |features: Features, heals| {
        // As a greeting sets them.
        stream.lock_state().features = features;
        stream.append_verify(verify, heals);
        stream.send_counters();
        let (kind, _, _) = session.frame(at);
        let (counters, _, _) = session.frame(at);
        assert_eq!(counters, StreamFrame::Counters(Vec::new()).kind());
        kind
    };
    let (stops, heals) = (StreamFrame::Verify(verify).kind(), StreamFrame::VerifyOrHeal(verify).kind());
    assert_eq!(kinds(Features::NONE, true), stops);
    assert_eq!(kinds(ON_DIFFERENCE, true), heals);
    assert_eq!(kinds(ON_DIFFERENCE, false), stops);
}

#[test]
fn durable_beyond_what_was_sent_ends_the_stream() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let end = stream.append(&StreamFrame::Redo(b"abc")).unwrap();
    session.notify(&Notice::Durable(Seq(end.0 + 1)));
    assert_eq!(stream.wait_durable(Seq(end.0 + 1)), Err(Errno::EIO));
}

/// A commit is answered after the node's notice, which must not depend on the other connection.
#[test]
fn end_of_either_connection_makes_it_connect_again() {
    let node = Node::new();
    let (stream, _images) = node.stream(LONG);
    let mut session = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    for end_of_log in [true, false] {
        if end_of_log {
            session.socket.shutdown(std::net::Shutdown::Write).unwrap();
        } else {
            session.notices_socket = None;
        }
        let next = node.accept(Status::Accepted, 0);
        // The other of the two was ended from the library's side.
        let mut rest = Vec::new();
        if let Some(mut notices) = session.notices_socket.take() {
            assert_eq!(notices.read_to_end(&mut rest).unwrap(), 0);
        }
        session.socket.read_to_end(&mut rest).unwrap();
        session = next;
    }
}

/// The node's kernel accepts connections, but its process does not greet.
#[test]
fn a_node_that_hangs_for_good_is_given_up_after_the_time_out() {
    let node = Node::new();
    let timeout = Duration::from_secs(1);
    let (stream, _images) = node.stream(timeout);
    let hanging = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let end = stream.append(&StreamFrame::Redo(b"first")).unwrap();
    let began = std::time::Instant::now();
    assert_eq!(stream.wait_durable(end), Err(Errno::EIO));
    // Until it is taken for one that hangs, and until it is given up; it hangs still.
    assert!(began.elapsed() >= timeout, "{:?}", began.elapsed());
    drop(hanging);
}

/// The node's kernel takes bytes until the socket is full; its process reads none.
#[test]
fn node_that_hangs_is_connected_to_again() {
    let node = Node::new();
    let (stream, _images) = node.stream(Duration::from_secs(2));
    let hanging = node.accept(Status::Accepted, 1000);
    stream.wait_connected().unwrap();
    let appender = Arc::clone(&stream);
    let appending = std::thread::spawn(move || {
        let data = vec![7; 4 << 20];
        let write = StreamFrame::Write { path: b"f", offset_bytes: 0, data: &data };
        let ends: Vec<_> = (0..6).map(|_| appender.append(&write).unwrap()).collect();
        let end = ends.last().copied().unwrap();
        appender.wait_durable(end).unwrap();
        end
    });
    let mut session = node.accept(Status::Accepted, 1000);
    assert_eq!(session.hello.resume, Seq(1000));
    let mut at = 1000;
    for _ in 0..7 {
        at = session.frame(at).2;
    }
    session.notify(&Notice::Durable(Seq(at)));
    assert_eq!(appending.join().unwrap(), Seq(at));
    drop(hanging);
}

/// The node's answer is cut off, or the length of the request or of the answer was changed on the way: both sides
/// wait.
#[test]
fn page_request_without_an_answer_is_sent_again() {
    let node = Node::new();
    let (stream, _images) = node.stream(Duration::from_secs(4));
    let _log = node.accept(Status::Accepted, 0);
    stream.wait_connected().unwrap();
    let pool = crate::connections::pool::PagePool::new(Arc::clone(&stream), Arc::default());
    let request = std::thread::spawn(move || {
        let read = redoubt_wire::page::PageRequest::ReadLog { offset_bytes: 0, len_bytes: 3 };
        pool.request(&read, |reply| matches!(reply, redoubt_wire::page::PageReply::Bytes(b"abc")))
    });
    let mut first = node.accept(Status::Accepted, 0);
    first.frame(0);
    let mut answer = Vec::new();
    let mut payload = Vec::new();
    let kind = redoubt_wire::page::PageReply::Bytes(b"abc").encode(&mut payload);
    frame_bytes(&mut answer, kind, 0, &payload).unwrap();
    first.socket.write_all(&answer[..answer.len() - 1]).unwrap();
    // It connects again long before the timeout, after which the server would get an I/O error.
    let mut second = node.accept(Status::Accepted, 0);
    second.frame(0);
    second.socket.write_all(&answer).unwrap();
    assert_eq!(request.join().unwrap(), Ok(true));
    drop(first);
}
