//! The whole redo of a real server through a node that is killed again and again, with reads meanwhile; then every
//! page is compared with the server's own files.

use super::client::{ControlClient, LogClient, PageClient};
use super::running::{LocalNode, NodeProcess, SMALL, Sizes, options};
use super::source::{Recording, stock};
use redoubt_page::{
    SpaceFlags, decompress, differing_ranges, digest, doublewrite, layout, page_is_never_written, verify,
};
use redoubt_redo::mariadb::LogScan;
use redoubt_redo::mariadb::log_scan::LogRead;
use redoubt_redo::{Lsn, PageId, SpaceId};
use redoubt_wire::control::{Reply, Request};
use redoubt_wire::page::{PageReply, PageRequest};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const VOLUME: &str = "v";

enum Under {
    Local(LocalNode, std::path::PathBuf, Sizes),
    Process(NodeProcess, std::path::PathBuf, Sizes),
}

impl Under {
    fn start(directory: &Path, sizes: Sizes, killable: bool) -> Self {
        let at = directory.to_owned();
        if killable {
            Self::Process(NodeProcess::start(directory, sizes), at, sizes)
        } else {
            Self::Local(LocalNode::open(&options(directory, sizes)), at, sizes)
        }
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Local(node, ..) => node.address,
            Self::Process(node, ..) => node.address,
        }
    }

    fn restart(self) -> Self {
        match self {
            Self::Local(node, at, sizes) => {
                node.stop();
                Self::start(&at, sizes, false)
            }
            Self::Process(node, at, sizes) => {
                node.kill();
                Self::start(&at, sizes, true)
            }
        }
    }
}

/// Memory, if there is a file system in it: small tables cause thousands of syncs, which are not under test.
fn fast_directory() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// State that readers and sender share.
struct Shared<'r> {
    recording: &'r Recording,
    address: Mutex<SocketAddr>,
    generation: u64,
    durable: AtomicU64,
    done: AtomicBool,
    reads: AtomicU64,
    newer: AtomicU64,
}

fn run(seed: u64, sizes: Sizes, killable: bool, kills: usize) {
    let recording = Recording::new(seed);
    let directory = tempfile::tempdir_in(fast_directory()).unwrap();
    let mut node = Some(Under::start(directory.path(), sizes, killable));
    let address_of = |node: &Option<Under>| node.as_ref().unwrap().address();
    let mut control = ControlClient::connect(address_of(&node)).unwrap();
    control.create(VOLUME);
    let attachment = control.attach(VOLUME);
    assert!(attachment.empty);
    drop(control);
    let shared = Shared {
        recording: &recording,
        address: Mutex::new(address_of(&node)),
        generation: attachment.generation,
        durable: AtomicU64::new(0),
        done: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        newer: AtomicU64::new(0),
    };
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    std::thread::scope(|scope| {
        // Readers end even if the sender fails.
        let _done = SetOnDrop(&shared.done);
        for reader in 0..2 {
            let shared = &shared;
            scope.spawn(move || read_while_appending(shared, seed + reader));
        }
        let mut stops: Vec<_> = (0..kills).map(|_| random.usize(..recording.items.len())).collect();
        stops.sort_unstable();
        for stop in stops.into_iter().map(Some).chain([None]) {
            send_until(&shared, stop, &mut random);
            if stop.is_some() {
                node = node.take().map(Under::restart);
                *shared.address.lock().unwrap() = address_of(&node);
            }
        }
    });
    println!(
        "seed {seed}: {} frames, {} reads meanwhile, {} of them newer than needed",
        recording.items.len(),
        shared.reads.load(Ordering::Relaxed),
        shared.newer.load(Ordering::Relaxed)
    );
    check_all(&recording, address_of(&node), shared.generation);
    node = node.take().map(Under::restart);
    check_all(&recording, address_of(&node), shared.generation);
    check_export(&recording, address_of(&node));
}

struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Connects, resumes and sends up to item `stop`, or everything.
fn send_until(shared: &Shared<'_>, stop: Option<usize>, random: &mut fastrand::Rng) {
    let recording = shared.recording;
    let address = *shared.address.lock().unwrap();
    let acknowledged = shared.durable.load(Ordering::Acquire);
    let mut client = LogClient::connect(address, VOLUME, shared.generation, 77, acknowledged).unwrap();
    let next = client.welcome.next_seq.0;
    assert!(next >= acknowledged, "acknowledged {acknowledged}, the node has {next}");
    let from = recording.item_at(next);
    let to = stop.unwrap_or(recording.items.len());
    for (number, item) in recording.items.iter().enumerate().take(to).skip(from) {
        client.send(&item.wire).unwrap();
        client.poll();
        shared.durable.fetch_max(client.durable, Ordering::AcqRel);
        if random.u16(..) < 20 && !(item.logged && number + 1 == to) {
            assert!(client.wait_durable(item.end), "not durable");
        }
    }
    if let Some(item) = recording.items.get(to).filter(|_| random.bool()) {
        // The connection ends inside a frame.
        let _ = client.send(&item.wire[..random.usize(..item.wire.len())]);
    }
    if stop.is_none() {
        assert!(client.wait_durable(recording.end), "not durable to the end");
    }
    client.poll();
    shared.durable.fetch_max(client.durable, Ordering::AcqRel);
}

/// Reads random pages; each must be a version that the server had, not older than the read's required position.
fn read_while_appending(shared: &Shared<'_>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let recording = shared.recording;
    let mut pages: Vec<_> = recording.pages.keys().copied().collect();
    pages.sort_unstable();
    let mut client = None;
    while !shared.done.load(Ordering::Acquire) {
        let page = pages[random.usize(..pages.len())];
        let address = *shared.address.lock().unwrap();
        let result = match client.take() {
            Some(client) => Ok(client),
            None => PageClient::connect(address, VOLUME, shared.generation),
        };
        let Ok(mut connected) = result else { continue };
        let need = shared.durable.load(Ordering::Acquire);
        // The node may be killed at any time.
        if let Ok(read) = read_page(&mut connected, recording, page, need) {
            if let Some(read) = read {
                check_version(shared, page, need, &read);
            }
            client = Some(connected);
        }
    }
}

fn read_page(
    client: &mut PageClient,
    recording: &Recording,
    page: PageId,
    need: u64,
) -> std::io::Result<Option<Vec<u8>>> {
    let Some((path, _)) = recording.spaces.iter().find(|(_, space)| **space == page.space) else {
        return Ok(None);
    };
    if recording.shared_paths.contains(path) {
        return Ok(None);
    }
    let Some(file) = client.open(need, path)? else { return Ok(None) };
    let len = recording.flags[&page.space].physical_page_size_bytes();
    client.read(need, file, u64::from(page.page_no.0) * len as u64, len as u32).map(Some)
}

fn check_version(shared: &Shared<'_>, page: PageId, need: u64, read: &[u8]) {
    let model = &shared.recording.pages[&page];
    let flags = shared.recording.flags[&page.space];
    let lsn = layout::page_lsn(read).unwrap();
    let needed = model.versions.iter().rev().find(|version| version.seq <= need).map_or(Lsn(0), |v| v.lsn);
    assert!(lsn >= needed, "page {page} is of LSN {lsn}, needed was {needed} (at {need})");
    shared.reads.fetch_add(1, Ordering::Relaxed);
    if lsn == Lsn(0) {
        assert!(page_is_never_written(read), "page {page} has no LSN");
        return;
    }
    shared.newer.fetch_add(u64::from(lsn > needed), Ordering::Relaxed);
    let digest = digest(read, flags);
    let versions: Vec<_> = model.versions.iter().filter(|version| version.lsn == lsn).collect();
    assert!(
        versions.iter().any(|version| version.digest == digest),
        "page {page} at LSN {lsn}, digest {digest:08x}, is none of the server's versions {versions:x?} (needed \
         {needed} at {need})"
    );
    verify(read, flags).unwrap();
}

/// Every page, the plain files, the redo log file.
fn check_all(recording: &Recording, address: SocketAddr, generation: u64) {
    let mut client = PageClient::connect(address, VOLUME, generation).unwrap();
    let mut compared = 0;
    for (path, space) in &recording.spaces {
        let on_disk = &stock().files[path];
        let flags = recording.flags[space];
        let size = flags.physical_page_size_bytes();
        let file = client.open(recording.end, path).unwrap().unwrap();
        let mut ours = Vec::new();
        while ours.len() < on_disk.len() {
            let len = (on_disk.len() - ours.len()).min(1 << 20) as u32;
            ours.extend(client.read(recording.end, file, ours.len() as u64, len).unwrap());
        }
        compared += compare_file(recording, *space, flags, size, &ours, on_disk);
    }
    assert!(compared > 500, "{compared} pages compared");
    check_log(recording, client);
    let mut control = ControlClient::connect(address).unwrap();
    let status = control.wait_state("ready");
    assert_eq!(status.reason, "");
    assert_eq!(status.counters["page_mismatches"], 0);
    assert_eq!(status.quarantined, 0, "{:?}", status.quarantine);
    println!("{compared} pages compared; {:?}", status.counters);
    // Plain files are executed after the parser has seen them; attaching waits for them.
    for (path, contents) in &recording.plain {
        let fetch = Request::Fetch { volume: VOLUME.to_owned(), path: path.clone() };
        let deadline = std::time::Instant::now() + super::client::PATIENCE;
        while control.file(&fetch).unwrap() != *contents {
            assert!(std::time::Instant::now() < deadline, "{path} differs");
        }
    }
}

fn compare_file(
    recording: &Recording,
    space: SpaceId,
    flags: SpaceFlags,
    size: usize,
    ours: &[u8],
    on_disk: &[u8],
) -> usize {
    let area = (space == SpaceId(0))
        .then(|| doublewrite::locate(&on_disk[5 * size..6 * size], flags).unwrap().unwrap());
    let mut compared = 0;
    for ((page_no, ours), on_disk) in (0u32..).zip(ours.chunks_exact(size)).zip(on_disk.chunks_exact(size)) {
        let page = PageId::new(space.0, page_no);
        match recording.pages.get(&page) {
            _ if area.is_some_and(|area| area.contains(page_no)) => {}
            Some(model) if model.freed => {}
            Some(_) => {
                verify(ours, flags).unwrap_or_else(|error| panic!("{page}: {error}"));
                let plain = decompress(on_disk, flags).unwrap();
                let on_disk = plain.as_deref().unwrap_or(on_disk);
                let differing = differing_ranges(ours, on_disk, flags);
                assert!(differing.is_empty(), "{page} differs at {differing:?}");
                compared += 1;
            }
            None => assert!(page_is_never_written(ours), "{page} has no redo"),
        }
    }
    compared
}

/// ib_logfile0 as the node puts it together.
struct RemoteLog(RefCell<PageClient>, u64);

impl LogRead for RemoteLog {
    type Error = std::io::Error;

    fn size_bytes(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), Self::Error> {
        let mut client = self.0.borrow_mut();
        let request = PageRequest::ReadLog { offset_bytes, len_bytes: buf.len() as u32 };
        client.ask(&request, |reply| match reply {
            // Zeros at the end are left out.
            PageReply::Bytes(bytes) => {
                buf[..bytes.len()].copy_from_slice(bytes);
                buf[bytes.len()..].fill(0);
            }
            other => panic!("{other:?}"),
        })
    }
}

fn check_log(recording: &Recording, client: PageClient) {
    let size = stock().log.len() as u64;
    let log = RemoteLog(RefCell::new(client), size);
    let scan = LogScan::open(&log).unwrap();
    assert_eq!(scan.checkpoint().checkpoint_lsn, recording.checkpoint_lsn);
    let mut mtrs = 0u64;
    let mut count = |_: &redoubt_redo::Mtr<'_, '_>| mtrs += 1;
    let end = scan.walk(recording.checkpoint_lsn, &mut count).unwrap();
    assert_eq!(end.end_lsn, recording.end_lsn, "{end:?} after {mtrs} mini-transactions");
}

fn check_export(recording: &Recording, address: SocketAddr) {
    let mut control = ControlClient::connect(address).unwrap();
    let reply = control.ask(&Request::ExportBegin { volume: VOLUME.to_owned() }).unwrap();
    let Reply::Attached(held) = reply else { panic!("{reply:?}") };
    assert_eq!(held.end_lsn, recording.end_lsn.0);
    for (path, contents) in &recording.plain {
        let request =
            Request::ExportFile { volume: VOLUME.to_owned(), path: path.clone(), with_damaged: false };
        assert_eq!(control.file(&request).unwrap(), *contents, "{path}");
    }
    assert!(held.entries.iter().any(|entry| entry.path == "ib_logfile0"));
}

#[test]
fn real_redo_with_kills_and_a_tiny_ring() {
    run(1, SMALL, true, 12);
}

#[test]
fn real_redo_with_kills_and_larger_tables() {
    run(2, Sizes { ring: 8 << 20, batch: 1 << 20, interval_ms: 50 }, true, 6);
}

#[test]
fn real_redo_with_stops_of_a_node_in_this_process() {
    run(3, Sizes { ring: 1 << 20, batch: 128 << 10, interval_ms: 1000 }, false, 6);
}

#[test]
fn real_redo_without_a_stop() {
    run(4, Sizes { ring: 64 << 20, batch: 8 << 20, interval_ms: 5000 }, false, 0);
}
