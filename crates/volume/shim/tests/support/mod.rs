//! A model of a storage node, for tests of the library alone: everything in memory, everything durable at
//! once, pages rebuilt from all of their redo on each read. Nothing is clever here, so that it is easy to see
//! that it is right; it is no storage node.

use redoubt_page::{Change, SpaceFlags, apply_changes, decompress, digest, finalize};
use redoubt_redo::mariadb::log_file::FIRST_LSN;
use redoubt_redo::mariadb::{
    LogGeometry, LogHeader, LogImage, SequenceRule, rewrite_sequence_bits, walk_mtrs,
};
use redoubt_redo::{FileRecord, Lsn, Mtr, PageId, SpaceFlagsChange, SpaceId};
use redoubt_wire::frame::{append_frame, decompress as unpack};
use redoubt_wire::hello::{Hello, Role, Status, Welcome, decode_len};
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{FileId, PageReply, PageRequest};
use redoubt_wire::stream::{self, FileKind, StreamFrame};
use redoubt_wire::{FrameHeader, Seq};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

struct Run {
    start_lsn: Lsn,
    end_lsn: Lsn,
    bytes: Vec<u8>,
}

#[derive(Default, Clone)]
struct File {
    path: Vec<u8>,
    space: Option<SpaceId>,
    first_page_no: u32,
    len_bytes: u64,
    /// Page number in the file: LSN of the stream when it came, image.
    images: HashMap<u32, (Lsn, Vec<u8>)>,
}

struct Log {
    file_size_bytes: u64,
    header: [u8; 512],
    checkpoints: [[u8; 64]; 2],
}

/// State of the model node.
#[derive(Default)]
pub struct Model {
    seq: u64,
    files: Vec<File>,
    names: HashMap<Vec<u8>, usize>,
    runs: HashMap<PageId, Vec<Run>>,
    flags: HashMap<SpaceId, u32>,
    redo: Vec<u8>,
    log: Option<Log>,
    system_files: Vec<stream::SystemFile>,
    /// Plain files.
    pub plain: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes written to plain files.
    pub written_bytes: u64,
    /// Directories made.
    pub directories: BTreeSet<Vec<u8>>,
    /// Counters as last reported.
    pub counters: HashMap<u8, u64>,
    /// Number of pages compared, and of those that differed.
    pub verified: u64,
    /// Errors that the model node has detected.
    pub problems: Vec<String>,
    /// Images received.
    pub images: u64,
    /// Page reads answered.
    pub reads: u64,
    /// Path and page number of the pages to request as images, once there is an image.
    pub wanted: Vec<(Vec<u8>, u32)>,
    /// Close a connection after so many frames.
    pub cut_after_frames: Option<u64>,
    /// Connections closed.
    pub cuts: u64,
    /// Where notices go, and how many went there.
    notices: Option<(TcpStream, u64)>,
}

/// A listening model.
pub struct ModelNode {
    /// Where it listens.
    pub address: String,
    /// State of the node.
    pub model: Arc<Mutex<Model>>,
}

impl ModelNode {
    /// Starts listening.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let model = Arc::<Mutex<Model>>::default();
        let shared = Arc::clone(&model);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let model = Arc::clone(&shared);
                std::thread::spawn(move || serve(socket, &model));
            }
        });
        Self { address, model }
    }
}

fn serve(mut socket: TcpStream, model: &Mutex<Model>) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let mut len = [0; 4];
    socket.read_exact(&mut len).ok()?;
    let mut body = vec![0; decode_len(len).unwrap()];
    socket.read_exact(&mut body).ok()?;
    let hello = Hello::decode(&body).unwrap();
    let (seq, next_lsn) = {
        let model = model.lock().unwrap();
        (model.seq, if model.log.is_some() { model.next_lsn() } else { Lsn(0) })
    };
    let welcome = Welcome {
        status: Status::Accepted,
        compression: hello.compression,
        next_seq: Seq(seq),
        next_lsn,
        message: String::new(),
    };
    socket.write_all(&welcome.encode()).ok()?;
    match hello.role {
        Role::Log => serve_log(&mut socket, model, seq),
        Role::Notices => serve_notices(&mut socket, model),
        _ => serve_pages(&mut socket, model),
    }
}

fn read_frame(socket: &mut TcpStream, position: u64) -> Option<(u8, Vec<u8>, u64)> {
    let mut head = [0; 8];
    socket.read_exact(&mut head).ok()?;
    let header = FrameHeader::decode(&head);
    let mut payload = vec![0; header.len_bytes as usize];
    socket.read_exact(&mut payload).ok()?;
    header.check(position, &payload).unwrap();
    let total = header.total_len_bytes();
    Some((header.kind, if header.compressed { unpack(&payload).unwrap() } else { payload }, total))
}

fn serve_log(socket: &mut TcpStream, model: &Mutex<Model>, seq: u64) -> Option<()> {
    let end = take_frames(socket, model, seq);
    if let Some((notices, _)) = model.lock().unwrap().notices.take() {
        let _ = notices.shutdown(std::net::Shutdown::Both);
    }
    end
}

fn serve_notices(socket: &mut TcpStream, model: &Mutex<Model>) -> Option<()> {
    {
        let mut model = model.lock().unwrap();
        model.notices = Some((socket.try_clone().ok()?, 0));
        // Frames from an earlier connection may not have been acknowledged.
        model.notify_durable();
    }
    assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0, "a server sends nothing here");
    None
}

fn take_frames(socket: &mut TcpStream, model: &Mutex<Model>, mut seq: u64) -> Option<()> {
    let mut taken = 0;
    loop {
        let (kind, payload, len_bytes) = read_frame(socket, seq)?;
        let frame = stream::decode(kind, &payload).unwrap();
        let mut model = model.lock().unwrap();
        model.take(&frame);
        taken += 1;
        if model.cut(taken) {
            if frame.is_logged() {
                // Stored, but not acknowledged to the server.
                model.seq = seq + len_bytes;
            }
            return None;
        }
        if frame.is_logged() {
            seq += len_bytes;
            model.seq = seq;
            model.notify_durable();
        }
    }
}

impl Model {
    /// A connection that fails is noticed by its reader.
    fn notify_durable(&mut self) {
        let Some((socket, sent)) = &mut self.notices else { return };
        let wanted = if self.images > 0 { std::mem::take(&mut self.wanted) } else { Vec::new() };
        let wanted = wanted.into_iter().map(|(path, page_no)| Notice::WantImage { path, page_no });
        for notice in wanted.chain([Notice::Durable(Seq(self.seq))]) {
            let (kind, payload) = notice.encode();
            let mut out = Vec::new();
            append_frame(&mut out, kind, *sent, &payload).unwrap();
            *sent += 1;
            let _ = socket.write_all(&out);
        }
    }
}

fn serve_pages(socket: &mut TcpStream, model: &Mutex<Model>) -> Option<()> {
    for position in 0.. {
        let (kind, payload, _) = read_frame(socket, position)?;
        let request = PageRequest::decode(kind, &payload).unwrap();
        let need = match &request {
            PageRequest::Open { need, .. } | PageRequest::Read { need, .. } => *need,
            _ => Seq(0),
        };
        // Frames and requests race on different connections: wait until the stream is there.
        redoubt_test_support::wait::until("the stream up to the request", || {
            model.lock().unwrap().seq >= need.0
        });
        let mut guard = model.lock().unwrap();
        let mut buffer = Vec::new();
        let mut out = Vec::new();
        let kind = guard.answer(&request, &mut buffer).encode(&mut out);
        let cut = guard.cut(position);
        drop(guard);
        if cut {
            return None;
        }
        let mut framed = Vec::new();
        append_frame(&mut framed, kind, position, &out).unwrap();
        socket.write_all(&framed).ok()?;
    }
    None
}

impl Model {
    /// LSN after the last redo byte.
    pub fn next_lsn(&self) -> Lsn {
        FIRST_LSN.advance(self.redo.len() as u64)
    }

    fn cut(&mut self, frames: u64) -> bool {
        let cut = self.cut_after_frames.is_some_and(|limit| frames >= limit);
        self.cuts += u64::from(cut);
        cut
    }

    fn problem(&mut self, text: String) {
        eprintln!("model node: {text}");
        self.problems.push(text);
    }

    fn file_mut(&mut self, path: &[u8]) -> Option<&mut File> {
        let index = *self.names.get(path)?;
        self.files.get_mut(index)
    }

    #[allow(clippy::too_many_lines, reason = "one arm per frame")]
    fn take(&mut self, frame: &StreamFrame<'_>) {
        let lsn = self.next_lsn();
        match frame {
            StreamFrame::Redo(bytes) => self.take_redo(bytes),
            StreamFrame::LogFile { file_size_bytes, header, checkpoints, next_lsn } => {
                assert_eq!(*next_lsn, lsn);
                self.log = Some(Log {
                    file_size_bytes: *file_size_bytes,
                    header: **header,
                    checkpoints: [*checkpoints[0], *checkpoints[1]],
                });
            }
            StreamFrame::Checkpoint { slot, block } => {
                self.log.as_mut().unwrap().checkpoints[usize::from(*slot)] = **block;
            }
            StreamFrame::Image { path, page_no, page, .. } => {
                self.images += 1;
                let page = page.to_vec();
                match self.file_mut(path) {
                    Some(file) => drop(file.images.insert(*page_no, (lsn, page))),
                    None => {
                        self.problem(format!("image for an unknown file {}", String::from_utf8_lossy(path)))
                    }
                }
            }
            StreamFrame::LogFront { .. } | StreamFrame::Create { kind: FileKind::Redo, .. } => {
                unreachable!("this node is for MariaDB")
            }
            StreamFrame::Create { path, kind: FileKind::Tablespace, .. } => {
                let first_page_no = self.first_page_no(path);
                let is_system = self.system_files.iter().any(|file| file.path == *path);
                let known = is_system.then_some(SpaceId(0));
                let space = known.or_else(|| self.pending_space(path));
                self.names.insert(path.to_vec(), self.files.len());
                self.files.push(File { path: path.to_vec(), first_page_no, space, ..File::default() });
            }
            StreamFrame::Create { path, kind: FileKind::Plain, .. } => {
                self.plain.insert(path.to_vec(), Vec::new());
            }
            StreamFrame::Write { path, offset_bytes, data } => match self.plain.get_mut(*path) {
                Some(file) => {
                    self.written_bytes += data.len() as u64;
                    let start = *offset_bytes as usize;
                    file.resize(file.len().max(start + data.len()), 0);
                    file[start..start + data.len()].copy_from_slice(data);
                }
                None => self.problem(format!("write to unknown {}", String::from_utf8_lossy(path))),
            },
            StreamFrame::SetLen { path, len_bytes } => match self.file_mut(path) {
                Some(file) => file.len_bytes = *len_bytes,
                None => match self.plain.get_mut(*path) {
                    Some(file) => file.resize(*len_bytes as usize, 0),
                    None => self.problem(format!("length of unknown {}", String::from_utf8_lossy(path))),
                },
            },
            StreamFrame::Rename { from, to } => {
                if let Some(index) = self.names.remove(*from) {
                    self.names.insert(to.to_vec(), index);
                    self.files[index].path = to.to_vec();
                } else if let Some(contents) = self.plain.remove(*from) {
                    self.plain.insert(to.to_vec(), contents);
                } else {
                    self.problem(format!("rename of unknown {}", String::from_utf8_lossy(from)));
                }
            }
            StreamFrame::Unlink { path } => {
                if self.names.remove(*path).is_none() && self.plain.remove(*path).is_none() {
                    self.problem(format!("unlink of unknown {}", String::from_utf8_lossy(path)));
                }
            }
            StreamFrame::BindSpace { path, space } => {
                let space = *space;
                self.file_mut(path).unwrap().space = Some(space);
            }
            StreamFrame::SystemFiles(files) => self.system_files.clone_from(files),
            StreamFrame::Mkdir { path, .. } => drop(self.directories.insert(path.to_vec())),
            StreamFrame::Rmdir { path } => drop(self.directories.remove(*path)),
            // Pages that are free: nothing compares them.
            StreamFrame::Scrub { .. } => {}
            StreamFrame::Verify(verify) | StreamFrame::VerifyOrHeal(verify) => self.verify(verify),
            StreamFrame::Counters(pairs) => self.counters.extend(pairs.iter().copied()),
            StreamFrame::Trace(_) => {}
        }
    }

    fn first_page_no(&self, path: &[u8]) -> u32 {
        let before = self.system_files.iter().take_while(|file| file.path != path);
        if self.system_files.iter().any(|file| file.path == path) {
            before.map(|file| (file.len_bytes / 16384) as u32).sum()
        } else {
            0
        }
    }

    /// FILE_CREATE is in the stream before the file is created.
    fn pending_space(&self, path: &[u8]) -> Option<SpaceId> {
        let name = [b"./", path].concat();
        let mut found = None;
        walk_mtrs(&self.redo, FIRST_LSN, SequenceRule::Any, &mut |mtr: &Mtr<'_, '_>| {
            for note in mtr.files {
                if let FileRecord::Create { path } | FileRecord::Modify { path } = note.record
                    && path == name
                {
                    found = Some(note.space);
                }
            }
        })
        .unwrap();
        found
    }

    fn take_redo(&mut self, bytes: &[u8]) {
        let start = self.next_lsn();
        let (runs, flags) = (&mut self.runs, &mut self.flags);
        let walked = walk_mtrs(bytes, start, SequenceRule::Any, &mut |mtr: &Mtr<'_, '_>| {
            for note in mtr.files {
                if matches!(note.record, FileRecord::Delete { .. }) {
                    runs.retain(|page, _| page.space != note.space);
                }
            }
            for run in mtr.runs {
                if let Some(first) = run.trims_from() {
                    runs.retain(|page, _| page.space != run.page.space || page.page_no < first);
                    continue;
                }
                if let SpaceFlagsChange::Set(value) = run.space_flags {
                    flags.insert(run.page.space, value);
                }
                let list = runs.entry(run.page).or_default();
                if run.last_init_offset.is_some() {
                    list.clear();
                }
                list.push(Run {
                    start_lsn: mtr.start_lsn,
                    end_lsn: mtr.end_lsn,
                    bytes: bytes[run.offset_in_bytes..run.offset_in_bytes + run.len_bytes].to_vec(),
                });
            }
        })
        .unwrap();
        assert_eq!(walked.len_bytes, bytes.len());
        self.redo.extend_from_slice(bytes);
    }

    fn flags_of(&self, file: &File) -> SpaceFlags {
        SpaceFlags(file.space.and_then(|space| self.flags.get(&space)).copied().unwrap_or(0x15))
    }

    fn page(&self, file: &File, page_no: u32) -> Vec<u8> {
        let flags = self.flags_of(file);
        let mut page = vec![0; flags.physical_page_size_bytes()];
        let mut image_lsn = Lsn(0);
        if let Some((lsn, image)) = file.images.get(&page_no) {
            page.copy_from_slice(image);
            image_lsn = *lsn;
        }
        let Some(space) = file.space else { return page };
        let id = PageId::new(space.0, page_no + file.first_page_no);
        let Some(runs) = self.runs.get(&id) else { return page };
        let later: Vec<Change<'_>> = runs
            .iter()
            .filter(|run| run.start_lsn >= image_lsn)
            .map(|run| Change { start_lsn: run.start_lsn, end_lsn: run.end_lsn, run: &run.bytes })
            .collect();
        if later.is_empty() {
            return page;
        }
        apply_changes(&mut page, id, flags, true, later.iter().copied())
            .unwrap_or_else(|error| panic!("page {id} of {}: {error}", String::from_utf8_lossy(&file.path)));
        finalize(&mut page, flags).unwrap();
        page
    }

    fn verify(&mut self, verify: &stream::Verify<'_>) {
        let Some(file) = self.names.get(verify.path).map(|index| self.files[*index].clone()) else {
            return self.problem("verification of an unknown file".to_owned());
        };
        let flags = self.flags_of(&file);
        let page = self.page(&file, verify.page_no);
        let plain = decompress(&page, flags).unwrap().unwrap_or(page);
        self.verified += 1;
        if digest(&plain, flags) != verify.digest {
            let path = String::from_utf8_lossy(verify.path).into_owned();
            self.problem(format!("page {} of {path} differs at LSN {}", verify.page_no, verify.lsn));
        }
    }

    fn answer<'a>(&mut self, request: &PageRequest<'_>, buffer: &'a mut Vec<u8>) -> PageReply<'a> {
        match request {
            PageRequest::Open { path, .. } => match self.names.get(*path) {
                Some(index) => {
                    let file = &self.files[*index];
                    PageReply::Opened {
                        file: FileId(*index as u32),
                        len_bytes: file.len_bytes,
                        space: file.space,
                        space_flags: file.space.and_then(|space| self.flags.get(&space)).copied(),
                        first_page_no: file.first_page_no,
                    }
                }
                None => PageReply::NotFound,
            },
            PageRequest::Read { file, offset_bytes, len_bytes, .. } => {
                self.reads += 1;
                let file = &self.files[file.0 as usize];
                let size = self.flags_of(file).physical_page_size_bytes() as u64;
                let (from, to) = (offset_bytes / size, (offset_bytes + u64::from(*len_bytes)).div_ceil(size));
                let pages: Vec<u8> = (from..to).flat_map(|page_no| self.page(file, page_no as u32)).collect();
                let start = (offset_bytes - from * size) as usize;
                buffer.extend_from_slice(&pages[start..start + *len_bytes as usize]);
                PageReply::Bytes(buffer)
            }
            PageRequest::ReadLog { offset_bytes, len_bytes } => {
                self.read_log(*offset_bytes, *len_bytes, buffer);
                PageReply::Bytes(buffer)
            }
            PageRequest::MismatchImage { .. } => PageReply::Done,
            PageRequest::ReadLogFile { .. } => unreachable!("this node is for MariaDB"),
            PageRequest::LogState => {
                let next_lsn = self.next_lsn();
                let Some(log) = &self.log else {
                    return PageReply::LogState { file_size_bytes: 0, header: &[], next_lsn };
                };
                buffer.extend_from_slice(&log.header);
                PageReply::LogState { file_size_bytes: log.file_size_bytes, header: buffer, next_lsn }
            }
        }
    }

    fn read_log(&self, offset_bytes: u64, len_bytes: u32, buffer: &mut Vec<u8>) {
        let log = self.log.as_ref().unwrap();
        let header = LogHeader::parse(&log.header).unwrap();
        let geometry = LogGeometry::new(header.first_lsn, log.file_size_bytes).unwrap();
        let mut redo = self.redo.clone();
        rewrite_sequence_bits(&mut redo, FIRST_LSN, &geometry).unwrap();
        let image = LogImage {
            geometry,
            header: log.header,
            checkpoints: log.checkpoints,
            oldest_lsn: FIRST_LSN,
            end_lsn: self.next_lsn(),
        };
        buffer.resize(len_bytes as usize, 0);
        image
            .compose(offset_bytes, buffer, |lsn, part| {
                let start = (lsn.0 - FIRST_LSN.0) as usize;
                part.copy_from_slice(&redo[start..start + part.len()]);
                Ok::<(), ()>(())
            })
            .unwrap();
    }
}
