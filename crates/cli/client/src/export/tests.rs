//! Against a hostile node: a listener in this process that sends arbitrary answers.

use super::*;
use crate::events::Ignored;
use redoubt_wire::control::{Attachment, KIND_DATA, KIND_JSON, VolumeEntry, encode_data, encode_json};
use redoubt_wire::frame::append_frame;
use redoubt_wire::hello::{Compression, Status, Welcome, decode_len};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, Seq};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

fn entry(path: &str, kind: EntryKind, len_bytes: u64) -> VolumeEntry {
    VolumeEntry { path: path.to_owned(), kind, mode: 0o6777, len_bytes, checksum: None }
}

/// Answers the first request with these entries, and each one for a file with `piece`.
fn node(entries: Vec<VolumeEntry>, piece: (u64, Vec<u8>)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        let mut len = [0; 4];
        socket.read_exact(&mut len).unwrap();
        socket.read_exact(&mut vec![0; decode_len(len).unwrap()]).unwrap();
        let welcome = Welcome {
            status: Status::Accepted,
            compression: Compression::Off,
            next_seq: Seq(0),
            next_lsn: redoubt_redo::Lsn(0),
            message: String::new(),
        };
        socket.write_all(&welcome.encode()).unwrap();
        let mut written = 0;
        let mut send = |socket: &mut std::net::TcpStream, kind: u8, payload: &[u8]| {
            let mut out = Vec::new();
            append_frame(&mut out, kind, written, payload).unwrap();
            written += 1;
            // The command may have had enough.
            let _ = socket.write_all(&out);
        };
        let attached = Attachment {
            volume_id: "id".to_owned(),
            generation: 1,
            empty: false,
            end_lsn: 1,
            entries: entries.clone(),
            frozen: None,
        };
        let mut first = Some(Reply::Attached(attached));
        let mut header = [0; HEADER_LEN_BYTES];
        while socket.read_exact(&mut header).is_ok() {
            let mut request = vec![0; FrameHeader::decode(&header).len_bytes as usize];
            socket.read_exact(&mut request).unwrap();
            if let Some(reply) = first.take() {
                send(&mut socket, KIND_JSON, &encode_json(&reply).unwrap());
                continue;
            }
            if String::from_utf8_lossy(&request).contains("export_file") {
                send(&mut socket, KIND_JSON, &encode_json(&Reply::FileFollows { len_bytes: 4 }).unwrap());
                send(&mut socket, KIND_DATA, &encode_data(piece.0, &piece.1));
                send(&mut socket, KIND_DATA, &[]);
            }
            send(&mut socket, KIND_JSON, &encode_json(&Reply::Done).unwrap());
        }
    });
    address
}

fn export(address: String, to: &Path) -> Result<()> {
    let connector = Connector { address, tls: None, silence_limit: None, local_socket: false };
    write(&connector, "v", to, false, &Ignored).map(drop)
}

#[test]
fn a_node_cannot_name_files_outside_of_the_export() {
    let top = tempfile::tempdir().unwrap();
    let to = top.path().join("export");
    for path in ["../evil", "/evil", "a/../../evil", "a\0b", "", "a//b", ".redoubt"] {
        for kind in [EntryKind::Directory, EntryKind::Plain, EntryKind::Tablespace, EntryKind::RedoLog] {
            let entries = vec![entry("ibdata1", EntryKind::Tablespace, 4), entry(path, kind, 4)];
            let error = export(node(entries, (0, b"evil".to_vec())), &to).unwrap_err().to_string();
            assert!(error.contains("do not trust this node"), "{path:?}: {error}");
        }
    }
    assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
}

#[test]
fn a_node_cannot_write_past_the_length_that_it_announced() {
    for offset in [4, 1, 1 << 40, u64::MAX - 1] {
        let top = tempfile::tempdir().unwrap();
        let to = top.path().join("export");
        let entries = vec![entry("ibdata1", EntryKind::Tablespace, 4)];
        let error = export(node(entries, (offset, b"evil".to_vec())), &to).unwrap_err().to_string();
        assert!(error.contains("announced length"), "{error}");
        assert!(std::fs::metadata(to.join("ibdata1")).unwrap().len() <= 4);
    }
}

#[test]
fn an_honest_export_is_written_and_modes_are_tamed() {
    use std::os::unix::fs::PermissionsExt;
    let top = tempfile::tempdir().unwrap();
    let to = top.path().join("export");
    let entries = vec![entry("shop", EntryKind::Directory, 0), entry("shop/t.frm", EntryKind::Plain, 4)];
    export(node(entries, (0, b"good".to_vec())), &to).unwrap();
    assert_eq!(std::fs::read(to.join("shop/t.frm")).unwrap(), b"good");
    assert_eq!(std::fs::metadata(to.join("shop/t.frm")).unwrap().permissions().mode() & 0o7777, 0o775);
}
