//! Arbitrary bytes as a trace of block writes: read to the end or refused, never a panic. Records that were read are
//! written to the same bytes.
//!
//! Input: with an even first byte the records after a right header, otherwise the whole file.

use redoubt_flash::trace::{TraceReader, TraceWriter};

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let mut file = Vec::new();
    if first & 1 == 0 {
        TraceWriter::new(&mut file).unwrap().finish().unwrap();
    }
    file.extend_from_slice(data);
    let Ok(reader) = TraceReader::new(&file[..]) else { return };
    let mut again = Vec::new();
    let mut writer = TraceWriter::new(&mut again).unwrap();
    for record in reader {
        let Ok(record) = record else { break };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(again, file[..again.len()]);
}
