//! A log connection that is compressed as a whole: it carries the same stream, and invalid compressed data ends the
//! connection only.

use super::client::{LogClient, PageClient};
use super::protocol::{Fixture, Stream, changed};
use redoubt_wire::frame::compress;
use redoubt_wire::hello::Compression;
use std::io::Write;

fn compressed(fixture: &Fixture, resume: u64) -> LogClient {
    LogClient::connect_with(Compression::On, fixture.address(), "v", fixture.generation, resume).unwrap()
}

#[test]
fn frames_arrive_one_by_one_and_a_new_connection_begins_anew() {
    let mut fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut log = compressed(&fixture, 0);
    log.send(&stream.begin(1)).unwrap();
    // Each can be decoded without the next: nothing follows until it is durable.
    for round in 0..50u8 {
        log.send(&stream.change(3, &[round; 900])).unwrap();
        assert!(log.wait_durable(stream.seq), "frame {round}");
    }
    // Longer than anything that is buffered on the way.
    let long: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let write = redoubt_wire::stream::StreamFrame::Write { path: b"d/plain", offset_bytes: 0, data: &long };
    log.send(&stream.frame(&write)).unwrap();
    assert!(log.wait_durable(stream.seq));
    drop(log);
    // A connection without compression, one with it, and one after the frames were read from the log again.
    let mut plain = fixture.log(1, stream.seq);
    plain.send(&stream.change(3, b"plain")).unwrap();
    assert!(plain.wait_durable(stream.seq));
    drop(plain);
    let mut log = compressed(&fixture, stream.seq);
    assert_eq!(log.welcome.next_seq.0, stream.seq);
    log.send(&stream.change(3, b"again")).unwrap();
    assert!(log.wait_durable(stream.seq));
    drop(log);
    fixture.restart();
    let log = compressed(&fixture, stream.seq);
    assert_eq!(log.welcome.next_seq.0, stream.seq);
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    assert_eq!(changed(&mut pages, stream.seq, 3, 5), b"again");
}

#[test]
fn the_last_frames_of_a_server_that_ends_are_taken() {
    let fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut log = compressed(&fixture, 0);
    log.send(&stream.begin(1)).unwrap();
    for round in 0..20u8 {
        log.send(&stream.change(3, &[round; 2000])).unwrap();
    }
    // As after a kill: the kernel still sends the written bytes, and the next server's attach receives them.
    drop(log);
    let generation = fixture.control().attach("v").generation;
    let mut pages = PageClient::connect(fixture.address(), "v", generation).unwrap();
    assert!(changed(&mut pages, stream.seq, 3, 2000) == [19; 2000]);
}

#[test]
fn bytes_that_are_no_such_stream_end_the_connection_and_nothing_else() {
    let fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut log = compressed(&fixture, 0);
    log.send(&stream.begin(1)).unwrap();
    assert!(log.wait_durable(stream.seq));
    drop(log);
    // After a length and the name of the algorithm: a frame of Zstandard with an end.
    let ended = compress(&[7; 500]).unwrap().split_off(4);
    // One segment of 256 MiB: a window that a peer could request.
    let vast = [0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x10, 0];
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let plain = Stream { seq: stream.seq, lsn: stream.lsn }.change(3, b"not compressed");
    for bytes in [&ended[..], &vast, &skipped, &plain, &[255; 100]] {
        let mut log = compressed(&fixture, stream.seq);
        assert_eq!(log.welcome.next_seq.0, stream.seq);
        log.stream.write_all(bytes).unwrap();
        assert!(log.wait_closed(), "{bytes:?}");
    }
    // A frame that was already there, then one from another position: right bytes, wrong position.
    let mut elsewhere = Stream { seq: stream.seq + 1, lsn: stream.lsn };
    for wire in [elsewhere.change(3, b"moved"), Stream::new().begin(1)] {
        let mut log = compressed(&fixture, stream.seq);
        log.send(&wire).unwrap();
        assert!(log.wait_closed());
    }
    let mut log = compressed(&fixture, stream.seq);
    log.send(&stream.change(3, b"whole")).unwrap();
    assert!(log.wait_durable(stream.seq));
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    assert_eq!(changed(&mut pages, stream.seq, 3, 5), b"whole");
}

fn in_parts(fixture: &Fixture, resume: u64) -> LogClient {
    LogClient::connect_with(Compression::Auto, fixture.address(), "v", fixture.generation, resume).unwrap()
}

#[test]
fn parts_arrive_one_by_one_compressed_or_not() {
    let mut fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut log = in_parts(&fixture, 0);
    log.send(&stream.begin(1)).unwrap();
    for round in 0..50u8 {
        log.send(&stream.change(3, &[round; 900])).unwrap();
        assert!(log.wait_durable(stream.seq), "frame {round}");
    }
    let long: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for _ in 0..2 {
        let write =
            redoubt_wire::stream::StreamFrame::Write { path: b"d/plain", offset_bytes: 0, data: &long };
        log.send(&stream.frame(&write)).unwrap();
        assert!(log.wait_durable(stream.seq));
    }
    drop(log);
    fixture.restart();
    let mut log = in_parts(&fixture, stream.seq);
    assert_eq!(log.welcome.next_seq.0, stream.seq);
    log.send(&stream.change(3, b"again")).unwrap();
    assert!(log.wait_durable(stream.seq));
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    assert_eq!(changed(&mut pages, stream.seq, 3, 5), b"again");
}

#[test]
fn what_is_no_part_ends_the_connection_and_nothing_else() {
    let fixture = Fixture::new();
    let mut stream = Stream::new();
    let mut log = in_parts(&fixture, 0);
    log.send(&stream.begin(1)).unwrap();
    assert!(log.wait_durable(stream.seq));
    drop(log);
    let not_packed = [&[100, 0, 0, 0x80][..], &[7; 100]].concat();
    for bytes in [&[0, 0, 0, 0][..], &[0, 0, 0, 0x80], &not_packed, &[255; 100]] {
        let mut log = in_parts(&fixture, stream.seq);
        assert_eq!(log.welcome.next_seq.0, stream.seq);
        log.stream.write_all(bytes).unwrap();
        assert!(log.wait_closed(), "{bytes:?}");
    }
    let mut log = in_parts(&fixture, stream.seq);
    log.send(&stream.change(3, b"whole")).unwrap();
    assert!(log.wait_durable(stream.seq));
    let mut pages = PageClient::connect(fixture.address(), "v", fixture.generation).unwrap();
    assert_eq!(changed(&mut pages, stream.seq, 3, 5), b"whole");
}
