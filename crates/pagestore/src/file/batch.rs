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
    // Stable, so that of two equal ones the later stays behind.
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

/// Cuts sorted pages into runs of neighbours of at most `max_len` bytes, or one page.
pub(super) fn runs<'w, 'a>(
    writes: &'w [PageWrite<'a>],
    max_len: usize,
) -> impl Iterator<Item = &'w [PageWrite<'a>]> {
    let mut len = 0;
    writes.chunk_by(move |a, b| {
        len += a.page.len();
        let joined = a.object == b.object
            && a.page_no.checked_add(1) == Some(b.page_no)
            && len + b.page.len() <= max_len;
        if !joined {
            len = 0;
        }
        joined
    })
}

/// The bytes of a run, in `buffer` if it has more than one page.
pub(super) fn join<'b>(run: &'b [PageWrite<'_>], buffer: &'b mut Vec<u8>) -> &'b [u8] {
    if let [single] = run {
        return single.page;
    }
    buffer.clear();
    for write in run {
        buffer.extend_from_slice(write.page);
    }
    buffer
}
