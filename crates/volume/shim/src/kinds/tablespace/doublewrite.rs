//! Which pages of the system tablespace are the doublewrite area: copies of any tablespace's pages, in any format.

use super::{Info, Tablespace};
use crate::base::message;
use crate::base::real::Errno;
use crate::content::Content;
use redoubt_locks::IgnorePoison;
use redoubt_page::Format;
use redoubt_page::doublewrite::{TRX_SYS_PAGE_NO, locate};
use redoubt_wire::page::{PageReply, PageRequest};

impl Tablespace {
    /// True for a page of the doublewrite area. The location of the area is requested once.
    ///
    /// # Errors
    /// `EIO` when the node cannot answer, or the page with the location is damaged.
    pub(super) fn is_doublewrite(&self, content: &Content, info: Info, page_no: u32) -> Result<bool, Errno> {
        if !self.is_first_system_file {
            return Ok(false);
        }
        let mut area = self.doublewrite.lock().ignore_poison();
        if area.is_none() {
            let (Some(file), Some(flags)) = (info.file, info.format.and_then(Format::as_mariadb)) else {
                return Ok(false);
            };
            let len_bytes = content.page_size_bytes;
            let request = PageRequest::Read {
                need: content.stream.end(),
                file,
                offset_bytes: u64::from(TRX_SYS_PAGE_NO) * u64::from(len_bytes),
                len_bytes,
            };
            let found = content.pool.request(&request, |reply| match reply {
                PageReply::Bytes(page) => locate(page, flags),
                _ => Ok(None),
            })?;
            *area = found.map_err(|error| {
                message::error(&error.to_string());
                Errno::EIO
            })?;
        }
        Ok(area.is_some_and(|area| area.contains(page_no)))
    }
}
