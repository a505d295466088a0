use super::*;

fn read(need: u64, file: u32, offset_bytes: u64, len_bytes: u32) -> PageRequest<'static> {
    PageRequest::Read { need: Seq(need), file: FileId(file), offset_bytes, len_bytes }
}

#[test]
fn any_read_survives_the_round_trip_and_that_of_a_page_is_short() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut requests = vec![
        read(0, 0, 0, 0),
        read(u64::MAX, u32::MAX, u64::MAX, MAX_READ_LEN_BYTES),
        read(1, 2, 1 << 63, 0),
        read(7, 1, 0, 1),
    ];
    for _ in 0..1000 {
        let mut any = || random.u64(..) >> random.u32(..64);
        requests.push(read(any(), any() as u32, any(), (any() % (u64::from(MAX_READ_LEN_BYTES) + 1)) as u32));
    }
    for request in requests {
        let mut payload = Vec::new();
        let kind = request.encode(&mut payload);
        assert_eq!(PageRequest::decode(kind, &payload), Ok(request));
    }
    let mut payload = Vec::new();
    // A page past the first GiB of a file, 30 GiB of stream.
    read(30 << 30, 70, 3 << 29, 16384).encode(&mut payload);
    assert!(payload.len() <= 12, "{payload:?}");
}

#[test]
fn a_read_of_a_log_file_survives_the_round_trip() {
    let request =
        PageRequest::ReadLogFile { path: b"#innodb_redo/#ib_redo9", offset_bytes: 512, len_bytes: 7 };
    let mut payload = Vec::new();
    let kind = request.encode(&mut payload);
    assert_eq!(PageRequest::decode(kind, &payload), Ok(request));
    for len in 0..payload.len() {
        assert!(PageRequest::decode(kind, &payload[..len]).is_err(), "{len}");
    }
}

#[test]
fn reads_that_are_too_long_or_no_numbers_are_refused() {
    let refused = |payload: &[u8]| PageRequest::decode(2, payload).unwrap_err().to_string();
    // Unit, offset, length, file, need.
    assert!(PageRequest::decode(2, &[14, 3, 1, 5, 9]).is_ok());
    assert!(refused(&[23, 0, 2, 5, 9]).contains("limit"));
    assert!(refused(&[63, 2, 0, 5, 9]).contains("too many"));
    assert!(refused(&[64, 1, 0, 5, 9]).contains("too many"));
    assert!(refused(&[255, 0, 1, 5, 9]).contains("too many"));
    assert!(refused(&[0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x1f, 9]).contains("no number of a file"));
    // Longer than it must be, and longer than any number.
    assert!(refused(&[0, 0x80, 0, 1, 5, 9]).contains("longer than it must be"));
    let long = [&[0u8, 0, 1, 5][..], &[0xff; 9], &[2]].concat();
    assert!(refused(&long).contains("longer than it must be"));
    let longest = [&[0u8, 0, 1, 5][..], &[0xff; 9], &[1]].concat();
    assert_eq!(PageRequest::decode(2, &longest), Ok(read(u64::MAX, 5, 0, 1)));
    assert!(refused(&[[0u8, 0, 1, 5].as_slice(), &[0xff; 11]].concat()).contains("longer than it must be"));
    assert!(refused(&[14, 3, 1, 5]).contains("need"));
    assert!(refused(&[14, 3, 1, 5, 9, 9]).contains("too many"));
}
