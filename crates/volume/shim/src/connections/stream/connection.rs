//! The thread that owns the log connection and the notices connection.

use super::{DifferingPage, ImageWanted, Link, Packer, SendState, SessionStart, Stream, Wanted};
use crate::base::message;
use crate::base::real;
use crate::connections::link::{self, Greeted, LinkError, read_frame};
use crate::connections::unsent_file::{self, OpenedFile};
use redoubt_transport::Connection;
use redoubt_wire::Seq;
use redoubt_wire::compression::Compressor;
use redoubt_wire::hello::{Compression, Role, Welcome};
use redoubt_wire::notice::Notice;
use redoubt_wire::parts::PartWriter;
use redoubt_wire::stream::{Counter, StreamFrame};
use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const BACK_OFF_MIN: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// Timeout for the images that show a difference, when a volume stops because of it.
const IMAGES_LIMIT: Duration = Duration::from_secs(5);

impl Stream {
    /// Body of the connection thread; returns when the stream is dead.
    pub fn run(self: &Arc<Self>) {
        let mut lost = Lost::new();
        while self.death().is_none() {
            match self.connect_once() {
                Ok(link) => {
                    self.report_back(&lost);
                    let error = self.serve(&link);
                    self.forget_link(&link);
                    lost = Lost::new();
                    self.report_lost(&mut lost, &error);
                }
                Err(error)
                    if error.is_final(self.session_start().is_some()) || self.is_refused_at_start(&error) =>
                {
                    self.die(&error.to_string())
                }
                Err(error) => self.report_lost(&mut lost, &error),
            }
            if lost.since.elapsed() >= self.timeout() {
                self.die(&format!(
                    "storage node {} was not reachable for {} s (REDOUBT_TIMEOUT_S)",
                    self.peer().connector.address,
                    self.timeout().as_secs()
                ));
            }
            let left = self.timeout().saturating_sub(lost.since.elapsed());
            self.pause(lost.next_pause().min(left));
        }
    }

    /// True for a rejected server that was never connected: another attempt would only delay the error message.
    fn is_refused_at_start(&self, error: &LinkError) -> bool {
        matches!(error, LinkError::Trust(_)) && self.session_start().is_none()
    }

    fn report_lost(&self, lost: &mut Lost, error: &LinkError) {
        if lost.reported || self.death().is_some() {
            return;
        }
        lost.reported = true;
        let (node, seconds) = (&self.peer().connector.address, self.timeout().as_secs());
        if self.session_start().is_some() {
            message::warning(&format!(
                "storage node {node} lost ({error}); waiting, commits are blocked, the server ends after {seconds} s"
            ));
        } else {
            message::warning(&format!(
                "storage node {node} cannot be reached ({error}); trying again, will fail after {seconds} s"
            ));
        }
    }

    fn report_back(&self, lost: &Lost) {
        if lost.reported {
            let seconds = lost.since.elapsed().as_secs_f64();
            message::note(&format!(
                "storage node {} is back after {seconds:.1} s",
                self.peer().connector.address
            ));
        }
    }

    /// Connects, and resumes at the node's position.
    fn connect_once(&self) -> Result<Arc<Link>, LinkError> {
        let is_first = self.session_start().is_none();
        if is_first {
            self.prepare_unsent()?.send_left(self.peer())?;
        }
        let resume = self.lock_state().queue.as_ref().map_or(Seq(0), super::FrameQueue::oldest);
        let (log, greeted) = link::connect(self.peer(), Role::Log, resume, &self.counters)?;
        let (notices, _) = link::connect(self.peer(), Role::Notices, Seq(0), &self.counters)?;
        let link = Arc::new(Link { log, notices });
        *self.current() = Some(Arc::clone(&link));
        let resumed = self.resume(&link, &greeted, is_first);
        if resumed.is_err() {
            link.shutdown();
            *self.current() = None;
        }
        if is_first && resumed.is_ok() && link.log.is_over_local_socket() {
            message::note(&format!(
                "storage node {} is on this host: reached over its local socket",
                self.peer().connector.address
            ));
        }
        resumed.map(|()| link)
    }

    /// The file of what the node does not have, opened if it is not yet.
    fn prepare_unsent(&self) -> Result<&OpenedFile, LinkError> {
        if let Some(opened) = self.unsent.get() {
            return Ok(opened);
        }
        let opened = unsent_file::open(&self.config.datadir)?;
        Ok(self.unsent.get_or_init(|| opened))
    }

    /// Sends again what the node does not have, and lets new frames through.
    fn resume(&self, link: &Arc<Link>, greeted: &Greeted, is_first: bool) -> Result<(), LinkError> {
        let welcome = &greeted.welcome;
        let mut state = self.lock_state();
        if is_first {
            self.begin(&mut state, welcome)?;
        } else {
            self.counters.add(Counter::Reconnects, 1);
        }
        state.packer = packer(welcome.compression, self.peer().compression)?;
        state.unlogged.clear();
        state.features = greeted.features;
        // The durable position need not be known here: the node reports the position from which to send again.
        let SendState { queue: Some(queue), packer, scratch, frame, .. } = &mut *state else {
            return Err(LinkError::Final("the connection comes before the session".to_owned()));
        };
        let first = queue.resume(welcome.next_seq).map_err(|error| LinkError::Final(error.to_string()))?;
        for number in first.. {
            if !queue.copy(number, frame) {
                break;
            }
            self.write(link, packer, scratch, frame)?;
        }
        state.link = Some(Arc::clone(link));
        drop(state);
        self.wake_all();
        Ok(())
    }

    /// First connection: the stream starts where the node stands.
    fn begin(&self, state: &mut SendState, welcome: &Welcome) -> Result<(), LinkError> {
        let opened = self.prepare_unsent()?;
        opened.check_not_older(self.peer().generation, welcome.next_seq)?;
        let ring = opened.file.begin(self.peer().generation, self.peer().session, welcome.next_seq);
        state.queue = Some(super::FrameQueue::new(ring));
        self.end.store(welcome.next_seq.0, Ordering::Release);
        self.waiters.advance(welcome.next_seq.0);
        let start = SessionStart { seq: welcome.next_seq, next_lsn: welcome.next_lsn };
        self.append_locked(state, &StreamFrame::SystemFiles(self.config.system_files.clone()), None)
            .map_err(|_| LinkError::Final("the list of system tablespace files cannot be sent".to_owned()))?;
        let _ = self.start.set(start);
        Ok(())
    }

    fn forget_link(&self, link: &Arc<Link>) {
        *self.current() = None;
        let mut state = self.lock_state();
        if state.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            state.link = None;
            state.unlogged.clear();
        }
    }

    /// Reads notices until one of the connections fails; returns why. Both are closed then.
    fn serve(&self, link: &Arc<Link>) -> LinkError {
        let watched = Arc::clone(link);
        let started = real::spawn_quiet("redoubt-log-end", move || {
            // The node sends nothing on it. Frames that were not sent when it ends are sent again on the next
            // connection.
            let _ = watched.log.read(&mut [0]);
            watched.shutdown();
        });
        let error = match started {
            Ok(_) => self.read_notices(&*link.notices),
            Err(error) => error.into(),
        };
        link.shutdown();
        error
    }

    /// Reads notices until the connection fails; returns why.
    fn read_notices(&self, link: &dyn Connection) -> LinkError {
        let mut reader = BufReader::with_capacity(4096, link);
        let mut payload = Vec::new();
        let mut position = 0;
        self.node_waits.store(false, Ordering::Release);
        self.trace.set(0);
        loop {
            let kind = match read_frame(&mut reader, position, &mut payload, &self.counters) {
                Ok(kind) => kind,
                Err(error) => return error,
            };
            position += 1;
            match Notice::decode(kind, &payload) {
                Err(error) => return error.into(),
                Ok(Notice::Durable(seq)) => self.set_durable(seq),
                Ok(Notice::Fenced { generation }) => {
                    self.die(&format!(
                        "this server is fenced: another server attached the volume (generation {generation})"
                    ));
                    return LinkError::Final("fenced".to_owned());
                }
                Ok(Notice::Stopped { reason }) => {
                    self.wait_images(IMAGES_LIMIT);
                    self.die(&format!("the storage node stopped the volume: {reason}"));
                    return LinkError::Final("stopped".to_owned());
                }
                Ok(Notice::Waiting { reason }) if reason.is_empty() => {
                    if self.node_waits.swap(false, Ordering::AcqRel) {
                        message::note("the storage node resumes");
                    }
                }
                Ok(Notice::Waiting { reason }) => {
                    if !self.node_waits.swap(true, Ordering::AcqRel) {
                        message::warning(&format!("the storage node waits: {reason}; commits are blocked"));
                    }
                }
                Ok(Notice::Trace { one_in }) => self.trace.set(one_in),
                Ok(Notice::WantImage { path, page_no }) => {
                    if self.wanted_pages.add(path.clone(), page_no) {
                        // Fails only when the library ends.
                        let wanted = ImageWanted::ForStream { path, page_no };
                        let _ = self.wanted.send(Wanted::Image(wanted));
                    }
                }
                Ok(Notice::NeedImage { path, page_no, lsn }) => {
                    self.images_pending.fetch_add(1, Ordering::AcqRel);
                    let wanted = ImageWanted::ForReport(DifferingPage { path, page_no, lsn });
                    if self.wanted.send(Wanted::Image(wanted)).is_err() {
                        self.image_answered();
                    }
                }
                Ok(Notice::UnknownFile { path }) => {
                    // Without the helper thread there is no server any more.
                    let _ = self.wanted.send(Wanted::File(path));
                }
            }
        }
    }

    fn set_durable(&self, seq: Seq) {
        if seq.0 > self.end.load(Ordering::Acquire) {
            self.die(&format!(
                "the storage node acknowledged position {}, but only {} was sent",
                seq.0,
                self.end().0
            ));
            return;
        }
        self.trace.durable(seq);
        if let Some(opened) = self.unsent.get() {
            opened.file.note_durable(seq);
        }
        self.waiters.advance(seq.0);
    }
}

/// The packer for the compression that both sides have agreed on.
fn packer(granted: Compression, wanted: Compression) -> Result<Packer, LinkError> {
    Ok(match wanted {
        _ if granted != wanted => Packer::None,
        Compression::Off => Packer::None,
        Compression::On => Packer::Whole(Compressor::new()?),
        Compression::Auto => Packer::Parts(PartWriter::default()),
    })
}

/// A node that is not reachable.
struct Lost {
    since: Instant,
    reported: bool,
    pause: Duration,
}

impl Lost {
    fn new() -> Self {
        Self { since: Instant::now(), reported: false, pause: BACK_OFF_MIN }
    }

    /// Grows to the maximum, with some randomness so that many servers do not come back at once.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(BACK_OFF_MAX);
        pause.mul_f64(0.75 + fastrand::f64() / 2.0)
    }
}
