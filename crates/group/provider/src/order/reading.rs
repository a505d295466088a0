//! The thread that reads the log for members that are behind, so that a thread that drives the member never waits for a
//! disk.
//!
//! The member requests one part at a time ([`Effect::Read`](redoubt_consensus::Effect::Read)), and a part is short. So
//! a member that catches up costs this server at most one thread, and little memory.

use super::Input;
use super::inbox::Inlet;
use crate::store::{Archive, StoreError};
use redoubt_consensus::Settings;
use redoubt_consensus::message::Entries;
use redoubt_consensus::types::{MemberId, Slot};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// A part of the log that was read.
pub struct Part {
    /// The member that needs it.
    pub to: MemberId,
    /// The slot from which it was requested.
    pub from: Slot,
    /// The entries, or `None` if the log does not have them any more.
    pub entries: Result<Option<Entries>, StoreError>,
}

/// Handle of the reading thread, which ends when this is dropped.
pub struct Reading(Sender<(MemberId, Slot)>);

impl Reading {
    /// Starts the thread. Its results arrive as [`Input::Read`]. The thread itself may drop the returned handle.
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

    /// Requests a part from a slot on, for a member.
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
