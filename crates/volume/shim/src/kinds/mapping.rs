//! Shared writable mappings of plain files (the transaction coordinator log).
//!
//! Changes through a mapping are detected when the server requests their durability (`msync`) or unmaps it. So only the
//! transaction coordinator log is mapped, which is written so. Other changes would be in the local file of a killed
//! server and not on the node, whose older content would replace them: such a mapping is refused. MyISAM
//! (`myisam_use_mmap`) then writes with `pwrite`.

use crate::base::classify::file_name;
use crate::base::message;
use crate::base::real::Errno;
use crate::content::Content;
use crate::kinds::plain::PlainFile;
use redoubt_locks::IgnorePoison;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// MariaDB's transaction coordinator log.
const COORDINATOR_LOG: &[u8] = b"tc.log";

/// Whether a file may be written through a mapping. Otherwise a message says which file was refused.
pub fn is_allowed(content: &Content, file: &PlainFile) -> bool {
    let names = content.names.lock_shared();
    let Some(path) = file.name.path(&names) else { return true };
    if file_name(&path) == COORDINATOR_LOG {
        return true;
    }
    message::warning(&format!(
        "{} may not be written through a mapping, of which the storage node would not hear: the mapping is refused \
         (myisam_use_mmap has no effect on a volume)",
        String::from_utf8_lossy(&path)
    ));
    false
}

/// A mapping. `address` is a number, not a pointer: only the hooks turn it into one.
#[derive(Clone)]
pub struct Mapping {
    /// Address of the mapping.
    pub address: usize,
    /// Length in bytes.
    pub len_bytes: usize,
    /// Offset in the file.
    pub offset_bytes: u64,
    /// The file.
    pub file: Arc<PlainFile>,
}

/// A part of a mapping.
pub struct Range {
    /// Address of the range.
    pub address: usize,
    /// Length in bytes.
    pub len_bytes: usize,
    /// Offset in the file.
    pub offset_bytes: u64,
    /// The file.
    pub file: Arc<PlainFile>,
}

/// All mappings.
#[derive(Default)]
pub struct Mappings {
    count: AtomicUsize,
    list: Mutex<Vec<Mapping>>,
}

impl Mappings {
    /// No file is mapped.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Remembers a mapping.
    pub fn add(&self, mapping: Mapping) {
        let mut list = self.list.lock().ignore_poison();
        list.push(mapping);
        self.count.store(list.len(), Ordering::Release);
    }

    /// The mapped parts inside an address range.
    pub fn inside(&self, address: usize, len_bytes: usize) -> Vec<Range> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let list = self.list.lock().ignore_poison();
        let end = address.saturating_add(len_bytes);
        list.iter()
            .filter_map(|mapping| {
                let from = address.max(mapping.address);
                let to = end.min(mapping.address + mapping.len_bytes);
                (from < to).then(|| Range {
                    address: from,
                    len_bytes: to - from,
                    offset_bytes: mapping.offset_bytes + (from - mapping.address) as u64,
                    file: Arc::clone(&mapping.file),
                })
            })
            .collect()
    }

    /// Forgets mappings that begin inside an address range.
    pub fn remove(&self, address: usize, len_bytes: usize) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut list = self.list.lock().ignore_poison();
        list.retain(|mapping| {
            mapping.address < address || mapping.address >= address.saturating_add(len_bytes)
        });
        self.count.store(list.len(), Ordering::Release);
    }
}

/// Length of the part of a mapped range that the file has: a mapping may be longer, and past the end nothing may be
/// read.
///
/// # Errors
/// That of asking for the length.
pub fn present_len_bytes(content: &Content, range: &Range) -> Result<usize, Errno> {
    let left = range.file.len_bytes(content)?.saturating_sub(range.offset_bytes);
    Ok(range.len_bytes.min(usize::try_from(left).map_err(|_| Errno(libc::EFBIG))?))
}

/// Sends the bytes of a mapped range, or of its first part.
///
/// # Errors
/// `EIO` when the stream is dead.
pub fn send(content: &Content, range: &Range, bytes: &[u8], wait: bool) -> Result<(), Errno> {
    range.file.mapped_bytes(content, bytes, range.offset_bytes)?;
    if wait { range.file.sync(content) } else { Ok(()) }
}
