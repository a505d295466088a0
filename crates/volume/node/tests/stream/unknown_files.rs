//! Writes of a plain file that the volume does not have: the status names the file until the volume has it.

use super::export::wait_until;
use super::protocol::Fixture;
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
