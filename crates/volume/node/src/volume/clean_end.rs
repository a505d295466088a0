//! Ends the redo log of a volume without a writer with a checkpoint, so that the server that takes it over has nothing
//! to recover.
//!
//! A stock server that was killed reads its redo since its last checkpoint, opens every tablespace named there and
//! applies it. Here the pages have all of it already. So an attach appends the records that a server writes last when
//! it shuts down: a FILE_CHECKPOINT of D, and the checkpoint block of D. The new server only does the work of any
//! start: it rolls back transactions that were not committed.
//!
//! Not where recovery does more than apply redo to pages. There the server recovers from its own checkpoint, as ever:
//!
//! * a file operation that is in the redo and was not done: the server was killed between the two;
//! * a file operation that was done and whose transaction may not have been committed. The rollback takes it back, but
//!   the server knows from the redo alone that `t.ibd` is not the `t` of its dictionary, where `t` is still the table
//!   that was renamed away. Without that redo it refuses to load the file, and `t` is gone. The duration of such a
//!   transaction is unlimited, so an operation counts as settled when the server has made two checkpoints since;
//! * a system tablespace that was cut in the redo (MariaDB 11.2 and later), and perhaps not yet as a file. Only that
//!   recovery would do it later;
//! * the redo of an import, whose files may have been cut from outside.
//!
//! In the stream it is redo like any other, in the server's order: the record first, then the block. A node that ends
//! between the two leaves a record that every recovery skips.

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
    /// There is nothing to recover: no redo since the server's checkpoint, except for the last writes of a shutdown.
    IsClean,
    /// The log is MySQL's. Its recovery reads table state from the redo that is not in pages (AUTO_INCREMENT), and
    /// applies the part of ROW_FORMAT=COMPRESSED that the node cannot apply.
    Dictionary,
    /// There is no log yet, or none that it would start from.
    NoLog,
    /// Redo of an import.
    Import,
    /// The path or the kind of this file differs from the redo.
    FileOperation(String),
    /// A tablespace was created, renamed, deleted or cut at this LSN; its transaction may not have been committed, or
    /// the file not be cut.
    RecentFileOperation(Lsn),
    /// The log buffer has no room at the moment.
    NoRoom,
}

/// Parts of the state that an export without the server's redo does not have.
pub const fn missing_without_redo(family: Family) -> &'static str {
    match family {
        Family::MariaDb => {
            "The pages have it; but a server does not finish a CREATE, RENAME or DROP TABLE that was under way"
        }
        // See `LeftAsIs::Dictionary`.
        Family::MySql => {
            "The log in the export is empty. Changes of tables with ROW_FORMAT=COMPRESSED and AUTO_INCREMENT values since the \
             server's checkpoint may be missing, also in files that are not reported. A server does not finish a CREATE, \
             RENAME or DROP TABLE that was under way. No start of a server on it was tried: count on the last export only"
        }
    }
}

/// The frames that end the log at `end`, with the slot of their checkpoint block, or the reason to leave the log as it
/// is. `imported_to`: end of the redo of an import that was not shut down cleanly.
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

/// A tablespace file whose creation, deletion or rename is in the redo and was not done.
fn unfinished_file_operation(names: &Namespace) -> Option<&str> {
    let is_unfinished = |entry: &crate::namespace::FileEntry| {
        let Some(object) = entry.object.map(ObjectId) else { return true };
        // Redo named neither the files of the system tablespace nor a file whose pages were imported.
        let named = names.object(object).and_then(|object| object.name.as_deref());
        named.is_some_and(|name| name != entry.path)
    };
    let mut files = names.files().map(|(_, entry)| entry).filter(|entry| entry.tablespace);
    files.find(|entry| is_unfinished(entry)).map(|entry| entry.path.as_str())
}

impl Volume {
    /// Ends the redo log at `end`, where everything is durable and no server is connected. Returns the new end of the
    /// stream.
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
