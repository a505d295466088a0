//! Status variables: the library's part of `SHOW STATUS LIKE 'wsrep_%'`.

use super::{Table, guarded, session};
use crate::abi::{VARIABLE_INTEGER, VARIABLE_TEXT, Variable};
use crate::order::roster::Seen;
use crate::replica::GroupId;
use crate::session::Session;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::Ordering::Relaxed;

/// A list for the server. Names and texts are constants, or are in `_texts`.
struct List {
    variables: Vec<Variable>,
    _texts: Vec<CString>,
}

/// Number and name of the state as in Galera, so that health checks recognise them.
fn state(session: &Session) -> (i64, &'static CStr) {
    if session.is_over() {
        (0, c"Initialized")
    } else if session.status().is_alone.load(Relaxed) {
        (1, c"Without a majority")
    } else if session.desynced() > 0 || session.is_donating() {
        (2, c"Donor/Desynced")
    } else if session.is_synced() {
        (4, c"Synced")
    } else {
        (1, c"Joining")
    }
}

fn numbers(session: &Session) -> Vec<(&'static CStr, i64)> {
    let (counters, status) = (&session.counters, session.status());
    let count = |counter: u64| i64::try_from(counter).unwrap_or(i64::MAX);
    let (finished, waiting) = (session.finished().0, session.waiting());
    vec![
        (c"last_committed", finished),
        (c"last_ordered", counters.ordered.load(Relaxed)),
        (c"replicated", count(counters.replicated.load(Relaxed))),
        (c"replicated_bytes", count(counters.replicated_len_bytes.load(Relaxed))),
        (c"received", count(counters.received.load(Relaxed))),
        (c"received_bytes", count(counters.received_len_bytes.load(Relaxed))),
        (
            c"local_commits",
            count(counters.replicated.load(Relaxed)) - count(counters.conflicts.load(Relaxed)),
        ),
        (c"local_cert_failures", count(counters.conflicts.load(Relaxed))),
        (c"local_replays", count(counters.replays.load(Relaxed))),
        (c"local_recv_queue", waiting.count as i64),
        (c"group_queue_in_log", (waiting.in_log + status.undecided_in_log.load(Relaxed)) as i64),
        (c"group_queue_bytes", (waiting.len_bytes + status.undecided_len_bytes.load(Relaxed)) as i64),
        (c"group_catch_up_log_bytes", count(status.read_len_bytes.load(Relaxed))),
        (c"local_send_queue", status.undelivered.load(Relaxed) as i64),
        (c"cert_floor", counters.floor.load(Relaxed)),
        (c"cert_evictions", count(counters.evictions.load(Relaxed))),
        (c"group_voters", super::lock(&status.membership).iter().count() as i64),
        (c"group_slot_owners", status.owners.load(Relaxed) as i64),
        (c"group_owns_slots", i64::from(status.is_owner.load(Relaxed))),
        (c"group_epoch", count(status.epoch.load(Relaxed))),
        (c"group_delivered_slots", count(status.delivered.load(Relaxed))),
        (c"flow_control_paused_ns", 0),
        (c"flow_control_sent", 0),
        (c"flow_control_recv", 0),
        (c"local_state", state(session).0),
        (c"desync_count", session.desynced() as i64),
    ]
}

/// Text variables: those of the group, and one for each member.
fn texts(session: &Session) -> Vec<(CString, CString)> {
    let own_applied = session.finished();
    let members = super::lock(&session.status().members);
    let there = members.iter().filter(|member| member.is_there);
    let incoming: Vec<&str> = there.map(|member| member.client_address.as_str()).collect();
    let of_group = [
        (c"incoming_addresses", incoming.join(",")),
        (c"local_state_uuid", session.group().to_string()),
        // As `mysql.wsrep_cluster_members` has this incarnation of this server.
        (c"gcomm_uuid", GroupId(session.uuid().0).to_string()),
    ];
    let of_group =
        of_group.into_iter().filter_map(|(name, value)| Some((name.into(), CString::new(value).ok()?)));
    let variable = |(number, member): (usize, &Seen)| {
        let name = CString::new(format!("group_member_{number}")).ok()?;
        Some((name, CString::new(member.json(own_applied)).ok()?))
    };
    of_group.chain((1..).zip(members.iter()).filter_map(variable)).collect()
}

pub(super) unsafe extern "C" fn get(table: Table) -> *mut Variable {
    guarded("stats_get", || {
        // SAFETY: the server's table.
        let session = unsafe { session(table) };
        let integer =
            |(name, value): (&CStr, i64)| Variable { name: name.as_ptr(), kind: VARIABLE_INTEGER, value };
        let mut variables: Vec<Variable> =
            session.iter().flat_map(|session| numbers(session)).map(integer).collect();
        let state = session.as_ref().map_or(c"Disconnected", |session| state(session).1);
        let mut text = |name: &'static CStr, value: *const c_char| {
            variables.push(Variable { name: name.as_ptr(), kind: VARIABLE_TEXT, value: value as i64 });
        };
        text(c"local_state_comment", state.as_ptr());
        let texts = session.iter().flat_map(|session| texts(session)).collect::<Vec<_>>();
        for (name, value) in &texts {
            let value = value.as_ptr() as i64;
            variables.push(Variable { name: name.as_ptr(), kind: VARIABLE_TEXT, value });
        }
        variables.push(Variable { name: std::ptr::null(), kind: VARIABLE_TEXT, value: 0 });
        let texts = texts.into_iter().flat_map(|(name, value)| [name, value]).collect();
        let mut list = List { variables, _texts: texts };
        let pointer = list.variables.as_mut_ptr();
        // The server returns only the pointer, by which the list is found.
        super::lock(&LISTS).push((pointer as usize, list));
        pointer
    })
}

/// Lists that the server has not freed.
static LISTS: std::sync::Mutex<Vec<(usize, List)>> = std::sync::Mutex::new(Vec::new());

// SAFETY: its pointers lead to constants and to its own texts.
unsafe impl Send for List {}

pub(super) unsafe extern "C" fn free(_: Table, variables: *mut Variable) {
    guarded("stats_free", || super::lock(&LISTS).retain(|(pointer, _)| *pointer != variables as usize));
}

pub(super) unsafe extern "C" fn reset(_: Table) {}
