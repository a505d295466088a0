//! Ends the redo log of a volume that nobody writes with a checkpoint, so that the server that takes it over has
//! nothing to recover.
//!
//! A stock server that was killed reads its redo since its last checkpoint, opens every tablespace named there and
//! applies it. Here the pages have all of it already. So an attach appends what a server writes last when it is shut
//! down: a FILE_CHECKPOINT of D, and the checkpoint block of D. What is left to the new server is what any start
//! does: roll back transactions that were not committed.
//!
//! Not where recovery does more than apply redo to pages. There the server recovers from its own checkpoint, as ever:
//!
//! * a file operation that the redo tells of and that was not done: the server was killed between the two;
//! * a file operation that was done and whose transaction may not have been committed. The rollback takes it back, but
//!   the server knows from the redo alone that `t.ibd` is not the `t` of its dictionary, where `t` is still the table
//!   that was renamed away. Without that redo it refuses to load the file, and `t` is gone. How long such a transaction
//!   takes nobody says, so an operation counts as settled when the server has made two checkpoints since;
//! * a system tablespace that was cut in the redo (MariaDB 11.2 and later), and perhaps not yet as a file. Nothing else
//!   than that recovery would do it later;
//! * the redo of an import, whose files somebody else may have cut.
//!
//! In the stream it is redo like any other, and comes in the server's order: the record first, then the block. A node
//! that ends between the two leaves a record that every recovery passes over.

use super::Volume;
use crate::error::NodeError;
use crate::mark::Point;
use crate::namespace::Namespace;
use redoubt_pagestore::ObjectId;
use redoubt_redo::mariadb::log_file::{CheckpointBlock, CleanEnd, LogGeometry, LogHeader};
use redoubt_redo::{Family, Lsn};
use redoubt_sync::planted::{Bug, is_planted};
use redoubt_wire::stream::StreamFrame;

/// Why the log is left as it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftAsIs {
    /// There is nothing to recover: no redo since the server's checkpoint, but for what a shutdown writes last.
    IsClean,
    /// It is MySQL's: its recovery takes from the redo what it keeps of tables outside of pages (AUTO_INCREMENT), and
    /// what of ROW_FORMAT=COMPRESSED only it can apply.
    Dictionary,
    /// There is no log yet, or none that it would start from.
    NoLog,
    /// Redo of an import.
    Import,
    /// This file is not where, or not what, the redo says.
    FileOperation(String),
    /// A tablespace was created, renamed, deleted or cut at this LSN; its transaction may not have been committed, or
    /// the file not be cut.
    RecentFileOperation(Lsn),
    /// The log buffer has no room at the moment.
    NoRoom,
}

/// What ends the log at `end`, with the slot of its checkpoint block, or why nothing may. `imported_to`: where the redo
/// of an import that was not shut down cleanly ends.
pub fn frames(names: &Namespace, end: Lsn, imported_to: Lsn) -> Result<(CleanEnd, u8), LeftAsIs> {
    if names.family() == Family::MySql {
        return Err(LeftAsIs::Dictionary);
    }
    let log_file = names.log_file().ok_or(LeftAsIs::NoLog)?;
    let header = LogHeader::parse(&log_file.header).map_err(|_| LeftAsIs::NoLog)?;
    let geometry =
        LogGeometry::new(header.first_lsn, log_file.file_size_bytes).map_err(|_| LeftAsIs::NoLog)?;
    let [first, second] = log_file.checkpoints.each_ref().map(|block| CheckpointBlock::parse(block));
    let newest = CheckpointBlock::newest(first, second).ok_or(LeftAsIs::NoLog)?;
    if newest.checkpoint_lsn < imported_to {
        return Err(LeftAsIs::Import);
    }
    if CleanEnd::is_reached(&newest, end) {
        return Err(LeftAsIs::IsClean);
    }
    if let Some(path) = unfinished_file_operation(names).filter(|_| !is_planted(Bug::LogEndedTooEarly)) {
        return Err(LeftAsIs::FileOperation(path.to_owned()));
    }
    let last_operation = Lsn(log_file.last_file_operation_lsn);
    let oldest = [first, second].into_iter().flatten().map(|block| block.checkpoint_lsn).min();
    if oldest.is_none_or(|oldest| last_operation >= oldest) && !is_planted(Bug::LogEndedTooEarly) {
        return Err(LeftAsIs::RecentFileOperation(last_operation));
    }
    let slot = u8::from(Some(newest) == first && Some(newest) != second);
    Ok((CleanEnd::at(end, &geometry), slot))
}

/// A tablespace file whose creation, deletion or rename the redo tells of and that the file does not show.
fn unfinished_file_operation(names: &Namespace) -> Option<&str> {
    let is_unfinished = |entry: &crate::namespace::FileEntry| {
        let Some(object) = entry.object.map(ObjectId) else { return true };
        // Nothing named the files of the system tablespace, nor one whose pages were imported.
        let named = names.object(object).and_then(|object| object.name.as_deref());
        named.is_some_and(|name| name != entry.path)
    };
    let mut files = names.files().map(|(_, entry)| entry).filter(|entry| entry.tablespace);
    files.find(|entry| is_unfinished(entry)).map(|entry| entry.path.as_str())
}

impl Volume {
    /// Ends the redo log at `end`, where everything is durable and nobody is connected. Returns where the stream ends
    /// then.
    ///
    /// # Errors
    /// [`NodeError::Stopped`]; those of [`Volume::drain`].
    pub(super) fn end_log(&self, end: Point) -> Result<Point, NodeError> {
        let imported_to = Lsn(self.session.identity().imported_to_lsn);
        let found = match self.receiving.buffer.waits_for() {
            Some(_) => Err(LeftAsIs::NoRoom),
            None => frames(&self.indexing.names.read(), end.lsn, imported_to),
        };
        let (CleanEnd { redo, checkpoint }, slot) = match found {
            Ok(frames) => frames,
            Err(why) => {
                tracing::info!(
                    event = "redo_end_kept",
                    volume = self.context.name,
                    ?why,
                    "the redo log is left as it ends"
                );
                return Ok(end);
            }
        };
        let connection = self.session.next_connection();
        self.receiving.set_current(connection);
        let fed = self
            .feed(connection, &StreamFrame::Redo(&redo))
            .and_then(|()| self.feed(connection, &StreamFrame::Checkpoint { slot, block: &checkpoint }));
        self.receiving.set_current(0);
        fed?;
        self.drain()
    }
}

#[cfg(test)]
#[path = "clean_end_tests.rs"]
mod tests;
