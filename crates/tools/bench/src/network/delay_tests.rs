use super::*;

#[test]
fn bytes_arrive_complete_in_order_and_late() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let delay = Duration::from_millis(30);
    let forwarder = Delay::start(&Side::outside(), target.local_addr().unwrap(), delay).unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
    let expected = sent.clone();
    // An echo, so both directions.
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = target.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let mut client = TcpStream::connect(forwarder.address()).unwrap();
    let began = Instant::now();
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert!(began.elapsed() >= 2 * delay, "{:?}", began.elapsed());
    assert!(back == expected, "{} of {} bytes came back", back.len(), expected.len());
    echo.join().unwrap();
}
