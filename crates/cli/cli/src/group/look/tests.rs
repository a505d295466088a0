use super::*;
use redoubt_test_support::port::ClosedPort;
use redoubt_test_support::wait::GUARD;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

/// The answer of a server of a group.
fn answer(name: &str, state: &str, epoch: u64, committed: i64, members: &[String]) -> Answer {
    let mut status = BTreeMap::from([
        ("wsrep_local_state_comment".to_owned(), state.to_owned()),
        ("wsrep_group_epoch".to_owned(), epoch.to_string()),
        ("wsrep_last_ordered".to_owned(), "5000".to_owned()),
        ("wsrep_last_committed".to_owned(), committed.to_string()),
        ("wsrep_cluster_state_uuid".to_owned(), "some-id".to_owned()),
    ]);
    for (number, member) in (1..).zip(members) {
        status.insert(format!("wsrep_group_member_{number}"), member.clone());
    }
    Answer { name: name.to_owned(), group: "shop".to_owned(), status }
}

/// A member as another one sees it; `heard_ms` of none: it is that one.
fn seen(name: &str, applied: i64, heard_ms: Option<u64>) -> String {
    let heard = heard_ms.map_or("null".to_owned(), |heard| heard.to_string());
    format!(
        r#"{{"name":"{name}","address":"{name}:4567","client_address":"{name}:3306","votes":true,"is_there":true,
           "owns_slots":true,"applied":{applied},"heard_ms":{heard},"is_self":{}}}"#,
        heard_ms.is_none()
    )
}

#[test]
fn all_is_well_when_all_are_heard() {
    let members = [seen("db1", 5000, None), seen("db2", 4990, Some(3)), seen("db3", 5000, Some(7))];
    let look = compose(&[("db1", Ok(answer("db1", "Synced", 4, 5000, &members)))]).unwrap();
    assert_eq!((look.group.as_str(), look.present, look.needed, look.epoch), ("shop", 3, 2, 4));
    let states: Vec<_> = look.members.iter().map(|member| (member.state.as_str(), member.lag)).collect();
    assert_eq!(states, [("Synced", Some(0)), ("there", Some(10)), ("there", Some(0))]);
    assert!(look.problems.is_empty(), "{:?}", look.problems);
}

#[test]
fn who_is_away_or_far_behind_is_a_problem() {
    let members = [seen("db1", 5000, None), seen("db2", 4990, Some(12_500)), seen("db3", 10, Some(7))];
    let look = compose(&[("db1", Ok(answer("db1", "Synced", 4, 5000, &members)))]).unwrap();
    assert_eq!((look.present, look.members[1].is_there, look.members[1].lag), (2, false, None));
    assert_eq!(
        look.problems,
        ["db2 last answered 12 s ago", "db3 lacks 4990 write sets; the others do not wait for it any more"]
    );
}

/// The network is partitioned: one server sees only itself, the others continue in a newer epoch.
#[test]
fn the_side_with_the_majority_is_shown() {
    let alone = [seen("db1", 700, None), seen("db2", 690, Some(9000)), seen("db3", 700, Some(9000))];
    let others = [seen("db1", 700, Some(9000)), seen("db2", 5000, None), seen("db3", 5000, Some(4))];
    let look = compose(&[
        ("db1", Ok(answer("db1", "Without a majority", 4, 700, &alone))),
        ("db2", Ok(answer("db2", "Synced", 5, 5000, &others))),
        ("db3:3307", Err("connection refused".to_owned())),
    ])
    .unwrap();
    let states: Vec<_> = look.members.iter().map(|member| member.state.as_str()).collect();
    assert_eq!((look.epoch, states), (5, vec!["Without a majority", "Synced", "there"]));
    assert!(look.problems.iter().any(|problem| problem.contains("db1 is not in sync: Without a majority")));
    assert!(look.problems.iter().any(|problem| problem == "db3:3307: connection refused"));
    // If only the isolated server answers, its report is used.
    let look = compose(&[("db1", Ok(answer("db1", "Without a majority", 4, 700, &alone)))]).unwrap();
    assert_eq!(look.problems[0], "commits wait: 1 of 3 members are here, 2 are needed");
}

#[test]
fn servers_of_other_kinds_are_named() {
    let with = |provider: &str| {
        let status = BTreeMap::from([("wsrep_provider_name".to_owned(), provider.to_owned())]);
        Ok(Answer { name: "db1".to_owned(), group: String::new(), status })
    };
    for (provider, words) in
        [("Galera", "provider is Galera"), ("", "no wsrep provider"), (PROVIDER, "not part")]
    {
        let error = compose(&[("db1", with(provider))]).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("db1: "), "{error}");
    }
    let broken = compose(&[("db1", Ok(answer("db1", "Synced", 1, 1, &["{".to_owned()])))]).unwrap_err();
    assert!(broken.to_string().contains("wsrep_group_member_1 is not understood"), "{broken}");
}

#[test]
fn servers_are_named_by_host_port_or_socket() {
    let tcp = |host: &str, port| Some(Address::Tcp { host: host.to_owned(), port });
    assert_eq!(parse("db1"), tcp("db1", 3306));
    assert_eq!(parse("10.0.0.1:3307"), tcp("10.0.0.1", 3307));
    assert_eq!(parse("[::1]:3307"), tcp("::1", 3307));
    assert_eq!(parse("[::1]"), tcp("::1", 3306));
    assert_eq!(parse("::1"), tcp("::1", 3306));
    assert_eq!(parse("/run/s.sock"), Some(Address::Socket("/run/s.sock".into())));
    for wrong in ["", "db1:", ":3306", "db1:x", "db1:70000", "db1:0", "[::1", "[::1]x", "http://db1"] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_deadline_is_said_in_words() {
    let io = |kind: std::io::ErrorKind| SqlError::Io { action: "connect", source: kind.into() };
    for kind in [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut] {
        assert_eq!(words(&io(kind)), "it does not answer within 2 s");
    }
    assert_eq!(words(&io(std::io::ErrorKind::ConnectionRefused)), "cannot connect: connection refused");
}

/// A socket whose backlog is full, with the connections in it.
fn socket_with_full_backlog(path: &Path) -> (UnixListener, Vec<OwnedFd>) {
    let listener = UnixListener::bind(path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = SocketAddrUnix::new(path).unwrap();
    let mut waiting = Vec::new();
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        match connect(&socket, &address) {
            Ok(()) => waiting.push(socket),
            Err(Errno::AGAIN) => return (listener, waiting),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A server that sends the first bytes of a long greeting, one after the other, as long as its clients wait.
fn slow_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let bytes = [&[0xff, 0xff, 0x7f, 0][..], &[0; 1 << 16]].concat();
            let sent = bytes.iter().try_for_each(|byte| {
                std::thread::sleep(ANSWER_TIMEOUT / 20);
                client.write_all(&[*byte])
            });
            assert!(sent.is_err(), "the client waited for all bytes");
        }
    });
    address
}

/// Without a deadline of the whole look neither of them would ever return.
#[test]
fn servers_that_hang_do_not_stop_a_look() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let _full = socket_with_full_backlog(&path);
    let (socket, slow) = (path.display().to_string(), slow_server().to_string());
    let server = vec![socket.clone(), slow.clone()];
    let login = Login { server, user: "root".to_owned(), password_file: None };
    let mut observer = Observer::new(&login).unwrap();
    for _ in 0..2 {
        let said = observer.look().unwrap_err().to_string();
        for server in [&socket, &slow] {
            assert!(said.contains(&format!("{server}: it does not answer within 2 s")), "{said}");
        }
    }
}

/// A look does not wait for a thread that does not return, and the thread's late answer is not the next look's.
#[test]
fn thread_that_does_not_return_is_asked_again_later() {
    let (requests, requested) = mpsc::channel();
    let (sender, answers) = mpsc::channel();
    let mut asked = Asked { name: "db1".to_owned(), requests, answers, is_busy: false };
    let now = Instant::now();
    let request = |look| Request { look, until: now };
    for look in 1..=2 {
        asked.ask(request(look));
        assert_eq!(asked.take(request(look), now), Err(no_answer()));
    }
    assert_eq!(requested.try_iter().count(), 1, "it is busy");
    sender.send((1, Err("late".to_owned()))).unwrap();
    asked.ask(request(3));
    assert_eq!(requested.try_iter().count(), 1);
    sender.send((3, Err("in time".to_owned()))).unwrap();
    assert_eq!(asked.take(request(3), now + GUARD), Err("in time".to_owned()));
}

/// Address where connections are neither accepted nor refused: the only place in the backlog is taken, so the kernel
/// drops all further packets that would open one.
fn address_without_answer() -> (SocketAddr, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let first = TcpStream::connect(address).unwrap();
    let mut list = [PollFd::new(&listener, PollFlags::IN)];
    poll(&mut list, None).unwrap();
    (address, (listener, first))
}

fn packet(payload: &[u8]) -> Vec<u8> {
    let header = (payload.len() as u32).to_le_bytes();
    [&header[..3], &[0], payload].concat()
}

fn receive(client: &mut TcpStream) {
    let mut header = [0; 4];
    client.read_exact(&mut header).unwrap();
    let len = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
    client.read_exact(&mut vec![0; len]).unwrap();
}

/// The rows of a statement, with two columns.
fn rows(cells: &[(&str, &str)]) -> Vec<u8> {
    let end = packet(&[0xfe, 0, 0, 0, 0]);
    let cell = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let row = |(name, value): &(&str, &str)| packet(&[cell(name), cell(value)].concat());
    let definitions = [packet(&[2]), packet(b"a"), packet(b"b"), end.clone()].concat();
    [definitions, cells.iter().flat_map(row).collect(), end].concat()
}

/// A server with one client. It answers one look for each state that it receives. Returns its address, and the reports
/// of requests that arrive.
fn server(states: mpsc::Receiver<&'static str>) -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (arrived, arrivals) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let greeting = [&[10][..], b"11.4\0", &[1; 4], &[2; 8], &[0; 19], &[3; 12], &[0]].concat();
        client.write_all(&packet(&greeting)).unwrap();
        receive(&mut client);
        client.write_all(&packet(&[0, 0, 0])).unwrap();
        loop {
            receive(&mut client);
            arrived.send(()).unwrap();
            let Ok(state) = states.recv() else { return };
            client.write_all(&rows(&[("wsrep_local_state_comment", state)])).unwrap();
            receive(&mut client);
            client.write_all(&rows(&[("wsrep_node_name", "db1")])).unwrap();
        }
    });
    (address, arrivals)
}

fn asked_by(look_up: impl Fn() -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Asked {
    let address = Address::Tcp { host: "db1.test".to_owned(), port: 3306 };
    let dialer = Dialer::with_look_up(address, Arc::new(move |_: &str, _: u16| look_up()));
    let worker = Worker { dialer, user: "root".to_owned(), password: None, connection: None };
    Asked::start("db1.test".to_owned(), worker).unwrap()
}

fn state(answer: std::result::Result<Answer, String>) -> std::result::Result<String, String> {
    answer.map(|answer| answer.state().to_owned())
}

/// The kernel tries for more than two minutes to reach the first address. The deadline is before that.
#[test]
fn address_without_answer_does_not_hide_the_next_one() {
    let (silent, _held) = address_without_answer();
    let (states, states_of_server) = mpsc::channel();
    let (good, _arrivals) = server(states_of_server);
    states.send("Synced").unwrap();
    let mut asked = asked_by(move || Ok(vec![silent, good]));
    let request = Request { look: 1, until: Instant::now() + Duration::from_secs(60) };
    asked.ask(request);
    assert_eq!(state(asked.take(request, request.until + GUARD)), Ok("Synced".to_owned()));
}

#[test]
fn refusals_of_all_addresses_are_the_error() {
    let closed = [ClosedPort::take(), ClosedPort::take()];
    let addresses: Vec<_> = closed.iter().map(ClosedPort::address).collect();
    let mut asked = asked_by(move || Ok(addresses.clone()));
    let request = Request { look: 1, until: Instant::now() + GUARD };
    asked.ask(request);
    let error = state(asked.take(request, request.until)).unwrap_err();
    assert!(error.starts_with("cannot connect: Connection refused"), "{error}");
}

/// The first look ends before the name server answers. Its answer serves the second look.
#[test]
fn late_answer_of_a_name_server_serves_the_next_look() {
    let (states, states_of_server) = mpsc::channel();
    let (address, _arrivals) = server(states_of_server);
    states.send("Synced").unwrap();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let mut asked = asked_by(move || {
        // The second look-up fails.
        released.lock().unwrap().recv().map_err(std::io::Error::other)?;
        Ok(vec![address])
    });
    let first = Request { look: 1, until: Instant::now() };
    asked.ask(first);
    let late = state(asked.take(first, Instant::now() + GUARD));
    assert_eq!(late, Err("the look-up of its name is not finished yet".to_owned()));
    release.send(()).unwrap();
    drop(release);
    let second = Request { look: 2, until: Instant::now() + GUARD };
    asked.ask(second);
    assert_eq!(state(asked.take(second, second.until)), Ok("Synced".to_owned()));
}

/// The answer to the first look comes during the second one.
#[test]
fn late_answer_of_a_server_is_not_the_next_looks() {
    let (states, states_of_server) = mpsc::channel();
    let (address, arrivals) = server(states_of_server);
    let mut asked = asked_by(move || Ok(vec![address]));
    let until = Instant::now() + GUARD;
    let (first, second) = (Request { look: 1, until }, Request { look: 2, until });
    asked.ask(first);
    arrivals.recv().unwrap();
    assert_eq!(state(asked.take(first, Instant::now())), Err(no_answer()));
    asked.ask(second);
    states.send("Joining").unwrap();
    states.send("Synced").unwrap();
    assert_eq!(state(asked.take(second, until)), Ok("Synced".to_owned()));
}
