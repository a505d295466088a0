//! Positions: the server's LSN counts the 16 bytes of header and trailer in each 512-byte block of its log files, the
//! stream that Redoubt keeps has only the 496 bytes between them.
//!
//! [`Lsn`] of a MySQL volume is a position in that payload; MySQL's source calls it sn. The server's own LSN is a plain
//! `u64` everywhere, so that the two cannot be confused. Formula: `include/log0log.ic`.
//!
//! Invariant: `from_server_lsn(server_lsn(x)) == x` for every position, and no position has a server LSN in a header or
//! trailer. The end of a full block is the first payload byte of the next.

use super::block::{BLOCK_BYTES, HEADER_BYTES, PAYLOAD_BYTES};
use crate::types::Lsn;

/// The LSN that the server calls this position.
pub const fn server_lsn(position: Lsn) -> u64 {
    let payload = PAYLOAD_BYTES as u64;
    let blocks = (position.0 / payload).saturating_mul(BLOCK_BYTES as u64);
    blocks.saturating_add(position.0 % payload + HEADER_BYTES as u64)
}

/// The position that the server calls this LSN. One in a header is taken for the first byte after it, one in a trailer
/// for the first byte of the next block: both are what the server means by them.
pub const fn from_server_lsn(server_lsn: u64) -> Lsn {
    let (blocks, in_block) = (server_lsn / BLOCK_BYTES as u64, server_lsn % BLOCK_BYTES as u64);
    let in_payload = in_block.saturating_sub(HEADER_BYTES as u64);
    let in_payload = if in_payload > PAYLOAD_BYTES as u64 { PAYLOAD_BYTES as u64 } else { in_payload };
    Lsn(blocks * PAYLOAD_BYTES as u64 + in_payload)
}

/// Start of the block that holds this position, as a server LSN.
pub const fn block_start(position: Lsn) -> u64 {
    (position.0 / PAYLOAD_BYTES as u64).saturating_mul(BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests;
