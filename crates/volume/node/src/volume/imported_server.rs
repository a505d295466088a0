//! The newest server that wrote a data directory which is imported, as far as its files show it.
//!
//! | file | shows |
//! |---|---|
//! | redo log | the server that made it. A later series continues the log of an earlier one |
//! | `mariadb_upgrade_info`, `mysql_upgrade_info` | the server at the last `mariadb-upgrade` |
//! | page 4 of the system tablespace | MariaDB 11.0 or later has removed the change buffer from it |
//!
//! So the result may be older than the newest server, and never newer.

use super::import::LogShape;
use redoubt_page::format::page_lsn;
use redoubt_redo::mariadb::LogHeader;
use redoubt_redo::mysql::LogFileHeader;
use redoubt_redo::{Family, Lsn, PageId, PageNo, SpaceId};
use redoubt_wire::ServerVersion;

/// Root of the change buffer.
pub const CHANGE_BUFFER_ROOT: PageId = PageId { space: SpaceId(0), page_no: PageNo(4) };
/// Base node of the list of its free pages. It has addresses, or [`u32::MAX`] for none.
const FREE_LIST: std::ops::Range<usize> = 74..90;
const FIRST_WITHOUT_CHANGE_BUFFER: ServerVersion =
    ServerVersion { family: Family::MariaDb, major: 11, minor: 0, patch: 0 };

const UPGRADE_FILES: [&str; 2] = ["mariadb_upgrade_info", "mysql_upgrade_info"];

/// The newer of two servers of one family.
pub fn newer(one: Option<ServerVersion>, other: Option<ServerVersion>) -> Option<ServerVersion> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.newer_of(other)),
        (one, other) => one.or(other),
    }
}

/// The server that made the redo log.
pub fn of_log(family: Family, shape: &LogShape) -> Option<ServerVersion> {
    let creators: Vec<Vec<u8>> = match shape {
        LogShape::File { header, .. } => {
            let header = LogHeader::parse(header).ok();
            header.map(|header| header.creator).into_iter().collect()
        }
        LogShape::Set(files) => {
            let fronts =
                files.iter().flat_map(|file| &file.blocks).filter(|(offset_bytes, _)| *offset_bytes == 0);
            let headers = fronts.filter_map(|(_, block)| LogFileHeader::parse(block.first_chunk()?).ok());
            headers.map(|header| header.creator).collect()
        }
    };
    let versions = creators.iter().map(|creator| text_version(family, creator));
    versions.fold(None, newer)
}

/// The server that a plain file names.
pub fn of_file(family: Family, path: &str, start: &[u8]) -> Option<ServerVersion> {
    if !UPGRADE_FILES.contains(&path) {
        return None;
    }
    text_version(family, start)
}

fn text_version(family: Family, bytes: &[u8]) -> Option<ServerVersion> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    ServerVersion::in_text(family, std::str::from_utf8(text).ok()?)
}

/// The server that has removed the change buffer; `page` is its root. A page that was never written shows nothing.
pub fn of_change_buffer(family: Family, page: &[u8]) -> Option<ServerVersion> {
    let is_written = page_lsn(family, page).is_some_and(|lsn| lsn != Lsn(0));
    let is_removed = page.get(FREE_LIST).is_some_and(|list| list.iter().all(|byte| *byte == 0));
    (family == Family::MariaDb && is_written && is_removed).then_some(FIRST_WITHOUT_CHANGE_BUFFER)
}
