//! Frames between the link and the engine: the Ethernet address for a connection's answers, and packets of addresses
//! that the interface has lost.

use super::{BATCH, Inner, MOST_OPENING, listening, slot_of};
use crate::link::{ETHERNET_LEN_BYTES, Written};
use crate::packet::{self, Header};
use redoubt_tcp::{Heard, Micros};

impl Inner {
    /// Receives frames of a lane, or of the link itself.
    pub(super) fn receive(&mut self, lane: Option<u32>, now: Micros) -> usize {
        let Self { link, engine, neighbours, opening, slots, by_place, absent, .. } = self;
        let partial = link.has_partial_checksums();
        let mut is_due = false;
        let count = link.receive(lane, BATCH, &mut |frame| {
            let Some(Header { source, from, packet }) = packet::split(frame) else { return };
            if listening::is_absent(absent, packet) {
                return;
            }
            engine.receive(now, packet, packet::checksum(packet, partial));
            match engine.heard() {
                // Only its peer determines the address for a connection's answers.
                Some(Heard { connection: Some(id), .. }) => {
                    if let Some(slot) = slot_of(slots, by_place, id).and_then(|at| slots.get_mut(at as usize))
                    {
                        slot.card = source;
                    }
                }
                Some(Heard { peer, connection: None }) => {
                    if opening.len() >= MOST_OPENING {
                        opening.clear();
                    }
                    opening.insert(peer, source);
                }
                None => is_due |= neighbours.learn(from, source),
            }
        });
        self.frames += count as u64;
        if is_due {
            let peers = self.slots.iter().filter(|slot| slot.id.is_some()).map(|slot| slot.peer.ip());
            self.neighbours.forget(peers);
        }
        count
    }

    /// Sends the engine's frames.
    pub(super) fn transmit(&mut self, now: Micros) {
        let Self { link, engine, neighbours, slots, by_place, absent, .. } = self;
        let mac = link.mac();
        let slot = |id| slots.get(slot_of(slots, by_place, id)? as usize);
        loop {
            let is_queued = link.transmit(&mut |frame| {
                let (header, space) = frame.split_at_mut_checked(ETHERNET_LEN_BYTES)?;
                loop {
                    let sent = engine.transmit(now, space)?;
                    if listening::is_absent(absent, space) {
                        continue;
                    }
                    let slot = sent.connection.and_then(slot);
                    let to = slot.map(|slot| slot.card).or_else(|| neighbours.get(sent.destination));
                    if let Some(to) = to {
                        packet::write_header(header, to, mac, sent.destination.is_ipv6());
                        let len_bytes = ETHERNET_LEN_BYTES + sent.len_bytes;
                        let lane = slot.and_then(|slot| slot.lane).map(|lane| lane.number);
                        return Some(Written { len_bytes, lane });
                    }
                }
            });
            if !is_queued {
                break;
            }
        }
    }
}
