//! Any bytes as a message, a record and a snapshot of the consensus: decoded or refused, never a panic. A decoded value
//! is encoded to the very same bytes, and a decoded message is sane.
//!
//! Input: the bytes.

use redoubt_consensus::codec::{
    decode_message, decode_record, decode_snapshot, encode_message, encode_record, encode_snapshot,
};

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let mut again = Vec::new();
    if let Ok(message) = decode_message(data) {
        assert!(message.is_sane());
        encode_message(&message, &mut again);
        assert_eq!(again, data);
    }
    again.clear();
    if let Ok(record) = decode_record(data) {
        encode_record(&record, &mut again);
        assert_eq!(again, data);
    }
    again.clear();
    if let Ok(snapshot) = decode_snapshot(data) {
        encode_snapshot(&snapshot, &mut again);
        assert_eq!(again, data);
    }
}
