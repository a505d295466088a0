use super::*;
use redoubt_test_support::wait::{GUARD, this_thread, until_in_call};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc;

#[test]
fn accepted_sockets_block_and_a_stop_ends_the_wait() {
    let listener = Arc::new(Listener::bind("127.0.0.1:0", true).unwrap());
    let (sender, ended) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let accepting = Arc::clone(&listener);
    std::thread::spawn(move || {
        let Some(Incoming::Tcp(mut stream)) = accepting.accept().unwrap() else { panic!("not by TCP") };
        tell.send(this_thread()).unwrap();
        let mut byte = [0];
        // Would fail at once if it did not block.
        sender.send(stream.read_exact(&mut byte).is_ok()).unwrap();
        sender.send(matches!(accepting.accept().unwrap(), Some(Incoming::Local(_)))).unwrap();
        sender.send(accepting.accept().unwrap().is_none()).unwrap();
    });
    let mut client = TcpStream::connect(listener.address()).unwrap();
    until_in_call(told.recv_timeout(GUARD).unwrap(), &[libc::SYS_recvfrom, libc::SYS_read]);
    assert!(ended.try_recv().is_err(), "nothing was sent yet");
    client.write_all(b"x").unwrap();
    assert!(ended.recv_timeout(GUARD).unwrap());
    let address = listener.address();
    let name = listener.local_name().unwrap();
    assert_eq!(name, format!("redoubt-node/{address}"));
    let sender_of_local = std::thread::spawn(move || local::reach(address).unwrap_err());
    assert!(ended.recv_timeout(GUARD).unwrap());
    sender_of_local.join().unwrap();
    listener.stop();
    assert!(ended.recv_timeout(GUARD).unwrap());
    assert!(listener.accept().unwrap().is_none(), "and for good");
}
