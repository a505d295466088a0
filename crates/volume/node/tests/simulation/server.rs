//! A simulated server process: the library's side of the protocol, and a workload.
//!
//! Threads of one process: the writer makes frames and sends them, the connection thread connects, sends again what
//! is not durable (as the library does) and takes notices, readers read pages. The writer holds the
//! queue while it sends, as the library does.

mod stubborn;

use crate::facts::Facts;
use crate::history::{Outgoing, PAGES, Space, What};
use crate::network::End;
use crate::queue::FrameQueue;
use redoubt_page::digest;
use redoubt_redo::Lsn;
use redoubt_sync::{Condvar, Mutex, RwLock, simulation, thread, time};
use redoubt_transport::Connection;
use redoubt_wire::compression::Compressor;
use redoubt_wire::frame::{append_frame, decompress};
use redoubt_wire::hello::{Compression, Hello, Role, Status, Welcome, decode_len};
use redoubt_wire::notice::Notice;
use redoubt_wire::page::{PageReply, PageRequest};
use redoubt_wire::stream::{StreamFrame, Verify};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES, Seq};
use std::io::{Error, ErrorKind, Read, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub const VOLUME: &str = "v";

/// Opens a connection to the node.
pub type Dial = Arc<dyn Fn() -> Option<Arc<End>> + Send + Sync>;

/// Orders to a server.
#[derive(Default)]
pub struct Orders {
    /// The writer makes no new frames.
    pub stop_writing: AtomicBool,
    /// Everything ends.
    pub end: AtomicBool,
    /// It takes no notice of being fenced.
    pub is_stubborn: AtomicBool,
}

struct Link {
    queue: FrameQueue,
    /// The connection frames go out on.
    end: Option<Arc<End>>,
    /// Of that connection, if it is compressed.
    compressor: Option<Compressor>,
    /// The connection for notices.
    notices: Option<Arc<End>>,
    has_begun: bool,
}

impl Link {
    /// The bytes of a frame on the connection.
    fn pack(&mut self, frame: &[u8]) -> Vec<u8> {
        let Some(compressor) = &mut self.compressor else { return frame.to_vec() };
        let mut packed = Vec::new();
        compressor.pack(frame, &mut packed).expect("memory");
        packed
    }
}

/// A simulated server process: the library's side of the protocol, and a workload.
pub struct Server {
    pub generation: u64,
    session: u64,
    facts: Arc<Facts>,
    dial: Dial,
    pub orders: Orders,
    link: Mutex<Link>,
    changed: Condvar,
    durable: AtomicU64,
    /// Fenced, refused, or the volume has stopped.
    is_dead: AtomicBool,
    /// Number of attempts after it was fenced.
    strays: AtomicU64,
    /// Held for writing while tablespaces are created, dropped or renamed.
    ddl: RwLock<()>,
}

impl Server {
    /// A server of `generation` whose stream begins at `start`.
    pub fn new(facts: &Arc<Facts>, dial: &Dial, generation: u64, start: u64) -> Arc<Self> {
        Arc::new(Self {
            generation,
            session: generation * 1000 + 1,
            facts: Arc::clone(facts),
            dial: Arc::clone(dial),
            orders: Orders::default(),
            link: Mutex::new(Link {
                queue: FrameQueue::new(Seq(start)),
                end: None,
                compressor: None,
                notices: None,
                has_begun: false,
            }),
            changed: Condvar::new(),
            durable: AtomicU64::new(start),
            is_dead: AtomicBool::new(false),
            strays: AtomicU64::new(0),
            ddl: RwLock::new(()),
        })
    }

    /// Starts its threads in `group`.
    pub fn start(self: &Arc<Self>, group: u32, readers: usize) {
        let of = |run: fn(&Self)| {
            let server = Arc::clone(self);
            move || run(&server)
        };
        simulation::spawn_in_group(group, "link", of(Self::run_link));
        simulation::spawn_in_group(group, "writer", of(Self::run_writer));
        for _ in 0..readers {
            simulation::spawn_in_group(group, "reader", of(Self::run_reader));
        }
    }

    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    fn is_done(&self) -> bool {
        self.is_dead() || self.orders.end.load(Ordering::Acquire)
    }

    fn is_current(&self) -> bool {
        self.facts.is_current(self.generation)
    }

    fn die(&self, why: &str) {
        simulation::note(|| format!("server of generation {} dies: {why}", self.generation));
        self.is_dead.store(true, Ordering::Release);
        let _link = self.link.lock();
        self.changed.notify_all();
    }

    /// Everything it sent is durable.
    pub fn is_settled(&self) -> bool {
        self.link.lock().has_begun && self.durable.load(Ordering::Acquire) >= self.facts.history().end
    }

    /// Breaks its log connection, or that of its notices.
    pub fn cut(&self, after_bytes: usize, of_notices: bool) {
        let link = self.link.lock();
        if of_notices {
            // Nothing is written to it from here that could be counted.
            if let Some(end) = &link.notices {
                end.reset();
            }
        } else if let Some(end) = &link.end {
            if after_bytes == 0 { end.reset() } else { end.break_after(after_bytes) }
        }
    }

    fn hello(&self, role: Role, resume: u64) -> Hello {
        Hello {
            role,
            compression: if self.generation.is_multiple_of(2) { Compression::On } else { Compression::Off },
            generation: self.generation,
            session: self.session,
            resume: Seq(resume),
            volume: VOLUME.to_owned(),
        }
    }

    fn connect(&self, hello: &Hello) -> Result<(Arc<End>, Welcome)> {
        let was_overtaken = self.is_overtaken();
        let end = (self.dial)().ok_or(ErrorKind::ConnectionRefused)?;
        let mut closes = Closes(Some(Arc::clone(&end)));
        end.set_read_timeout(Some(Duration::from_secs(20)))?;
        end.write_all(&hello.encode())?;
        let mut len = [0; 4];
        read_exact(&end, &mut len)?;
        let mut bytes = vec![0; decode_len(len).expect("a welcome")];
        read_exact(&end, &mut bytes)?;
        end.set_read_timeout(None)?;
        closes.0 = None;
        let welcome = Welcome::decode(&bytes).expect("a welcome");
        self.check_welcome(was_overtaken, &welcome);
        Ok((end, welcome))
    }

    fn run_link(&self) {
        while !self.is_done() {
            if let Ok(end) = self.connect_log() {
                let _closes = Closes(Some(end));
                if let Ok(notices) = self.connect_notices() {
                    let _closes = Closes(Some(Arc::clone(&notices)));
                    let error = self.take_notices(&notices);
                    simulation::note(|| format!("notices end: {error}"));
                    self.goes_on_without_notices();
                }
                self.facts.count(|counts| counts.reconnects += 1);
                let mut link = self.link.lock();
                (link.end, link.notices) = (None, None);
            }
            thread::sleep(Duration::from_millis(50 + fastrand::u64(..200)));
        }
    }

    /// Connects, sends again the frames that are not durable, and lets new frames through.
    fn connect_log(&self) -> Result<Arc<End>> {
        let resume = {
            let link = self.link.lock();
            if link.has_begun { link.queue.oldest().0 } else { 0 }
        };
        let (end, welcome) = self.connect(&self.hello(Role::Log, resume))?;
        let mut closes = Closes(Some(Arc::clone(&end)));
        match welcome.status {
            Status::Accepted => {}
            Status::TryLater => return Err(ErrorKind::WouldBlock.into()),
            Status::Fenced => {
                self.is_told_that_it_is_fenced();
                return Err(Error::other("fenced"));
            }
            Status::Refused => {
                if welcome.message.contains("lost data") {
                    simulation::fail(&welcome.message);
                }
                self.die(&welcome.message);
                return Err(Error::other("refused"));
            }
        }
        let mut link = self.link.lock();
        if !link.has_begun {
            if !self.is_current() {
                return Err(Error::other("fenced meanwhile"));
            }
            let (at, lsn) = {
                let history = self.facts.history();
                (history.end, history.end_lsn)
            };
            if (welcome.next_seq.0, welcome.next_lsn) != (at, lsn) {
                simulation::fail(&format!(
                    "the node stands at {} (LSN {}) after an attach that answered {at} (LSN {lsn})",
                    welcome.next_seq, welcome.next_lsn
                ));
            }
            link.has_begun = true;
            let first = self.facts.history().begin_session();
            for frame in first {
                self.queue(&mut link, &frame);
            }
        }
        link.compressor =
            (welcome.compression == Compression::On).then(|| Compressor::new().expect("memory"));
        match link.queue.resume(welcome.next_seq) {
            Ok(again) => {
                for frame in again {
                    end.write_all(&link.pack(&frame))?;
                }
            }
            Err(error) => {
                if self.is_current() {
                    simulation::fail(&error.to_string());
                }
                self.die(&error.to_string());
                return Err(Error::other("cannot resume"));
            }
        }
        link.end = Some(Arc::clone(&end));
        self.changed.notify_all();
        drop(link);
        closes.0 = None;
        Ok(end)
    }

    fn connect_notices(&self) -> Result<Arc<End>> {
        let (end, welcome) = self.connect(&self.hello(Role::Notices, 0))?;
        if welcome.status != Status::Accepted {
            let _closes = Closes(Some(end));
            return Err(Error::other(welcome.message));
        }
        self.link.lock().notices = Some(Arc::clone(&end));
        Ok(end)
    }

    fn take_notices(&self, end: &Arc<End>) -> Error {
        let mut position = 0;
        loop {
            let (kind, payload) = match read_frame(end, position) {
                Ok(frame) => frame,
                Err(error) => return error,
            };
            position += 1;
            match Notice::decode(kind, &payload).expect("a notice") {
                Notice::Durable(seq) => {
                    if self.is_current() && seq.0 > self.facts.history().end {
                        simulation::fail(&format!("{seq} is said to be durable, that was never sent"));
                    }
                    self.facts.acknowledge(seq.0);
                    self.durable.fetch_max(seq.0, Ordering::AcqRel);
                    self.changed.notify_all();
                }
                Notice::Fenced { generation } => {
                    self.check_fenced_by(generation);
                    if self.is_told_that_it_is_fenced() {
                        return Error::other("fenced");
                    }
                }
                Notice::Stopped { reason } => {
                    simulation::note(|| format!("the volume stopped: {reason}"));
                    return Error::other("stopped");
                }
                // A simulated server keeps no pages, so it has none to send.
                Notice::Waiting { .. } | Notice::Trace { .. } | Notice::WantImage { .. } => {}
                Notice::UnknownFile { path } => {
                    simulation::fail(&format!("the volume lacks {}", String::from_utf8_lossy(&path)));
                }
                Notice::NeedImage { .. } => {
                    simulation::fail("a page differs from the server's");
                }
            }
        }
    }

    /// Queues a logged frame without sending it.
    fn queue(&self, link: &mut Link, frame: &Outgoing) -> Arc<Vec<u8>> {
        self.facts.count(|counts| counts.frames += 1);
        link.queue.trim(Seq(self.durable.load(Ordering::Acquire)));
        link.queue.push(frame.kind, |out| out.extend_from_slice(&frame.payload)).expect("a frame")
    }

    /// Makes frames and sends them: the model and the queue grow together.
    fn send(&self, make: impl FnOnce(&mut crate::history::History) -> Vec<Outgoing>) {
        self.send_apart(Duration::ZERO, make);
    }

    /// The same, with a pause after each frame but the last, so that other events can come between them.
    fn send_apart(&self, pause: Duration, make: impl FnOnce(&mut crate::history::History) -> Vec<Outgoing>) {
        let mut link = self.link.lock();
        if !self.is_current() || !link.has_begun {
            return;
        }
        let frames = make(&mut self.facts.history());
        let wires: Vec<_> = frames.iter().map(|frame| self.queue(&mut link, frame)).collect();
        assert!(
            !self.is_current() || link.queue.end().0 == self.facts.history().end,
            "the model and the queue differ"
        );
        for (number, wire) in wires.into_iter().enumerate() {
            if number > 0 && !pause.is_zero() {
                thread::sleep(pause);
            }
            if let Some(end) = link.end.clone()
                && end.write_all(&link.pack(&wire)).is_err()
            {
                link.end = None;
            }
        }
    }

    /// Something that no server of a known kind sends.
    pub fn send_unknown(&self) {
        self.send(|history| vec![history.unknown()]);
    }

    /// Sends an unlogged frame; lost if there is no connection.
    fn send_verify(&self, path: &str, space: Space, page_no: u32) {
        let mut link = self.link.lock();
        let Some(end) = link.end.clone() else { return };
        if !self.is_current() {
            return;
        }
        let (position, lsn, digest) = {
            let history = self.facts.history();
            let Some(version) = history.newest(space, page_no) else { return };
            let lsn = redoubt_page::layout::page_lsn(&version.page).unwrap_or_default();
            (history.end, lsn, digest(&version.page, history.flags))
        };
        let frame = StreamFrame::Verify(Verify { path: path.as_bytes(), page_no, lsn, digest });
        let mut payload = Vec::new();
        frame.encode_payload(&mut payload);
        let mut wire = Vec::new();
        append_frame(&mut wire, frame.kind(), position, &payload).expect("a frame");
        let _ = end.write_all(&link.pack(&wire));
    }

    fn run_writer(&self) {
        let mut rng = simulation::random();
        while !self.is_done() {
            if self.is_overtaken() && self.is_stubborn() {
                self.send_stray(&mut rng);
                thread::sleep(Duration::from_millis(rng.u64(..30)));
                continue;
            }
            if !self.link.lock().has_begun
                || self.orders.stop_writing.load(Ordering::Acquire)
                || !self.is_current()
            {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            match rng.u8(..100) {
                0..3 => {
                    let _ddl = self.ddl.write();
                    self.send(|history| history.create_space(&mut rng));
                }
                3..6 => {
                    let _ddl = self.ddl.write();
                    if let Some((path, space)) = self.any_space(&mut rng) {
                        let pause_ms = if rng.bool() { rng.u64(..1000) } else { 0 };
                        self.send_apart(Duration::from_millis(pause_ms), |history| {
                            history.end_or_rename(&mut rng, &path, space)
                        });
                    }
                }
                6..10 => {
                    if let Some((path, space)) = self.any_space(&mut rng) {
                        self.send(|history| vec![history.image(&mut rng, &path, space)]);
                    }
                }
                10..14 => self.send(|history| history.checkpoint(&mut rng).into_iter().collect()),
                14..30 => self.send(|history| vec![history.change_plain(&mut rng)]),
                30..38 => {
                    if let Some((path, space)) = self.any_space(&mut rng) {
                        self.send_verify(&path, space, rng.u32(1..PAGES));
                    }
                }
                38..46 => self.wait_durable(),
                46..50 => thread::sleep(Duration::from_millis(rng.u64(..100))),
                _ => {
                    let spaces: Vec<Space> =
                        self.facts.history().names.spaces.values().flatten().copied().collect();
                    if spaces.is_empty() {
                        let _ddl = self.ddl.write();
                        self.send(|history| history.create_space(&mut rng));
                    } else {
                        self.send(|history| vec![history.change_pages(&mut rng, &spaces)]);
                    }
                }
            }
        }
    }

    /// A commit.
    fn wait_durable(&self) {
        let wanted = self.facts.history().end;
        let deadline = time::now() + Duration::from_secs(2);
        let mut link = self.link.lock();
        while self.durable.load(Ordering::Acquire) < wanted && !self.is_done() && time::now() < deadline {
            self.changed.wait_for(&mut link, Duration::from_millis(100));
        }
    }

    /// A tablespace that is not about to go, or to be renamed. Redo of the previous server announces the operation, and
    /// this server executes it when it begins its session. Pages of a tablespace that goes are void already.
    fn any_space(&self, rng: &mut fastrand::Rng) -> Option<(String, Space)> {
        let history = self.facts.history();
        let going = match &history.names.intent {
            Some(What::Unlink(path) | What::Rename(path, _)) => Some(path),
            _ => None,
        };
        let spaces: Vec<_> = history
            .names
            .spaces
            .iter()
            .filter(|(path, _)| going != Some(*path))
            .filter_map(|(path, space)| Some((path.clone(), (*space)?)))
            .collect();
        (!spaces.is_empty()).then(|| spaces[rng.usize(..spaces.len())].clone())
    }

    fn run_reader(&self) {
        let mut rng = simulation::random();
        while !self.is_done() {
            thread::sleep(Duration::from_millis(rng.u64(1..60)));
            let Ok((end, welcome)) = self.connect(&self.hello(Role::Page, 0)) else { continue };
            let _closes = Closes(Some(Arc::clone(&end)));
            if welcome.status != Status::Accepted {
                continue;
            }
            let mut position = 0;
            for _ in 0..rng.usize(1..40) {
                if self.is_done() || self.read_a_page(&end, &mut position, &mut rng).is_err() {
                    break;
                }
                if rng.u8(..) < 100 {
                    thread::sleep(Duration::from_millis(rng.u64(..30)));
                }
            }
        }
    }

    /// Opens a tablespace and reads one of its pages; the result must be the model's page.
    fn read_a_page(&self, end: &Arc<End>, position: &mut u64, rng: &mut fastrand::Rng) -> Result<()> {
        if self.is_overtaken() && self.is_stubborn() {
            return self.read_in_vain(end, position, rng);
        }
        let _ddl = self.ddl.read();
        if !self.is_current() {
            return Err(ErrorKind::Other.into());
        }
        let Some((path, space)) = self.any_space(rng) else {
            return Ok(());
        };
        let acknowledged = self.durable.load(Ordering::Acquire);
        let (opened_at, now) = {
            let history = self.facts.history();
            let since = history.versions.get(&(space.number, 0)).and_then(|versions| versions.first());
            (since.map_or(0, |version| version.seq), history.end)
        };
        let named_at = self.facts.history().frames.iter().rev().find_map(|frame| match &frame.what {
            What::Rename(_, to) if *to == path => Some(frame.end),
            _ => None,
        });
        let least = opened_at.max(named_at.unwrap_or(0));
        if least > acknowledged {
            return Ok(());
        }
        // Pages are let go of when their redo is durable, unless the server does not sync (`debug_no_sync`).
        let need = if rng.u8(..) < 30 { now } else { rng.u64(least..=acknowledged) };
        let Some(file) =
            ask(end, position, &PageRequest::Open { need: Seq(need), path: path.as_bytes() }, |reply| {
                match reply {
                    PageReply::Opened { file, .. } => Ok(Some(file)),
                    // A newer server may have dropped it.
                    PageReply::NotFound if self.is_current() => {
                        Err(format!("{path} is not there as of {need}"))
                    }
                    _ => Ok(None),
                }
            })?
        else {
            return Ok(());
        };
        let page_no = rng.u32(..PAGES);
        let page_len = self.facts.history().page_len();
        let request = PageRequest::Read {
            need: Seq(need),
            file,
            offset_bytes: u64::from(page_no) * page_len as u64,
            len_bytes: page_len as u32,
        };
        let bytes = ask(end, position, &request, |reply| match reply {
            PageReply::Bytes(bytes) => Ok(Some(bytes.to_vec())),
            _ => Ok(None),
        })?;
        let Some(bytes) = bytes else { return Ok(()) };
        // A newer server changes the model.
        if self.is_current() {
            let limit: Lsn = self.facts.durable_lsn();
            let checked = self.facts.history().check_page(space, page_no, &bytes, need, limit);
            if let Err(message) = checked {
                simulation::fail(&message);
            }
            self.facts.count(|counts| counts.reads += 1);
        }
        Ok(())
    }
}

/// One question and its answer; an `Err` of `take` is a failure of the simulation.
fn ask<T>(
    end: &Arc<End>,
    position: &mut u64,
    request: &PageRequest<'_>,
    take: impl FnOnce(PageReply<'_>) -> std::result::Result<Option<T>, String>,
) -> Result<Option<T>> {
    let mut payload = Vec::new();
    let kind = request.encode(&mut payload);
    let mut out = Vec::new();
    append_frame(&mut out, kind, *position, &payload).expect("a request");
    end.write_all(&out)?;
    let (kind, payload) = read_frame(end, *position)?;
    *position += 1;
    match take(PageReply::decode(kind, &payload).expect("a reply")) {
        Ok(taken) => Ok(taken),
        Err(message) => {
            simulation::fail(&message);
            Err(Error::other(message))
        }
    }
}

/// A process that ends closes its connections.
struct Closes(Option<Arc<End>>);

impl Drop for Closes {
    fn drop(&mut self) {
        if let Some(end) = &self.0 {
            end.shutdown();
        }
    }
}

fn read_exact(end: &Arc<End>, out: &mut [u8]) -> Result<()> {
    let mut reader: &dyn Connection = &**end;
    Read::read_exact(&mut reader, out)
}

fn read_frame(end: &Arc<End>, position: u64) -> Result<(u8, Vec<u8>)> {
    let mut header = [0; HEADER_LEN_BYTES];
    read_exact(end, &mut header)?;
    let header = FrameHeader::decode(&header);
    let mut payload = vec![0; header.len_bytes as usize];
    read_exact(end, &mut payload)?;
    header.check(position, &payload).expect("a whole frame");
    if header.compressed {
        payload = decompress(&payload).expect("a compressed frame");
    }
    Ok((header.kind & !redoubt_wire::frame::COMPRESSED, payload))
}
