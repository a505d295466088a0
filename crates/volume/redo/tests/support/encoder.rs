//! Writes mini-transactions for tests and benchmarks, from the format description alone: it shares no code
//! with the parsers it is used to test.

#![allow(dead_code)]

/// Append `value` the way the redo log writes numbers.
pub fn varint(value: u32, out: &mut Vec<u8>) {
    let value = u64::from(value);
    let mut base = 0u64;
    for (extra_bytes, prefix) in [(0u32, 0u8), (1, 0x80), (2, 0xc0), (3, 0xe0), (4, 0xf0)] {
        let bits = 7 * (extra_bytes + 1) + if extra_bytes == 4 { 99 } else { 0 };
        let limit = if extra_bytes == 4 { u64::MAX } else { base + (1 << bits) };
        if value < limit {
            let rest = value - base;
            let bytes = rest.to_be_bytes();
            if extra_bytes == 4 {
                out.push(prefix);
            } else {
                out.push(prefix | bytes[7 - extra_bytes as usize]);
            }
            out.extend_from_slice(&bytes[8 - extra_bytes as usize..]);
            return;
        }
        base = limit;
    }
}

/// One record: type and same-page bits of its first byte, and the bytes after the length.
pub fn record(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    if !payload.is_empty() && payload.len() <= 15 {
        out.push(kind | payload.len() as u8);
        out.extend_from_slice(payload);
        return;
    }
    // The length counts itself and leaves out 15 bytes.
    let mut length = Vec::new();
    for length_bytes in 1..=3 {
        length.clear();
        varint((payload.len() + length_bytes - 15) as u32, &mut length);
        if length.len() == length_bytes {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&length);
    out.extend_from_slice(payload);
}

/// A mini-transaction being written.
#[derive(Clone, Default)]
pub struct MtrWriter {
    pub records: Vec<u8>,
    page: Option<(u32, u32)>,
}

impl MtrWriter {
    pub fn new() -> Self {
        Self::default()
    }

    fn page_record(&mut self, kind: u8, page: (u32, u32), same: bool, rest: &[u8]) -> &mut Self {
        let mut payload = Vec::new();
        let same_page = same && self.page == Some(page);
        if !same_page {
            varint(page.0, &mut payload);
            varint(page.1, &mut payload);
        }
        payload.extend_from_slice(rest);
        record(kind | if same_page { 0x80 } else { 0 }, &payload, &mut self.records);
        self.page = Some(page);
        self
    }

    pub fn free(&mut self, page: (u32, u32)) -> &mut Self {
        self.page_record(0x00, page, false, &[]);
        self.page = None;
        self
    }

    pub fn init(&mut self, page: (u32, u32)) -> &mut Self {
        self.page_record(0x10, page, false, &[])
    }

    pub fn extended(&mut self, page: (u32, u32), rest: &[u8]) -> &mut Self {
        self.page_record(0x20, page, true, rest)
    }

    pub fn trim(&mut self, page: (u32, u32)) -> &mut Self {
        self.page_record(0x20, page, false, &[10]);
        self.page = None;
        self
    }

    /// `distance` counts from the end of the record before, when that was for the same page.
    pub fn write(&mut self, page: (u32, u32), distance: u32, data: &[u8]) -> &mut Self {
        let mut rest = Vec::new();
        varint(distance, &mut rest);
        rest.extend_from_slice(data);
        self.page_record(0x30, page, true, &rest)
    }

    /// Like `write`, but with ids even if the page is current: `offset` counts from the page's start.
    pub fn write_absolute(&mut self, page: (u32, u32), offset: u32, data: &[u8]) -> &mut Self {
        self.page = None;
        self.write(page, offset, data)
    }

    pub fn memset(&mut self, page: (u32, u32), distance: u32, len_bytes: u32, pattern: &[u8]) -> &mut Self {
        let mut rest = Vec::new();
        varint(distance, &mut rest);
        varint(len_bytes, &mut rest);
        rest.extend_from_slice(pattern);
        self.page_record(0x40, page, true, &rest)
    }

    /// `source_offset` is source minus destination.
    pub fn memmove(
        &mut self,
        page: (u32, u32),
        distance: u32,
        len_bytes: u32,
        source_offset: i32,
    ) -> &mut Self {
        let mut rest = Vec::new();
        varint(distance, &mut rest);
        varint(len_bytes, &mut rest);
        let magnitude = source_offset.unsigned_abs();
        varint(((magnitude - 1) << 1) | u32::from(source_offset < 0), &mut rest);
        self.page_record(0x50, page, true, &rest)
    }

    pub fn option(&mut self, page: (u32, u32)) -> &mut Self {
        self.page_record(0x70, page, true, &[0, 1, 2, 3, 4])
    }

    pub fn file(&mut self, kind: u8, space: u32, payload: &[u8]) -> &mut Self {
        let mut bytes = Vec::new();
        varint(space, &mut bytes);
        bytes.push(0);
        bytes.extend_from_slice(payload);
        record(kind, &bytes, &mut self.records);
        self
    }

    /// The whole mini-transaction with this end byte.
    pub fn finish(&self, end_byte: u8) -> Vec<u8> {
        let mut bytes = self.records.clone();
        bytes.push(end_byte);
        bytes.extend_from_slice(&crc32c::crc32c(&self.records).to_be_bytes());
        bytes
    }
}

/// Bytes of `len` from `rng`.
fn random_bytes(rng: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

fn random_page(rng: &mut fastrand::Rng) -> (u32, u32) {
    (rng.u32(1..200), rng.u32(3..20_000))
}

/// A mini-transaction with one to twelve page records in about the proportions of a transactional load:
/// about 84 bytes a record, half of the records WRITE with most of the bytes.
pub fn random_mtr(rng: &mut fastrand::Rng) -> MtrWriter {
    let mut mtr = MtrWriter::new();
    let mut page = random_page(rng);
    for _ in 0..rng.usize(1..=7) {
        if rng.u8(0..10) < 4 {
            page = random_page(rng);
        }
        match rng.u16(0..1000) {
            0..450 => {
                let len = match rng.u8(0..100) {
                    0..60 => rng.usize(1..24),
                    60..93 => rng.usize(24..300),
                    _ => rng.usize(300..2500),
                };
                let data = random_bytes(rng, len);
                mtr.write(page, rng.u32(8..4000), &data)
            }
            450..795 => {
                let mut rest = vec![6];
                for limit in [16_000, 40, 8, 8] {
                    varint(rng.u32(0..limit), &mut rest);
                }
                let len = rng.usize(1..16);
                rest.extend(random_bytes(rng, len));
                mtr.extended(page, &rest)
            }
            795..863 => mtr.memmove(page, rng.u32(8..4000), rng.u32(1..100), 16),
            863..917 => {
                let mut rest = vec![3];
                let len = rng.usize(40..180);
                rest.extend(random_bytes(rng, len));
                mtr.extended(page, &rest)
            }
            917..946 => mtr.memset(page, rng.u32(8..4000), rng.u32(1..100), &[0]),
            946..973 => {
                let mut rest = vec![9];
                for limit in [16_000, 10, 200] {
                    varint(rng.u32(0..limit), &mut rest);
                }
                mtr.extended(page, &rest)
            }
            973..985 => mtr.init(page),
            985..990 => mtr.free(page),
            _ => mtr.extended(page, &[if rng.bool() { 1 } else { 2 }]),
        };
    }
    mtr
}
