//! Stored pages that are older versions than must be stored, with the right checksum: the drive has lost a write.
//!
//! The scrub suspects a page, because the log has a change of it that it lacks, or because the page journal has another
//! newest version. The apply thread, which alone writes pages, examines it: replaying the log up to A on the stored page
//! must change nothing.

use super::Volume;
use super::rescue::is_damage;
use crate::error::NodeError;
use crate::index::PageKey;
use crate::rescue::{DamagedImage, Examined, PageHistory};
use redoubt_redo::{Lsn, PageId};
use redoubt_sync::thread::catch_panic;

/// A page that was examined.
pub struct Suspect {
    /// Its key in the store.
    pub key: PageKey,
    /// Its identity in the server.
    pub page_id: PageId,
    /// The result.
    pub verdict: Examined,
}

impl Volume {
    /// Examines pages. Only for the apply thread.
    ///
    /// # Errors
    /// The disk could not be read, so nothing is certain.
    pub(super) fn examine(&self, keys: &[PageKey]) -> Result<Vec<Suspect>, NodeError> {
        let (mut pages, mut stored) = (Vec::new(), Vec::new());
        for key in keys {
            let Some((image, page)) = self.stored_suspect(*key)? else { continue };
            pages.push(image);
            stored.push(page);
        }
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let (histories, log_start, _) = match self.page_histories(&pages.iter().collect::<Vec<_>>()) {
            Ok(found) => found,
            // The page journal may prove something.
            Err(error) if is_damage(&error) => {
                let none = pages.iter().map(|page| PageHistory::new(page.page_id, page.format));
                (none.collect(), Lsn(u64::MAX), false)
            }
            Err(error) => return Err(error),
        };
        let mut examined = Vec::new();
        for ((page, stored), history) in pages.into_iter().zip(stored).zip(histories) {
            let DamagedImage { key, page_id, format, .. } = page;
            let len_bytes = format.physical_page_size_bytes() as u32;
            let retained = self.applying.store.retained_images(key.object(), key.page_no(), len_bytes)?;
            // A panic concerns this page only, and proves nothing about it.
            let verdict = catch_panic(|| history.examine(&stored, &retained, log_start));
            examined.push(Suspect { key, page_id, verdict: verdict.unwrap_or(Examined::Unproven) });
        }
        Ok(examined)
    }

    /// A page whose checksum is right, with its stored image. `None`: it is gone, set aside, or damaged.
    fn stored_suspect(&self, key: PageKey) -> Result<Option<(DamagedImage, Vec<u8>)>, NodeError> {
        let Some((page_id, Some(format))) = self.describe(key) else { return Ok(None) };
        // Otherwise it would be made again.
        let Ok(stored_bytes) = self.applying.store.len_bytes(key.object()) else { return Ok(None) };
        let end_bytes = (u64::from(key.page_no()) + 1) * format.physical_page_size_bytes() as u64;
        if end_bytes > stored_bytes || self.quarantine.list.find(key).is_some() {
            return Ok(None);
        }
        self.applying.store.drop_cache(
            key.object(),
            key.page_no()..key.page_no() + 1,
            format.physical_page_size_bytes() as u32,
        );
        let Ok(page) = self.stored_pages().read_stored(key, format)? else { return Ok(None) };
        Ok(Some((DamagedImage { key, page_id, format, fault: String::new() }, page)))
    }
}
