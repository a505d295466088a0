//! The Internet checksum (RFC 1071).

use std::net::IpAddr;

/// A sum of 16-bit words in progress. Words are added in the order of the bytes in memory and folded at the end, which
/// ones' complement allows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes that begin at an even offset.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut parts = bytes.chunks_exact(8);
        let (mut low, mut high) = (0u64, 0u64);
        for part in &mut parts {
            let mut word = [0; 8];
            word.copy_from_slice(part);
            let word = u64::from_ne_bytes(word);
            low += word & 0xffff_ffff;
            high += word >> 32;
        }
        let mut rest = parts.remainder().chunks_exact(2);
        for pair in &mut rest {
            low += u64::from(u16::from_ne_bytes([pair[0], pair[1]]));
        }
        if let [last] = rest.remainder() {
            low += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        self.0 += fold(low) + fold(high);
    }

    /// The pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1).
    pub(crate) fn add_pseudo_header(&mut self, source: IpAddr, destination: IpAddr, len_bytes: usize) {
        for address in [source, destination] {
            match address {
                IpAddr::V4(address) => self.add(&address.octets()),
                IpAddr::V6(address) => self.add(&address.octets()),
            }
        }
        self.add(&(len_bytes as u32).to_be_bytes());
        self.add(&[0, super::PROTOCOL_TCP]);
    }

    /// The checksum as bytes to be written; 0 over data that contains its own valid checksum.
    pub(crate) fn finish(self) -> [u8; 2] {
        (!(fold(self.0) as u16)).to_ne_bytes()
    }
}

/// Folds the sum to 16 bits.
fn fold(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}
