//! Images by which the server ends the quarantine of a page that differed from its own.
//!
//! Pure. Invariant: an image is used, for a read or for the stored page, only if it has passed [`check`]. When tables are
//! applied, this holds for each image of the page in them from the one that ends the quarantine on. An image in a later
//! table is of a page that does not differ any more, and is trusted like any other.

use crate::index::table::resolve;
use crate::index::{Body, Entry};
use crate::log_buffer::Chunk;
use crate::quarantine::Difference;
use redoubt_page::format::page_lsn;
use redoubt_page::{Format, layout};
use redoubt_redo::{Family, Lsn, PageId};
use std::sync::Arc;

/// Checks an entry without earlier content of its page, if it is an image: checksum, identity, and an LSN not below that of the
/// server's page at the comparison.
///
/// # Errors
/// The fault of the image.
pub fn check(
    entry: &Entry,
    chunks: &[Arc<Chunk>],
    page_id: PageId,
    format: Format,
    difference: Difference,
) -> Result<(), String> {
    let Body::Image { chunk, offset, len, is_recovered } = entry.body else { return Ok(()) };
    let image = resolve(chunks, chunk, offset, len).ok_or("it is not in the log buffer")?;
    // MySQL fills pages without redo, under an LSN that says nothing. The position in the stream counts then.
    let has_own_lsn = format.family != Family::MySql || is_recovered;
    check_image(image, page_id, format, has_own_lsn.then_some(Lsn(difference.page_lsn)))
}

fn check_image(image: &[u8], page_id: PageId, format: Format, lsn_min: Option<Lsn>) -> Result<(), String> {
    format.verify(image).map_err(|error| error.to_string())?;
    let unpacked = if format.is_page_compressed_image(image) {
        format.decompress(image).map_err(|error| error.to_string())?
    } else {
        None
    };
    if let Some(unpacked) = unpacked.as_deref().filter(|_| format.family == Family::MySql) {
        // A compressed image of MySQL has the checksum of the page inside.
        format.verify(unpacked).map_err(|error| error.to_string())?;
    }
    let image = unpacked.as_deref().unwrap_or(image);
    let named = layout::page_id(image);
    if named != Some(page_id) {
        let named = named.map_or_else(|| "no page".to_owned(), |named| named.to_string());
        return Err(format!("it names page {named}"));
    }
    let lsn = page_lsn(format.family, image).unwrap_or_default();
    match lsn_min {
        Some(lsn_min) if lsn < lsn_min => Err(format!("its LSN {lsn} is below {lsn_min}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "server_image_tests.rs"]
mod tests;
