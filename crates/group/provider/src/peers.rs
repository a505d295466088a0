//! Connections to the other members: one for each direction.
//!
//! Owns the listener, a thread for each address that is dialled and one for each connection that comes in. Whoever
//! dials sends, whoever is dialled reads; so two members have two connections, and none has to be given up when both
//! dial at once. What is sent may be lost with its connection: the consensus sends it again.
//!
//! Frames are gathered for each member ([`Peers::send`]) and then written by whoever calls [`Peers::flush`], as far as
//! the kernel has room. What it has no room for waits for the thread that has dialled, and what comes after it does, so
//! that a member that reads nothing costs the caller no time.
//!
//! With certificates ([`trust`]) nobody is listened to who is no member.
//!
//! A member is sent no frame of a feature that it has not announced ([`Frame::for_peer`]). Its features come from its
//! hello or its answer, from the later of both. A legacy member ends a connection whose hello announces something;
//! the next one begins with a legacy hello.
//!
//! Lock order: `dials`, `links`, `features`, `gathered`; the first is not held during a call that may wait.

mod greeting;
pub mod trust;

use crate::frame::{ANNOUNCED, Answer, Frame, FrameError, Hello, MAX_FRAME_LEN_BYTES, MAX_HELLO_LEN_BYTES};
use crate::history::History;
use crate::replica::GroupId;
use greeting::{answer, disagreement, greet_either_way};
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
/// Between two tries of one address: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// What waits for one member at most. More is thrown away: the consensus sends it again.
const MAX_QUEUED_LEN_BYTES: usize = 64 << 20;
/// Written at a time.
const BATCH_LEN_BYTES: usize = 256 << 10;
/// Between two lines about connections that were refused.
const STRANGERS_PAUSE: Duration = Duration::from_secs(10);
/// Where others are, in an answer, which has at most [`MAX_HELLO_LEN_BYTES`] with a history.
const MAX_ADDRESSES: usize = 64;
/// Connections that come in at the same time.
const MAX_INCOMING: usize = 256;

/// What comes from the others.
#[derive(Debug)]
pub enum Event {
    /// Somebody has connected.
    Greeted(Hello),
    /// A frame.
    Frame {
        /// Who has sent it.
        from: MemberId,
        /// It.
        frame: Frame,
    },
    /// A connection from this member or to it broke.
    Lost(MemberId),
    /// Something to tell people.
    Said(String),
}

/// This member as the others see it.
#[derive(Clone, Debug)]
pub struct Local {
    /// `wsrep_cluster_name`.
    pub cluster_name: String,
    /// Its id.
    pub member: MemberId,
    /// Where the others reach it.
    pub listen_address: String,
}

struct Link {
    connection: Arc<dyn Connection>,
    /// What waits for the thread that has dialled.
    queue: Sender<Vec<u8>>,
    /// Pieces that it has not written. None: it writes nothing, and will not unless it is given something.
    queued: Arc<AtomicUsize>,
    queued_len_bytes: Arc<AtomicUsize>,
}

/// Said of strangers, who may come as often as they like.
#[derive(Default)]
struct Strangers {
    said_at: Option<Instant>,
    unsaid: u64,
}

/// Which group, and which of its histories. The same for all that this member tells others.
#[derive(Clone)]
pub struct Place {
    /// The group.
    pub group: GroupId,
    /// This member's life.
    pub incarnation: Incarnation,
    /// Who has gone on alone.
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
    /// Those of each member that this one knows, too. None: it is a legacy member, or has not been met.
    features: Mutex<HashMap<MemberId, Features>>,
    gathered: Mutex<HashMap<MemberId, Vec<u8>>>,
    connections: Mutex<Vec<std::sync::Weak<dyn Connection>>>,
    incoming: AtomicUsize,
    is_closed: AtomicBool,
    /// Nobody is heard or spoken to.
    is_isolated: AtomicBool,
    pause: (Mutex<()>, Condvar),
}

/// Connections to the other members: one for each direction.
pub struct Peers(Arc<Shared>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl Peers {
    /// Listens. What comes is given to `events`, with whether nothing else has come with it.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn listen(
        local: Local,
        place: Place,
        bind: &str,
        trust: Trust,
        events: impl Fn(Event, bool) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        Self::on(TcpListener::bind(bind)?, ANNOUNCED, local, place, trust, events)
    }

    /// As [`Peers::listen`], with these versions and features.
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

    /// The group that this member is in, and its life: those who connect from now on are told.
    pub fn set_place(&self, place: Place) {
        *lock(&self.0.place) = place;
    }

    /// Who has gone on alone: those who connect from now on are told.
    pub fn set_history(&self, history: &History) {
        lock(&self.0.place).history.clone_from(history);
    }

    /// Ends all connections. Those that begin again say which group and history they are of.
    pub fn greet_again(&self) {
        self.0.end_connections();
    }

    /// Connects to whoever is at this address, again and again.
    pub fn dial(&self, address: &str) {
        dial(&self.0, address);
    }

    /// A frame for a member, sent with the next flush; lost if there is no connection then, or if the member is of a
    /// version that does not know it.
    pub fn send(&self, to: MemberId, frame: &Frame) {
        let features = lock(&self.0.features).get(&to).copied().unwrap_or_default();
        if let Some(frame) = frame.for_peer(features) {
            frame.encode_to(lock(&self.0.gathered).entry(to).or_default());
        }
    }

    /// Sends what is gathered. Never waits.
    pub fn flush(&self) {
        let links = lock(&self.0.links);
        let mut gathered = lock(&self.0.gathered);
        gathered.retain(|to, _| links.contains_key(to));
        for (to, bytes) in gathered.iter_mut().filter(|(_, bytes)| !bytes.is_empty()) {
            if let Some(link) = links.get(to) {
                link.send(bytes);
            }
            // As long as usual, it is used again.
            if bytes.capacity() > BATCH_LEN_BYTES {
                *bytes = Vec::new();
            }
            bytes.clear();
        }
    }

    /// See [`Peers::isolate`].
    pub fn is_isolated(&self) -> bool {
        self.0.is_isolated()
    }

    /// Ends all connections, and lets none begin, or lets them begin again.
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
        // The listener wakes up and sees that it is over.
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
                // The thread finds that there is no connection any more, and ends it.
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

    /// As [`Shared::say`], of what anybody can make happen who reaches the port: a line now and then.
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

/// Until the end, or until it turns out that this member itself is there.
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

/// Ends the link when the other side has ended its connection: it says nothing on it otherwise. Who sends nothing would
/// not notice, and not connect to who is there after it.
fn watch(shared: &Arc<Shared>, member: MemberId, connection: &Arc<dyn Connection>) {
    let (shared, connection) = (Arc::clone(shared), Arc::clone(connection));
    let ended = move || {
        let _ = connection.read(&mut [0]);
        let mut links = lock(&shared.links);
        if links.get(&member).is_some_and(|link| Arc::ptr_eq(&link.connection, &connection)) {
            links.remove(&member);
        }
    };
    // Without the thread it is noticed when something is sent.
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
        // It became so since the greeting.
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

/// Pieces, and how many they are. `None` when nobody will send any more.
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
    // A legacy hello may be of a member that did not get an answer to another one. Whether it is a legacy member shows
    // when it is dialled.
    if !hello.is_legacy
        && let Ok(agreement) = shared.announced.agree(hello.announced)
    {
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
