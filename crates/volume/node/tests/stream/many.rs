//! As many files as a server with very many tables has: they are listed, attached and exported.

use super::client::ControlClient;
use super::protocol::{Fixture, Stream};
use super::running::Sizes;
use redoubt_wire::control::{Attachment, EntryKind, Reply, Request, VolumeEntry};
use redoubt_wire::stream::{FileKind, StreamFrame};

/// Two for each: its pages, and its definition in a plain file.
const TABLES: u32 = 100_000;
/// With names of this length their list is longer than any frame.
const NAME: &str = "a_table_with_a_name_of_some_length_as_generated_ones_have";

const SIZES: Sizes = Sizes { ring: 128 << 20, batch: 1 << 20, interval_ms: 600_000 };

fn path(table: u32, ending: &str) -> String {
    format!("shop/{NAME}_{table:06}.{ending}")
}

fn attached(reply: Reply) -> Attachment {
    match reply {
        Reply::Attached(attachment) => attachment,
        other => panic!("{other:?}"),
    }
}

fn require_all(entries: &[VolumeEntry], what: &str) {
    let count = |kind| entries.iter().filter(|entry| entry.kind == kind).count();
    assert_eq!(count(EntryKind::Tablespace), TABLES as usize, "{what}");
    assert_eq!(count(EntryKind::Plain), TABLES as usize, "{what}");
    let json_len: usize = entries.iter().map(|entry| entry.path.len()).sum();
    assert!(json_len > redoubt_wire::MAX_PAYLOAD_LEN_BYTES / 2, "{what}: too short to show anything");
}

#[test]
fn a_volume_of_very_many_tables_is_listed_attached_and_exported() {
    // In memory: this test is about lists, and a disk takes minutes to make so many files durable.
    let fixture = Fixture::within(std::path::Path::new("/dev/shm"), SIZES);
    let mut stream = Stream::new();
    let mut log = fixture.log(1, 0);
    let mut wire = stream.frame(&StreamFrame::Mkdir { path: b"shop", mode: 0o700 });
    for table in 0..TABLES {
        let (pages, definition) = (path(table, "ibd"), path(table, "frm"));
        for (path, kind) in [(&pages, FileKind::Tablespace), (&definition, FileKind::Plain)] {
            wire.extend(stream.frame(&StreamFrame::Create { path: path.as_bytes(), kind, mode: 0o660 }));
        }
        if wire.len() > 1 << 20 {
            log.send(&wire).unwrap();
            wire.clear();
        }
    }
    log.send(&wire).unwrap();
    assert!(log.wait_durable(stream.seq));
    drop(log);

    let mut control: ControlClient = fixture.control();
    control.stream.set_read_timeout(None).unwrap();
    let volume = || "v".to_owned();
    let listed = attached(control.ask(&Request::List { volume: volume() }).unwrap());
    require_all(&listed.entries, "list");
    let plain = listed.entries.iter().filter(|entry| entry.kind == EntryKind::Plain);
    assert!(plain.into_iter().all(|entry| entry.checksum == Some(0)), "checksums of empty files");
    assert_eq!(listed.generation, fixture.generation, "nobody is fenced by a list");
    let again = control.attach("v");
    assert_eq!(again.generation, fixture.generation + 1);
    require_all(&again.entries, "attach");
    let exported = attached(control.ask(&Request::ExportBegin { volume: volume() }).unwrap());
    require_all(&exported.entries, "export");
    let request =
        Request::ExportFile { volume: volume(), path: path(TABLES - 1, "frm"), with_damaged: false };
    assert_eq!(control.file(&request).unwrap(), b"");
    let reply = control.ask(&Request::ExportEnd { volume: volume() }).unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");
}
