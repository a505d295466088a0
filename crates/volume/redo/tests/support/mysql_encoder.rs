//! Writes MySQL's redo records and log blocks as the server does, independently of the code under test.

#![allow(dead_code)]

/// A number of 1 to 5 bytes.
pub fn c32(value: u32, out: &mut Vec<u8>) {
    let [a, b, c, d] = value.to_be_bytes();
    match value {
        0..0x80 => out.push(d),
        0x80..0x4000 => out.extend([c | 0x80, d]),
        0x4000..0x20_0000 => out.extend([b | 0xc0, c, d]),
        0x20_0000..0x1000_0000 => out.extend([a | 0xe0, b, c, d]),
        0xffff_fc00.. => out.extend([0xf8 | (c & 3), d]),
        0xfffe_0000.. => out.extend([0xfc | (b & 1), c, d]),
        0xff00_0000.. => out.extend([0xfe, b, c, d]),
        _ => out.extend([0xf0, a, b, c, d]),
    }
}

/// A number of 5 to 9 bytes.
pub fn c64(value: u64, out: &mut Vec<u8>) {
    c32((value >> 32) as u32, out);
    out.extend((value as u32).to_be_bytes());
}

/// Type and page ids.
pub fn head(kind: u8, space: u32, page_no: u32) -> Vec<u8> {
    let mut out = vec![kind];
    c32(space, &mut out);
    c32(page_no, &mut out);
    out
}

/// A record: type, page ids, the rest as it is.
pub fn record(kind: u8, space: u32, page_no: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = head(kind, space, page_no);
    out.extend_from_slice(rest);
    out
}

/// A mini-transaction of these records.
pub fn group(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = records.concat();
    if records.len() == 1 {
        out[0] |= 0x80;
    } else {
        out.push(31);
    }
    out
}

/// A plain compact index: codes of the fields, and how many are unique.
pub fn compact_index(unique: u16, fields: &[u16]) -> Vec<u8> {
    let mut out = vec![1, 1];
    out.extend((fields.len() as u16).to_be_bytes());
    out.extend(unique.to_be_bytes());
    fields.iter().for_each(|code| out.extend(code.to_be_bytes()));
    out
}

/// A clustered index as tables commonly have.
pub fn clustered_index() -> Vec<u8> {
    compact_index(1, &[0x8004, 0x8006, 0x8007, 0, 0x7fff, 4, 0x8020])
}

fn some_index(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(0..10) {
        0 => vec![1, 0],
        1..4 => compact_index(2, &[0x8004, 0x7fff]),
        _ => clustered_index(),
    }
}

fn bytes(rng: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

fn insert_body(rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    let len = rng.u32(0..160);
    if rng.bool() {
        c32(len * 2, out);
    } else {
        c32(len * 2 + 1, out);
        out.push(rng.u8(..));
        c32(rng.u32(5..30), out);
        c32(rng.u32(0..60), out);
    }
    out.extend(bytes(rng, len as usize));
}

fn system_columns(rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    out.push(1);
    out.extend(bytes(rng, 7));
    c64(rng.u64(1..1 << 40), out);
}

fn path(text: &[u8], out: &mut Vec<u8>) {
    out.extend((text.len() as u16 + 1).to_be_bytes());
    out.extend_from_slice(text);
    out.push(0);
}

/// Types that [`random_record`] writes.
pub const TYPES: &[u8] = &[
    1, 2, 4, 8, 11, 19, 20, 21, 22, 24, 25, 26, 27, 29, 30, 33, 34, 35, 36, 37, 48, 49, 50, 51, 57, 58, 59,
    61, 62, 63, 64, 65, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76,
];

/// A record of this type.
pub fn record_of(kind: u8, space: u32, page_no: u32, rng: &mut fastrand::Rng) -> Vec<u8> {
    let page_no = if matches!(kind, 33..=35 | 65) { 0 } else { page_no };
    if kind == 62 {
        return metadata(rng);
    }
    let mut out = head(kind, space, page_no);
    match kind {
        33..=35 | 65 => file_rest(kind, rng, &mut out),
        48..=51 => zip_rest(kind, rng, &mut out),
        67..=76 => {
            out.extend(some_index(rng));
            index_rest(kind, rng, &mut out);
        }
        _ => plain_rest(kind, rng, &mut out),
    }
    out
}

fn metadata(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut out = vec![62];
    c32(rng.u32(1..5000), &mut out);
    c32(rng.u32(0..100), &mut out);
    if rng.bool() {
        out.extend([2, 0xff]);
        c32(rng.u32(1..50), &mut out);
        c32(rng.u32(..), &mut out);
    } else {
        out.extend([1, 2]);
        out.extend(bytes(rng, 24));
    }
    out
}

fn offset(rng: &mut fastrand::Rng) -> [u8; 2] {
    rng.u16(100..16_000).to_be_bytes()
}

fn plain_rest(kind: u8, rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    match kind {
        1 | 2 | 4 => {
            out.extend(offset(rng));
            c32(rng.u32(..) >> (32 - 8 * u32::from(kind)), out);
        }
        8 => {
            out.extend(offset(rng));
            c64(rng.u64(..), out);
        }
        11 => {
            out.push(rng.u8(0..2));
            out.extend(offset(rng));
        }
        20 => {
            let len = rng.u16(10..120);
            out.extend(len.to_be_bytes());
            out.extend(bytes(rng, usize::from(len)));
        }
        22 => out.push(rng.u8(1..3)),
        24 | 25 => c64(rng.u64(1..1 << 40), out),
        26 | 36 => out.extend(offset(rng)),
        30 => {
            let len = rng.u16(0..200);
            out.extend(offset(rng));
            out.extend(len.to_be_bytes());
            out.extend(bytes(rng, usize::from(len)));
        }
        61 => out.extend(rng.u64(..).to_be_bytes()),
        _ => {}
    }
}

fn file_rest(kind: u8, rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    match kind {
        33 => {
            out.extend(rng.u32(..).to_be_bytes());
            path(b"./test/t1.ibd", out);
        }
        34 => {
            path(b"./test/t1.ibd", out);
            path(b"./test/t2.ibd", out);
        }
        35 => path(b"./test/t1.ibd", out),
        _ => {
            out.extend(rng.u64(0..1 << 40).to_be_bytes());
            out.extend(rng.u64(1..1 << 20).to_be_bytes());
        }
    }
}

fn zip_rest(kind: u8, rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    match kind {
        48 | 49 => {
            out.extend(offset(rng));
            out.extend(offset(rng));
            out.extend(bytes(rng, if kind == 48 { 4 } else { 20 }));
        }
        50 => {
            let len = rng.u8(1..10);
            out.extend([rng.u8(0..80), len]);
            out.extend(bytes(rng, usize::from(len)));
        }
        _ => {
            let (len, trailer) = (rng.u16(10..4000), rng.u16(0..100));
            out.extend(len.to_be_bytes());
            out.extend(trailer.to_be_bytes());
            out.extend(bytes(rng, 8 + usize::from(len + trailer)));
        }
    }
}

fn index_rest(kind: u8, rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    match kind {
        67 => {
            out.extend(offset(rng));
            insert_body(rng, out);
        }
        68 => {
            out.extend([0, 1]);
            system_columns(rng, out);
            out.extend(offset(rng));
        }
        69 | 75 | 76 => out.extend(offset(rng)),
        70 => update_rest(rng, out),
        71 => {
            let mut inserts = Vec::new();
            (0..rng.u8(0..20)).for_each(|_| insert_body(rng, &mut inserts));
            out.extend((inserts.len() as u32).to_be_bytes());
            out.extend(inserts);
        }
        73 | 74 => out.push(rng.u8(0..10)),
        _ => {}
    }
}

fn update_rest(rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    out.push(rng.u8(0..8));
    system_columns(rng, out);
    out.extend(offset(rng));
    out.push(0);
    let count = rng.u32(0..5);
    c32(count, out);
    for field in 0..count {
        c32(field + 3, out);
        if rng.u8(0..4) == 0 {
            c32(u32::MAX, out);
        } else {
            let len = rng.u32(0..40);
            c32(len, out);
            out.extend(bytes(rng, len as usize));
        }
    }
}

/// A record of a type that is about as common as in a load of small transactions.
pub fn random_record(space: u32, page_no: u32, rng: &mut fastrand::Rng) -> Vec<u8> {
    let kind = match rng.u8(0..100) {
        0..30 => 2,
        30..48 => 67,
        48..60 => 20,
        60..70 => 4,
        70..76 => 70,
        76..80 => 69,
        80..83 => 68,
        83..86 => 8,
        86..88 => 30,
        88..90 => 1,
        90..92 => 59,
        _ => TYPES[rng.usize(0..TYPES.len())],
    };
    record_of(kind, space, page_no, rng)
}

/// A mini-transaction of one to twelve records of one to four pages, now and then of filler.
pub fn random_group(rng: &mut fastrand::Rng) -> Vec<u8> {
    if rng.u16(0..500) == 0 {
        let mut out = vec![32; rng.usize(2..40)];
        out.push(31);
        return out;
    }
    let mut records = Vec::new();
    for _ in 0..rng.u8(1..5) {
        let space = if rng.u8(0..8) == 0 { 0xffff_ffef - rng.u32(0..3) } else { rng.u32(1..500) };
        let page_no = rng.u32(0..300_000) >> rng.u8(0..12);
        (0..rng.u8(1..4)).for_each(|_| records.push(random_record(space, page_no, rng)));
    }
    group(&records)
}
