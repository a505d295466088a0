//! Control connections with requests that are wrong: refused in words, and the node continues.

use super::client::ControlClient;
use super::protocol::Fixture;
use redoubt_wire::control::{KIND_DATA, KIND_JSON, Reply, Request, encode_data, encode_json};

fn failed(reply: &Reply, text: &str) {
    assert!(matches!(reply, Reply::Failed { retry: false, message } if message.contains(text)), "{reply:?}");
}

fn begin(control: &mut ControlClient, volume: &str) {
    let system_files = vec![("ibdata1".to_owned(), 0)];
    let reply = control
        .ask(&Request::ImportBegin {
            volume: volume.to_owned(),
            family: "MariaDB".to_owned(),
            system_files,
            encrypted: false,
        })
        .unwrap();
    assert!(matches!(reply, Reply::Done), "{reply:?}");
}

fn import_file(path: &str) -> Request {
    Request::ImportFile { path: path.to_owned(), mode: 0o660, len_bytes: 4, tablespace: false }
}

#[test]
fn bad_json_is_answered_and_the_connection_goes_on() {
    let fixture = Fixture::new();
    let mut control = fixture.control();
    for bad in
        [&b"{"[..], b"", b"null", b"{\"request\":\"explode\"}", b"{\"request\":\"attach\",\"volume\":7}"]
    {
        control.send(KIND_JSON, bad).unwrap();
        failed(&control.reply().unwrap(), "json");
    }
    assert_eq!(control.status().name, "v");
}

#[test]
fn a_data_frame_out_of_place_ends_only_that_connection() {
    let fixture = Fixture::new();
    let mut control = fixture.control();
    control.send(KIND_DATA, &encode_data(0, b"what")).unwrap();
    assert!(control.reply().is_err());
    let mut control = fixture.control();
    begin(&mut control, "i");
    control.send(KIND_JSON, &encode_json(&import_file("a.frm")).unwrap()).unwrap();
    control.send(KIND_JSON, &encode_json(&Request::Status).unwrap()).unwrap();
    failed(&control.reply().unwrap(), "request inside a file");
    assert_eq!(fixture.control().status().name, "v");
}

#[test]
fn paths_out_of_the_volume_are_refused_and_the_connection_stays_in_step() {
    let fixture = Fixture::new();
    let mut control = fixture.control();
    begin(&mut control, "i");
    for path in ["../x", "/etc/passwd", "a/../../x", "", "a\0b"] {
        control.send(KIND_JSON, &encode_json(&import_file(path)).unwrap()).unwrap();
        control.send(KIND_DATA, &encode_data(0, b"evil")).unwrap();
        control.send(KIND_DATA, &[]).unwrap();
        failed(&control.reply().unwrap(), "path");
        failed(
            &control.ask(&Request::ImportDirectory { path: path.to_owned(), mode: 0o700 }).unwrap(),
            "path",
        );
    }
    assert!(!fixture.directory.path().join("volumes/x").exists());
    assert!(!fixture.directory.path().join("x").exists());
    // It is still of use.
    control.send(KIND_JSON, &encode_json(&import_file("d/ok.frm")).unwrap()).unwrap();
    control.send(KIND_DATA, &encode_data(0, b"good")).unwrap();
    control.send(KIND_DATA, &[]).unwrap();
    assert!(matches!(control.reply().unwrap(), Reply::Done));
}

#[test]
fn an_import_without_a_log_or_with_a_broken_one_leaves_nothing() {
    let fixture = Fixture::new();
    let mut control = fixture.control();
    failed(&control.ask(&Request::ImportEnd).unwrap(), "no import is under way");
    for redo in [None, Some((0, &[0x31u8, 5, 3, 1, 2][..])), Some((9, &b"gap"[..]))] {
        begin(&mut control, "i");
        if let Some((offset, bytes)) = redo {
            let log = Request::ImportLog {
                file_size_bytes: 12_288 + (1 << 20),
                header: vec![0; 512],
                checkpoints: [vec![0; 64], vec![0; 64]],
                start_lsn: 12_288,
            };
            control.send(KIND_JSON, &encode_json(&log).unwrap()).unwrap();
            control.send(KIND_DATA, &encode_data(offset, bytes)).unwrap();
            control.send(KIND_DATA, &[]).unwrap();
            let reply = control.reply().unwrap();
            if offset > 0 {
                failed(&reply, "does not follow");
            }
        }
        let reply = control.ask(&Request::ImportEnd).unwrap();
        if !matches!(redo, Some((9, _))) {
            assert!(matches!(reply, Reply::Failed { .. }), "{reply:?}");
            assert!(!fixture.directory.path().join("volumes/i").exists());
        } else {
            let _ = control.ask(&Request::VolumeDelete { volume: "i".to_owned(), force: true }).unwrap();
        }
        assert!(!fixture.directory.path().join("volumes/.import-i").exists());
    }
    assert_eq!(fixture.control().status().name, "v");
}

#[test]
fn volume_names_stay_inside_the_data_directory() {
    let fixture = Fixture::new();
    let mut control = fixture.control();
    for name in ["", "..", "../x", "a/b", ".hidden", "x y", "ü"] {
        failed(
            &control.ask(&Request::VolumeCreate { volume: name.to_owned(), encrypted: false }).unwrap(),
            "not usable",
        );
        let delete = Request::VolumeDelete { volume: name.to_owned(), force: true };
        failed(&control.ask(&delete).unwrap(), "not usable");
    }
    failed(
        &control.ask(&Request::VolumeCreate { volume: "v".to_owned(), encrypted: false }).unwrap(),
        "exists already",
    );
    let fetch = Request::Fetch { volume: "v".to_owned(), path: "../../x".to_owned() };
    failed(&control.ask(&fetch).unwrap(), "no plain file");
    failed(
        &control
            .ask(&Request::ExportFile { volume: "v".to_owned(), path: "x".to_owned(), with_damaged: false })
            .unwrap(),
        "no export",
    );
}
