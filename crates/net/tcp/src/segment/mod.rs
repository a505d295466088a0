//! Segments as bytes: IPv4 (RFC 791) or IPv6 (RFC 8200) and TCP headers (RFC 9293, 3.1), checked and written.
//!
//! Invariant: a segment from [`Segment::parse`] lies within the packet, comes from one host's address, is addressed to
//! one, and has valid ports and flags. Other packets are refused with a reason ([`Refusal`]) before any look-up.
//!
//! Fragments are refused. A server's clients receive its maximum segment size and send segments that fit, and
//! reassembly would let any sender consume memory. IPv6's extension headers are refused for the same reason.

mod checksum;
pub mod options;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use options::{Options, SackBlocks, Timestamps};

use crate::sequence::Seq;
use checksum::Sum;

pub(crate) const PROTOCOL_TCP: u8 = 6;
const IPV4_LEN_BYTES: usize = 20;
const IPV6_LEN_BYTES: usize = 40;
const TCP_LEN_BYTES: usize = 20;
const HOP_LIMIT: u8 = 64;

/// Length of the headers of a packet without TCP options.
pub(crate) const fn headers_len_bytes(address: IpAddr) -> usize {
    TCP_LEN_BYTES + if address.is_ipv4() { IPV4_LEN_BYTES } else { IPV6_LEN_BYTES }
}

/// Whether checksums are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// A wrong checksum is refused.
    Verify,
    /// Verified elsewhere, or never written: packets over a veth pair have none yet.
    Trust,
}

/// Why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// Ends within a header, or before the length in its header.
    #[error("truncated packet")]
    Short,
    /// Neither IPv4 nor IPv6.
    #[error("neither IPv4 nor IPv6")]
    Version,
    /// The length of the IP header or of the packet is invalid.
    #[error("inconsistent lengths in the IP header")]
    IpLength,
    /// A fragment of a packet.
    #[error("a fragment")]
    Fragment,
    /// Not TCP, or an IPv6 extension header before it.
    #[error("not TCP")]
    Protocol,
    /// The IP header's checksum is wrong.
    #[error("the checksum of the IP header is wrong")]
    IpChecksum,
    /// Not from one host to another: a multicast, broadcast or unspecified address, or the same address and port on
    /// both sides.
    #[error("not a unicast packet between two endpoints")]
    Address,
    /// A port is 0.
    #[error("a port is 0")]
    Port,
    /// The length of the TCP header is invalid.
    #[error("invalid length of the TCP header")]
    TcpLength,
    /// The segment's checksum is wrong.
    #[error("the checksum of the segment is wrong")]
    TcpChecksum,
    /// The length of an option is invalid.
    #[error("invalid length of a TCP option")]
    Option,
    /// Flags that exclude each other, or none of ACK, SYN and RST.
    #[error("no flags, or flags that exclude each other")]
    Flags,
}

/// The control bits in use. ECN is not negotiated; urgent data is treated as data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(1);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(2);
    /// Reset the connection.
    pub const RST: Self = Self(4);
    /// Push.
    pub const PSH: Self = Self(8);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(16);
    const KNOWN: u8 = 31;

    /// The flags of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The fields of a segment besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Sequence number of the first byte, or of SYN.
    pub seq: Seq,
    /// The next expected sequence number; valid with [`Flags::ACK`] only.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window as on the wire, not scaled.
    pub window: u16,
    /// Options.
    pub options: Options,
}

/// A segment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'p> {
    /// Its headers.
    pub header: Header,
    /// Its data.
    pub payload: &'p [u8],
}

impl<'p> Segment<'p> {
    /// Parses a packet without its link header. Bytes after the packet's own length are ignored: a link pads short
    /// frames.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn parse(packet: &'p [u8], checksum: Checksum) -> Result<Self, Refusal> {
        let (source, destination, body) = match packet.first().map(|first| first >> 4) {
            None => return Err(Refusal::Short),
            Some(4) => parse_ipv4(packet, checksum)?,
            Some(6) => parse_ipv6(packet)?,
            Some(_) => return Err(Refusal::Version),
        };
        if !is_one_host(source) || !is_one_host(destination) {
            return Err(Refusal::Address);
        }
        let fixed = body.first_chunk::<TCP_LEN_BYTES>().ok_or(Refusal::Short)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < TCP_LEN_BYTES {
            return Err(Refusal::TcpLength);
        }
        let (header, payload) = body.split_at_checked(header_len).ok_or(Refusal::TcpLength)?;
        if checksum == Checksum::Verify {
            let mut sum = Sum::default();
            sum.add_pseudo_header(source, destination, body.len());
            sum.add(body);
            if sum.finish() != [0, 0] {
                return Err(Refusal::TcpChecksum);
            }
        }
        let half = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let (source, destination) = (SocketAddr::new(source, half(0)), SocketAddr::new(destination, half(2)));
        if source.port() == 0 || destination.port() == 0 {
            return Err(Refusal::Port);
        }
        if source == destination {
            return Err(Refusal::Address);
        }
        let flags = Flags(fixed[13] & Flags::KNOWN);
        require_flags(flags)?;
        let options = Options::parse(header.get(TCP_LEN_BYTES..).unwrap_or_default())?;
        let header = Header {
            source,
            destination,
            seq: Seq(word(4)),
            ack: Seq(word(8)),
            flags,
            window: half(14),
            options,
        };
        Ok(Self { header, payload })
    }

    /// Length in sequence numbers (SEG.LEN).
    #[must_use]
    pub fn len(&self) -> u32 {
        let flags = self.header.flags;
        self.payload.len() as u32 + u32::from(flags.has(Flags::SYN)) + u32::from(flags.has(Flags::FIN))
    }

    /// Whether the segment takes no sequence number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Checks the combination of flags: at most one of SYN, FIN and RST, and ACK with all but SYN and RST.
fn require_flags(flags: Flags) -> Result<(), Refusal> {
    let exclusive = [Flags::SYN, Flags::FIN, Flags::RST].into_iter().filter(|flag| flags.has(*flag)).count();
    let acknowledges = flags.has(Flags::ACK) || flags.has(Flags::SYN) || flags.has(Flags::RST);
    if exclusive > 1 || !acknowledges { Err(Refusal::Flags) } else { Ok(()) }
}

fn is_one_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !broadcast
}

type Addressed<'p> = (IpAddr, IpAddr, &'p [u8]);

fn parse_ipv4(packet: &[u8], checksum: Checksum) -> Result<Addressed<'_>, Refusal> {
    let fixed = packet.first_chunk::<IPV4_LEN_BYTES>().ok_or(Refusal::Short)?;
    let header_len = usize::from(fixed[0] & 15) * 4;
    let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if header_len < IPV4_LEN_BYTES || total_len < header_len {
        return Err(Refusal::IpLength);
    }
    let packet = packet.get(..total_len).ok_or(Refusal::Short)?;
    let (header, body) = packet.split_at_checked(header_len).ok_or(Refusal::IpLength)?;
    if checksum == Checksum::Verify {
        let mut sum = Sum::default();
        sum.add(header);
        if sum.finish() != [0, 0] {
            return Err(Refusal::IpChecksum);
        }
    }
    // More fragments, or an offset.
    if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
        return Err(Refusal::Fragment);
    }
    if fixed[9] != PROTOCOL_TCP {
        return Err(Refusal::Protocol);
    }
    let address =
        |at: usize| IpAddr::V4(Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]));
    Ok((address(12), address(16), body))
}

fn parse_ipv6(packet: &[u8]) -> Result<Addressed<'_>, Refusal> {
    let (fixed, rest) = packet.split_first_chunk::<IPV6_LEN_BYTES>().ok_or(Refusal::Short)?;
    let body = rest.get(..usize::from(u16::from_be_bytes([fixed[4], fixed[5]]))).ok_or(Refusal::Short)?;
    match fixed[6] {
        PROTOCOL_TCP => {}
        44 => return Err(Refusal::Fragment),
        _ => return Err(Refusal::Protocol),
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&fixed[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    Ok((address(8), address(24), body))
}

impl Header {
    /// Length that [`Header::write`] writes for such a payload.
    #[must_use]
    pub fn packet_len_bytes(&self, payload_len_bytes: usize) -> usize {
        headers_len_bytes(self.source.ip()) + self.options.len_bytes() + payload_len_bytes
    }

    /// Writes a whole packet and returns its length; `None` if it does not fit or the addresses are of two families.
    /// `fill` writes the payload into its place. `identification` distinguishes IPv4's fragments.
    pub fn write(
        &self,
        out: &mut [u8],
        identification: u16,
        payload_len_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        let len = self.packet_len_bytes(payload_len_bytes);
        let packet = out.get_mut(..len)?;
        let body = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (header, body) = packet.split_first_chunk_mut::<IPV4_LEN_BYTES>()?;
                write_ipv4(header, [source, destination], u16::try_from(len).ok()?, identification);
                body
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (header, body) = packet.split_first_chunk_mut::<IPV6_LEN_BYTES>()?;
                write_ipv6(header, [source, destination], u16::try_from(body.len()).ok()?);
                body
            }
            _ => return None,
        };
        let header_len = TCP_LEN_BYTES + self.options.len_bytes();
        let (header, payload) = body.split_at_mut_checked(header_len)?;
        fill(payload);
        header[0..2].copy_from_slice(&self.source.port().to_be_bytes());
        header[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        header[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        header[12] = ((header_len / 4) as u8) << 4;
        header[13] = self.flags.0;
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..20].fill(0);
        self.options.write(&mut header[TCP_LEN_BYTES..]);
        let mut sum = Sum::default();
        sum.add_pseudo_header(self.source.ip(), self.destination.ip(), body.len());
        sum.add(body);
        body[16..18].copy_from_slice(&sum.finish());
        Some(len)
    }
}

fn write_ipv4(
    header: &mut [u8; IPV4_LEN_BYTES],
    [source, destination]: [Ipv4Addr; 2],
    len: u16,
    identification: u16,
) {
    header.fill(0);
    header[0] = 0x45;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    // Fragmentation is allowed: the engine does not discover the path MTU.
    header[8] = HOP_LIMIT;
    header[9] = PROTOCOL_TCP;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let mut sum = Sum::default();
    sum.add(&header[..]);
    header[10..12].copy_from_slice(&sum.finish());
}

fn write_ipv6(header: &mut [u8; IPV6_LEN_BYTES], [source, destination]: [Ipv6Addr; 2], body_len: u16) {
    header.fill(0);
    header[0] = 0x60;
    header[4..6].copy_from_slice(&body_len.to_be_bytes());
    header[6] = PROTOCOL_TCP;
    header[7] = HOP_LIMIT;
    header[8..24].copy_from_slice(&source.octets());
    header[24..40].copy_from_slice(&destination.octets());
}
