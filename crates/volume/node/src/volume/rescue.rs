//! Damaged pages of a volume: rebuilding them when they are read, and writing them again.
//!
//! A reader of a page finds the damage; only the apply thread, which alone writes pages, writes the rebuilt page to the
//! store. Until then each read of the page rebuilds it.

use super::Volume;
use crate::counters::add;
use crate::error::NodeError;
use crate::index::PageKey;
use crate::rescue::{ImageOwner, PageHistory, Rescue};
use redoubt_page::Format;
use redoubt_pagestore::RetainedImage;
use redoubt_redo::PageId;

/// How often the log may be cut while it is being read.
const MAX_ATTEMPTS: usize = 5;

impl Volume {
    /// History of a page in the log, up to A, and the LSN from which on the log has redo.
    fn page_history(
        &self,
        key: PageKey,
        page_id: PageId,
        format: Format,
    ) -> Result<(PageHistory, redoubt_redo::Lsn), NodeError> {
        let owner = |path: &[u8], page_no: u32| self.image_owner(key, format, path, page_no);
        let mut attempt = 0;
        loop {
            let (applied, log_start) = self.applying.points();
            let mut history = PageHistory::new(page_id, format);
            let read =
                self.receiving.read_frames(log_start, applied.seq, |chunk| history.frame(&chunk, &owner));
            match read {
                Ok(_) => return Ok((history, log_start.lsn)),
                Err(error) => {
                    attempt += 1;
                    // Redo that has just been applied may have been cut off the log meanwhile.
                    let was_cut = self.applying.points().1 != log_start;
                    if !was_cut || attempt == MAX_ATTEMPTS {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn image_owner(&self, key: PageKey, format: Format, path: &[u8], page_no: u32) -> ImageOwner {
        let names = self.indexing.names.read();
        let entry = std::str::from_utf8(path).ok().and_then(|path| names.file_at(path));
        let Some((_, entry)) = entry.filter(|(_, entry)| entry.tablespace) else {
            return ImageOwner::Unknown;
        };
        let first_page = entry.first_byte / format.physical_page_size_bytes() as u64;
        let is_ours = entry.object == Some(key.object().0)
            && first_page + u64::from(page_no) == u64::from(key.page_no());
        if is_ours { ImageOwner::Ours } else { ImageOwner::Other }
    }

    fn rebuild(
        &self,
        key: PageKey,
        page_id: PageId,
        format: Format,
    ) -> Result<(Vec<u8>, &'static str), String> {
        let len_bytes = format.physical_page_size_bytes() as u32;
        // A journal that cannot be read has no images; the log may do.
        let retained: Vec<RetainedImage> =
            self.applying.store.retained_images(key.object(), key.page_no(), len_bytes).unwrap_or_else(|error| {
                tracing::warn!(event = "rescue_journal_unreadable", volume = self.context.name, page = %page_id, %error, "page journal not readable");
                Vec::new()
            });
        let (history, log_start) = match self.page_history(key, page_id, format) {
            Ok(found) => found,
            Err(error) if retained.iter().any(|image| image.is_newest) => {
                tracing::warn!(event = "rescue_log_unreadable", volume = self.context.name, page = %page_id, %error, "log not readable");
                (PageHistory::new(page_id, format), redoubt_redo::Lsn(u64::MAX))
            }
            Err(error) => return Err(error.to_string()),
        };
        history.rebuild(&retained, log_start)
    }
}

impl Rescue for Volume {
    fn rescue(
        &self,
        key: PageKey,
        page_id: PageId,
        format: Format,
        fault: &str,
    ) -> Result<Vec<u8>, NodeError> {
        let file = self.indexing.path_of_object(key.object());
        match self.rebuild(key, page_id, format) {
            Ok((page, from)) => {
                tracing::warn!(event = "page_rebuilt", volume = self.context.name, page = %page_id, file, fault, from, "page rebuilt");
                add(&self.context.counters.pages_rebuilt, 1);
                self.applying.add_repair(key);
                Ok(page)
            }
            Err(why) => Err(NodeError::Page {
                page: page_id,
                file,
                reason: format!(
                    "{fault}. It cannot be rebuilt: {why}. Check the drive; restore the volume from an export or a \
                     backup, or drop the table"
                ),
            }),
        }
    }
}
