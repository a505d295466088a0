//! Connections to the other members: one for each direction.
//!
//! The module owns the listener, a thread for each dialled address and one for each incoming connection. The dialling
//! side sends and the accepting side reads. So two members have two connections, and neither has to be dropped when
//! both dial at once. Frames may be lost with their connection: the consensus sends them again.
//!
//! Frames are gathered per member ([`Peers::send`]), and [`Peers::flush`] writes them as far as the kernel has room.
//! The rest, and all later frames, wait for the dialling thread, so that a member that reads nothing never blocks the
//! caller.
//!
//! With certificates ([`trust`]) only members are accepted.
//!
//! A member receives no frame of a feature that it has not announced ([`Frame::for_peer`]). The later of its hello and
//! its answer defines its features. A legacy member ends a connection whose hello announces anything; the next
//! connection begins with a legacy hello, unless the member has negotiated before ([`negotiated`]).
//!
//! Lock order: `dials`, `links`, `negotiated`, `features`, `gathered`; `dials` is not held during a call that may
//! block.

mod greeting;
mod negotiated;
pub mod trust;

use crate::frame::{ANNOUNCED, Answer, Frame, FrameError, Hello, MAX_FRAME_LEN_BYTES, MAX_HELLO_LEN_BYTES};
use crate::history::History;
use crate::replica::GroupId;
use greeting::{answer, disagreement, greet_either_way};
use negotiated::Negotiated;
use redoubt_consensus::types::{Incarnation, MemberId};
use redoubt_locks::IgnorePoison;
use redoubt_negotiation::{Announcement, Features};
use redoubt_transport::{Connection, Reader, Written};
use std::collections::{BTreeSet, HashMap};
use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use trust::Trust;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between two attempts to dial an address: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum length of the queue of one member. Further frames are dropped: the consensus sends them again.
const MAX_QUEUED_LEN_BYTES: usize = 64 << 20;
/// Length of one write.
const BATCH_LEN_BYTES: usize = 256 << 10;
/// Minimum interval between two log lines about refused connections.
const STRANGERS_PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of addresses in an answer, which has at most [`MAX_HELLO_LEN_BYTES`] with a history.
const MAX_ADDRESSES: usize = 64;
/// Maximum number of simultaneous incoming connections.
const MAX_INCOMING: usize = 256;

/// Events from the other members.
#[derive(Debug)]
pub enum Event {
    /// A member has connected.
    Greeted(Hello),
    /// A frame.
    Frame {
        /// The sender.
        from: MemberId,
        /// The frame.
        frame: Frame,
    },
    /// A connection from or to this member broke.
    Lost(MemberId),
    /// A message for the error log.
    Said(String),
}

/// This member, as it presents itself to others.
#[derive(Clone, Debug)]
pub struct Local {
    /// `wsrep_cluster_name`.
    pub cluster_name: String,
    /// Its id.
    pub member: MemberId,
    /// Address for other members.
    pub listen_address: String,
}

struct Link {
    connection: Arc<dyn Connection>,
    /// Bytes that the dialling thread has to write.
    queue: Sender<Vec<u8>>,
    /// Number of unwritten pieces. At 0 the dialling thread is idle until it receives another one.
    queued: Arc<AtomicUsize>,
    queued_len_bytes: Arc<AtomicUsize>,
}

/// Rate limit for log lines about strangers, which may connect as often as they like.
#[derive(Default)]
struct Strangers {
    said_at: Option<Instant>,
    unsaid: u64,
}

/// The group and its history, as this member presents them to all others.
#[derive(Clone)]
pub struct Place {
    /// The group.
    pub group: GroupId,
    /// This member's incarnation.
    pub incarnation: Incarnation,
    /// Members that continued alone.
    pub history: History,
}

struct Shared {
    local: Local,
    announced: Announcement,
    trust: Trust,
    strangers: Mutex<Strangers>,
    place: Mutex<Place>,
    events: Box<dyn Fn(Event, bool) + Send + Sync>,
    dials: Mutex<BTreeSet<String>>,
    links: Mutex<HashMap<MemberId, Link>>,
    /// Agreed features of each member. No entry: it is a legacy member, or has not been met.
    features: Mutex<HashMap<MemberId, Features>>,
    negotiated: Mutex<Negotiated>,
    gathered: Mutex<HashMap<MemberId, Vec<u8>>>,
    connections: Mutex<Vec<std::sync::Weak<dyn Connection>>>,
    incoming: AtomicUsize,
    is_closed: AtomicBool,
    /// All connections are cut.
    is_isolated: AtomicBool,
    pause: (Mutex<()>, Condvar),
}

/// Connections to the other members: one for each direction.
pub struct Peers(Arc<Shared>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl Peers {
    /// Starts to listen. `events` receives each event, and whether it is the last one for now.
    ///
    /// # Errors
    /// The address is not available.
    pub fn listen(
        local: Local,
        place: Place,
        bind: &str,
        trust: Trust,
        events: impl Fn(Event, bool) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        Self::on(TcpListener::bind(bind)?, ANNOUNCED, local, place, trust, events)
    }

    /// [`Peers::listen`] with a given listener and announcement.
    fn on(
        listener: TcpListener,
        announced: Announcement,
        local: Local,
        place: Place,
        trust: Trust,
        events: impl Fn(Event, bool) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            local,
            announced,
            trust,
            strangers: Mutex::default(),
            place: Mutex::new(place),
            events: Box::new(events),
            dials: Mutex::default(),
            links: Mutex::default(),
            features: Mutex::default(),
            negotiated: Mutex::default(),
            gathered: Mutex::default(),
            connections: Mutex::default(),
            incoming: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            is_isolated: AtomicBool::new(false),
            pause: Default::default(),
        });
        let accepting = Arc::clone(&shared);
        spawn("group-listen", move || accept(&accepting, &listener))?;
        Ok(Self(shared))
    }

    /// Sets the group and incarnation that are presented on new connections.
    pub fn set_place(&self, place: Place) {
        *lock(&self.0.place) = place;
    }

    /// Sets the members that continued alone, for new connections.
    pub fn set_history(&self, history: &History) {
        lock(&self.0.place).history.clone_from(history);
    }

    /// Ends all connections. New ones present the current group and history.
    pub fn greet_again(&self) {
        self.0.end_connections();
    }

    /// Keeps a connection to this address, with retries.
    pub fn dial(&self, address: &str) {
        dial(&self.0, address);
    }

    /// Gathers a frame for a member, to be sent by the next flush. It is dropped if there is no connection then, or if
    /// the member's version does not support it.
    pub fn send(&self, to: MemberId, frame: &Frame) {
        let features = lock(&self.0.features).get(&to).copied().unwrap_or_default();
        if let Some(frame) = frame.for_peer(features) {
            frame.encode_to(lock(&self.0.gathered).entry(to).or_default());
        }
    }

    /// Sends the gathered frames. Never blocks.
    pub fn flush(&self) {
        let links = lock(&self.0.links);
        let mut gathered = lock(&self.0.gathered);
        gathered.retain(|to, _| links.contains_key(to));
        for (to, bytes) in gathered.iter_mut().filter(|(_, bytes)| !bytes.is_empty()) {
            if let Some(link) = links.get(to) {
                link.send(bytes);
            }
            // A buffer of the usual length is reused.
            if bytes.capacity() > BATCH_LEN_BYTES {
                *bytes = Vec::new();
            }
            bytes.clear();
        }
    }

    /// Whether all connections are cut; set by [`Peers::isolate`].
    pub fn is_isolated(&self) -> bool {
        self.0.is_isolated()
    }

    /// Ends all connections and prevents new ones, or allows them again.
    pub fn isolate(&self, is_isolated: bool) {
        if self.0.is_isolated.swap(is_isolated, Ordering::SeqCst) != is_isolated && is_isolated {
            self.0.end_connections();
        }
    }

    /// Ends all connections.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.0.end_connections();
        self.0.pause.1.notify_all();
        // Wakes the listener, which then ends.
        drop(TcpStream::connect(&self.0.local.listen_address));
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Link {
    fn send(&self, bytes: &[u8]) {
        if self.queued.load(Ordering::SeqCst) == 0 {
            match self.connection.write_now(bytes) {
                Ok(Written::All) => return,
                // The thread writes the rest.
                Ok(Written::Held) => return self.queue(Vec::new()),
                // The dialling thread finds the broken connection, and ends it.
                Ok(Written::Not) | Err(_) => {}
            }
        }
        if self.queued_len_bytes.load(Ordering::SeqCst) <= MAX_QUEUED_LEN_BYTES {
            self.queue(bytes.to_vec());
        }
    }

    fn queue(&self, bytes: Vec<u8>) {
        self.queued.fetch_add(1, Ordering::SeqCst);
        self.queued_len_bytes.fetch_add(bytes.len(), Ordering::SeqCst);
        // Without a receiver the link ends.
        let _ = self.queue.send(bytes);
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(body).map(drop)
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn say(&self, text: String) {
        (self.events)(Event::Said(text), true);
    }

    /// Logs an event that anyone with access to the port can cause, rate limited.
    fn say_of_stranger(&self, text: &str) {
        let unsaid = {
            let mut strangers = lock(&self.strangers);
            if strangers.said_at.is_some_and(|at| at.elapsed() < STRANGERS_PAUSE) {
                strangers.unsaid += 1;
                return;
            }
            strangers.said_at = Some(Instant::now());
            std::mem::take(&mut strangers.unsaid)
        };
        self.say(match unsaid {
            0 => format!("a connection was refused: {text}"),
            more => format!("a connection was refused: {text}; {more} more since the last line about one"),
        });
    }

    fn is_isolated(&self) -> bool {
        self.is_isolated.load(Ordering::SeqCst)
    }

    fn end_connections(&self) {
        lock(&self.links).clear();
        for connection in lock(&self.connections).drain(..).filter_map(|connection| connection.upgrade()) {
            connection.shutdown();
        }
    }

    fn keep(&self, connection: &Arc<dyn Connection>) {
        let mut connections = lock(&self.connections);
        connections.retain(|known| known.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    fn rest(&self, duration: Duration) {
        let guard = lock(&self.pause.0);
        drop(self.pause.1.wait_timeout_while(guard, duration, |()| !self.is_closed()));
    }
}

fn dial(shared: &Arc<Shared>, address: &str) {
    if address.is_empty() || address == shared.local.listen_address || shared.is_closed() {
        return;
    }
    if lock(&shared.dials).insert(address.to_owned()) {
        let (dialling, to) = (Arc::clone(shared), address.to_owned());
        if spawn("group-dial", move || keep_dialled(&dialling, &to)).is_err() {
            lock(&shared.dials).remove(address);
        }
    }
}

/// Dials an address until the end, or until it turns out to be this member's own.
fn keep_dialled(shared: &Arc<Shared>, address: &str) {
    let mut pause = FIRST_PAUSE;
    let mut said = String::new();
    while !shared.is_closed() {
        if shared.is_isolated() {
            shared.rest(LONGEST_PAUSE);
            continue;
        }
        match greet_either_way(shared, address) {
            Ok((_, member, _)) if member == shared.local.member => return,
            Ok((connection, member, addresses)) => {
                addresses.iter().for_each(|address| dial(shared, address));
                (pause, said) = (FIRST_PAUSE, String::new());
                write_all(shared, member, &connection);
                if !shared.is_closed() {
                    (shared.events)(Event::Lost(member), true);
                }
            }
            Err(reason) => {
                let line = format!("{address}: {reason}");
                if line != said {
                    shared.say(line.clone());
                    said = line;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        shared.rest(pause);
    }
}

/// Ends the link when the other side has closed its connection, on which it never sends anything. A member that sends
/// nothing would not detect that, nor connect to a member that has replaced the other.
fn watch(shared: &Arc<Shared>, member: MemberId, connection: &Arc<dyn Connection>) {
    let (shared, connection) = (Arc::clone(shared), Arc::clone(connection));
    let ended = move || {
        let _ = connection.read(&mut [0]);
        let mut links = lock(&shared.links);
        if links.get(&member).is_some_and(|link| Arc::ptr_eq(&link.connection, &connection)) {
            links.remove(&member);
        }
    };
    // Without the thread the next write detects it.
    let _ = spawn("group-watch", ended);
}

/// Sends what is queued for a member until its connection breaks.
fn write_all(shared: &Arc<Shared>, member: MemberId, connection: &Arc<dyn Connection>) {
    let (queue, waiting) = mpsc::channel();
    let (queued, queued_len_bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let link = Link {
        connection: Arc::clone(connection),
        queue,
        queued: Arc::clone(&queued),
        queued_len_bytes: Arc::clone(&queued_len_bytes),
    };
    lock(&shared.links).insert(member, link);
    if shared.is_isolated() {
        // It was isolated after the greeting.
        lock(&shared.links).remove(&member);
    }
    watch(shared, member, connection);
    while let Some((count, batch)) = next_batch(&waiting) {
        if connection.write_all(&batch).is_err() {
            break;
        }
        queued_len_bytes.fetch_sub(batch.len(), Ordering::SeqCst);
        queued.fetch_sub(count, Ordering::SeqCst);
    }
    lock(&shared.links).remove(&member);
    connection.shutdown();
}

/// The queued pieces, concatenated, and their number. `None` once there are no more senders.
fn next_batch(waiting: &Receiver<Vec<u8>>) -> Option<(usize, Vec<u8>)> {
    let (mut count, mut batch) = (1, waiting.recv().ok()?);
    while batch.len() < BATCH_LEN_BYTES
        && let Ok(more) = waiting.try_recv()
    {
        batch.extend_from_slice(&more);
        count += 1;
    }
    Some((count, batch))
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    while !shared.is_closed() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                shared.say(format!("cannot take a connection: {error}"));
                shared.rest(LONGEST_PAUSE);
                continue;
            }
        };
        if shared.is_closed() || shared.incoming.load(Ordering::Relaxed) >= MAX_INCOMING {
            continue;
        }
        shared.incoming.fetch_add(1, Ordering::Relaxed);
        let reading = Arc::clone(shared);
        let spawned = spawn("group-read", move || {
            let (accepted, not_loaded) = reading.trust.accept(stream, GREETING_TIMEOUT);
            if let Some(why) = not_loaded {
                reading.say(format!("the changed certificates are not used: {why}"));
            }
            match accepted {
                Ok(connection) => {
                    reading.keep(&connection);
                    serve(&reading, &connection);
                    connection.shutdown();
                }
                Err(why) => reading.say_of_stranger(&why),
            }
            reading.incoming.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            shared.incoming.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(shared: &Arc<Shared>, connection: &Arc<dyn Connection>) {
    let mut reader = BufReader::with_capacity(BATCH_LEN_BYTES, Reader(Arc::clone(connection)));
    let refuse = |why: &str| shared.say_of_stranger(&format!("{}: {why}", connection.peer()));
    let hello = match Frame::read(&mut reader, MAX_HELLO_LEN_BYTES) {
        Ok(Some(Frame::Hello(hello))) => hello,
        Ok(None) => return,
        Ok(Some(_)) => return refuse("it did not begin with a hello"),
        Err(error) => return refuse(&error.to_string()),
    };
    let answer = match shared.trust.check(connection.identity(), hello.member) {
        Ok(()) => answer(shared, &hello),
        Err(reason) => Answer::Refused { reason },
    };
    if let Answer::Refused { reason } = &answer {
        let disagreement = shared.announced.agree(hello.announced).map_err(|error| disagreement(&error));
        refuse(disagreement.as_ref().err().unwrap_or(reason));
    }
    let is_refused = matches!(answer, Answer::Refused { .. });
    let sent = connection.write_all(&Frame::Answer(answer).encode());
    if is_refused || sent.is_err() || connection.set_deadline(None).is_err() {
        return;
    }
    if hello.member == shared.local.member {
        return;
    }
    let from = hello.member;
    // A legacy hello may come from a newer member that received no answer to its first one. The next outgoing
    // connection shows whether it is a legacy member.
    if hello.is_legacy {
        lock(&shared.negotiated).note_legacy_hello(&hello);
    } else if let Ok(agreement) = shared.announced.agree(hello.announced) {
        lock(&shared.negotiated).note(from, hello.incarnation, &hello.listen_address);
        lock(&shared.features).insert(from, agreement.features);
    }
    dial(shared, &hello.listen_address);
    (shared.events)(Event::Greeted(hello), true);
    let end = loop {
        match Frame::read(&mut reader, MAX_FRAME_LEN_BYTES) {
            Ok(Some(frame)) => {
                let is_last = !Frame::is_whole(reader.buffer());
                (shared.events)(Event::Frame { from, frame }, is_last);
            }
            Ok(None) => break None,
            Err(FrameError::Io(_)) => break None,
            Err(error) => break Some(error),
        }
    };
    if let Some(error) = end {
        shared.say(format!("{}: {error}", connection.peer()));
    }
    if !shared.is_closed() {
        (shared.events)(Event::Lost(from), true);
    }
}

#[cfg(test)]
mod tests;
