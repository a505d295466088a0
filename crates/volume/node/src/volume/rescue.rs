//! Damaged pages of a volume: rebuilding them when they are read, and writing them again.
//!
//! A reader of a page finds the damage; only the apply thread, which alone writes pages, writes the rebuilt page to the
//! store. Until then each read of the page rebuilds it.
//!
//! That a page cannot be rebuilt is a verdict with consequences: applying sets it aside. So an error of the disk is never
//! taken for one. It may be gone at the next attempt, and the page with it whole. It is one only if several attempts fail and
//! the drive can read other bytes: then these are lost.

use super::Volume;
use crate::counters::add;
use crate::error::NodeError;
use crate::mark::Point;
use crate::namespace::Namespace;
use crate::quarantine::SetAside;
use crate::rescue::{DamagedImage, Histories, PageHistory, Rescue};
use redoubt_logdev::LogDeviceError;
use redoubt_pagestore::{ObjectId, RetainedImage};
use redoubt_redo::Lsn;
use redoubt_sync::thread::catch_panic;
use redoubt_wire::Seq;
use redoubt_wire::control::is_needed_to_start;

/// How often the log may be cut while it is being read.
const MAX_ATTEMPTS: usize = 5;
/// Reads of the log before it is damaged.
const READS_OF_DAMAGE: usize = 3;

/// Remains of a damaged page outside the log.
struct Remains<'d> {
    damaged: &'d DamagedImage,
    images: Vec<RetainedImage>,
    /// The page journal could not be read.
    failure: Option<NodeError>,
}

/// The log itself is damaged, as opposed to unreadable for now.
pub(super) fn is_damage(error: &NodeError) -> bool {
    match error {
        NodeError::Damaged { .. } | NodeError::Wire(_) | NodeError::Redo { .. } => true,
        NodeError::LogDevice(error) => {
            matches!(error, LogDeviceError::Damaged { .. } | LogDeviceError::BadSegment { .. })
        }
        _ => false,
    }
}

/// The drive has lost bytes of the log.
fn is_lost(error: &NodeError) -> bool {
    match error {
        NodeError::LogDevice(LogDeviceError::Read { source, .. }) => redoubt_storage::is_lost_content(source),
        _ => false,
    }
}

impl Volume {
    /// Histories of pages in the log, up to A; the LSN from which on the log has redo; and whether it had all then that files
    /// lacked.
    pub(super) fn page_histories(
        &self,
        damaged: &[&DamagedImage],
    ) -> Result<(Vec<PageHistory>, Lsn, bool), NodeError> {
        let mut errors: Vec<String> = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            // All of one moment.
            let checkpoint = self.applying.checkpoint();
            let (applied, log_start, cover) = (checkpoint.applied, checkpoint.kept_from(), checkpoint.cover);
            match self.page_histories_from(log_start, damaged) {
                Ok(histories) => return Ok((histories, log_start.lsn, cover.is_some())),
                // Redo that has just been applied may have been cut off the log meanwhile.
                Err(_) if self.applying.points().1 != log_start => {}
                Err(error) => {
                    errors.push(error.to_string());
                    if let Some(verdict) = self.verdict_on_log(error, &errors, (log_start.seq, applied.seq)) {
                        return Err(verdict);
                    }
                }
            }
        }
        Err(NodeError::NotNow("the log is being cut faster than it can be read; try again".to_owned()))
    }

    /// Histories of pages in the log from `start` up to A, with one attempt to read it.
    pub(super) fn page_histories_from(
        &self,
        start: Point,
        pages: &[&DamagedImage],
    ) -> Result<Vec<PageHistory>, NodeError> {
        let find = |path: &[u8], page_no: u32| self.indexing.names.read().page_at(path, page_no);
        let mut histories = Histories::new(pages.iter().copied());
        self.receiving.read_frames(start, self.applying.applied().get().seq, |chunk| {
            catch_panic(|| histories.frame(&chunk, &find)).unwrap_or_else(|panic| {
                let reason = format!("reading it met a defect of the node: {panic}; report it");
                Err(NodeError::Redo { lsn: chunk.start.lsn, reason })
            })
        })?;
        Ok(histories.into_pages())
    }

    /// The error of reading the log, the last of `errors`; `None`: the log is to be read once more, as the fault may have
    /// been one of the transfer.
    fn verdict_on_log(&self, error: NodeError, errors: &[String], range: (Seq, Seq)) -> Option<NodeError> {
        let is_lost = is_lost(&error);
        if !is_lost && !is_damage(&error) {
            return Some(error);
        }
        if errors.len() < READS_OF_DAMAGE {
            return None;
        }
        // A drive that works fails at the same bytes each time, and reads others.
        let is_same = errors.windows(2).all(|pair| pair.first() == pair.last());
        if is_lost && is_same && self.receiving.is_readable_within(range.0, range.1) {
            let (path, reason) = (self.context.own.path().join("log"), error.to_string());
            return Some(NodeError::Damaged { path, reason });
        }
        Some(error)
    }

    fn remains<'d>(&self, damaged: &'d DamagedImage) -> Remains<'d> {
        let DamagedImage { key, page_id, format, .. } = damaged;
        let len_bytes = format.physical_page_size_bytes() as u32;
        match self.applying.store.retained_images(key.object(), key.page_no(), len_bytes) {
            Ok(images) => Remains { damaged, images, failure: None },
            // The log may do.
            Err(error) => {
                tracing::warn!(event = "rescue_journal_unreadable", volume = self.context.name, page = %page_id, %error, "page journal not readable");
                Remains { damaged, images: Vec::new(), failure: Some(error.into()) }
            }
        }
    }

    /// The page in its file.
    fn page_of_file(&self, DamagedImage { key, format, .. }: &DamagedImage) -> Option<Vec<u8>> {
        let mut page = vec![0; format.physical_page_size_bytes()];
        let read = self.applying.store.read_page_of_file(key.object(), key.page_no(), &mut page);
        read.unwrap_or(false).then_some(page)
    }

    /// Rebuilds a page from its remains and the log. `covers`: the log has all that files lacked when it was read. The outer
    /// error: the result is not certain.
    fn rebuild(
        &self,
        remains: Remains<'_>,
        (history, log_start): (PageHistory, Lsn),
        covers: bool,
    ) -> Result<Result<Vec<u8>, NodeError>, NodeError> {
        let DamagedImage { key, page_id, fault, .. } = remains.damaged;
        let file = self.indexing.path_of_object(key.object());
        // After the log was read: files lack less and less.
        let of_file = if covers { self.page_of_file(remains.damaged) } else { None };
        let rebuilt = catch_panic(|| history.rebuild(&remains.images, of_file.as_deref(), log_start))
            .unwrap_or_else(|panic| Err(format!("that met a defect of the node: {panic}; report it")));
        match (rebuilt, remains.failure) {
            (Ok((page, from)), _) => {
                tracing::warn!(event = "page_rebuilt", volume = self.context.name, page = %page_id, file, fault, from, "page rebuilt");
                add(&self.context.counters.pages_rebuilt, 1);
                self.applying.repairs.add_damaged(*key);
                Ok(Ok(page))
            }
            (Err(_), Some(failure)) => Err(failure),
            (Err(why), None) => Ok(Err(self.lost(remains.damaged, &why))),
        }
    }

    fn lost(&self, damaged: &DamagedImage, why: &str) -> NodeError {
        NodeError::Page {
            page: damaged.page_id,
            file: self.indexing.path_of_object(damaged.key.object()),
            reason: format!(
                "{}. It cannot be rebuilt: {why}. Check the drive; restore the volume from an export or a backup, or drop \
                 the table",
                damaged.fault
            ),
        }
    }

    pub(super) fn rebuild_all(
        &self,
        damaged: &[DamagedImage],
    ) -> Result<Vec<Result<Vec<u8>, NodeError>>, NodeError> {
        let mut rebuilt: Vec<Option<Result<Vec<u8>, NodeError>>> = Vec::new();
        let mut without_log = Vec::new();
        let mut of_log = Vec::new();
        for (number, page) in damaged.iter().enumerate() {
            let remains = self.remains(page);
            let history = PageHistory::new(page.page_id, page.format);
            rebuilt.push(None);
            match history.newest(&remains.images) {
                Some(_) => without_log.push((number, remains, history)),
                None => of_log.push((number, remains)),
            }
        }
        for (number, remains, history) in without_log {
            // No redo is needed, and so none is in doubt.
            let page = self.rebuild(remains, (history, Lsn(u64::MAX)), false)?;
            rebuilt.get_mut(number).map(|slot| slot.replace(page));
        }
        if !of_log.is_empty() {
            let pages: Vec<_> = of_log.iter().map(|(_, remains)| remains.damaged).collect();
            match self.page_histories(&pages) {
                Ok((histories, log_start, covers)) => {
                    for ((number, remains), history) in of_log.into_iter().zip(histories) {
                        let page = self.rebuild(remains, (history, log_start), covers)?;
                        rebuilt.get_mut(number).map(|slot| slot.replace(page));
                    }
                }
                Err(error) if is_damage(&error) => {
                    for (number, remains) in of_log {
                        let page = self.lost(remains.damaged, &error.to_string());
                        match remains.failure {
                            Some(failure) => return Err(failure),
                            None => rebuilt.get_mut(number).map(|slot| slot.replace(Err(page))),
                        };
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rebuilt.into_iter().flatten().collect())
    }
}

impl Volume {
    /// Lists a damaged page that cannot be rebuilt. `by`: what has found it.
    pub(super) fn note_found(&self, page: &DamagedImage, file: &str, by: &str, reason: &str) {
        let space_of = |names: &Namespace| names.object(page.key.object()).map(|object| object.space);
        let Some(space) = space_of(&self.indexing.names.read()) else { return };
        let applied = self.applying.applied().get();
        self.quarantine.note_found(SetAside {
            object: page.key.object().0,
            page_no: Some(page.key.page_no()),
            space: space.unwrap_or(page.page_id.space.0),
            file: file.to_owned(),
            lsn: applied.lsn.0,
            reason: format!("found by {by}, before any change of it was left out: {reason}"),
            found_at: None,
            differs: None,
        });
    }
}

/// For reads: a page that cannot be rebuilt is listed. Its next change would set it aside, but there may be none.
impl Rescue for Volume {
    fn rescue(&self, damaged: &[DamagedImage]) -> Result<Vec<Result<Vec<u8>, NodeError>>, NodeError> {
        let rebuilt = self.rebuild_all(damaged)?;
        for (page, rebuilt) in damaged.iter().zip(&rebuilt) {
            if let Err(NodeError::Page { file, reason, .. }) = rebuilt {
                self.note_found(page, file, "a read", reason);
            }
        }
        Ok(rebuilt)
    }
}

/// For threads that build pages: they report in another way what cannot be rebuilt.
pub(super) struct Rebuilding<'v>(pub &'v Volume);

impl Rescue for Rebuilding<'_> {
    fn rescue(&self, damaged: &[DamagedImage]) -> Result<Vec<Result<Vec<u8>, NodeError>>, NodeError> {
        self.0.rebuild_all(damaged)
    }

    fn is_dispensable(&self, object: ObjectId) -> bool {
        let names = self.0.indexing.names.read();
        let space = names.object(object).and_then(|object| object.space);
        let path = names.path_of_object(object);
        space != Some(0) && path.is_none_or(|path| !is_needed_to_start(path))
    }
}

#[cfg(test)]
#[path = "rescue_tests.rs"]
mod tests;
