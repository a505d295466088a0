//! The initial state of a member.
//!
//! | its files | new group requested | result |
//! |---|---|---|
//! | none | yes | it begins a group: its data is the beginning |
//! | none | no | it is a newcomer: a member adds it to the membership, another server sends its state |
//! | a store | no | it continues from its log and from the position of its data |
//! | a store, and `grastate.dat` was removed | no | another server sends its state; if none has any, it continues |
//! | a store, of one of several members | yes | refused: there would be two histories |
//! | a store, of the only member | yes | it continues |
//!
//! An address without members requests a new group only where there are no files.

use super::outcomes::Outcomes;
use super::saved_state;
use super::transfer::{self, Transfer};
use super::{New, Session, Wanted, lock};
use crate::certification::{Certification, DEFAULT_SETS_LOG2};
use crate::deliveries::{self, Delivered};
use crate::delivery::{self, Outlets};
use crate::history::History;
use crate::options::{OptionError, Options};
use crate::order::alone::Marks;
use crate::order::inbox::Inlet;
use crate::order::{self, Input, Keep, Origin, Parts};
use crate::peers::trust::{Members, Trust};
use crate::peers::{Local, Peers, Place};
use crate::position::{self, PositionError};
use crate::replica::{GroupId, Known, Presence, Replica, ReplicaError};
use crate::server::Server;
use crate::store::{Archive, Found, Identity, Records, Store, StoreError};
use crate::write_set::{Arrival, Seqno};
use redoubt_consensus::Member;
use redoubt_consensus::record::Record;
use redoubt_consensus::types::{Entry, Incarnation, MemberId, Membership, ProposalId};
use redoubt_transport::{MemberTls, TransportError};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Reason why the server does not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The log failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored state is invalid.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The position of the data is unknown.
    #[error(transparent)]
    Position(#[from] PositionError),
    /// An option is invalid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The address is not available.
    #[error("cannot listen on {address}: {source}; set wsrep_node_address or the provider option base_port")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// There would be two histories.
    #[error(
        "this server is a member of a group already; start it without --wsrep-new-cluster, and the group \
         resumes once a majority of its members is up. To begin another group, remove redoubt_group.*.log \
         from its data directory first"
    )]
    MemberAlready,
    /// There is no member to ask.
    #[error(
        "wsrep_cluster_address {0:?} names no member of the group; use gcomm://HOST:PORT,HOST:PORT. To begin a \
         group, start the first server with --wsrep-new-cluster"
    )]
    NoAddress(String),
    /// Not a list of members. The message begins like Galera's.
    #[error(
        "Failed to open channel '{group}' at '{address}': Invalid backend URI: it has to be gcomm://HOST:PORT,HOST:PORT"
    )]
    NotAnAddress {
        /// `wsrep_cluster_name`.
        group: String,
        /// The given value.
        address: String,
    },
    /// The data has no position in the group.
    #[error(
        "the server's data has no position in the group, but the group's log lists it as a member; for a state \
         transfer (SST) from another member, remove redoubt_group.*.log from the data directory"
    )]
    NoPosition,
    /// It would need a state transfer.
    #[error(
        "state transfer (SST) to volume {0} is not supported: the server's scripts would bypass the volume. \
         Let it join with an ordinary data directory, shut it down, and import that into a new volume \
         (docs/group/how-to.md, Members on volumes)"
    )]
    NoStateOnVolume(String),
    /// The certificates are not usable.
    #[error("encryption of the group: {0}")]
    Tls(#[from] TransportError),
    /// The certificate belongs to another member.
    #[error(
        "encryption of the group: the certificate is that of member {name} of group {group}; this server is {own_name} \
         (wsrep_node_name) of {own_group} (wsrep_cluster_name)"
    )]
    Certificate {
        /// Name in the certificate.
        name: String,
        /// Group in the certificate.
        group: String,
        /// Name of this server.
        own_name: String,
        /// Group of this server.
        own_group: String,
    },
    /// Names of members without authentication.
    #[error("the provider option redoubt.members needs authentication; set redoubt.tls")]
    NoProof,
    /// A text is too long for the interface.
    #[error("{what} {text:?} is longer than {max} bytes")]
    TooLong {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        text: String,
        /// The limit.
        max: usize,
    },
}

/// Source of this server's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Data {
    /// The server has everything up to here.
    Is(Seqno),
    /// Another server has it.
    OfAnother,
    /// The server has everything up to here, and still requests another server's state if one has any.
    Unwanted(Seqno),
}

struct Beginning {
    origin: Origin,
    replica: Option<Replica>,
    data: Data,
    /// Incarnations whose parts of transactions the server's data may contain.
    lives: Vec<Known>,
    /// Members that continued alone.
    history: History,
    group: GroupId,
    member: MemberId,
}

/// The incarnations that were known at the checkpoint or occur in the log after it, and the members that continued
/// alone. At its start the server rolls back parts of transactions of all other incarnations; this does not happen
/// anywhere else then.
fn look_into(replica: &Replica, records: Records) -> Result<(Vec<Known>, History), StoreError> {
    let mut marks = Marks::default();
    let mut lives: BTreeMap<_, _> =
        replica.known().map(|known| ((known.member, known.incarnation), known.clone())).collect();
    for record in records {
        let record = record?;
        marks.take(&record);
        for (_, entry) in record.entries() {
            let Entry::Proposal(proposal) = entry else { continue };
            let ProposalId { member, incarnation, .. } = proposal.id;
            lives.entry((member, incarnation)).or_insert_with(|| Known::unnamed(member, incarnation));
        }
    }
    Ok((lives.into_values().collect(), marks.after(replica.history())))
}

fn random<const N: usize>() -> Result<[u8; N], ConnectError> {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| ConnectError::System { action: "read random numbers", source })?;
    Ok(bytes)
}

/// The later of two new members has the greater id, where clocks agree. Servers derive `auto_increment_offset` from the
/// order of ids, and users expect the order in which the members joined.
fn new_member() -> Result<MemberId, ConnectError> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(member_of(since_1970.as_millis() as u64, u32::from_le_bytes(random()?)))
}

/// The time, then 20 random bits. The time fits until the year 2527.
const fn member_of(since_1970_ms: u64, random: u32) -> MemberId {
    MemberId(since_1970_ms << 20 | (random & 0xf_ffff) as u64)
}

fn of_store(
    store: Store,
    replica: Replica,
    data: Data,
    (lives, history): (Vec<Known>, History),
) -> Beginning {
    let Identity { group, member } = store.identity();
    let origin = Origin::Store(store);
    Beginning { origin, replica: Some(replica), data, lives, history, group, member }
}

fn found_group(server: &Server) -> Result<Beginning, ConnectError> {
    let (group, member) = (GroupId(random()?), new_member()?);
    let snapshot = Member::founding(Membership::new([member]));
    let replica = Replica::new(group, Certification::new(DEFAULT_SETS_LOG2));
    let slot = snapshot.next;
    let records = vec![Record::Snapshot(snapshot)];
    let identity = Identity { group, member };
    let store = Store::create(&server.data_directory, identity, slot, &records, &replica.encode())?;
    transfer::set_mark(&server.data_directory, false)?;
    Ok(of_store(store, replica, Data::Is(Seqno(0)), (Vec::new(), History::default())))
}

fn go_on(server: &Server, wanted: &Wanted, store: Store, found: Found) -> Result<Beginning, ConnectError> {
    let replica = Replica::decode(&found.replica)?;
    if let Some(damage) = found.damage {
        server
            .warn(&format!("{damage} (this server does not need it; other members do not get it from here)"));
    }
    let data = if transfer::is_marked(&server.data_directory) {
        server.note("the state of this server is not the group's: a state transfer (SST) is needed");
        Data::OfAnother
    } else if is_unwanted(server, &store)? {
        server.note("grastate.dat was removed: a state transfer (SST) is needed");
        match own_data(server, wanted, &store, &replica) {
            Ok(Data::Is(seqno)) => Data::Unwanted(seqno),
            _ => Data::OfAnother,
        }
    } else {
        own_data(server, wanted, &store, &replica)?
    };
    let looked = look_into(&replica, store.look())?;
    Ok(of_store(store, replica, data, looked))
}

/// Position of the data that this server finds.
fn own_data(
    server: &Server,
    wanted: &Wanted,
    store: &Store,
    replica: &Replica,
) -> Result<Data, ConnectError> {
    let position = match wanted.position.or(server.position) {
        Some(position) => Some(position),
        None => position::recover(&server.data_directory)?,
    };
    match position.filter(|(of, _)| *of == replica.group()) {
        Some((_, seqno)) if seqno < replica.seqno() => {
            server.warn(&format!(
                "the server's data is at {}, and the group's log begins after {}: has the server lost commits \
                 (innodb_flush_log_at_trx_commit)? A state transfer (SST) is needed",
                seqno.0,
                replica.seqno().0
            ));
            Ok(Data::OfAnother)
        }
        Some((_, seqno)) => Ok(Data::Is(seqno)),
        // It has begun the group and done nothing since.
        None if replica.seqno() == Seqno(0) && store.has_at_most(2)? => Ok(Data::Is(Seqno(0))),
        None => Err(ConnectError::NoPosition),
    }
}

/// Whether the operator requests another server's state in place of the local one.
fn is_unwanted(server: &Server, store: &Store) -> Result<bool, StoreError> {
    let was_removed = saved_state::was_removed(&server.data_directory);
    let is_only = was_removed && is_only_member(store)?;
    if is_only {
        server.warn(
            "grastate.dat was removed, but this server is the only member of its group: it continues with its \
             own data",
        );
    }
    Ok(was_removed && !is_only)
}

fn is_only_member(store: &Store) -> Result<bool, StoreError> {
    saved_state::is_only_member(store.look(), store.identity().member)
}

fn beginning(server: &Server, wanted: &Wanted, addresses: &[String]) -> Result<Beginning, ConnectError> {
    let begun = begun(server, wanted, addresses)?;
    match position::volume() {
        Some(volume) if !matches!(begun.data, Data::Is(_)) => Err(ConnectError::NoStateOnVolume(volume)),
        _ => Ok(begun),
    }
}

fn begun(server: &Server, wanted: &Wanted, addresses: &[String]) -> Result<Beginning, ConnectError> {
    match Store::open(&server.data_directory)? {
        Some((store, _)) if wanted.new == New::Yes && !is_only_member(&store)? => {
            Err(ConnectError::MemberAlready)
        }
        Some((store, found)) => go_on(server, wanted, store, found),
        None if wanted.new != New::No => found_group(server),
        None if addresses.is_empty() => Err(ConnectError::NoAddress(wanted.address.clone())),
        None => {
            let member = new_member()?;
            let (data, group) = (Data::OfAnother, GroupId::default());
            let (origin, lives, history) = (Origin::Nothing(member), Vec::new(), History::default());
            Ok(Beginning { origin, replica: None, data, lives, history, group, member })
        }
    }
}

/// Addresses in a `gcomm://` list.
fn addresses_in(text: &str, default_port: u16) -> Option<Vec<String>> {
    let list = text.trim().strip_prefix("gcomm://")?;
    let list = list.split('?').next().unwrap_or_default();
    let addresses = list.split(',').map(str::trim).filter(|address| !address.is_empty());
    Some(addresses.map(|address| with_port(address, default_port)).collect())
}

fn with_port(address: &str, port: u16) -> String {
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    match address.parse::<std::net::Ipv6Addr>() {
        Ok(bare) => format!("[{bare}]:{port}"),
        Err(_) if has_port => address.to_owned(),
        Err(_) => format!("{address}:{port}"),
    }
}

fn limited(what: &'static str, text: &str, max: usize) -> Result<String, ConnectError> {
    if text.len() > max {
        return Err(ConnectError::TooLong { what, text: text.to_owned(), max });
    }
    Ok(text.to_owned())
}

/// The address for other members, and the address to listen on.
fn own_address(server: &Server, options: &Options) -> Result<(String, String), ConnectError> {
    let host = if server.address.is_empty() { "127.0.0.1" } else { &server.address };
    let listen_address = limited("wsrep_node_address", &with_port(host, options.base_port), 255)?;
    let given = options.listen_address.as_ref().map(|address| with_port(address, options.base_port));
    let bind = given.unwrap_or_else(|| listen_address.clone());
    Ok((listen_address, bind))
}

fn trust(
    server: &Server,
    options: &Options,
    wanted: &Wanted,
    status: &Arc<order::Status>,
) -> Result<Trust, ConnectError> {
    let tls = options.tls.files()?.map(MemberTls::load).transpose()?;
    if let Some(tls) = &tls {
        let (group, name) = tls.names();
        if group != wanted.cluster_name || name != server.name {
            let (own_name, own_group) = (server.name.clone(), wanted.cluster_name.clone());
            return Err(ConnectError::Certificate { name, group, own_name, own_group });
        }
    } else if !options.members.is_empty() {
        return Err(ConnectError::NoProof);
    }
    let known = Box::new(StatusMembers(Arc::clone(status)));
    Ok(Trust::new(tls, options.members.clone(), known))
}

/// Members according to the status.
struct StatusMembers(Arc<order::Status>);

impl Members for StatusMembers {
    fn name_of(&self, member: MemberId) -> Option<String> {
        let known = lock(&self.0.known);
        known.iter().find(|known| known.member == member).map(|known| known.name.clone())
    }

    fn is_member(&self, member: MemberId) -> bool {
        // A member that was away may lack new members here, and members that have left may return.
        let is_sure = self.0.is_present.load(Ordering::Relaxed);
        let is_wanted = |known: &Known| known.member == member && known.presence != Presence::Gone;
        !is_sure || lock(&self.0.membership).contains(member) || lock(&self.0.known).iter().any(is_wanted)
    }
}

pub(super) fn connect(
    server: Arc<Server>,
    options: &Options,
    wanted: &Wanted,
) -> Result<Arc<Session>, ConnectError> {
    let (listen_address, bind) = own_address(&server, options)?;
    let arrival = Arrival {
        incarnation: 0,
        name: limited("wsrep_node_name", &server.name, 31)?,
        incoming_address: limited("wsrep_node_incoming_address", &server.incoming_address, 255)?,
        listen_address: listen_address.clone(),
    };
    let status = Arc::default();
    let trust = trust(&server, options, wanted, &status)?;
    let wrong =
        || ConnectError::NotAnAddress { group: wanted.cluster_name.clone(), address: wanted.address.clone() };
    let addresses = addresses_in(&wanted.address, options.base_port).ok_or_else(wrong)?;
    let begun = beginning(&server, wanted, &addresses)?;
    let inlet = Inlet::default();
    let keep =
        Keep { memory_len_bytes: options.catch_up_len_bytes, log_len_bytes: options.kept_log_len_bytes };
    let (to_delivery, delivered) =
        deliveries::channel(usize::try_from(options.catch_up_len_bytes).unwrap_or(usize::MAX));
    let local = Local { cluster_name: wanted.cluster_name.clone(), member: begun.member, listen_address };
    let events = Arc::clone(&inlet);
    let place =
        Place { group: begun.group, incarnation: Incarnation::default(), history: begun.history.clone() };
    let peers = Peers::listen(local, place, &bind, trust, move |event, is_last| {
        events.put(Input::Event(event));
        if is_last {
            events.take_in();
        }
    });
    let peers = Arc::new(peers.map_err(|source| ConnectError::Listen { address: bind, source })?);
    let transfer = Transfer::new(begun.data, begun.lives.clone());
    let session = new_session(Arc::clone(&server), options, transfer, status, &inlet);
    session.appliers.limit(options.apply_len_bytes);
    let session = Arc::new(session);
    peers.isolate(options.is_isolated);
    addresses.iter().for_each(|address| peers.dial(address));
    let parts = Parts {
        directory: server.data_directory.clone(),
        peers,
        inlet: Arc::clone(&inlet),
        deliveries: to_delivery,
        keep,
        status: Arc::clone(&session.status),
        pace: Arc::clone(&session.pace),
        arrival,
        history: begun.history.clone(),
        goes_on_alone: options.goes_on_alone,
        placed: placed(&session),
        stored: stored(&session),
        applied: applied(&session),
        is_in_step: is_in_step(&session),
        say: say(&session),
    };
    let outlets = outlets(&session, inlet);
    start(begun, parts, delivered, outlets, Arc::clone(&session))
        .map_err(|source| ConnectError::System { action: "start a thread", source })?;
    Ok(session)
}

fn new_session(
    server: Arc<Server>,
    options: &Options,
    transfer: Transfer,
    status: Arc<order::Status>,
    order: &Inlet,
) -> Session {
    Session {
        server,
        max_write_set_len_bytes: AtomicU64::new(options.max_write_set_len_bytes),
        causal_read_timeout_ms: AtomicU64::new(options.causal_read_timeout_ms),
        desynced: AtomicUsize::new(0),
        order: Arc::clone(order),
        appliers: Arc::default(),
        commit_order: Arc::default(),
        finished: Arc::default(),
        gate: Arc::default(),
        status,
        pace: Arc::default(),
        counters: Arc::default(),
        transactions: super::Transactions::default(),
        applying: Mutex::default(),
        isolated: Mutex::default(),
        outcomes: Outcomes::default(),
        place: Mutex::new(None),
        start: AtomicI64::new(0),
        transfer: Mutex::new(transfer),
        transferred: Condvar::new(),
        is_synced: false.into(),
        shown: Mutex::default(),
        is_shown_alone: false.into(),
        threads: Mutex::default(),
        has_failed: false.into(),
    }
}

fn say(session: &Arc<Session>) -> Box<dyn Fn(bool, String) + Send> {
    let session = Arc::clone(session);
    Box::new(move |is_end, text| match is_end {
        true => session.fail(&text),
        false => session.server.note(&text),
    })
}

fn placed(session: &Arc<Session>) -> Box<dyn Fn(GroupId, MemberId, Incarnation) + Send> {
    let session = Arc::clone(session);
    Box::new(move |group, member, incarnation| {
        *lock(&session.place) = Some(super::Place { group, member, incarnation });
        drop(lock(&session.transfer));
        session.transferred.notify_all();
    })
}

fn stored(session: &Arc<Session>) -> Box<dyn Fn(Arc<Archive>) + Send> {
    let appliers = Arc::clone(&session.appliers);
    Box::new(move |archive| appliers.source.set(archive))
}

fn applied(session: &Arc<Session>) -> Box<dyn Fn() -> Seqno + Send> {
    let finished = Arc::clone(&session.finished);
    Box::new(move || finished.to())
}

fn is_in_step(session: &Arc<Session>) -> Box<dyn Fn() -> bool + Send> {
    let session = Arc::clone(session);
    Box::new(move || session.is_in_step())
}

fn outlets(session: &Arc<Session>, order: Inlet) -> Outlets {
    let [viewed, balloted, refused, failed] = [session; 4].map(Arc::clone);
    Outlets {
        appliers: Arc::clone(&session.appliers),
        commit_order: Arc::clone(&session.commit_order),
        finished: Arc::clone(&session.finished),
        gate: Arc::clone(&session.gate),
        counters: Arc::clone(&session.counters),
        status: Arc::clone(&session.status),
        order,
        viewed: Box::new(move |view| viewed.on_view(view)),
        balloted: Box::new(move |news| balloted.on_ballot(news)),
        refused: Box::new(move |from, refusal| refused.on_refusal(from, &refusal)),
        failed: Box::new(move |reason| failed.fail(&reason)),
    }
}

fn start(
    begun: Beginning,
    parts: Parts,
    delivered: Delivered,
    outlets: Outlets,
    session: Arc<Session>,
) -> std::io::Result<()> {
    let named = |name: &str| std::thread::Builder::new().name(name.into());
    let own = Arc::clone(&session);
    let delivery = named("group-delivery").spawn(move || {
        delivery::run(delivered, &outlets);
        own.end();
    })?;
    lock(&session.threads).push(delivery);
    let order = named("group-order").spawn(move || order::run(parts, begun.origin, begun.replica))?;
    lock(&session.threads).push(order);
    Ok(())
}

#[cfg(test)]
mod tests;
