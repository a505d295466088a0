//! Location of a volume's log, and the device that writes it.

use super::client::{ControlClient, LogClient, PageClient};
use super::protocol::{Stream, changed};
use super::running::{LocalNode, SMALL, options};
use redoubt_logdev::choice::HAS_PMEM;
use redoubt_logdev::{DeviceKind, Held};
use redoubt_node::place::{RawDevices, Site, remove_volume_directory};
use redoubt_node::{LogOptions, NodeError, NodeOptions, log_device};
use std::path::Path;
use std::sync::Arc;

fn with_log(directory: &Path, log: LogOptions) -> NodeOptions {
    let mut options = options(&directory.join("data"), SMALL);
    options.log = LogOptions { segment_len_bytes: options.log.segment_len_bytes, ..log };
    options
}

fn device(kind: DeviceKind) -> LogOptions {
    let pretend_pmem = kind == DeviceKind::Pmem;
    LogOptions { device: Some(kind), pretend_pmem, ..LogOptions::default() }
}

#[test]
fn a_volume_goes_on_with_any_device_and_finds_its_log_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs");
    std::fs::create_dir(directory.path().join("data")).unwrap();
    let mut stream = Stream::new();
    let mut generation = 0;
    let kinds = [DeviceKind::File, DeviceKind::Block, DeviceKind::Pmem, DeviceKind::Block, DeviceKind::File];
    let supported = kinds.into_iter().filter(|kind| HAS_PMEM || *kind != DeviceKind::Pmem);
    for (round, kind) in supported.enumerate() {
        // Only the node that creates the volume has a location for logs configured.
        let place = (round == 0).then(|| logs.clone());
        let node = LocalNode::open(&with_log(directory.path(), LogOptions { place, ..device(kind) }));
        let mut control = ControlClient::connect(node.address).unwrap();
        if round == 0 {
            control.create("v");
        }
        generation = control.attach("v").generation.max(generation);
        let mut log = LogClient::connect(node.address, "v", generation, round as u64 + 1, 0).unwrap();
        assert_eq!(log.welcome.next_seq.0, stream.seq);
        if round == 0 {
            log.send(&stream.begin(4)).unwrap();
        }
        for n in 0..50_u8 {
            log.send(&stream.change(3, &[round as u8, n])).unwrap();
        }
        assert!(log.wait_durable(stream.seq));
        let mut pages = PageClient::connect(node.address, "v", generation).unwrap();
        assert_eq!(changed(&mut pages, stream.seq, 3, 2), [round as u8, 49]);
        let status = control.status().log_device;
        assert_eq!(status.kind, kind.name());
        assert!(Path::new(&status.directory).starts_with(logs.canonicalize().unwrap()), "{status:?}");
        assert!(status.written_per_appended_byte >= 1.0, "{status:?}");
        assert_eq!(
            status.warnings.iter().any(|text| text.contains("--pretend-pmem")),
            kind == DeviceKind::Pmem
        );
        drop((log, pages, control));
        node.stop();
    }
    let volume = directory.path().join("data/volumes/v");
    assert_eq!(std::fs::read_dir(&logs).unwrap().count(), 1);
    remove_volume_directory(&volume, &RawDevices::default(), &Arc::default()).unwrap();
    assert!(!volume.exists());
    assert_eq!(std::fs::read_dir(&logs).unwrap().count(), 0);
}

#[test]
fn a_place_that_the_device_does_not_fit_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let devices = RawDevices::default();
    let site = Site { directory: directory.path(), volume_id: "id", devices: &devices, unlocked: None };
    let open = |log: &LogOptions| {
        let options = NodeOptions {
            log: log.clone(),
            ..NodeOptions::new(directory.path().to_owned(), "127.0.0.1:0".to_owned())
        };
        log_device::open(site, &options, Held::default()).err()
    };
    let plain = LogOptions { pretend_pmem: false, ..device(DeviceKind::Pmem) };
    let error = open(&plain).unwrap().to_string();
    assert!(error.contains(if HAS_PMEM { "DAX" } else { "redoubt-experimental" }), "{error}");
    let small = LogOptions { write_unit_bytes: Some(64), ..device(DeviceKind::Block) };
    assert!(matches!(open(&small), Some(NodeError::Refused(_))));
    let odd = LogOptions { write_unit_bytes: Some(128), ..device(DeviceKind::Pmem) };
    let error = open(&odd).unwrap().to_string();
    assert!(error.contains(if HAS_PMEM { "64, 256" } else { "redoubt-experimental" }), "{error}");
    // The link is there, its target is not: as if the file system for logs were not mounted.
    std::fs::remove_dir_all(directory.path().join("log")).unwrap();
    std::os::unix::fs::symlink(directory.path().join("gone"), directory.path().join("log")).unwrap();
    let error = open(&LogOptions::default()).unwrap().to_string();
    assert!(error.contains("mounted"), "{error}");
    assert!(!directory.path().join("gone").exists());
}
