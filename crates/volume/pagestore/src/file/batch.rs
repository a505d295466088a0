//! Ordering and checking the pages of a batch. Pure.

use crate::PageWrite;
use crate::error::PageStoreError;

const MIN_PAGE_LEN: usize = 512;
const MAX_PAGE_LEN: usize = 64 << 10;

fn invalid(write: &PageWrite<'_>, reason: String) -> PageStoreError {
    PageStoreError::InvalidBatch { object: write.object, page_no: write.page_no, reason }
}

/// Fails if a page has a length that no page has.
pub(super) fn check_page(write: &PageWrite<'_>) -> Result<(), PageStoreError> {
    let len = write.page.len();
    if !len.is_power_of_two() || !(MIN_PAGE_LEN..=MAX_PAGE_LEN).contains(&len) {
        let reason = format!("{len} bytes are not a power of two from {MIN_PAGE_LEN} to {MAX_PAGE_LEN}");
        return Err(invalid(write, reason));
    }
    Ok(())
}

/// The pages in (object, page) order, each once: the one that came last.
pub(super) fn sorted<'a>(writes: &[PageWrite<'a>]) -> Result<Vec<PageWrite<'a>>, PageStoreError> {
    let mut sorted: Vec<PageWrite<'a>> = Vec::with_capacity(writes.len());
    let mut ordered: Vec<&PageWrite<'a>> = writes.iter().collect();
    // Stable, so that of two equal ones the later stays last.
    ordered.sort_by_key(|write| (write.object, write.page_no));
    for write in ordered {
        match sorted.last_mut() {
            Some(last) if last.object == write.object => {
                if last.page.len() != write.page.len() {
                    let lens = (write.page.len(), last.page.len());
                    let reason = format!("{} bytes, but another page has {}", lens.0, lens.1);
                    return Err(invalid(write, reason));
                }
                if last.page_no == write.page_no {
                    *last = *write;
                    continue;
                }
            }
            _ => {}
        }
        sorted.push(*write);
    }
    Ok(sorted)
}
