use super::*;

fn header(source: &str, destination: &str) -> Header {
    let mut sack = SackBlocks::default();
    sack.push(Seq(10), Seq(20));
    sack.push(Seq(u32::MAX - 5), Seq(7));
    Header {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        seq: Seq(0x1234_5678),
        ack: Seq(0x9abc_def0),
        flags: Flags::ACK.with(Flags::PSH),
        window: 0xabcd,
        options: Options { timestamps: Some(Timestamps { value: 1, echo: 2 }), sack, ..Options::default() },
    }
}

fn packet(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 2000];
    let len = header.write(&mut out, 77, payload.len(), |place| place.copy_from_slice(payload)).unwrap();
    out.truncate(len);
    out
}

#[test]
fn what_is_written_is_read() {
    for header in [header("10.1.2.3:4", "10.5.6.7:8"), header("[2001:db8::1]:4", "[2001:db8::2]:8")] {
        for len in [0, 1, 2, 7, 1000] {
            let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut bytes = packet(&header, &payload);
            // Padding of a short frame.
            bytes.extend([0xee; 9]);
            let segment = Segment::parse(&bytes, Checksum::Verify).unwrap();
            assert_eq!((segment.header, segment.payload), (header, &payload[..]));
        }
    }
}

#[test]
fn a_real_segment_is_read_with_its_checksums() {
    // A SYN of Linux, as tcpdump shows it.
    let bytes = [
        0x45, 0x00, 0x00, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x06, 0x00, 0x00, 0x0a, 0x42, 0x00, 0x01, 0x0a,
        0x42, 0x00, 0x02, 0x9c, 0x40, 0x0c, 0xea, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0xa0, 0x02,
        0xfa, 0xf0, 0x00, 0x00, 0x00, 0x00, 0x02, 0x04, 0x05, 0xb4, 0x04, 0x02, 0x08, 0x0a, 0x00, 0x00, 0x00,
        0x2a, 0x00, 0x00, 0x00, 0x00, 0x01, 0x03, 0x03, 0x07,
    ];
    let segment = Segment::parse(&bytes, Checksum::Trust).unwrap();
    let expected = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 42, echo: 0 }),
        sack: SackBlocks::default(),
    };
    assert_eq!((segment.header.options, segment.header.flags), (expected, Flags::SYN));
    assert_eq!(Segment::parse(&bytes, Checksum::Verify), Err(Refusal::IpChecksum));
    // Linux's order of options is ours.
    assert_eq!(packet(&segment.header, b"")[40..], bytes[40..]);
}

#[test]
fn each_damage_is_refused_with_its_reason() {
    let good = packet(&header("10.1.2.3:4", "10.5.6.7:8"), b"payload");
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Segment::parse(&bytes, Checksum::Trust).unwrap_err()
    };
    assert_eq!(refused(&|bytes| bytes.clear()), Refusal::Short);
    assert_eq!(refused(&|bytes| bytes.truncate(19)), Refusal::Short);
    assert_eq!(refused(&|bytes| bytes.truncate(bytes.len() - 1)), Refusal::Short);
    assert_eq!(refused(&|bytes| bytes[0] = 0x55), Refusal::Version);
    assert_eq!(refused(&|bytes| bytes[0] = 0x44), Refusal::IpLength);
    assert_eq!(refused(&|bytes| bytes[2..4].fill(0)), Refusal::IpLength);
    assert_eq!(refused(&|bytes| bytes[6] = 0x20), Refusal::Fragment);
    assert_eq!(refused(&|bytes| bytes[7] = 1), Refusal::Fragment);
    assert_eq!(refused(&|bytes| bytes[9] = 17), Refusal::Protocol);
    assert_eq!(refused(&|bytes| bytes[12] = 224), Refusal::Address);
    assert_eq!(refused(&|bytes| bytes[12..16].fill(255)), Refusal::Address);
    assert_eq!(refused(&|bytes| bytes[16..20].fill(0)), Refusal::Address);
    // To itself.
    assert_eq!(
        refused(&|bytes| (bytes.copy_within(12..16, 16), bytes.copy_within(20..22, 22)).0),
        Refusal::Address
    );
    assert_eq!(refused(&|bytes| bytes[20..22].fill(0)), Refusal::Port);
    assert_eq!(refused(&|bytes| bytes[32] = 0x40), Refusal::TcpLength);
    assert_eq!(refused(&|bytes| bytes[32] = 0xf0), Refusal::TcpLength);
    assert_eq!(refused(&|bytes| bytes[33] = 3), Refusal::Flags);
    assert_eq!(refused(&|bytes| bytes[33] = 0), Refusal::Flags);
    assert_eq!(refused(&|bytes| bytes[43] = 1), Refusal::Option);
    assert_eq!(refused(&|bytes| bytes[43] = 200), Refusal::Option);
    let verified = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        Segment::parse(&bytes, Checksum::Verify).unwrap_err()
    };
    assert_eq!((verified(8), verified(24), verified(good.len() - 1)), {
        (Refusal::IpChecksum, Refusal::TcpChecksum, Refusal::TcpChecksum)
    });
}

#[test]
fn no_cut_and_no_bit_makes_it_panic() {
    for header in [header("10.1.2.3:4", "10.5.6.7:8"), header("[2001:db8::1]:4", "[2001:db8::2]:8")] {
        let good = packet(&header, b"payload");
        for len in 0..good.len() {
            assert!(Segment::parse(&good[..len], Checksum::Trust).is_err());
        }
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = Segment::parse(&bytes, Checksum::Trust);
            let verified = Segment::parse(&bytes, Checksum::Verify);
            // IPv6 has no checksum of fields that TCP's does not cover.
            let is_free = |bit| matches!(bit, 0..4 | 8..32 | 56..64);
            let is_covered = header.source.is_ipv4() || !is_free(bit);
            assert!(verified.is_err() || !is_covered, "bit {bit}");
        }
    }
}
