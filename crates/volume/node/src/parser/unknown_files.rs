//! Plain files that the server changes and the volume does not have: they were put into its data directory from outside.

use super::{Outcome, Parser};
use crate::error::NodeError;
use crate::log_buffer::Chunk;
use crate::namespace::text_path;
use redoubt_wire::stream::StreamFrame;
use std::sync::Arc;

/// Unknown files that are remembered, and so named once.
const UNKNOWN_FILES: usize = 1000;

impl Parser<'_> {
    /// Reports a file that was put into the server's data directory from outside: it is no file of the volume
    /// (docs/volume/reference/limits.md). Its earlier content is not known here, so the writes alone would give a
    /// different file. The server's library sends the whole one, unless it is an older one.
    pub(super) fn unknown_file(&mut self, path: String) -> Option<String> {
        if self.unknown_files.len() >= UNKNOWN_FILES || !self.unknown_files.insert(path.clone()) {
            return None;
        }
        tracing::warn!(
            event = "foreign_file",
            path,
            "the server changes a file that the volume does not have: it was put into the data directory from outside. See \
             `redoubt status` and the server's error log"
        );
        Some(path)
    }

    /// See [`Outcome::settled_files`].
    pub(super) fn settle_file(&mut self, path: &str, outcome: &mut Outcome) {
        outcome.settled_files.extend(self.unknown_files.take(path));
    }

    /// A file that the volume does not have may get the name of one that it has. The content of that one is gone then, and the
    /// server's library sends the new one. Of other such files only those are named that the server writes.
    pub(super) fn rename(
        &mut self,
        chunk: &Arc<Chunk>,
        from: &[u8],
        to: &[u8],
        outcome: &mut Outcome,
    ) -> Result<(), NodeError> {
        let (from_path, to_path) = (text_path(from)?, text_path(to)?);
        let (has_from, is_tablespace) = {
            let names = self.names.read();
            let at_to = names.file_at(&to_path).map(|(_, entry)| entry.tablespace);
            (names.has_path(&from_path), at_to)
        };
        if has_from {
            self.settle_file(&to_path, outcome);
            return self.name_change(chunk, StreamFrame::Rename { from, to });
        }
        self.settle_file(&from_path, outcome);
        let replaces = is_tablespace == Some(false);
        if replaces {
            self.name_change(chunk, StreamFrame::Unlink { path: to })?;
        }
        if replaces || !outcome.settled_files.is_empty() {
            outcome.unknown_file = self.unknown_file(to_path);
        }
        Ok(())
    }
}
