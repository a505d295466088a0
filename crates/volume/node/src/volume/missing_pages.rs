//! Pages that page files lack at a start, rebuilt from the page journal and the log.
//!
//! They are in quarantine by then ([`super::stored_files`]), and leave it when they are written. So a node that is killed in
//! between loses nothing.

use super::Volume;
use super::quarantine::{Surroundings, page_key};
use super::stored_files::has_page;
use crate::error::{Kind, NodeError};
use crate::quarantine::{Damage, PAGES_MAX, SetAside};
use crate::rescue::DamagedImage;
use redoubt_page::Format;
use redoubt_pagestore::{ObjectId, PageWrite};
use redoubt_redo::PageId;

/// Pages that are rebuilt with one pass over the log.
const TOGETHER: usize = 256;
/// Pages that are tried at a start: it waits for the passes.
const TRIED_MAX: usize = 16 * TOGETHER;
const _: () = assert!(TRIED_MAX <= PAGES_MAX, "no more pages are set aside");

impl Volume {
    /// Rebuilds pages that were set aside because their files lack them, and of which no record was left out.
    ///
    /// # Errors
    /// Those of the page store and of the quarantine. A page that cannot be rebuilt is none.
    pub(super) fn rebuild_missing_pages(&self, surroundings: &Surroundings<'_>) -> Result<(), NodeError> {
        for together in self.missing_pages().chunks(TOGETHER) {
            let rebuilt = match self.rebuild_all(together) {
                Ok(rebuilt) => rebuilt,
                Err(error) => {
                    self.warn_not_rebuilt(&error);
                    return Ok(());
                }
            };
            let rebuilt: Vec<_> = together
                .iter()
                .zip(rebuilt)
                .filter_map(|(page, rebuilt)| Some((page.key, rebuilt.ok()?)))
                .collect();
            if rebuilt.is_empty() {
                continue;
            }
            let writes: Vec<_> = rebuilt
                .iter()
                .map(|(key, page)| PageWrite { object: key.object(), page_no: key.page_no(), page })
                .collect();
            let store = &self.applying.store;
            match store.write_batch(&writes).and_then(|()| store.seal()).map_err(NodeError::from) {
                Err(error) if error.kind() == Kind::Retry => {
                    self.warn_not_rebuilt(&error);
                    return Ok(());
                }
                written => written?,
            }
            let back = rebuilt.iter().map(|(key, _)| (key.object(), Some(key.page_no()))).collect();
            self.quarantine.settle(&Damage { back, ..Damage::default() }, &[], surroundings)?;
        }
        Ok(())
    }

    fn missing_pages(&self) -> Vec<DamagedImage> {
        let (names, store) = (self.indexing.names.read(), &*self.applying.store);
        let (applied, contents) = (self.applying.applied().get(), self.quarantine.list.contents());
        let of = |entry: &SetAside| {
            let (key, object) = (page_key(entry)?, ObjectId(entry.object));
            if entry.found_at != Some(applied.seq.0) || contents.find_object(object).is_some() {
                return None;
            }
            let format = Format { family: names.family(), flags: names.object(object)?.flags? };
            // Without a file there is nothing to write to.
            store.found_len_bytes(object).ok()?;
            if has_page(&names, object, key.page_no(), store) {
                return None;
            }
            let page_id = PageId::new(entry.space, key.page_no());
            Some(DamagedImage { key, page_id, format, fault: entry.reason.clone() })
        };
        contents.entries().filter_map(of).take(TRIED_MAX).collect()
    }

    fn warn_not_rebuilt(&self, error: &NodeError) {
        tracing::warn!(event = "missing_pages_not_rebuilt", volume = self.context.name, %error, "pages that page files lack are not rebuilt at this start");
    }
}
