//! The same redo through a node: imported base, stream of frames, log device, parser, index, apply, page store, reads.
//!
//! The frames that the preloaded library would send are made from the redo: each FILE_ record stands for the system
//! call that the server makes right after the record is durable. Every page is then read twice, as a server reads it
//! (constructed during the read) and as an export reads it (applied and stored). It must be the pure replay's page to
//! the last byte, checksum included. The pure replay itself is compared with stock recovery.
//!
//! The directory of the killed server is imported as well, with page files as the kill left them and all of its redo.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redoubt_node::home::DirectoryHome;
use redoubt_node::volume::{Import, LogShape, Received, SERVER_NOT_SAID, Volume};
use redoubt_node::{LogOptions, NodeError, NodeOptions, PageOptions};
use redoubt_page::{decompress, finalize, page_is_never_written};
use redoubt_redo::mariadb::log_file::CHECKPOINT_LEN_BYTES;
use redoubt_redo::{Family, Lsn, PageId, PageNo, SpaceId};
use redoubt_wire::Seq;
use redoubt_wire::frame::append_frame;
use redoubt_wire::hello::{Compression, Hello, Role};
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{FileKind, StreamFrame};
use redoubt_workload::error::{Error, Result};
use serde::Serialize;

use super::base::{Base, identify};
use super::history::{KilledState, Recorded, Workshop};
use super::recovery::next_directory;
use super::redo::{Note, Redo};
use super::replay::{Replayed, replay};

/// Counts of what was sent through nodes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Passed {
    /// Histories.
    pub histories: u64,
    /// Frames.
    pub frames: u64,
    /// Pages read as a server reads them and compared.
    pub read: u64,
    /// Pages read as an export reads them and compared.
    pub exported: u64,
}

impl Passed {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.frames += other.frames;
        self.read += other.read;
        self.exported += other.exported;
    }
}

/// Sends a history through a node and compares every page.
///
/// # Errors
/// [`Error::Violation`] for a page that differs, or when the node stops.
pub fn pass(workshop: &Workshop, recorded: &Recorded) -> Result<Passed> {
    let directory = next_directory(workshop.path());
    std::fs::create_dir(&directory).map_err(Error::io_at("create", &directory))?;
    let passed = pass_in(&directory, recorded);
    std::fs::remove_dir_all(&directory).map_err(Error::io_at("remove", &directory))?;
    passed
}

/// Imports what the killed server of a history left, and compares every page.
///
/// # Errors
/// As for [`pass`].
pub fn pass_killed(workshop: &Workshop, recorded: &Recorded) -> Result<Passed> {
    let directory = next_directory(workshop.path());
    std::fs::create_dir(&directory).map_err(Error::io_at("create", &directory))?;
    let KilledState { base, redo, .. } = recorded.killed_state()?;
    let passed = import(&directory, &base, &redo.bytes)
        .map_err(node("import the killed server into a node"))
        .and_then(|volume| {
            let passed =
                Feeder::new(&volume, redo.end_lsn).and_then(|feeder| compare(&volume, &base, &redo, &feeder));
            volume.shut_down();
            passed
        });
    std::fs::remove_dir_all(&directory).map_err(Error::io_at("remove", &directory))?;
    passed
}

fn pass_in(directory: &Path, recorded: &Recorded) -> Result<Passed> {
    let Recorded { base, redo, .. } = recorded;
    let volume = import(directory, base, &[]).map_err(node("import the base into a node"))?;
    let mut feeder = Feeder::new(&volume, redo.start_lsn)?;
    let passed = feeder.feed(redo).and_then(|()| compare(&volume, base, redo, &feeder));
    volume.shut_down();
    passed
}

fn compare(volume: &Volume, base: &Base, redo: &Redo, feeder: &Feeder<'_>) -> Result<Passed> {
    let ours = replay(base, redo, redo.end_lsn, None)?;
    let reader = Reader { volume, base, ours: &ours, need: feeder.seq };
    let read = reader.compare_reads()?;
    let exported = reader.compare_export()?;
    Ok(Passed { histories: 1, frames: feeder.frames, read, exported })
}

fn node(what: &str) -> impl FnOnce(NodeError) -> Error {
    let what = what.to_owned();
    move |error| Error::Violation(format!("{what}: {error}"))
}

/// Small sizes, so that tables are closed and applied, and the ring goes around, during the history.
fn options(directory: &Path) -> NodeOptions {
    NodeOptions {
        ring_len_bytes: 16 << 20,
        batch_len_bytes: 2 << 20,
        apply_interval: Duration::from_millis(500),
        apply_workers: 2,
        pages: PageOptions { journal_len_bytes: 8 << 20, ..PageOptions::default() },
        log: LogOptions { segment_len_bytes: 4 << 20, ..LogOptions::default() },
        ..NodeOptions::new(directory.to_owned(), "127.0.0.1:0".to_owned())
    }
}

fn import(directory: &Path, base: &Base, redo: &[u8]) -> std::result::Result<Arc<Volume>, NodeError> {
    let last = base.system_files.len().saturating_sub(1);
    let system: Vec<_> = base
        .system_files
        .iter()
        .enumerate()
        .map(|(number, path)| {
            let len = base.files.get(path).map_or(0, |bytes| bytes.len() as u64);
            (path.clone(), if number == last { 0 } else { len })
        })
        .collect();
    let options = options(directory);
    let (home, _) = DirectoryHome::create("oracle", &directory.join("import"), &options, false)?;
    let mut import = Import::begin("oracle", home, &options, Family::MariaDb, &system)?;
    for path in &base.directories {
        import.directory(path, 0o700);
    }
    for (path, bytes) in &base.files {
        let file = import.file(path, 0o660, bytes.len() as u64, true)?;
        let pages = uncompressed(path, bytes);
        for (number, piece) in pages.chunks(1 << 20).enumerate() {
            if number == 0 || piece.iter().any(|byte| *byte != 0) {
                import.write(file, (number << 20) as u64, piece)?;
            }
        }
    }
    let checkpoints = [base.checkpoint.build().to_vec(), vec![0; CHECKPOINT_LEN_BYTES]];
    let file_size_bytes = base.geometry.file_size_bytes();
    let shape = LogShape::File { file_size_bytes, header: base.header.clone(), checkpoints };
    import.log(shape, base.start_lsn())?;
    import.redo(0, redo)?;
    import.finish(&directory.join("volume"))
}

/// The pages of a file as an import sends them: pages that the server stored compressed are unpacked.
fn uncompressed(path: &str, bytes: &[u8]) -> Vec<u8> {
    let mut pages = bytes.to_vec();
    let Ok(Some((_, flags))) = identify(path, bytes) else { return pages };
    for page in pages.chunks_exact_mut(flags.physical_page_size_bytes()) {
        if let Ok(Some(mut plain)) = decompress(page, flags) {
            // The server's own page had this checksum before it was compressed.
            if finalize(&mut plain, flags).is_ok() {
                page.copy_from_slice(&plain);
            }
        }
    }
    pages
}

struct Feeder<'v> {
    volume: &'v Volume,
    connection: u64,
    seq: Seq,
    frames: u64,
}

impl<'v> Feeder<'v> {
    fn new(volume: &'v Volume, next_lsn: Lsn) -> Result<Self> {
        // The server that made the base.
        let server = volume.status().newest_server.unwrap_or(SERVER_NOT_SAID);
        let attachment =
            volume.attach("the oracle", server, None).map_err(node("attach the node's volume"))?;
        let hello = Hello {
            role: Role::Log,
            compression: Compression::Off,
            generation: attachment.generation,
            session: 1,
            resume: Seq(0),
            volume: "oracle".to_owned(),
        };
        let accepted = volume
            .accept_log(&hello)
            .map_err(|refusal| Error::Violation(format!("the node refuses: {}", refusal.message)))?;
        if accepted.welcome.next_lsn != next_lsn {
            return Err(Error::Violation(format!(
                "the node expects redo from {}, the base ends at {next_lsn}",
                accepted.welcome.next_lsn
            )));
        }
        Ok(Self { volume, connection: accepted.connection, seq: accepted.welcome.next_seq, frames: 0 })
    }

    fn send(&mut self, frame: &StreamFrame<'_>) -> Result<()> {
        let (mut payload, mut wire) = (Vec::new(), Vec::new());
        frame.encode_payload(&mut payload);
        append_frame(&mut wire, frame.kind(), self.seq.0, &payload)
            .map_err(|error| Error::State(format!("make a frame: {error}")))?;
        self.seq = Seq(self.seq.0 + wire.len() as u64);
        self.frames += 1;
        match self.volume.receive(self.connection, wire).map_err(node("send redo to the node"))? {
            Received::Yes => self.volume.write_received().map_err(node("write the node's log")),
            Received::NotCurrent => Err(Error::Violation("the node fenced the oracle".into())),
        }
    }

    /// The redo in pieces of up to some tens of kilobytes, with the system calls in their places.
    fn feed(&mut self, redo: &Redo) -> Result<()> {
        let mut random = fastrand::Rng::with_seed(redo.end_lsn.0);
        let (mut from, mut at, mut limit) = (0, 0, 0);
        for mtr in &redo.mtrs {
            at = (mtr.end_lsn.0 - redo.start_lsn.0) as usize;
            if !mtr.notes.is_empty() || at - from >= limit {
                self.send(&StreamFrame::Redo(redo.bytes.get(from..at).unwrap_or_default()))?;
                (from, limit) = (at, random.usize(1..60_000));
            }
            for (_, note) in redo.notes.get(mtr.notes.clone()).unwrap_or_default() {
                self.system_call(note)?;
            }
        }
        if from < at {
            self.send(&StreamFrame::Redo(redo.bytes.get(from..at).unwrap_or_default()))?;
        }
        Ok(())
    }

    fn system_call(&mut self, note: &Note) -> Result<()> {
        match note {
            Note::Create(path) => {
                let path = path.as_bytes();
                self.send(&StreamFrame::Create { path, kind: FileKind::Tablespace, mode: 0o660 })
            }
            Note::Delete(path) => self.send(&StreamFrame::Unlink { path: path.as_bytes() }),
            Note::Rename(from, to) => {
                self.send(&StreamFrame::Rename { from: from.as_bytes(), to: to.as_bytes() })
            }
            Note::Modify(_) => Ok(()),
        }
    }
}

struct Reader<'r> {
    volume: &'r Volume,
    base: &'r Base,
    ours: &'r Replayed,
    need: Seq,
}

impl Reader<'_> {
    fn compare_reads(&self) -> Result<u64> {
        let mut buffer = Vec::new();
        self.each_file(|path, offset, len| {
            let open = PageRequest::Open { need: self.need, path: path.as_bytes() };
            let file = match self.volume.answer(&open, &mut buffer) {
                PageReply::Opened { file, .. } => file,
                other => return Err(Error::Violation(format!("the node cannot open {path}: {other:?}"))),
            };
            let read =
                PageRequest::Read { need: self.need, file, offset_bytes: offset, len_bytes: len as u32 };
            match self.volume.answer(&read, &mut buffer) {
                PageReply::Bytes(bytes) => Ok(bytes.to_vec()),
                other => Err(Error::Violation(format!("the node cannot read {path}: {other:?}"))),
            }
        })
    }

    fn compare_export(&self) -> Result<u64> {
        let held = self.volume.begin_export().map_err(node("hold the node's volume"))?;
        let compared = self.each_file(|path, offset, len| {
            let mut bytes = vec![0; len];
            self.volume
                .read_export(&held, path, offset, &mut bytes, None)
                .map_err(node(&format!("export {path}")))?;
            Ok(bytes)
        });
        self.volume.end_export();
        compared
    }

    /// Compares every live page of every file; answers how many.
    fn each_file(&self, mut read: impl FnMut(&str, u64, usize) -> Result<Vec<u8>>) -> Result<u64> {
        let mut compared = 0;
        for (space, known) in &self.ours.spaces {
            let (Some(path), Some(flags)) = (&known.path, known.flags) else { continue };
            let size = flags.physical_page_size_bytes();
            let pages = self.pages_of(*space, size);
            for page_no in 0..pages {
                let id = PageId::new(space.0, page_no);
                let Some(expected) = self.expected(id, size)? else { continue };
                let (path, offset) = self.place(path, u64::from(page_no) * size as u64);
                if read(path, offset, size)? != expected {
                    return Err(Error::Violation(format!(
                        "page {id} of {path}: the node's bytes are not the replay's"
                    )));
                }
                compared += 1;
            }
        }
        Ok(compared)
    }

    fn pages_of(&self, space: SpaceId, size: usize) -> u32 {
        let last = self.ours.pages.keys().filter(|id| id.space == space).map(|id| id.page_no.0 + 1).max();
        let base = self.ours.spaces.get(&space).and_then(|space| space.base_path(PageNo(0)));
        let system = self.base.system_files.first().map(String::as_str);
        let base_bytes: usize = match base {
            Some(path) if Some(path) == system => {
                let lens = self.base.system_files.iter();
                lens.filter_map(|path| self.base.files.get(path)).map(Vec::len).sum()
            }
            Some(path) => self.base.files.get(path).map_or(0, Vec::len),
            None => 0,
        };
        last.unwrap_or(0).max((base_bytes / size) as u32)
    }

    /// The page as it must be; `None` where its bytes mean nothing.
    fn expected(&self, id: PageId, size: usize) -> Result<Option<Vec<u8>>> {
        let Some(space) = self.ours.spaces.get(&id.space) else { return Ok(None) };
        let Some(flags) = space.flags else { return Ok(None) };
        if let Some(page) = self.ours.pages.get(&id) {
            if page.freed {
                return Ok(None);
            }
            let mut image = page.image.clone();
            finalize(&mut image, flags).map_err(|error| Error::Violation(format!("page {id}: {error}")))?;
            return Ok(Some(image));
        }
        // The node keeps what the system tablespace had past its new end.
        if id.space == SpaceId(0) && space.is_cut(id.page_no) {
            return Ok(None);
        }
        let stored = space.stored(self.base, id.page_no, size);
        Ok(match stored {
            Some(page) if page_is_never_written(page) => Some(page.to_vec()),
            Some(page) => Some(match decompress(page, flags) {
                Ok(Some(mut plain)) => {
                    finalize(&mut plain, flags)
                        .map_err(|error| Error::Violation(format!("page {id}: {error}")))?;
                    plain
                }
                _ => page.to_vec(),
            }),
            None => None,
        })
    }

    /// File and offset of a byte of a tablespace.
    fn place<'p>(&'p self, path: &'p str, offset: u64) -> (&'p str, u64) {
        let system = &self.base.system_files;
        if system.first().is_none_or(|first| first != path) {
            return (path, offset);
        }
        let mut offset = offset;
        for (number, name) in system.iter().enumerate() {
            let len = self.base.files.get(name).map_or(0, |bytes| bytes.len() as u64);
            if offset < len || number + 1 == system.len() {
                return (name, offset);
            }
            offset -= len;
        }
        (path, offset)
    }
}
