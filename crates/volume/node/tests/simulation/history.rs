//! The model: frames that the servers of a volume sent, and the state that must result.
//!
//! Frames in order, each page after each change, plain files and names as of any frame. When a server dies, the frames
//! that the node does not have are forgotten ([`History::truncate`]); durable frames never are.

use crate::encoder::MtrWriter;
use redoubt_node::mark::Point;
use redoubt_page::{Change, SpaceFlags, apply_changes, finalize, layout};
use redoubt_redo::mariadb::log_file::{
    CHECKPOINT_LEN_BYTES, CheckpointBlock, CleanEnd, LogGeometry, LogHeader,
};
use redoubt_redo::mariadb::{SequenceRule, walk_mtrs};
use redoubt_redo::{Lsn, Mtr, PageId};
use redoubt_wire::HEADER_LEN_BYTES;
use redoubt_wire::frame::{COMPRESSED, append_frame, compress};
use redoubt_wire::stream::{FileKind, StreamFrame, SystemFile};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const FIRST_LSN: Lsn = Lsn(12_288);
/// Pages of a tablespace.
pub const PAGES: u32 = 6;
/// Size of the modelled ib_logfile0; longer than any run's redo.
const LOG_FILE_BYTES: u64 = 256 << 20;

/// One frame that was sent.
#[derive(Clone)]
pub struct Frame {
    pub end: u64,
    pub lsn: Lsn,
    pub what: What,
}

/// Effect of a frame on names and plain files.
#[derive(Clone, PartialEq)]
pub enum What {
    Redo(Option<Space>),
    /// Redo of a file operation; the system call follows.
    Intent(Box<What>),
    LogFile,
    CreatePlain(String),
    Write(String, usize, Arc<Vec<u8>>),
    SetLen(String, usize),
    Rename(String, String),
    Unlink(String),
    CreateSpace(String),
    /// Its block is in this slot.
    Checkpoint(Lsn, u8),
    Other,
}

/// A tablespace. Its number is never used again, its space id may be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Space {
    pub number: u32,
    pub id: u32,
}

/// A page after a change.
#[derive(Clone)]
pub struct Version {
    /// End of the frame that made it.
    pub seq: u64,
    pub lsn: Lsn,
    pub page: Arc<Vec<u8>>,
    /// Carries no LSN of its own and counts at once, durable or not.
    pub is_image: bool,
}

/// Names and plain files as of some point.
#[derive(Clone, Default)]
pub struct Names {
    /// `None`: created, but no redo has named the space yet.
    pub spaces: BTreeMap<String, Option<Space>>,
    pub plain: BTreeMap<String, Vec<u8>>,
    pub has_log: bool,
    /// LSN of each block.
    pub checkpoints: [Option<Lsn>; 2],
    /// An operation that is in the redo and that no system call has done: a starting server does it.
    pub intent: Option<What>,
}

impl Names {
    fn apply(&mut self, what: &What) {
        if self.intent.as_ref() == Some(what) {
            self.intent = None;
        }
        match what {
            What::Intent(intent) => self.intent = Some((**intent).clone()),
            What::Redo(Some(space)) => {
                if let Some(entry) = self.spaces.get_mut(&path_of(*space)) {
                    *entry = Some(*space);
                }
            }
            What::Redo(None) | What::Other => {}
            What::LogFile => self.has_log = true,
            What::Checkpoint(lsn, slot) => self.checkpoints[usize::from(*slot)] = Some(*lsn),
            What::CreatePlain(path) => {
                self.plain.insert(path.clone(), Vec::new());
            }
            What::Write(path, offset, data) => {
                if let Some(contents) = self.plain.get_mut(path) {
                    contents.resize(contents.len().max(offset + data.len()), 0);
                    contents[*offset..][..data.len()].copy_from_slice(data);
                }
            }
            What::SetLen(path, len) => {
                if let Some(contents) = self.plain.get_mut(path) {
                    contents.resize(*len, 0);
                }
            }
            What::Rename(from, to) => {
                if let Some(contents) = self.plain.remove(from) {
                    self.plain.insert(to.clone(), contents);
                }
                if let Some(space) = self.spaces.remove(from) {
                    self.spaces.insert(to.clone(), space);
                }
            }
            What::Unlink(path) => {
                self.plain.remove(path);
                self.spaces.remove(path);
            }
            What::CreateSpace(path) => {
                self.spaces.insert(path.clone(), None);
            }
        }
    }
}

pub fn path_of(space: Space) -> String {
    format!("d/t{}.ibd", space.number)
}

/// The model of a volume.
pub struct History {
    pub frames: Vec<Frame>,
    pub end: u64,
    pub end_lsn: Lsn,
    pub versions: BTreeMap<(u32, u32), Vec<Version>>,
    pub names: Names,
    /// The whole stream, as it is sent.
    pub wire: Vec<u8>,
    pub flags: SpaceFlags,
    next_space: u32,
}

/// A frame to be sent: its kind and payload.
pub struct Outgoing {
    pub kind: u8,
    pub payload: Vec<u8>,
}

impl History {
    pub fn new(flags: SpaceFlags) -> Self {
        Self {
            frames: Vec::new(),
            end: 0,
            end_lsn: Lsn(0),
            versions: BTreeMap::new(),
            names: Names::default(),
            wire: Vec::new(),
            flags,
            next_space: 5,
        }
    }

    pub fn page_len(&self) -> usize {
        self.flags.physical_page_size_bytes()
    }

    /// Names and plain files when everything before `seq` has happened.
    pub fn names_at(&self, seq: u64) -> Names {
        let mut names = Names::default();
        for frame in self.frames.iter().take_while(|frame| frame.end <= seq) {
            names.apply(&frame.what);
        }
        names
    }

    /// Forgets everything after `seq`. False: `seq` is inside a frame, or was never sent.
    pub fn truncate(&mut self, seq: u64) -> bool {
        if seq == self.end {
            return true;
        }
        let kept = self.frames.partition_point(|frame| frame.end <= seq);
        let (end, lsn) =
            kept.checked_sub(1).map_or((0, Lsn(0)), |last| (self.frames[last].end, self.frames[last].lsn));
        if end != seq {
            return false;
        }
        self.frames.truncate(kept);
        self.wire.truncate(end as usize);
        (self.end, self.end_lsn) = (end, lsn);
        for versions in self.versions.values_mut() {
            versions.retain(|version| version.seq <= seq);
        }
        self.names = self.names_at(seq);
        true
    }

    /// Adds a frame.
    fn push(&mut self, frame: &StreamFrame<'_>, what: What, pack: bool) -> Outgoing {
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        let raw_len = payload.len() as u64;
        let mut kind = frame.kind();
        if pack && let Some(packed) = compress(&payload) {
            payload = packed;
            kind |= COMPRESSED;
        }
        append_frame(&mut self.wire, kind, self.end, &payload).expect("a frame");
        self.end += (HEADER_LEN_BYTES + payload.len()) as u64;
        match frame {
            StreamFrame::Redo(_) => self.end_lsn = self.end_lsn.advance(raw_len),
            StreamFrame::LogFile { .. } if self.end_lsn == Lsn(0) => self.end_lsn = FIRST_LSN,
            _ => {}
        }
        self.names.apply(&what);
        self.frames.push(Frame { end: self.end, lsn: self.end_lsn, what });
        Outgoing { kind, payload }
    }

    /// The first frames of a server.
    pub fn begin_session(&mut self) -> Vec<Outgoing> {
        let files = vec![SystemFile { path: b"ibdata1".to_vec(), len_bytes: 0 }];
        let mut out = vec![self.push(&StreamFrame::SystemFiles(files), What::Other, false)];
        if !self.names.has_log {
            let header = LogHeader { first_lsn: FIRST_LSN, creator: b"MariaDB 10.11.19".to_vec() }.build();
            let frame = StreamFrame::LogFile {
                file_size_bytes: LOG_FILE_BYTES,
                header: &header,
                checkpoints: [&[0; 64], &[0; 64]],
                next_lsn: FIRST_LSN,
            };
            out.push(self.push(&frame, What::LogFile, false));
            out.push(self.push(&StreamFrame::Mkdir { path: b"d", mode: 0o700 }, What::Other, false));
        }
        match self.names.intent.clone() {
            Some(What::Unlink(path)) => {
                let unlink = StreamFrame::Unlink { path: path.as_bytes() };
                out.push(self.push(&unlink, What::Unlink(path.clone()), false));
            }
            Some(What::Rename(from, to)) => {
                let rename = StreamFrame::Rename { from: from.as_bytes(), to: to.as_bytes() };
                out.push(self.push(&rename, What::Rename(from.clone(), to.clone()), false));
            }
            _ => {}
        }
        out
    }

    /// A new tablespace.
    pub fn create_space(&mut self, rng: &mut fastrand::Rng) -> Vec<Outgoing> {
        let number = self.next_space;
        self.next_space += 1;
        // The id of a dropped tablespace may be used again.
        let is_free = |id: &u32| !self.names.spaces.values().flatten().any(|space| space.id == *id);
        let free: Vec<u32> = (5..number).filter(is_free).collect();
        let id = if free.is_empty() || rng.bool() { number } else { free[rng.usize(..free.len())] };
        let space = Space { number, id };
        let path = path_of(space);
        let create = StreamFrame::Create { path: path.as_bytes(), kind: FileKind::Tablespace, mode: 0o660 };
        let mut out = vec![self.push(&create, What::CreateSpace(path.clone()), false)];
        let mut mtr = MtrWriter::new();
        mtr.file(0x80, id, format!("./{path}").as_bytes());
        mtr.init((id, 0)).write_absolute((id, 0), 34, &id.to_be_bytes());
        mtr.write_absolute((id, 0), 54, &self.flags.0.to_be_bytes());
        out.push(self.redo(&mtr.finish(1), What::Redo(Some(space)), &[space], false));
        out
    }

    /// Changes of pages of `spaces`.
    pub fn change_pages(&mut self, rng: &mut fastrand::Rng, spaces: &[Space]) -> Outgoing {
        let mut redo = Vec::new();
        for _ in 0..rng.usize(1..5) {
            let mut mtr = MtrWriter::new();
            for _ in 0..rng.usize(1..5) {
                let space = spaces[rng.usize(..spaces.len())];
                // One page gets most changes.
                let page_no = if rng.bool() { 1 } else { rng.u32(1..PAGES) };
                let page = (space.id, page_no);
                let offset = rng.u32(100..(self.page_len() as u32 - 400));
                if rng.u8(..) < 20 {
                    mtr.init(page);
                }
                let data: Vec<u8> = (0..rng.usize(1..60)).map(|_| rng.u8(..)).collect();
                mtr.write_absolute(page, offset.max(300), &data);
                match rng.u8(..3) {
                    0 => mtr.memset(page, 20, rng.u32(1..100), &[rng.u8(..)]),
                    1 => mtr.memmove(page, 20, rng.u32(1..90), -200),
                    _ => &mut mtr,
                };
            }
            redo.extend(mtr.finish(1));
        }
        let pack = rng.u8(..4) == 0;
        self.redo(&redo, What::Redo(None), spaces, pack)
    }

    fn redo(&mut self, redo: &[u8], what: What, spaces: &[Space], pack: bool) -> Outgoing {
        let start = self.end_lsn;
        let (flags, page_len) = (self.flags, self.page_len());
        let mut made = Vec::new();
        let mut current: BTreeMap<(u32, u32), Vec<u8>> = BTreeMap::new();
        let versions = &self.versions;
        let mut visit = |mtr: &Mtr<'_, '_>| {
            let mut pages: Vec<PageId> = mtr.runs.iter().map(|run| run.page).collect();
            pages.sort_unstable();
            pages.dedup();
            for id in pages {
                let space = spaces.iter().find(|space| space.id == id.space.0).expect("a known space");
                let key = (space.number, id.page_no.0);
                let page = current.entry(key).or_insert_with(|| {
                    let last = versions.get(&key).and_then(|versions| versions.last());
                    last.map_or_else(|| vec![0; page_len], |version| version.page.to_vec())
                });
                let changes = mtr.runs.iter().filter(|run| run.page == id).map(|run| Change {
                    start_lsn: mtr.start_lsn,
                    end_lsn: mtr.end_lsn,
                    run: mtr.run_bytes(run),
                });
                apply_changes(page, id, flags, true, changes).expect("the model applies");
                made.push((key, mtr.end_lsn, Arc::new(page.clone())));
            }
        };
        walk_mtrs(redo, start, SequenceRule::Any, &mut visit).expect("the model's redo");
        let out = self.push(&StreamFrame::Redo(redo), what, pack);
        for (key, lsn, page) in made {
            self.versions.entry(key).or_default().push(Version { seq: self.end, lsn, page, is_image: false });
        }
        out
    }

    /// A mini-transaction with a wrong checksum.
    pub fn unknown(&mut self) -> Outgoing {
        let mut mtr = MtrWriter::new();
        mtr.init((5, 1));
        let mut redo = mtr.finish(1);
        if let Some(last) = redo.last_mut() {
            *last ^= 1;
        }
        self.push(&StreamFrame::Redo(&redo), What::Other, false)
    }

    /// A page that redo does not explain.
    pub fn image(&mut self, rng: &mut fastrand::Rng, path: &str, space: Space) -> Outgoing {
        let page_no = rng.u32(1..PAGES);
        let mut page =
            self.newest(space, page_no).map_or_else(|| vec![0; self.page_len()], |v| v.page.to_vec());
        page[1000] = page[1000].wrapping_add(1);
        layout::set_page_id(&mut page, PageId::new(space.id, page_no));
        layout::set_page_lsn(&mut page, self.end_lsn);
        finalize(&mut page, self.flags).expect("the model's page");
        let lsn = self.end_lsn;
        let frame = StreamFrame::Image { path: path.as_bytes(), page_no, page: &page, is_recovered: false };
        let out = self.push(&frame, What::Other, false);
        let version = Version { seq: self.end, lsn, page: Arc::new(page), is_image: true };
        self.versions.entry((space.number, page_no)).or_default().push(version);
        out
    }

    pub fn newest(&self, space: Space, page_no: u32) -> Option<&Version> {
        self.versions.get(&(space.number, page_no))?.last()
    }

    /// Drops or renames a tablespace.
    pub fn end_or_rename(&mut self, rng: &mut fastrand::Rng, path: &str, space: Space) -> Vec<Outgoing> {
        let mut mtr = MtrWriter::new();
        if rng.bool() {
            mtr.file(0x90, space.id, format!("./{path}").as_bytes());
            let intent = What::Intent(Box::new(What::Unlink(path.to_owned())));
            let redo = self.redo(&mtr.finish(1), intent, &[space], false);
            let unlink = StreamFrame::Unlink { path: path.as_bytes() };
            let out = vec![redo, self.push(&unlink, What::Unlink(path.to_owned()), false)];
            return out;
        }
        let to = format!("d/r{}-{}.ibd", space.number, self.frames.len());
        mtr.file(0xa0, space.id, format!("./{path}\0./{to}").as_bytes());
        let intent = What::Intent(Box::new(What::Rename(path.to_owned(), to.clone())));
        let redo = self.redo(&mtr.finish(1), intent, &[space], false);
        let rename = StreamFrame::Rename { from: path.as_bytes(), to: to.as_bytes() };
        vec![redo, self.push(&rename, What::Rename(path.to_owned(), to.clone()), false)]
    }

    /// The server's checkpoint moves to the end of some frame.
    pub fn checkpoint(&mut self, rng: &mut fastrand::Rng) -> Option<Outgoing> {
        let last = self.names.checkpoints.into_iter().flatten().fold(FIRST_LSN, Lsn::max);
        let ahead: Vec<Lsn> = self
            .frames
            .iter()
            .filter(|frame| matches!(frame.what, What::Redo(_)) && frame.lsn > last)
            .map(|frame| frame.lsn)
            .collect();
        let lsn = *ahead.get(rng.usize(..ahead.len().max(1)))?;
        let block = CheckpointBlock { checkpoint_lsn: lsn, end_lsn: lsn }.build();
        let slot = rng.u8(..2);
        let frame = StreamFrame::Checkpoint { slot, block: &block };
        Some(self.push(&frame, What::Checkpoint(lsn, slot), false))
    }

    /// The node is at `received`: the end of some frame, or the end of the frames that an attach appends to end the
    /// log. In the second case the model adds those frames, and forgets the ones after them. True: the second case.
    ///
    /// # Errors
    /// It is neither, or the log must not be ended there.
    pub fn follow(&mut self, received: Point) -> Result<bool, String> {
        if received.seq.0 == 0 || self.ends_at(received.seq.0, received.lsn) {
            return Ok(false);
        }
        let record_len = HEADER_LEN_BYTES as u64 + CleanEnd::LEN_BYTES;
        // The payload of a checkpoint frame: its slot and the block.
        let block_len = HEADER_LEN_BYTES as u64 + 1 + CHECKPOINT_LEN_BYTES as u64;
        let lsn = Lsn(received.lsn.0.saturating_sub(CleanEnd::LEN_BYTES));
        for (len, is_whole) in [(record_len, false), (record_len + block_len, true)] {
            let Some(from) = received.seq.0.checked_sub(len) else { continue };
            if !self.ends_at(from, lsn) {
                continue;
            }
            self.truncate(from);
            self.end_log(is_whole)?;
            return if self.ends_at(received.seq.0, received.lsn) {
                Ok(true)
            } else {
                Err(format!("the frames that end the log end at {}, W is {received:?}", self.end))
            };
        }
        Err(format!("W is {received:?}, where no frame ends"))
    }

    fn ends_at(&self, seq: u64, lsn: Lsn) -> bool {
        let found = self.frames.binary_search_by_key(&seq, |frame| frame.end);
        found.is_ok_and(|index| self.frames[index].lsn == lsn)
    }

    /// Adds the frames that an attach appends, or only the first one.
    fn end_log(&mut self, is_whole: bool) -> Result<(), String> {
        if let Some(intent) = &self.names.intent {
            let what = match intent {
                What::Unlink(path) | What::Rename(path, _) => path,
                _ => "?",
            };
            return Err(format!("the log is ended although what redo says of {what} is not done"));
        }
        let slot = match self.names.checkpoints {
            [None, None] => return Err("the log is ended although it has no checkpoint".to_owned()),
            [Some(first), second] if Some(first) > second => 1,
            _ => 0,
        };
        let at = self.end_lsn;
        let geometry = LogGeometry::new(FIRST_LSN, LOG_FILE_BYTES).map_err(|error| error.to_string())?;
        let end = CleanEnd::at(at, &geometry);
        self.push(&StreamFrame::Redo(&end.redo), What::Redo(None), false);
        if is_whole {
            self.push(
                &StreamFrame::Checkpoint { slot, block: &end.checkpoint },
                What::Checkpoint(at, slot),
                false,
            );
        }
        Ok(())
    }

    /// A change of a plain file.
    pub fn change_plain(&mut self, rng: &mut fastrand::Rng) -> Outgoing {
        let path = format!("d/plain{}", rng.u8(..4));
        if !self.names.plain.contains_key(&path) {
            let frame = StreamFrame::Create { path: path.as_bytes(), kind: FileKind::Plain, mode: 0o660 };
            return self.push(&frame, What::CreatePlain(path.clone()), false);
        }
        match rng.u8(..10) {
            0 => self.push(&StreamFrame::Unlink { path: path.as_bytes() }, What::Unlink(path.clone()), false),
            1 => {
                let to = format!("d/plain{}", 4 + rng.u8(..3));
                let frame = StreamFrame::Rename { from: path.as_bytes(), to: to.as_bytes() };
                self.push(&frame, What::Rename(path.clone(), to.clone()), false)
            }
            2 => {
                let len = rng.usize(..3000);
                let frame = StreamFrame::SetLen { path: path.as_bytes(), len_bytes: len as u64 };
                self.push(&frame, What::SetLen(path.clone(), len), false)
            }
            _ => {
                let offset = rng.usize(..3000);
                let data: Vec<u8> = (0..rng.usize(8..2000)).map(|_| rng.u8(..)).collect();
                let frame =
                    StreamFrame::Write { path: path.as_bytes(), offset_bytes: offset as u64, data: &data };
                let what = What::Write(path.clone(), offset, Arc::new(data.clone()));
                self.push(&frame, what, rng.bool())
            }
        }
    }

    /// Checks a page that was read for a reader that needs everything before `need` and may see nothing above `limit`.
    pub fn check_page(
        &self,
        space: Space,
        page_no: u32,
        bytes: &[u8],
        need: u64,
        limit: Lsn,
    ) -> Result<(), String> {
        let none = Vec::new();
        let versions = self.versions.get(&(space.number, page_no)).unwrap_or(&none);
        let oldest = versions.iter().rposition(|version| version.seq <= need);
        let is = |version: &Version| {
            let mut page = version.page.to_vec();
            finalize(&mut page, self.flags).is_ok() && page == bytes
        };
        if oldest.is_none() && redoubt_page::page_is_never_written(bytes) {
            return Ok(());
        }
        let may_be_seen = |version: &&Version| version.lsn <= limit || version.is_image;
        let allowed: Vec<&Version> = versions[oldest.unwrap_or(0)..].iter().filter(may_be_seen).collect();
        if allowed.iter().any(|version| is(version)) {
            return Ok(());
        }
        let found = versions.iter().find(|version| is(version)).map(|version| (version.seq, version.lsn));
        Err(format!(
            "page {page_no} of {space:?}, needed as of {need}, D at LSN {limit}: is version {found:?} (page LSN {:?}), \
             allowed {:?}",
            layout::page_lsn(bytes),
            allowed.iter().map(|version| (version.seq, version.lsn)).collect::<Vec<_>>()
        ))
    }

    /// The same for a state that holds exactly the stream before `at`.
    pub fn check_held(&self, space: Space, page_no: u32, bytes: &[u8], at: u64) -> Result<(), String> {
        let versions = self.versions.get(&(space.number, page_no));
        let version = versions.and_then(|versions| versions.iter().rfind(|version| version.seq <= at));
        let is_right = match version {
            None => redoubt_page::page_is_never_written(bytes),
            Some(version) => {
                let mut page = version.page.to_vec();
                finalize(&mut page, self.flags).is_ok() && page == bytes
            }
        };
        if is_right {
            return Ok(());
        }
        Err(format!(
            "page {page_no} of {space:?} in the state held at {at} has LSN {:?}, not {:?}",
            layout::page_lsn(bytes),
            version.map(|version| (version.seq, version.lsn))
        ))
    }
}
