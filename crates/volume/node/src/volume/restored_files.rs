//! Lost plain files ([`PlainStore::lost`]) and the start of a server.
//!
//! A data directory may have the last copy of such a file: a server reads and writes its plain files there. Bringing the
//! directory to the state of the volume would empty it. So no server starts until the operator has put a copy beside the
//! lost contents ([`PlainStore::restored_path`]); an empty one gives the contents up. The node takes it when a server
//! starts and no other is connected, and never while it may still be being written. A server that is connected has its files, and continues.
//!
//! [`PlainStore::lost`]: crate::plain::PlainStore::lost
//! [`PlainStore::restored_path`]: crate::plain::PlainStore::restored_path

use super::Volume;
use crate::error::NodeError;
use crate::plain::Change;
use redoubt_wire::Seq;
use redoubt_wire::page::FileId;
use std::path::Path;
use std::time::Duration;

/// Lost files that are named one by one.
const NAMED_FILES: usize = 5;
/// A copy that was written more recently may be incomplete, and the copying program still has it open.
const COPY_RESTS: Duration = Duration::from_secs(10);

/// The copy is complete, as far as its age tells.
fn check_rests(copy: &Path) -> Result<(), NodeError> {
    // A time in the future is of another clock.
    let age = copy.metadata().and_then(|copy| copy.modified()).ok().and_then(|time| time.elapsed().ok());
    match age.filter(|age| *age < COPY_RESTS) {
        None => Ok(()),
        Some(_) => Err(NodeError::NotNow(format!(
            "the copy of a lost file, {}, was written less than {} s ago and may be incomplete; try again when it is complete",
            copy.display(),
            COPY_RESTS.as_secs()
        ))),
    }
}

impl Volume {
    /// Restores lost plain files of which there is a copy, unless a server is connected. Everything received is executed.
    ///
    /// # Errors
    /// [`NodeError::Refused`] if files are lost after that; [`NodeError::NotNow`] if received frames do not become durable,
    /// or a copy may be incomplete;
    /// [`NodeError::Stopped`], [`NodeError::Io`].
    pub(super) fn restore_lost_files(&self) -> Result<(), NodeError> {
        // All received is executed, also the changes after A.
        let lost = || self.describe_losses(self.plain.all_lost());
        if lost().is_empty() {
            return Ok(());
        }
        if !self.session.is_connected() && self.frozen_end().is_none() {
            // No frame comes meanwhile, and so no change.
            let _appending = self.receiving.pause_appending().ok_or_else(|| self.still_full())?;
            self.drain()?;
            let lost = lost();
            lost.iter().try_for_each(|(file, ..)| self.check_copy(*file))?;
            let restored = lost.iter().try_for_each(|(file, path, _)| self.restore_lost_file(*file, path));
            // Also after an error: the restored files are lost no longer.
            self.applying.stored_files.before_checkpoint(&self.plain)?;
            restored?;
        }
        match lost().as_slice() {
            [] => Ok(()),
            lost => Err(NodeError::Refused(self.about_lost(lost))),
        }
    }

    fn check_copy(&self, file: FileId) -> Result<(), NodeError> {
        match self.plain.find_restored(file)? {
            Some(_) => check_rests(&self.plain.restored_path(file)),
            None => Ok(()),
        }
    }

    fn restore_lost_file(&self, file: FileId, path: &str) -> Result<(), NodeError> {
        let Some(copy) = self.plain.find_restored(file)? else { return Ok(()) };
        // For an export that is under way.
        self.exports.before_change(Seq(u64::MAX), &Change::Create(file), &self.plain);
        self.plain.restore(file, &*copy)?;
        tracing::warn!(
            event = "plain_file_restored",
            volume = self.context.name,
            path,
            "lost plain file restored from a copy"
        );
        Ok(())
    }

    fn about_lost(&self, lost: &[(FileId, String, String)]) -> String {
        let named = lost.iter().take(NAMED_FILES).map(|(file, path, reason)| {
            format!("{path}: {reason}; a copy belongs at {}", self.plain.restored_path(*file).display())
        });
        let more = match lost.len().saturating_sub(NAMED_FILES) {
            0 => String::new(),
            more => format!(" And {more} more files, see `redoubt status --volume {}`.", self.context.name),
        };
        format!(
            "{} plain files of volume {} are lost on the node. {}.{more} A start would empty the copies that the data \
             directory may have. Copy each from there, from an export or from a backup, while no server is connected, under \
             another name in the same directory, and rename it when it is complete; an empty file gives the contents up. \
             Then start again. No server was fenced",
            lost.len(),
            self.context.name,
            named.collect::<Vec<_>>().join(". ")
        )
    }
}
