//! The Ethernet header, and TCP checksums that the kernel has left to a NIC.

use crate::link::{ETHERNET_LEN_BYTES, Mac};
use redoubt_tcp::Checksum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// A parsed frame.
pub struct Header<'frame> {
    /// Source Ethernet address.
    pub source: Mac,
    /// Source host.
    pub from: IpAddr,
    /// The IP packet and the bytes after it.
    pub packet: &'frame [u8],
}

fn array<const LEN: usize>(bytes: &[u8], at: usize) -> Option<[u8; LEN]> {
    bytes.get(at..at + LEN)?.try_into().ok()
}

/// Parses a frame. `None`: it is not IP.
pub fn split(frame: &[u8]) -> Option<Header<'_>> {
    let packet = frame.get(ETHERNET_LEN_BYTES..)?;
    let from = match array(frame, 12)? {
        IPV4 => Ipv4Addr::from(array::<4>(packet, 12)?).into(),
        IPV6 => Ipv6Addr::from(array::<16>(packet, 8)?).into(),
        _ => return None,
    };
    Some(Header { source: array(frame, 6)?, from, packet })
}

/// Source and destination host of an IP packet.
pub fn hosts(packet: &[u8]) -> Option<[IpAddr; 2]> {
    Some(match packet.first()? >> 4 {
        4 => [array::<4>(packet, 12)?, array::<4>(packet, 16)?].map(IpAddr::from),
        6 => [array::<16>(packet, 8)?, array::<16>(packet, 24)?].map(IpAddr::from),
        _ => return None,
    })
}

/// Writes the Ethernet header of a frame.
pub fn write_header(header: &mut [u8], to: Mac, from: Mac, is_ipv6: bool) {
    let kind = if is_ipv6 { IPV6 } else { IPV4 };
    let bytes = to.into_iter().chain(from).chain(kind);
    header.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| pair.iter().fold(0, |all, byte| all << 8 | u32::from(*byte))).sum()
}

/// The checksum covers only the addresses and the length, to be completed by a NIC: the packet has never been on a
/// wire.
fn is_partial(packet: &[u8]) -> Option<bool> {
    let (header, addresses, len) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet.first()? & 15) * 4;
            let len = usize::from(u16::from_be_bytes(array(packet, 2)?)).checked_sub(header)?;
            (header, packet.get(12..20)?, len)
        }
        6 => (40, packet.get(8..40)?, usize::from(u16::from_be_bytes(array(packet, 4)?))),
        _ => return None,
    };
    let whole = sum(addresses) + len as u32 + libc::IPPROTO_TCP as u32;
    let folded = (whole & 0xffff) + (whole >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    Some(u32::from(u16::from_be_bytes(array(packet, header + 16)?)) == folded)
}

/// Whether the checksum of a packet is to be verified; on a `partial` link some checksums may be incomplete.
pub fn checksum(packet: &[u8], partial: bool) -> Checksum {
    if partial && is_partial(packet) == Some(true) { Checksum::Trust } else { Checksum::Verify }
}
