//! Arbitrary bytes as everything that arrives on a connection: decoded or refused, never a panic; and what is
//! decoded is encoded to what decodes to the same.
//!
//! Input: number of the decoder, kind, position, bytes.

use redoubt_wire::compression::{Compressor, Decompressor, Step};
use redoubt_wire::control::{Reply, Request, check_path, decode_data, decode_json, encode_data, encode_json};
use redoubt_wire::frame::{append_frame, compress, decompress};
use redoubt_wire::greeting::{self, ANNOUNCED, ClientGreeting};
use redoubt_wire::hello::{Compression, Hello, Role, Welcome, decode_len};
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::parts::{PartReader, PartWriter};
use redoubt_wire::stream::decode;
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, Seq, WireError};

/// Most that a test may allocate for a block that says how long it is.
const LARGEST_BLOCK: usize = 1 << 20;

fn hello(bytes: &[u8]) {
    if let Some(len) = bytes.first_chunk() {
        let _ = decode_len(*len);
    }
    if let Ok(hello) = Hello::decode(bytes) {
        let again = hello.encode();
        // A name that was not UTF-8 is longer afterwards and may be cut.
        if hello.volume.len() <= 2048 {
            assert_eq!(Hello::decode(&again[4..]).as_ref(), Ok(&hello));
        }
    }
    if let Ok(welcome) = Welcome::decode(bytes) {
        let again = welcome.encode();
        if welcome.message.len() <= 2048 {
            assert_eq!(Welcome::decode(&again[4..]).as_ref(), Ok(&welcome));
        }
    }
}

/// A client and a node that get these bytes for a message of the greeting.
fn greeting(bytes: &[u8]) {
    let _ = (greeting::receive_hello(bytes, ANNOUNCED), greeting::receive_answer(bytes, ANNOUNCED));
    if let Ok(Some(announced)) = greeting::decode_announcement(bytes) {
        let again = greeting::encode_announcement(announced);
        assert_eq!(greeting::decode_announcement(&again[4..]), Ok(Some(announced)));
    }
    let hello = Hello {
        role: Role::Control,
        compression: Compression::Off,
        generation: 0,
        session: 0,
        resume: Seq(0),
        volume: String::new(),
    };
    let (mut client, _) = ClientGreeting::begin(&hello, ANNOUNCED);
    let _ = client.receive(bytes).and_then(|_| client.receive(bytes));
}

fn frame(position: u64, bytes: &[u8]) {
    let Some(head) = bytes.first_chunk::<HEADER_LEN_BYTES>() else { return };
    let header = FrameHeader::decode(head);
    let payload = &bytes[HEADER_LEN_BYTES..];
    let _ = header.check(position, payload);
    // A frame that is whole, whatever is in it.
    let mut out = Vec::new();
    append_frame(&mut out, head[0], position, payload).expect("short enough");
    let header = FrameHeader::decode(out.first_chunk().expect("it has a header"));
    header.check(position, payload).expect("its checksum is right");
    assert!(header.check(position ^ 1, payload).is_err());
    stream(header.kind, payload);
}

fn stream(kind: u8, payload: &[u8]) {
    let Ok(frame) = decode(kind, payload) else { return };
    assert_eq!(frame.kind(), kind);
    let mut again = Vec::new();
    frame.encode_payload(&mut again);
    assert_eq!(decode(kind, &again).as_ref(), Ok(&frame));
}

fn page(kind: u8, payload: &[u8]) {
    let mut again = Vec::new();
    if let Ok(request) = PageRequest::decode(kind, payload) {
        let kind = request.encode(&mut again);
        assert_eq!(PageRequest::decode(kind, &again).as_ref(), Ok(&request));
    }
    let mut again = Vec::new();
    if let Ok(reply) = PageReply::decode(kind, payload) {
        let kind = reply.encode(&mut again);
        assert_eq!(PageReply::decode(kind, &again).as_ref(), Ok(&reply));
    }
    if let Ok(notice) = Notice::decode(kind, payload) {
        let (kind, again) = notice.encode();
        assert_eq!(Notice::decode(kind, &again).as_ref(), Ok(&notice));
    }
}

fn control(payload: &[u8]) {
    if let Ok(request) = decode_json::<Request>(payload) {
        let again = encode_json(&request).expect("what was read can be written");
        decode_json::<Request>(&again).expect("and read again");
    }
    if let Ok(reply) = decode_json::<Reply>(payload) {
        let again = encode_json(&reply).expect("what was read can be written");
        decode_json::<Reply>(&again).expect("and read again");
    }
    if let Ok(Some((offset, bytes))) = decode_data(payload) {
        assert_eq!(encode_data(offset, bytes), payload);
    }
    if check_path(payload).is_ok() {
        assert!(!payload.starts_with(b"/") && !payload.split(|byte| *byte == b'/').any(|part| part == b".."));
    }
}

fn blocks(payload: &[u8]) {
    let says = payload.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize);
    if says <= LARGEST_BLOCK || says > redoubt_wire::MAX_PAYLOAD_LEN_BYTES {
        let _ = decompress(payload);
    }
    if let Some(packed) = compress(payload) {
        assert!(packed.len() < payload.len());
        assert_eq!(decompress(&packed).as_deref(), Ok(payload));
    }
}

/// A compressed connection, read in pieces of input and output; and what it gives is taken as what a sender has.
fn connection(pieces: u8, bytes: &[u8]) {
    let (piece, room) = (1 + usize::from(pieces) * 16, 1 + usize::from(pieces >> 4) * 512);
    unpack(bytes, piece, room, |_| {});
    let (mut packed, mut whole) = (Vec::new(), Vec::new());
    let mut compressor = Compressor::new().expect("memory");
    for part in bytes.chunks(piece) {
        compressor.pack(part, &mut packed).expect("it takes any bytes");
    }
    let is_sound = unpack(&packed, piece, room, |given| whole.extend_from_slice(given));
    assert!(is_sound && whole == bytes);
}

/// The same of a connection whose parts are compressed or not.
fn parts(pieces: u8, bytes: &[u8]) {
    let (piece, room) = (1 + usize::from(pieces) * 16, 1 + usize::from(pieces >> 4) * 512);
    let mut reader = PartReader::default();
    unpack_with(bytes, piece, room, |input, out| reader.unpack(input, out), |_| {});
    let (mut wire, mut whole) = (Vec::new(), Vec::new());
    let mut writer = PartWriter::default();
    for part in bytes.chunks(piece) {
        writer.append(part, part.len() % 3 == 0 || part[0] & 1 != 0, &mut wire).expect("it takes any bytes");
    }
    let mut reader = PartReader::default();
    let is_sound = unpack_with(
        &wire,
        piece,
        room,
        |input, out| reader.unpack(input, out),
        |given| whole.extend_from_slice(given),
    );
    assert!(is_sound && whole == bytes);
}

/// Whether all of `input` was taken.
fn unpack(input: &[u8], piece: usize, room: usize, use_given: impl FnMut(&[u8])) -> bool {
    let mut decompressor = Decompressor::new().expect("memory");
    unpack_with(input, piece, room, |input, out| decompressor.unpack(input, out), use_given)
}

fn unpack_with(
    mut input: &[u8],
    piece: usize,
    room: usize,
    mut unpack: impl FnMut(&[u8], &mut [u8]) -> Result<Step, WireError>,
    mut use_given: impl FnMut(&[u8]),
) -> bool {
    let mut out = vec![0; room];
    let (mut has_more, mut given_bytes) = (false, 0);
    while (!input.is_empty() || has_more) && given_bytes < LARGEST_BLOCK {
        let Ok(step) = unpack(&input[..input.len().min(piece)], &mut out) else { return false };
        // Otherwise a receiver would call it for ever.
        assert!(step.taken_bytes > 0 || step.given_bytes > 0 || has_more);
        input = &input[step.taken_bytes..];
        has_more = step.given_bytes == room;
        given_bytes += step.given_bytes;
        use_given(&out[..step.given_bytes]);
    }
    input.is_empty()
}

/// The target. Panics on a finding.
pub fn run(input: &[u8]) {
    let [decoder, kind, position, bytes @ ..] = input else { return };
    match decoder {
        6 => connection(*position, bytes),
        7 => parts(*position, bytes),
        _ => plain(decoder % 6, *kind, *position, bytes),
    }
}

fn plain(decoder: u8, kind: u8, position: u8, bytes: &[u8]) {
    match decoder {
        0 => {
            hello(bytes);
            greeting(bytes);
        }
        1 => frame(u64::from(position), bytes),
        2 => stream(kind, bytes),
        3 => page(kind, bytes),
        4 => control(bytes),
        _ => blocks(bytes),
    }
}
