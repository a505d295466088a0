//! The thread that reads what other members lack from the log, so that nobody who drives the member waits for a disk.
//!
//! The member asks for one part at a time ([`Effect::Read`](redoubt_consensus::Effect::Read)), and a part is short. So
//! one that catches up takes as much of this server as one thread can, and no memory to speak of.

use super::Input;
use super::inbox::Inlet;
use crate::store::{Archive, StoreError};
use redoubt_consensus::Settings;
use redoubt_consensus::message::Entries;
use redoubt_consensus::types::{MemberId, Slot};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// A part that was read.
pub struct Part {
    /// Who needs it.
    pub to: MemberId,
    /// From here on.
    pub from: Slot,
    /// It, or nothing if the log does not have it any more.
    pub entries: Result<Option<Entries>, StoreError>,
}

/// Its thread ends with it.
pub struct Reading(Sender<(MemberId, Slot)>);

impl Reading {
    /// One, and its thread, which may be the one that lets go of it. What it has read comes as [`Input::Read`].
    pub fn start(archive: Arc<Archive>, settings: &Settings, inlet: Inlet) -> (Self, Option<JoinHandle<()>>) {
        let (wanted, wants) = mpsc::channel();
        let (count, len_bytes) = (settings.chunk as usize, settings.chunk_len_bytes);
        let failed = Arc::clone(&inlet);
        let spawned = std::thread::Builder::new()
            .name("group-read-log".into())
            .spawn(move || read(&wants, &archive, (count, len_bytes), &inlet));
        let fail = |source| {
            failed.put(Input::StoreFailed(StoreError::Io { action: "start a thread for it", source }));
        };
        (Self(wanted), spawned.map_err(fail).ok())
    }

    /// A part from here on, for a member.
    pub fn want(&self, to: MemberId, from: Slot) {
        // Without its thread the member ends.
        let _ = self.0.send((to, from));
    }
}

fn read(wants: &Receiver<(MemberId, Slot)>, archive: &Archive, limits: (usize, usize), inlet: &Inlet) {
    while let Ok((to, from)) = wants.recv() {
        let entries = archive.read(from, limits.0, limits.1);
        inlet.post(Input::Read(Part { to, from, entries }));
    }
}
