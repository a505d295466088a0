use super::*;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn accepted_sockets_block_and_a_stop_ends_the_wait() {
    let listener = Arc::new(Listener::bind("127.0.0.1:0").unwrap());
    let (sender, ended) = mpsc::channel();
    let accepting = Arc::clone(&listener);
    std::thread::spawn(move || {
        let mut stream = accepting.accept().unwrap().unwrap();
        let mut byte = [0];
        // Would fail at once if it did not block.
        sender.send(stream.read_exact(&mut byte).is_ok()).unwrap();
        sender.send(accepting.accept().unwrap().is_none()).unwrap();
    });
    let mut client = TcpStream::connect(listener.address()).unwrap();
    assert!(ended.recv_timeout(Duration::from_millis(200)).is_err(), "nothing was sent yet");
    client.write_all(b"x").unwrap();
    assert!(ended.recv_timeout(PATIENCE).unwrap());
    listener.stop();
    assert!(ended.recv_timeout(PATIENCE).unwrap());
    assert!(listener.accept().unwrap().is_none(), "and for good");
}
