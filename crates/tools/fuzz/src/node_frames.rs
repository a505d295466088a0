//! Frames of a stream as a node takes them, from the bytes of the log device to pages: decoded, parsed, indexed,
//! names kept, plain files changed, pages built, and a page's history taken. Done or refused with an error, never a
//! panic.
//!
//! Checked besides: names survive being stored; no plain file is outside of its directory; a frame's end is not
//! before its start.
//!
//! Input: frames, each a kind (1 byte), a length (2 bytes), and that many bytes of payload. Kind 1 (redo) gets its
//! mini-transactions framed, separated by 0xff.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use redoubt_logdev::Seq;
use redoubt_node::checkpoint::{CheckpointFiles, Positions};
use redoubt_node::construct::Builder;
use redoubt_node::home::Folder;
use redoubt_node::index::{LogIndex, PageKey};
use redoubt_node::log_buffer::Chunk;
use redoubt_node::mark::Point;
use redoubt_node::namespace::Namespace;
use redoubt_node::parser::Parser;
use redoubt_node::plain::PlainStore;
use redoubt_node::rescue::{DamagedImage, Histories};
use redoubt_node::volume::decode_chunk;
use redoubt_page::{Format, SpaceFlags};
use redoubt_pagestore::ObjectId;
use redoubt_redo::{Lsn, PageId};
use redoubt_sync::RwLock;
use redoubt_wire::frame::append_frame;

const MAX_FRAMES: usize = 64;
/// Plain files of a run may have this many bytes together; more is not written.
const MAX_FILE_LEN: u64 = 1 << 20;

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIRECTORY.get_or_init(|| tempfile::Builder::new().prefix("redoubt-fuzz-").tempdir().unwrap()).path()
}

fn redo(payload: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for records in payload.split(|&byte| byte == 0xff) {
        stream.extend_from_slice(records);
        stream.push(1);
        stream.extend_from_slice(&crc32c::crc32c(records).to_be_bytes());
    }
    stream
}

/// The frames, until one is refused.
fn chunks(mut bytes: &[u8]) -> Vec<Arc<Chunk>> {
    let mut at = Point { seq: Seq(0), lsn: Lsn(12_288) };
    let mut chunks = Vec::new();
    while let [kind, low, high, rest @ ..] = bytes {
        let (payload, after) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
        let mut wire = Vec::new();
        let payload = if *kind == 1 { redo(payload) } else { payload.to_vec() };
        append_frame(&mut wire, *kind, at.seq.0, &payload).unwrap();
        let Ok(chunk) = decode_chunk(wire, at) else { break };
        assert!(chunk.end.seq >= at.seq && chunk.end.lsn >= at.lsn);
        at = chunk.end;
        chunks.push(Arc::new(chunk));
        if chunks.len() == MAX_FRAMES {
            break;
        }
        bytes = after;
    }
    chunks
}

fn execute(plain: &PlainStore) {
    // Everything is queued; the wait is over at once, and tells whether there is something.
    while plain.wait_executed(Seq(u64::MAX), Some(Instant::now()))
        != redoubt_logdev::waiters::WaitEnd::Reached
    {
        let Some((_, change)) = plain.next() else { return };
        let is_small = match &change {
            redoubt_node::plain::Change::Write { offset_bytes, .. } => *offset_bytes < MAX_FILE_LEN,
            _ => true,
        };
        if is_small {
            let _ = plain.execute(&change);
        }
        plain.done();
    }
}

fn build(index: &LogIndex, names: &Namespace) {
    let table = index.open_table();
    for key in table.keys() {
        let object = names.object(key.object());
        let flags = object.and_then(|entry| entry.flags).unwrap_or(0x15);
        let format = Format { family: names.family(), flags };
        if format.check().is_err() || !format.is_replayed() {
            continue;
        }
        let space = object.and_then(|entry| entry.space).unwrap_or(0);
        let mut builder = Builder::empty(PageId::new(space, key.page_no()), format);
        let len = builder.page.len();
        if builder.apply_entries(&table.chunks(), &table.chain(key), None, None).is_ok() {
            let page = builder.finish().expect("a page of a known format can be finished");
            assert_eq!(page.len(), len);
        }
    }
}

/// The target. Panics on a finding.
pub fn run(data: &[u8]) {
    let chunks = chunks(data);
    let directory = directory();
    let place = directory.join("plain");
    let start = Point { seq: Seq(0), lsn: Lsn(12_288) };
    let (index, names) = (LogIndex::new(start), RwLock::new(Namespace::default()));
    std::fs::create_dir_all(&place).unwrap();
    let plain = PlainStore::new(Folder::open(&place).unwrap());
    let mut parser = Parser::new(&index, &names, &plain);
    let page = DamagedImage {
        key: PageKey::new(ObjectId(1), 3),
        page_id: PageId::new(5, 3),
        format: Format::of_mariadb(SpaceFlags(0x15)),
        fault: "damaged".to_owned(),
    };
    let mut histories = Histories::new([&page]);
    let mut end = start;
    for chunk in &chunks {
        let is_known = |path: &[u8]| path.first() == Some(&b'd');
        let find = |path: &[u8], page_no: u32| is_known(path).then(|| PageKey::new(ObjectId(1), page_no));
        let _ = histories.frame(chunk, &find);
        let Ok(outcome) = parser.handle(chunk) else { break };
        for key in outcome.unknown_flags {
            let _ = parser.learn_flags(key.object(), 0x15, chunk.end.lsn);
        }
        end = chunk.end;
    }
    drop(parser);
    execute(&plain);
    let changes = names.write().take_changes();
    let names = Arc::new(names.into_inner());
    build(&index, &names);
    for history in histories.into_pages() {
        let stored = vec![0; page.format.physical_page_size_bytes()];
        let _ = history.rebuild(&[], Some(&stored), start.lsn);
    }
    let folder = Folder::open(directory).unwrap();
    CheckpointFiles::create(&folder, &Namespace::default()).unwrap();
    let (mut files, _) = CheckpointFiles::open(&folder).expect("what was written can be read");
    // Names that follow by their changes alone.
    let positions = Positions { applied: end, log_start: start, cover: Some(start) };
    files.write(positions, &changes, u64::MAX, || Arc::clone(&names)).unwrap();
    let (_, read) = CheckpointFiles::open(&folder).expect("what was written can be read");
    assert!(*read.names == *names && read.applied == end);
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name();
        let known = ["plain", "checkpoint", "checkpoint.copy", "names-00000001", "names-00000001.copy"];
        let is_known = known.iter().any(|known| name == *known);
        assert!(is_known, "{name:?} is outside of the plain files' directory");
    }
    std::fs::remove_dir_all(&place).unwrap();
}
