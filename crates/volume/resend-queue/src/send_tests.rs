//! Sending to nodes that do not negotiate.

use super::*;
use redoubt_types::Lsn;
use redoubt_wire::greeting::{ANNOUNCED, SERIES};
use std::io::Write;
use std::net::TcpListener;

/// Answers one connection as a node of 0.1.0 does: with a Welcome, without negotiation.
fn node_0_1_0(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    stream.read_exact(&mut vec![0; u32::from_le_bytes(len) as usize]).unwrap();
    let welcome = Welcome {
        status: Status::Accepted,
        compression: Compression::Off,
        next_seq: Seq(0),
        next_lsn: Lsn(0),
        message: String::new(),
    };
    stream.write_all(&welcome.encode()).unwrap();
}

#[test]
fn node_0_1_0_gets_only_frames_of_mariadb_10_11() {
    let kept = Kept {
        generation: 1,
        session: 1,
        oldest: Seq(0),
        durable: Seq(0),
        sound_end: Seq(0),
        end: Seq(0),
        frames: Vec::new(),
    };
    for (family, series, required) in SERIES {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connector = Connector { address, tls: None, silence_limit: None, local_socket: false };
        let greeted = std::thread::scope(|scope| {
            scope.spawn(|| node_0_1_0(&listener));
            greet(&connector, ANNOUNCED.requiring(required), "v", &kept, Role::Log)
        });
        match greeted {
            Ok(_) => assert!(required.is_empty(), "{family} {series:?}"),
            Err(error) => {
                assert!(!required.is_empty(), "{family} {series:?}: {error}");
                assert!(error.to_string().contains("requires feature 0"), "{error}");
            }
        }
    }
}
