use super::*;
use redoubt_wire::Seq;

#[test]
fn only_damage_of_the_log_counts_as_damage() {
    let io = || std::io::Error::from_raw_os_error(libc::EMFILE);
    let file = || "0.log".to_owned();
    let read = LogDeviceError::Read { file: file(), offset_bytes: 1, source: io() };
    let evidence = "a later record is whole".to_owned();
    let rotten = LogDeviceError::Damaged { file: file(), offset_bytes: 1, seq: Seq(1), evidence };
    for (error, is_verdict) in [
        (NodeError::io("open", "log", io()), false),
        (read.into(), false),
        (LogDeviceError::Io { action: "open", file: file(), source: io() }.into(), false),
        (NodeError::NotNow("later".to_owned()), false),
        (NodeError::Stopped("stopped".to_owned()), false),
        (rotten.into(), true),
        (LogDeviceError::BadSegment { file: file(), reason: String::new(), seq: None }.into(), true),
        (NodeError::Redo { lsn: Lsn(1), reason: String::new() }, true),
    ] {
        assert_eq!(is_damage(&error), is_verdict, "{error}");
    }
}

#[test]
fn only_bytes_that_the_drive_lost_are_lost_in_the_log() {
    for (code, expected) in [(libc::EIO, true), (libc::EMFILE, false)] {
        let source = std::io::Error::from_raw_os_error(code);
        let read = LogDeviceError::Read { file: "0.log".to_owned(), offset_bytes: 1, source };
        assert_eq!(is_lost(&read.into()), expected, "{code}");
    }
    assert!(!is_lost(&NodeError::NotNow("later".to_owned())));
}
