use super::*;

fn request(code: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&u32::try_from(REQUEST_HEADER_BYTES + body.len()).unwrap().to_ne_bytes());
    bytes.extend_from_slice(&code.to_ne_bytes());
    bytes.extend_from_slice(&7u64.to_ne_bytes());
    bytes.extend_from_slice(&9u64.to_ne_bytes());
    bytes.extend_from_slice(&[0; 16]);
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn names_and_numbers_are_found_where_the_kernel_puts_them() {
    let bytes = request(1, b"t.ibd\0");
    let found = decode(&bytes).unwrap();
    assert_eq!(found, Request { unique: 7, node: 9, operation: Operation::Lookup(OsStr::new("t.ibd")) });
    let mut body = Vec::new();
    for value in [3u64, 1 << 40] {
        body.extend_from_slice(&value.to_ne_bytes());
    }
    body.extend_from_slice(&5u32.to_ne_bytes());
    body.extend_from_slice(&[0; 20]);
    let read = Operation::Read { handle: 3, offset_bytes: 1 << 40, len_bytes: 5 };
    assert_eq!(decode(&request(15, &body)).unwrap().operation, read);
    body.extend_from_slice(b"bytes and more");
    let write = Operation::Write { handle: 3, offset_bytes: 1 << 40, bytes: b"bytes" };
    assert_eq!(decode(&request(16, &body)).unwrap().operation, write);
    let mut body = 8u64.to_ne_bytes().to_vec();
    body.extend_from_slice(b"a\0b\0");
    let to = OsStr::new("b");
    let rename = Operation::Rename { from: OsStr::new("a"), to_directory: 8, to, flags: 0 };
    assert_eq!(decode(&request(12, &body)).unwrap().operation, rename);
}

/// A truncated request is rejected, whatever its length.
#[test]
fn a_request_that_is_cut_is_none() {
    let codes = [1, 3, 4, 8, 9, 10, 11, 12, 14, 15, 16, 18, 26, 27, 28, 29, 35, 45];
    for code in codes {
        let whole = request(code, &[b'x'; 100]);
        for len in 0..whole.len() {
            assert!(decode(&whole[..len]).is_none(), "{code} of {len} bytes");
        }
    }
    assert!(decode(&request(15, &[0; 19])).is_none());
    assert!(decode(&request(1, b"no end")).is_none());
}

/// Lengths of `linux/fuse.h`; the kernel refuses any other.
#[test]
fn replies_have_the_kernels_lengths() {
    let attributes = Attributes {
        node: 2,
        len_bytes: 3,
        mode: libc::S_IFREG | 0o640,
        owner: (1, 2),
        time_seconds: 4,
        valid: Duration::from_millis(5),
    };
    let len = |answer: Answer| answer.finish().len() - REPLY_HEADER_BYTES;
    assert_eq!(len(Answer::new(1).begun(u32::MAX, 1)), 64);
    assert_eq!(len(Answer::new(1).attributes(&attributes)), 104);
    assert_eq!(len(Answer::new(1).entry(&attributes, Duration::ZERO)), 128);
    assert_eq!(len(Answer::new(1).opened(1, 0)), 16);
    assert_eq!(len(Answer::new(1).written(1)), 8);
    assert_eq!(len(Answer::new(1).file_system(1 << 40, 1 << 39)), 80);
    let failed = Answer::error(6, libc::EROFS).finish();
    assert_eq!(failed[..4], 16u32.to_ne_bytes());
    assert_eq!(failed[4..8], (-libc::EROFS).to_ne_bytes());
}

#[test]
fn names_of_a_directory_are_whole_or_left_out() {
    let mut answer = Answer::new(1);
    assert!(answer.name(64, 2, 1, libc::S_IFDIR, b"mysql"));
    assert!(answer.name(64, 3, 2, libc::S_IFREG, b"a"));
    assert!(!answer.name(64, 4, 3, libc::S_IFREG, b"b"));
    let bytes = answer.finish();
    assert_eq!(bytes.len(), REPLY_HEADER_BYTES + 64);
    assert_eq!(bytes[16 + 20..16 + 24], 4u32.to_ne_bytes());
    assert_eq!(&bytes[16 + 24..16 + 29], b"mysql");
}
