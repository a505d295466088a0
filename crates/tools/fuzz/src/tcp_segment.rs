//! Any bytes as an IP packet with a TCP segment: read or refused, never a panic. A parsed segment lies within the
//! packet and reads the same after it is written again. Its checksums are right if the parser was to verify them.
//!
//! Input: the packet; checksums are made right first, unless the first byte is odd.

use redoubt_tcp::segment::Segment;
use redoubt_tcp::{Checksum, Refusal};

/// Makes the checksums of a packet right, as far as it has any; of damaged headers some.
pub(crate) fn make_right(packet: &mut [u8]) {
    let sum = |parts: &[&[u8]]| {
        let mut sum = 0u32;
        for pair in parts.iter().flat_map(|part| part.chunks(2)) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    };
    let (header_len, addresses) = match packet.first().map(|first| first >> 4) {
        Some(4) => (usize::from(packet[0] & 15) * 4, 12..20),
        Some(6) => (40, 8..40),
        _ => return,
    };
    if header_len < addresses.end || packet.len() < header_len + 20 {
        return;
    }
    let total = match packet[0] >> 4 {
        4 => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
        _ => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
    };
    if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let right = sum(&[&packet[..header_len]]);
        packet[10..12].copy_from_slice(&right);
    }
    if total < header_len + 20 || total > packet.len() {
        return;
    }
    packet[header_len + 16..header_len + 18].fill(0);
    let len = ((total - header_len) as u32).to_be_bytes();
    let right = sum(&[&packet[addresses], &len, &[0, 6], &packet[header_len..total]]);
    packet[header_len + 16..header_len + 18].copy_from_slice(&right);
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((first, packet)) = data.split_first() else { return };
    let mut packet = packet.to_vec();
    if first & 1 == 0 {
        make_right(&mut packet);
    }
    let trusted = Segment::parse(&packet, Checksum::Trust);
    let verified = Segment::parse(&packet, Checksum::Verify);
    match (&trusted, &verified) {
        (Ok(trusted), Ok(verified)) => assert_eq!(trusted, verified),
        (Ok(_), Err(refusal)) => {
            assert!(matches!(refusal, Refusal::IpChecksum | Refusal::TcpChecksum));
            assert!(first & 1 == 1, "a right checksum is refused");
        }
        (Err(_), Ok(_)) => panic!("what is refused with trust is taken without"),
        (Err(_), Err(_)) => {}
    }
    let Ok(segment) = trusted else { return };
    assert!(packet.as_ptr_range().contains(&segment.payload.as_ptr()) || segment.payload.is_empty());
    let len = segment.header.packet_len_bytes(segment.payload.len());
    let mut again = vec![0; len];
    let mut short = vec![0; len - 1];
    let fill = |place: &mut [u8]| place.copy_from_slice(segment.payload);
    assert_eq!(segment.header.write(&mut short, 7, segment.payload.len(), fill), None);
    // Options may take more place in their usual order than they took.
    let Some(written) = segment.header.write(&mut again, 7, segment.payload.len(), fill) else {
        assert!(len > 65_535);
        return;
    };
    assert_eq!(written, len);
    let parsed = Segment::parse(&again, Checksum::Verify).unwrap();
    assert_eq!(parsed.payload, segment.payload);
    let (mut expected, parsed) = (segment.header, parsed.header);
    let sacks = parsed.options.sack.as_slice();
    assert!(expected.options.sack.as_slice().starts_with(sacks));
    expected.options.sack = parsed.options.sack;
    assert_eq!(parsed, expected);
}
