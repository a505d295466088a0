//! The origin of a file's content, by its name, and the position of InnoDB's doublewrite area.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use redoubt_flash::trace::Origin;
use redoubt_workload::error::{Error, Result};

use super::extents::Part;

/// Length of a page in bytes.
pub(super) const PAGE_LEN_BYTES: u64 = 16384;
/// Number of the page of the system tablespace that says where the doublewrite area is.
const TRX_SYS_PAGE: u64 = 5;
/// Where on that page: a file segment header of 10 bytes, then these.
const DOUBLEWRITE_AT: usize = PAGE_LEN_BYTES as usize - 200 + 10;
const DOUBLEWRITE_MAGIC: u32 = 536_853_855;
/// Pages in each of the two blocks: an extent of 1 MiB.
const DOUBLEWRITE_BLOCK_PAGES: u64 = (1 << 20) / PAGE_LEN_BYTES;

/// The first pages of the two blocks of the doublewrite area, read from `ibdata1`.
///
/// # Errors
/// [`Error::Parse`] when there is none.
pub(super) fn doublewrite_blocks(system_tablespace: &Path) -> Result<[u64; 2]> {
    let mut fields = [0; 12];
    File::open(system_tablespace)
        .and_then(|file| {
            file.read_exact_at(&mut fields, TRX_SYS_PAGE * PAGE_LEN_BYTES + DOUBLEWRITE_AT as u64)
        })
        .map_err(Error::io_at("read", system_tablespace))?;
    let [m0, m1, m2, m3, a0, a1, a2, a3, b0, b1, b2, b3] = fields;
    let magic = u32::from_be_bytes([m0, m1, m2, m3]);
    if magic != DOUBLEWRITE_MAGIC {
        return Err(Error::Parse {
            what: format!("page {TRX_SYS_PAGE} of {}", system_tablespace.display()),
            detail: format!("no doublewrite area (its mark is {magic}, not {DOUBLEWRITE_MAGIC})"),
        });
    }
    Ok([[a0, a1, a2, a3], [b0, b1, b2, b3]].map(|page| u64::from(u32::from_be_bytes(page))))
}

/// The parts of a MariaDB server's file. `doublewrite`: as [`doublewrite_blocks`] has it.
pub(super) fn of_server(path: &Path, doublewrite: [u64; 2]) -> Vec<Part> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name == "ibdata1" {
        return system_tablespace(doublewrite);
    }
    whole(if name.ends_with(".ibd") || name.starts_with("undo") {
        Origin::Data
    } else if name.starts_with("ib_logfile") {
        Origin::Redo
    } else {
        Origin::Other
    })
}

/// The parts of a storage node's file. `journal`: origin of its page journal.
pub(super) fn of_node(path: &Path, journal: Origin) -> Vec<Part> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    whole(if name.ends_with(".pages") {
        Origin::Data
    } else if name.ends_with(".seg") {
        Origin::Redo
    } else if name.contains("journal") {
        journal
    } else {
        Origin::Other
    })
}

fn whole(origin: Origin) -> Vec<Part> {
    vec![Part { bytes: 0..u64::MAX, origin }]
}

fn system_tablespace(doublewrite: [u64; 2]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = 0;
    let mut blocks = doublewrite;
    blocks.sort_unstable();
    for block in blocks {
        let start = (block * PAGE_LEN_BYTES).max(at);
        let end = (block + DOUBLEWRITE_BLOCK_PAGES) * PAGE_LEN_BYTES;
        parts.push(Part { bytes: at..start, origin: Origin::Data });
        parts.push(Part { bytes: start..end, origin: Origin::Doublewrite });
        at = end;
    }
    parts.push(Part { bytes: at..u64::MAX, origin: Origin::Data });
    parts.retain(|part| !part.bytes.is_empty());
    parts
}
