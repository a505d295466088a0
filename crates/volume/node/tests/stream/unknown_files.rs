//! Writes of a plain file that the volume does not have: the status names the file until the volume has it.

use super::export::wait_until;
use super::protocol::Fixture;
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::stream::{FileKind, StreamFrame};

#[test]
fn file_that_the_volume_lacks_is_in_the_status_until_it_has_it() {
    let fixture = Fixture::new();
    let mut log = fixture.log(1, 0);
    let mut stream = super::protocol::Stream::new();
    let write = |path| StreamFrame::Write { path, offset_bytes: 5, data: b"late" };
    let create = |path| StreamFrame::Create { path, kind: FileKind::Plain, mode: 0o660 };
    let mut control = fixture.control();
    let mut require = |wire: &[Vec<u8>], expected: &[&str]| {
        log.send(&wire.concat()).unwrap();
        wait_until("the list of unknown files", || control.status().unknown_files == expected);
    };
    let wire = [write(b"d/u.MYD"), create(b"d/t.MYD"), write(b"d/t.MYD"), write(b"d/u.MYI")];
    require(&wire.map(|frame| stream.frame(&frame)), &["d/u.MYD", "d/u.MYI"]);
    let wire = [create(b"d/u.MYD"), write(b"d/u.MYD")];
    require(&wire.map(|frame| stream.frame(&frame)), &["d/u.MYI"]);
    require(&[stream.frame(&StreamFrame::Unlink { path: b"d/u.MYI" })], &[]);
}

#[test]
fn renamed_unknown_file_is_in_the_status_with_its_new_name() {
    let fixture = Fixture::new();
    let mut log = fixture.log(1, 0);
    let mut stream = super::protocol::Stream::new();
    let write = |path, data| StreamFrame::Write { path, offset_bytes: 0, data };
    let create = |path| StreamFrame::Create { path, kind: FileKind::Plain, mode: 0o660 };
    let rename = |from, to| StreamFrame::Rename { from, to };
    let mut control = fixture.control();
    let mut require = |frames: &[StreamFrame<'_>], expected: &[&str]| {
        let wire: Vec<u8> = frames.iter().flat_map(|frame| stream.frame(frame)).collect();
        log.send(&wire).unwrap();
        assert!(log.wait_durable(stream.seq));
        wait_until("the list of unknown files", || control.status().unknown_files == expected);
    };
    // Over a file that the volume has, whose content is gone then.
    require(&[create(b"d/g"), write(b"d/g", b"former"), write(b"d/f", b"x")], &["d/f"]);
    require(&[rename(b"d/f", b"d/g"), write(b"d/g", b"y")], &["d/g"]);
    let fetch = Request::Fetch { volume: "v".to_owned(), path: "d/g".to_owned() };
    let fetched = fixture.control().ask(&fetch).unwrap();
    assert!(matches!(fetched, Reply::Failed { .. }), "{fetched:?}");
    require(&[create(b"d/g"), write(b"d/g", b"whole")], &[]);
    assert_eq!(fixture.control().file(&fetch).unwrap(), b"whole");
    // To a name that is free. A file that the server never writes is not looked for.
    require(&[write(b"d/h", b"x"), rename(b"d/h", b"d/i"), rename(b"d/never", b"d/j")], &["d/i"]);
    // A file of the volume takes the name.
    require(&[create(b"d/k"), rename(b"d/k", b"d/i")], &[]);
}
