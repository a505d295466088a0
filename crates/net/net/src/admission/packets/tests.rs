use super::*;

fn packets(stream: &[u8], sizes: &[usize]) -> Vec<(u8, bool, Vec<u8>)> {
    let (mut packets, mut found, mut rest) = (Packets::default(), Vec::new(), stream);
    for size in sizes.iter().copied().cycle() {
        let (mut piece, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        while let Some(piece) = packets.next(&mut piece) {
            match piece {
                Piece::Begin { number, continues, .. } => found.push((number, continues, Vec::new())),
                Piece::Content(content) => {
                    found.last_mut().unwrap().2.extend_from_slice(content);
                }
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    assert!(packets.is_at_start());
    found
}

#[test]
fn packets_are_found_however_the_stream_is_cut() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let wanted: Vec<(u8, bool, Vec<u8>)> = (0..rng.usize(1..20))
            .map(|_| (rng.u8(..), false, (0..rng.usize(0..40)).map(|_| rng.u8(..)).collect()))
            .collect();
        let mut stream = Vec::new();
        for (number, _, content) in &wanted {
            stream.extend_from_slice(&[content.len() as u8, 0, 0, *number]);
            stream.extend_from_slice(content);
        }
        let sizes: Vec<usize> = (0..10).map(|_| rng.usize(1..9)).collect();
        assert_eq!(packets(&stream, &sizes), wanted);
        assert_eq!(packets(&stream, &[stream.len()]), wanted);
    }
}

#[test]
fn a_packet_of_full_length_goes_on() {
    let mut stream = vec![0xff, 0xff, 0xff, 3];
    stream.resize(4 + 0xff_ffff, 9);
    stream.extend_from_slice(&[1, 0, 0, 4, 8, 0, 0, 0, 5]);
    let found = packets(&stream, &[10_000]);
    let shape: Vec<_> =
        found.iter().map(|(number, continues, bytes)| (*number, *continues, bytes.len())).collect();
    assert_eq!(shape, [(3, false, 0xff_ffff), (4, true, 1), (5, false, 0)]);
}
