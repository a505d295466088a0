use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use redoubt_workload::process::poll_until;

const DEV: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
 veth0:    1234      11    0    0    0     0          0         0     5678      12    0    0    0     0       0          0
";

#[test]
fn the_interfaces_counters_are_read() {
    assert_eq!(parse_traffic(DEV).unwrap(), Traffic { sent_bytes: 5678, received_bytes: 1234 });
    assert!(parse_traffic("no such thing").unwrap_err().to_string().contains("veth0"));
}

#[test]
fn bursts_fit_the_rate() {
    assert_eq!(burst_bytes(200_000_000), 250_000);
    assert_eq!(burst_bytes(1_000_000), 128 << 10);
    assert_eq!(burst_bytes(400_000_000_000), 4 << 20);
}

/// A real link, where this machine lets us make one: the limit holds, the bytes are counted, nothing stays.
#[test]
fn a_limited_link_counts_what_goes_through() {
    // `unshare` shows whether namespaces are available: root in a container may lack the permission.
    if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success()) {
        redoubt_test_support::skip("a limited link", "no network namespaces here");
        return;
    }
    let network = Network::create().unwrap();
    const LEN_BYTES: usize = 6 << 20;
    network.limit(Bandwidth(Some(100_000_000))).unwrap();
    let listener = network
        .storage
        .enter(|| TcpListener::bind((network.storage_address(), 0)).map_err(Error::io("listen")))
        .unwrap();
    let address = listener.local_addr().unwrap();
    let mut client =
        network.compute.enter(|| TcpStream::connect(address).map_err(Error::io("connect"))).unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.len()
    });
    let before = network.traffic().unwrap().unwrap();
    let began = Instant::now();
    client.write_all(&vec![7; LEN_BYTES]).unwrap();
    drop(client);
    assert_eq!(reader.join().unwrap(), LEN_BYTES);
    let seconds = began.elapsed().as_secs_f64();
    let after = network.traffic().unwrap().unwrap();
    let sent = after.sent_bytes - before.sent_bytes;
    assert!((LEN_BYTES as u64..LEN_BYTES as u64 * 11 / 10).contains(&sent), "{sent} bytes were counted");
    assert!(after.received_bytes > before.received_bytes);
    let rate = LEN_BYTES as f64 * 8.0 / seconds;
    assert!(rate < 115_000_000.0, "{rate} bit/s went through a link of 100 Mbit/s");
    let names = network.names.clone().unwrap();
    assert!(names.iter().all(|name| PathBuf::from("/run/netns").join(name).exists()));
    drop(network);
    assert!(names.iter().all(|name| !PathBuf::from("/run/netns").join(name).exists()));
}

/// nbdkit asks to be ended with its parent, and to the kernel the parent is the thread that started it. It asks within
/// some milliseconds, as threads end: so often enough for it to be seen.
#[test]
fn a_program_that_wants_to_end_with_its_parent_outlives_the_call() {
    if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success()) {
        redoubt_test_support::skip("a program that ends with its parent", "no network namespaces here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let network = Network::create().unwrap();
    for round in 0..30 {
        let ready = directory.path().join(format!("{round}.pid"));
        let mut command = Command::new(find_program("nbdkit", "nbdkit").unwrap());
        command.args(["-f", "-i", STORAGE_ADDRESS, "-p", &(10_000 + round).to_string(), "-P"]);
        command.arg(&ready).arg("null");
        let mut process = network.storage.spawn("nbdkit", command, &directory.path().join("log")).unwrap();
        poll_until("the readiness of nbdkit", Duration::from_secs(30), || {
            process.require_running()?;
            Ok(ready.exists().then_some(()))
        })
        .unwrap();
        let reach = || TcpStream::connect((STORAGE_ADDRESS, 10_000 + round)).map_err(Error::io("connect"));
        network.compute.enter(reach).unwrap();
        process.require_running().unwrap();
    }
}
