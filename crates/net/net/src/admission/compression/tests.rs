use super::super::stream::Stream;
use super::*;
use flate2::Compression as Level;
use flate2::write::ZlibEncoder;
use std::io::Write;

const WAITS: Boundary = Boundary::Command { may_wait: true, keeps: false };
const KEEPS: Boundary = Boundary::Command { may_wait: false, keeps: true };

#[derive(Clone, Copy, Debug)]
enum Method {
    None,
    Zlib,
    Zstd,
}

fn packet(number: u8, content: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = (content.len() as u32).to_le_bytes();
    [&[a, b, c, number][..], content].concat()
}

fn frame(number: u8, plain: &[u8], method: Method) -> Vec<u8> {
    let content = match method {
        Method::None => plain.to_vec(),
        Method::Zlib => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Level::default());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        Method::Zstd => zstd::bulk::compress(plain, 3).unwrap(),
    };
    let len = if matches!(method, Method::None) { 0 } else { plain.len() as u32 };
    let [a, b, c, _] = len.to_le_bytes();
    [&packet(number, &content)[..4], &[a, b, c], &content].concat()
}

fn ok(status: u8) -> Vec<u8> {
    vec![0, 0, 0, status, 0, 0, 0]
}

fn logged_in(client: u32) -> Stream {
    let mut stream = Stream::accepted();
    stream.sent(&packet(0, b"\x0a10.11.0-MariaDB"));
    let login = [&client.to_le_bytes()[..], &[0; 28], b"app\0"].concat();
    stream.received(&packet(1, &login));
    stream.sent(&packet(2, &ok(2)));
    stream
}

/// A command and its answer, in frames, each in pieces of a length.
fn exchange(
    stream: &mut Stream,
    text: &str,
    answer: &[Vec<u8>],
    method: Method,
    piece_bytes: usize,
) -> Boundary {
    let command = frame(0, &packet(0, &[b"\x03", text.as_bytes()].concat()), method);
    command.chunks(piece_bytes).for_each(|piece| stream.received(piece));
    for (number, packets) in (1..).zip(answer) {
        frame(number, packets, method).chunks(piece_bytes).for_each(|piece| stream.sent(piece));
    }
    assert!(!stream.tracker().lost(), "{text} {method:?} {piece_bytes}");
    stream.asks(7)
}

#[test]
fn transactions_are_followed_within_frames() {
    for method in [Method::None, Method::Zlib, Method::Zstd] {
        for piece_bytes in [1, 2, 7, 100, 1 << 20] {
            let mut stream = logged_in(CLIENT);
            assert_eq!(stream.asks(7), WAITS);
            let begin = [packet(1, &ok(3))];
            assert_eq!(exchange(&mut stream, "BEGIN", &begin, method, piece_bytes), KEEPS);
            // Rows in several frames, in the midst of a packet; a text that is long.
            let mut random = fastrand::Rng::with_seed(piece_bytes as u64);
            let row: Vec<u8> = (0..100_000).map(|_| random.u8(..) & 15).collect();
            let mut rows = packet(1, b"\x01");
            (2..9).for_each(|number| rows.extend(packet(number, &row)));
            rows.extend(packet(9, &[0xfe, 0, 0, 3, 0]));
            let frames: Vec<Vec<u8>> = rows.chunks(33_333).map(<[u8]>::to_vec).collect();
            let text = format!("SELECT '{}'", "x".repeat(20_000));
            assert_eq!(exchange(&mut stream, &text, &frames, method, piece_bytes), KEEPS);
            let end = [packet(1, &ok(2))];
            assert_eq!(exchange(&mut stream, "COMMIT", &end, method, piece_bytes), WAITS);
        }
    }
}

const CLIENT: u32 = 0x21;

#[test]
fn what_does_not_fit_is_lost() {
    let command = packet(0, b"\x03SELECT 'something that is long enough'");
    // Wrong number; wrong uncompressed length; no compression; empty frame; too much content.
    let good = frame(0, &command, Method::Zlib);
    let mut longer = good.clone();
    longer[4] += 1;
    let mut shorter = good.clone();
    shorter[4] -= 1;
    let mut broken = good.clone();
    broken[10] ^= 0xff;
    let mut trailing = good.clone();
    trailing[0] += 3;
    trailing.extend(b"abc");
    for bad in [
        frame(1, &command, Method::Zlib),
        longer,
        shorter,
        broken,
        trailing,
        [&[4, 0, 0, 0, 9, 0, 0][..], b"none"].concat(),
        vec![0; 7],
    ] {
        let mut stream = logged_in(CLIENT);
        assert_eq!(stream.asks(7), WAITS);
        stream.received(&bad);
        assert!(stream.tracker().lost(), "{bad:?}");
    }
    let mut stream = logged_in(CLIENT);
    assert_eq!(stream.asks(7), WAITS);
    stream.received(&good);
    assert!(!stream.tracker().lost());
    stream.sent(&frame(2, &packet(1, &ok(2)), Method::None));
    assert!(stream.tracker().lost());
    // A client that has not said that it compresses.
    let mut stream = logged_in(1);
    assert_eq!(stream.asks(7), Boundary::None);
    assert!(stream.tracker().lost());
}

#[test]
fn what_need_not_wait_is_seen_within_a_frame() {
    let mut stream = logged_in(CLIENT);
    assert_eq!(stream.asks(7), WAITS);
    let kill = packet(0, b"\x03KILL /* the connection of somebody who has been there for long */ 5");
    let select =
        packet(0, b"\x03SELECT /* the connection of somebody who has been there for long */ a FROM t");
    for method in [Method::None, Method::Zlib, Method::Zstd] {
        assert!(stream.is_free(&frame(0, &kill, method)), "{method:?}");
        assert!(!stream.is_free(&frame(0, &select, method)), "{method:?}");
        assert!(!stream.is_free(&frame(0, &kill, method)[..9]), "{method:?}");
    }
}

#[test]
fn a_connection_is_joined_within_frames() {
    let mut stream = Stream::joining();
    stream.sent(&frame(1, &packet(1, &ok(2)), Method::Zlib));
    assert_eq!(stream.asks(7), KEEPS);
    let answer = [packet(1, &ok(2))];
    assert_eq!(exchange(&mut stream, "SELECT 1", &answer, Method::Zlib, 100), WAITS);
}
