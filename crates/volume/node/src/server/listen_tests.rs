use super::*;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn accepted_sockets_block_and_a_stop_ends_the_wait() {
    let listener = Arc::new(Listener::bind("127.0.0.1:0", true).unwrap());
    let (sender, ended) = mpsc::channel();
    let accepting = Arc::clone(&listener);
    std::thread::spawn(move || {
        let Some(Incoming::Tcp(mut stream)) = accepting.accept().unwrap() else { panic!("not by TCP") };
        let mut byte = [0];
        // Would fail at once if it did not block.
        sender.send(stream.read_exact(&mut byte).is_ok()).unwrap();
        sender.send(matches!(accepting.accept().unwrap(), Some(Incoming::Local(_)))).unwrap();
        sender.send(accepting.accept().unwrap().is_none()).unwrap();
    });
    let mut client = TcpStream::connect(listener.address()).unwrap();
    assert!(ended.recv_timeout(Duration::from_millis(200)).is_err(), "nothing was sent yet");
    client.write_all(b"x").unwrap();
    assert!(ended.recv_timeout(PATIENCE).unwrap());
    let address = listener.address();
    let name = listener.local_name().unwrap();
    assert_eq!(name, format!("redoubt-node/{address}"));
    let sender_of_local = std::thread::spawn(move || local::reach(address).unwrap_err());
    assert!(ended.recv_timeout(PATIENCE).unwrap());
    sender_of_local.join().unwrap();
    listener.stop();
    assert!(ended.recv_timeout(PATIENCE).unwrap());
    assert!(listener.accept().unwrap().is_none(), "and for good");
}
