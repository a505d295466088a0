//! Servers take the volume over, sometimes several at once, from servers that may ignore it.

use super::World;
use crate::facts::Facts;
use redoubt_node::NodeError;
use redoubt_node::volume::{SERVER_NOT_SAID, Volume};
use redoubt_sync::{Mutex, simulation, thread};
use redoubt_wire::control::{Attachment, EntryKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Old servers that are kept.
const SERVERS_KEPT: usize = 4;

/// Generation given out, and where the stream of its server begins.
type Answer = Arc<Mutex<Option<Result<(u64, u64), NodeError>>>>;

impl World {
    /// A new server takes the volume over.
    pub(super) fn attach(&mut self) {
        let (Some(volume), Some(node)) = (self.volume(), &self.node) else { return };
        let group = node.group;
        let attaching = if !self.is_calm && self.rng.u8(..5) == 0 { self.rng.usize(2..4) } else { 1 };
        self.facts.count(|counts| counts.races += u64::from(attaching > 1));
        self.make_stubborn();
        if !self.is_calm && self.rng.u8(..3) == 0 {
            // They reconnect while the new one attaches.
            self.servers.iter().for_each(|(_, server)| server.cut(0, false));
            thread::sleep(Duration::from_millis(self.rng.u64(..300)));
        }
        let mut answers: Vec<Answer> = (0..attaching).map(|_| self.ask(&volume, group)).collect();
        // A thread that buries the node waits until no reference is left.
        drop(volume);
        let mut has_attached = false;
        for _ in 0..10_000 * attaching {
            thread::sleep(Duration::from_millis(20));
            let mut heard = Vec::new();
            answers.retain(|answer| answer.lock().take().map(|answered| heard.push(answered)).is_none());
            for answered in heard {
                match answered {
                    Ok((generation, start)) => {
                        has_attached = true;
                        self.start_server(generation, start);
                    }
                    Err(error) => simulation::note(|| format!("not attached: {error}")),
                }
            }
            if answers.is_empty() {
                return self.after_attach(has_attached);
            }
            if self.rng.u16(..1500) == 0 && !self.is_calm {
                // The node does not live to answer.
                if self.rng.bool() {
                    self.kill_node()
                } else {
                    self.power_cut()
                }
                return self.after_attach(has_attached);
            }
        }
        simulation::fail("an attach is never answered");
    }

    fn ask(&self, volume: &Arc<Volume>, group: u32) -> Answer {
        let answer = Answer::default();
        let (theirs, facts, volume) = (Arc::clone(&answer), Arc::clone(&self.facts), Arc::clone(volume));
        simulation::spawn_in_group(group, "control", move || {
            let attached = volume.attach("the simulation", SERVER_NOT_SAID, None);
            let answered = attached.map(|attachment| answered(&volume, &attachment, &facts));
            *theirs.lock() = Some(answered);
        });
        answer
    }

    /// The server that is about to be fenced may be out of reach: a process that was stopped for a while, or a server
    /// that ignores its connections.
    fn make_stubborn(&mut self) {
        if self.is_calm {
            return;
        }
        for (_, server) in &self.servers {
            if self.rng.u8(..4) != 0 {
                server.orders.is_stubborn.store(true, Ordering::Release);
                // An attach waits for a server that continues writing; that takes long.
                server.orders.stop_writing.store(self.rng.u8(..16) != 0, Ordering::Release);
            }
        }
    }

    fn after_attach(&mut self, has_attached: bool) {
        if !has_attached {
            // There is no newer server: the existing ones live on, and must notice if they are fenced.
            for (_, server) in &self.servers {
                server.orders.is_stubborn.store(false, Ordering::Release);
                server.orders.stop_writing.store(false, Ordering::Release);
            }
        }
        while self.servers.len() > SERVERS_KEPT {
            let (group, _) = self.servers.remove(0);
            simulation::kill(group);
            simulation::wait_for_end_of(group);
        }
    }
}

/// The answer and its effects are one step: the model forgets the frames that the node does not have.
fn answered(volume: &Volume, attachment: &Attachment, facts: &Facts) -> (u64, u64) {
    let is_newest = facts.attached(attachment.generation);
    let positions = loop {
        // W may just be moving.
        let positions = volume.positions();
        if positions.received.is_some() {
            break positions;
        }
        thread::yield_now();
    };
    let at = positions.received.unwrap_or_default();
    let received = at.seq;
    simulation::note(|| format!("generation {} attached at {received}", attachment.generation));
    if !is_newest || facts.generation() != attachment.generation {
        // Overtaken: the stream may be another server's by now.
        return (attachment.generation, received.0);
    }
    if positions.durable < received {
        simulation::fail(&format!("attached at {received}, but D is at {}", positions.durable));
    }
    if let Err(message) = facts.history().follow(at) {
        simulation::fail(&message);
    }
    if !facts.history().truncate(received.0) {
        simulation::fail(&format!("the volume was attached at {received}, where no frame ends"));
    }
    facts.acknowledge(received.0);
    if let Err(message) = check_attachment(attachment, facts, received.0) {
        simulation::fail(&message);
    }
    (attachment.generation, received.0)
}

/// Compares the answer to an attach with the model's state.
fn check_attachment(attachment: &Attachment, facts: &Facts, at: u64) -> Result<(), String> {
    let history = facts.history();
    if attachment.end_lsn != history.end_lsn.0 {
        return Err(format!(
            "attached at {at}: LSN {} is answered, not {}",
            attachment.end_lsn, history.end_lsn
        ));
    }
    let names = &history.names;
    let expected: BTreeMap<&str, Option<u64>> = names
        .plain
        .iter()
        .map(|(path, contents)| (path.as_str(), Some(contents.len() as u64)))
        .chain(names.spaces.keys().map(|path| (path.as_str(), None)))
        .collect();
    let told: BTreeMap<&str, Option<u64>> = attachment
        .entries
        .iter()
        .filter_map(|entry| match entry.kind {
            EntryKind::Plain => Some((entry.path.as_str(), Some(entry.len_bytes))),
            EntryKind::Tablespace => Some((entry.path.as_str(), None)),
            _ => None,
        })
        .collect();
    if told == expected {
        return Ok(());
    }
    Err(format!("attached at {at}: the files {told:?} are answered, not {expected:?}"))
}
