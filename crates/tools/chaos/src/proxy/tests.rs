use super::*;
use redoubt_test_support::wait::until;

/// A node that returns what it gets, connection by connection.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 1000];
                while let Ok(len) = socket.read(&mut buffer) {
                    if len == 0 || socket.write_all(&buffer[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn weather(events: &[Event]) -> Weather {
    Weather { events: events.to_vec(), mean_bytes: 5_000, spared_bytes: 0, delay_ms: 2, stall_ms: 20_000 }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 256) as u8).collect()
}

/// Sends all of `sent` and returns what comes back until the connection ends.
fn exchange(proxy: &Proxy, sent: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(proxy.address()).unwrap();
    let mut writing = socket.try_clone().unwrap();
    let sent = sent.to_vec();
    let writer = std::thread::spawn(move || {
        // Fails when the connection is cut, which is what some of the tests are about.
        let _ = writing.write_all(&sent);
        let _ = writing.shutdown(Shutdown::Write);
    });
    let mut back = Vec::new();
    let _ = socket.read_to_end(&mut back);
    writer.join().unwrap();
    back
}

#[test]
fn calm_weather_and_delays_change_nothing() {
    let proxy = Proxy::start(echo(), 1).unwrap();
    let sent = bytes(300_000);
    assert!(exchange(&proxy, &sent) == sent);
    assert!(proxy.counts().is_empty());
    proxy.set(weather(&[Event::Delay]));
    assert!(exchange(&proxy, &sent) == sent);
    assert!(proxy.counts()["delay"] > 5, "{:?}", proxy.counts());
    assert_eq!(proxy.traffic(), (2, 1_200_000));
}

#[test]
fn each_event_does_what_it_says() {
    let sent = bytes(100_000);
    let lengths = |event| {
        let proxy = Proxy::start(echo(), 3).unwrap();
        proxy.set(weather(&[event]));
        let back = exchange(&proxy, &sent);
        assert!(proxy.counts().len() == 1, "{:?}", proxy.counts());
        back
    };
    let back = lengths(Event::Corrupt);
    assert_eq!(back.len(), sent.len());
    let different = back.iter().zip(&sent).filter(|(left, right)| left != right).count();
    assert!((1..200).contains(&different), "{different} bytes differ");
    assert!(lengths(Event::Duplicate).len() > sent.len());
    assert!(lengths(Event::Omit).len() < sent.len());
    for event in [Event::Cut, Event::HalfClose] {
        let back = lengths(event);
        assert!(back.len() < sent.len() && sent.starts_with(&back), "{event:?}: {} bytes", back.len());
    }
}

#[test]
fn the_same_seed_meets_the_same_bytes() {
    let sent = bytes(200_000);
    let run = |seed| {
        let proxy = Proxy::start(echo(), seed).unwrap();
        proxy.set(weather(&[Event::Corrupt, Event::Omit, Event::Duplicate]));
        exchange(&proxy, &sent)
    };
    let first = run(5);
    assert!(first == run(5));
    assert!(first != run(6));
}

#[test]
fn calm_ends_a_stall_and_a_spared_beginning_is_spared() {
    let proxy = Proxy::start(echo(), 9).unwrap();
    proxy.set(Weather { spared_bytes: 1_000_000, ..weather(&[Event::Cut, Event::Corrupt]) });
    let sent = bytes(100_000);
    assert!(exchange(&proxy, &sent) == sent);
    assert!(proxy.counts().is_empty(), "{:?}", proxy.counts());

    // An hour, unless it is ended.
    proxy.set(Weather { mean_bytes: 1_000, stall_ms: 3_600_000, ..weather(&[Event::Stall]) });
    std::thread::scope(|scope| {
        let stalled = scope.spawn(|| exchange(&proxy, &sent));
        until("a stall", || proxy.counts().contains_key("stall"));
        proxy.calm();
        until("the end of a stall", || stalled.is_finished());
        assert!(stalled.join().unwrap() == sent);
    });
}

#[test]
fn cutting_all_ends_what_is_open_and_nothing_else() {
    let proxy = Proxy::start(echo(), 9).unwrap();
    let mut open = TcpStream::connect(proxy.address()).unwrap();
    open.write_all(b"x").unwrap();
    open.read_exact(&mut [0]).unwrap();
    proxy.cut_all();
    assert_eq!(open.read(&mut [0]).unwrap_or(0), 0);
    assert!(exchange(&proxy, b"again") == b"again");
}
