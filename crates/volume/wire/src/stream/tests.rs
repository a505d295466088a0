use super::*;
use crate::Seq;
use crate::page::FileId;

fn samples() -> Vec<StreamFrame<'static>> {
    const HEADER: &[u8; LOG_HEADER_LEN_BYTES] = &[3; LOG_HEADER_LEN_BYTES];
    const BLOCK: &[u8; CHECKPOINT_LEN_BYTES] = &[4; CHECKPOINT_LEN_BYTES];
    vec![
        StreamFrame::Redo(b"redo bytes"),
        StreamFrame::LogFile {
            file_size_bytes: 96 << 20,
            header: HEADER,
            checkpoints: [BLOCK, BLOCK],
            next_lsn: Lsn(12288),
        },
        StreamFrame::Checkpoint { slot: 1, block: BLOCK },
        StreamFrame::LogFront {
            path: b"#innodb_redo/#ib_redo9",
            offset_bytes: 1536,
            next_lsn: Lsn(7936),
            block: HEADER,
        },
        StreamFrame::Create { path: b"#innodb_redo/#ib_redo9", kind: FileKind::Redo, mode: 0o640 },
        StreamFrame::Image { path: b"test/t1.ibd", page_no: 7, page: &[9; 64], is_recovered: false },
        StreamFrame::Image { path: b"test/t1.ibd", page_no: 8, page: &[9; 64], is_recovered: true },
        StreamFrame::Scrub { path: b"test/t1.ibd", page_no: 7, pages: MAX_SCRUB_PAGES, lsn: Lsn(77) },
        StreamFrame::Create { path: b"test/t1.ibd", kind: FileKind::Tablespace, mode: 0o660 },
        StreamFrame::Create { path: b"test/t1.frm", kind: FileKind::Plain, mode: 0o660 },
        StreamFrame::Write { path: b"test/t1.frm", offset_bytes: 1 << 40, data: b"frm" },
        StreamFrame::SetLen { path: b"test/t1.ibd", len_bytes: 65536 },
        StreamFrame::Rename { from: b"test/a.ibd", to: b"test/b.ibd" },
        StreamFrame::Unlink { path: b"test/a.ibd" },
        StreamFrame::Mkdir { path: b"test", mode: 0o700 },
        StreamFrame::Rmdir { path: b"test" },
        StreamFrame::BindSpace { path: b"undo001", space: SpaceId(1) },
        StreamFrame::SystemFiles(vec![
            SystemFile { path: b"ibdata1".to_vec(), len_bytes: 10 << 20 },
            SystemFile { path: b"ibdata2".to_vec(), len_bytes: 0 },
        ]),
        StreamFrame::Verify(Verify { path: b"test/t1.ibd", page_no: 7, lsn: Lsn(99), digest: 5 }),
        StreamFrame::VerifyOrHeal(Verify { path: b"test/t1.ibd", page_no: 7, lsn: Lsn(99), digest: 5 }),
        StreamFrame::Trace(vec![
            ServerSample::Commit { end: Seq(7), queue_nanos: 1, answer_nanos: 2, wake_nanos: 3 },
            ServerSample::Read {
                file: FileId(1),
                offset_bytes: 2,
                need: Seq(3),
                queue_nanos: 4,
                answer_nanos: 5,
            },
        ]),
        StreamFrame::Counters(vec![(Counter::RedoBytes as u8, 17), (200, 1)]),
    ]
}

#[test]
fn every_frame_survives_the_round_trip() {
    for frame in samples() {
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        assert_eq!(decode(frame.kind(), &payload).unwrap(), frame);
    }
}

#[test]
fn truncated_and_random_payloads_are_refused_or_decoded_but_never_panic() {
    let mut random = fastrand::Rng::with_seed(2);
    for frame in samples() {
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        for len in 0..payload.len() {
            let _ = decode(frame.kind(), &payload[..len]);
        }
        for _ in 0..500 {
            let mut damaged = payload.clone();
            let at = random.usize(..damaged.len());
            damaged[at] = random.u8(..);
            let _ = decode(frame.kind(), &damaged);
        }
    }
    assert!(matches!(decode(0x3f, b""), Err(WireError::UnknownKind { .. })));
}

#[test]
fn a_path_can_not_leave_the_volume() {
    for path in [&b"/etc/passwd"[..], b"../x", b"a/../../x", b"a//b", b"./a", b"", b"a\0b"] {
        let mut payload = Vec::new();
        put_path(&mut payload, path);
        assert!(decode(KIND_UNLINK, &payload).is_err(), "{path:?}");
    }
}
