use super::*;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn a_listener_has_an_owner_and_nothing_else_has() {
    for (any, address) in [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("::", "127.0.0.1"), ("::1", "::1")] {
        let listener = TcpListener::bind((any, 0)).unwrap();
        let (port, ip) = (listener.local_addr().unwrap().port(), address.parse().unwrap());
        assert_eq!(of_listener(ip, port), Some(own_uid()), "{any} {address}");
        let client = TcpStream::connect((address, port)).unwrap();
        assert_eq!(of_listener(ip, client.local_addr().unwrap().port()), None);
        drop(listener);
        assert_eq!(of_listener(ip, port), None);
    }
}

#[test]
fn only_root_the_own_user_and_the_owner_may_stand_in() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert!(may_stand_in(0, address) && may_stand_in(own_uid(), address));
    assert!(!may_stand_in(own_uid() + 4321, address) && !may_stand_in(OVERFLOW_UID, address));
}

#[test]
fn a_unix_socket_leads_to_this_process() {
    let (one, _other) = UnixStream::pair().unwrap();
    let own = Process { id: std::process::id() as i32, uid: own_uid() };
    assert_eq!(peer_of(&one), Some(own));
    assert!(own.is_user_known() || own.uid == OVERFLOW_UID);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_ne!(peer_of(&tcp), Some(own), "of no process");
}

#[test]
fn loopback_is_of_this_host_and_an_address_for_documents_is_not() {
    for (ip, is_own) in [
        ("127.0.0.1", true),
        ("127.9.8.7", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("192.0.2.1", false),
        ("0.0.0.0", false),
        ("2001:db8::1", false),
    ] {
        assert_eq!(is_of_this_host(ip.parse().unwrap()), is_own, "{ip}");
    }
}
