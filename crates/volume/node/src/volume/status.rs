//! The status of a volume for `redoubt status`.

use super::Volume;
use super::context::Condition;
use super::quarantine::SHOWN_MAX;
use crate::figures::Worker;
use crate::index::CHAIN_CLASSES;
use crate::log_buffer::Stage;
use redoubt_wire::control::{QuarantinedPage, VolumeStatus};
use redoubt_wire::figures::ChainClass;
use redoubt_wire::stream::Counter;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl Volume {
    /// State for `redoubt status`.
    pub fn status(&self) -> VolumeStatus {
        let (state, reason) = match self.context.condition() {
            Condition::Stopped(reason) if self.freezes() => ("frozen", reason),
            Condition::Stopped(reason) => ("stopped", reason),
            Condition::Frozen(reason) => ("frozen", reason),
            Condition::Waiting(reason) => ("waiting", reason),
            Condition::Running => match self.receiving.hung_write() {
                Some(reason) => ("waiting", reason),
                None if self.exports.is_active() => ("exporting", String::new()),
                None if self.session.is_connected() => ("attached", String::new()),
                None => ("ready", String::new()),
            },
        };
        let (buffer, figures) = (&self.receiving.buffer, &self.context.figures);
        let (index_pages, index_runs, index_tables) = self.indexing.index.sizes();
        let identity = self.session.identity();
        let (_, full_wait_times) = buffer.full_waits();
        let (received, durable) = (buffer.received(), self.durable());
        let (quarantine, quarantined) = self.quarantine_status();
        let mut unknown_files = self.indexing.unknown_files();
        unknown_files.truncate(SHOWN_MAX);
        let (files, checkpoint_lsn) = {
            let names = self.indexing.names.read();
            (names.files().len() as u64, names.server_checkpoint())
        };
        VolumeStatus {
            name: self.context.name.clone(),
            volume_id: identity.volume_id,
            encrypted_with: self.unlocked.as_ref().map(|unlocked| unlocked.key().to_string()),
            state: state.to_owned(),
            reason,
            generation: identity.generation,
            attached_by: identity.attached_by,
            newest_server: identity.newest_server,
            server_certificate_expires_s: self.session.certificate_expires_s(),
            // The network side of the node fills these in.
            connections: 0,
            local_connections: 0,
            w_lsn: received.lsn.0,
            d_lsn: durable.lsn.0,
            d_seq: Some(durable.seq.0),
            p_lsn: self.indexing.parsed().get().lsn.0,
            a_lsn: self.applying.applied().get().lsn_seen_from(received).0,
            server_checkpoint_lsn: checkpoint_lsn.map_or(0, |lsn| lsn.0),
            ring_used_bytes: buffer.used_bytes(),
            ring_len_bytes: buffer.len_bytes(),
            ring_waits_for: buffer.waits_for().map_or("", |stage| stage.name()).to_owned(),
            ring_wait_micros: Stage::ALL
                .map(|stage| (stage.name().to_owned(), full_wait_times[stage as usize].as_micros() as u64))
                .into(),
            index_pages,
            index_runs,
            index_tables,
            chain_lengths: chain_lengths(self.indexing.index.chain_classes()),
            page_read_times: figures.page_read.snapshot(),
            log_write_times: figures.log_write.snapshot(),
            apply_workers: self.applying.workers.iter().map(Worker::snapshot).collect(),
            files,
            quarantine,
            quarantined,
            unknown_files,
            scrub: Some(self.scrub_status()),
            log_device: self.receiving.device_status(),
            page_store: self.applying.description.status(
                &*self.applying.store,
                self.context.counters.redo_bytes_applied.load(Ordering::Relaxed),
            ),
            counters: self.all_counters(),
            server_counters: name_counters(&self.indexing.server_counters()),
        }
    }

    /// The first entries, and their number: plain files that are lost, then pages.
    pub(super) fn quarantine_status(&self) -> (Vec<QuarantinedPage>, u64) {
        let lost = self.lost_files().into_iter().map(|(file, path, reason)| QuarantinedPage {
            file: path,
            object: file.0,
            reason,
            restore_from: Some(self.plain.restored_path(file).display().to_string()),
            ..QuarantinedPage::default()
        });
        let mut shown: Vec<_> = lost.collect();
        let (pages, count) = self.quarantine.status();
        let count = count + shown.len() as u64;
        shown.extend(pages);
        shown.truncate(SHOWN_MAX);
        (shown, count)
    }

    /// Everything counted, by itself or by its devices.
    fn all_counters(&self) -> BTreeMap<String, u64> {
        let mut counters = self.context.counters.snapshot();
        let store = self.applying.store.stats();
        let of_store = [
            ("page_home_written_bytes", store.bytes_written_home),
            ("page_journal_written_bytes", store.bytes_written_journal),
            ("page_home_writes", store.home_writes),
            ("pages_written_home", store.pages_written_home),
            ("page_images_superseded", store.images_superseded),
            ("page_store_syncs", store.syncs),
        ];
        let all = self.receiving.counters().into_iter().chain(of_store);
        counters.extend(all.map(|(name, value)| (name.to_owned(), value)));
        counters
    }
}

/// The classes up to the last that has pages.
fn chain_lengths(classes: [u64; CHAIN_CLASSES]) -> Vec<ChainClass> {
    let used = classes.iter().rposition(|pages| *pages > 0).map_or(0, |last| last + 1);
    let bound = |class: usize| (class + 1 < CHAIN_CLASSES).then(|| (2u64 << class) - 1);
    let of = |(class, pages): (usize, &u64)| ChainClass { longest: bound(class), pages: *pages };
    classes.iter().take(used).enumerate().map(of).collect()
}

/// The shim's counters by name.
fn name_counters(counters: &[(u8, u64)]) -> BTreeMap<String, u64> {
    const NAMES: [(Counter, &str); 27] = [
        (Counter::RedoBytes, "redo_bytes"),
        (Counter::LogWrittenBytes, "log_written_bytes"),
        (Counter::SentBytes, "sent_bytes"),
        (Counter::ReceivedBytes, "received_bytes"),
        (Counter::PageBytesDropped, "page_bytes_dropped"),
        (Counter::PagesDropped, "pages_dropped"),
        (Counter::DoublewriteBytesDropped, "doublewrite_bytes_dropped"),
        (Counter::ImageBytes, "image_bytes"),
        (Counter::PlainBytes, "plain_bytes"),
        (Counter::PageBytesRead, "page_bytes_read"),
        (Counter::PageReads, "page_reads"),
        (Counter::DurabilityWaits, "durability_waits"),
        (Counter::DurabilityWaitMicros, "durability_wait_micros"),
        (Counter::VerifySent, "verify_sent"),
        (Counter::ScrubPagesDropped, "scrub_pages_dropped"),
        (Counter::Reconnects, "reconnects"),
        (Counter::DurabilityWakeups, "durability_wakeups"),
        (Counter::DurabilityWakeupsNotReached, "durability_wakeups_not_reached"),
        (Counter::CacheHits, "page_cache_hits"),
        (Counter::CacheMisses, "page_cache_misses"),
        (Counter::CacheEvictions, "page_cache_evictions"),
        (Counter::CacheCapacityBytes, "page_cache_capacity_bytes"),
        (Counter::ReadAheadPages, "read_ahead_pages"),
        (Counter::ReadAheadUsed, "read_ahead_used"),
        (Counter::PagesScrubbed, "pages_scrubbed"),
        (Counter::LogWritesCompressed, "log_writes_compressed"),
        (Counter::LogBytesSaved, "log_bytes_saved"),
    ];
    let name = |id: u8| NAMES.iter().find(|(counter, _)| *counter as u8 == id).map(|(_, name)| *name);
    counters.iter().filter_map(|(id, value)| Some((name(*id)?.to_owned(), *value))).collect()
}

#[cfg(test)]
mod tests;
