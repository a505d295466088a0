//! Mini-transactions of any server family: the pages that they change, and their effects on files.
//!
//! The output of a family's walk ([`crate::mariadb::walk_mtrs`]), and the only view of redo that index, names and the
//! map of dirty pages have. Only code that applies a run to a page, or composes a log file, uses the bytes.

use crate::types::{Lsn, PageId, PageNo, SpaceId};

/// The system tablespace.
const SYSTEM_SPACE: u32 = 0;

/// A run: maximal contiguous records of one page inside a mini-transaction, the first of which carries the
/// page's ids. TRIM_PAGES is always a run of its own. MySQL has neither TRIM_PAGES nor FREE_PAGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRef {
    /// The page. For TRIM_PAGES its page number is the new size of the file.
    pub page: PageId,
    /// Where the run starts, in bytes from the start of the slice that is walked.
    pub offset_in_bytes: usize,
    /// Length of the run in bytes.
    pub len_bytes: usize,
    /// Where in the run its last INIT_PAGE (MySQL: INIT_FILE_PAGE2) starts, in bytes from the start of the run.
    /// Everything before it, here and in earlier mini-transactions, has no effect on the page.
    pub last_init_offset: Option<usize>,
    /// There is a FREE_PAGE in the run.
    pub contains_free: bool,
    /// FREE_PAGE is the last record of the run.
    pub ends_with_free: bool,
    /// The run is a TRIM_PAGES: the tablespace was cut to this many pages.
    pub trim_pages: Option<u32>,
    /// Change of the tablespace flags; only page 0 has them.
    pub space_flags: SpaceFlagsChange,
}

/// Content that the records of a run put on a page since its last initialisation in it, or else in all, as far as it
/// can be seen on an image of it (MySQL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RunContent {
    /// The page was made an empty page of an index; the following records are since then.
    pub is_created: bool,
    /// Something was changed.
    pub is_changed: bool,
    /// How many more records there are on the page of an index; `None`: not known.
    pub records: Option<i32>,
    /// Segments were put into the header of an index page, which only a root has.
    pub has_segments: bool,
    /// The id that was written into the header of an index page.
    pub index_id: Option<u64>,
}

/// How a run resets its page: the stream's content for the page before it, here and in earlier mini-transactions, is
/// void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageReset {
    /// INIT_PAGE: the page is empty, and the following records fill it.
    Init,
    /// FREE_PAGE: the content that the page had counts no more, and there is no other until INIT_PAGE. The server need
    /// not write the page, and never writes what it had not written when the page was freed.
    Free,
}

impl RunRef {
    /// For TRIM_PAGES, the first page that it makes void; all pages from there on are reset. An undo tablespace is
    /// reset as a whole, and then has the length in the record. Of the system tablespace (space 0; since MariaDB 11.2,
    /// when a slow shutdown or a start shrinks it) only the pages past the new end go, and those before it keep what
    /// they have, records of the same mini-transaction included.
    pub const fn trims_from(&self) -> Option<PageNo> {
        match self.trim_pages {
            None => None,
            Some(pages) if self.page.space.0 == SYSTEM_SPACE => Some(PageNo(pages)),
            Some(_) => Some(PageNo(0)),
        }
    }

    /// The last initialisation of the page in the run, if there is one.
    pub const fn reset(&self) -> Option<PageReset> {
        if self.ends_with_free {
            Some(PageReset::Free)
        } else if self.last_init_offset.is_some() {
            Some(PageReset::Init)
        } else if self.contains_free {
            // The next record is invalid here; applying the run fails.
            Some(PageReset::Free)
        } else {
            None
        }
    }
}

/// A record about a file, with its tablespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileNote<'a> {
    /// The tablespace (0 for FILE_CHECKPOINT).
    pub space: SpaceId,
    /// Content of the record.
    pub record: FileRecord<'a>,
}

/// An index was built without redo, and all its pages were written to their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLoad {
    /// Its root page.
    pub root: PageId,
    /// Its id, as its pages have it.
    pub index_id: u64,
}

/// One whole, valid mini-transaction.
#[derive(Clone, Copy, Debug)]
pub struct Mtr<'m, 'a> {
    /// LSN of its first byte.
    pub start_lsn: Lsn,
    /// LSN after its last byte; the page LSN of the pages it changed.
    pub end_lsn: Lsn,
    /// All its bytes: records, and the end byte and checksum of the family.
    pub bytes: &'a [u8],
    /// Its record bytes.
    pub records: &'a [u8],
    /// Where it starts, in bytes from the start of the slice that is walked.
    pub offset_in_bytes: usize,
    /// Its page runs, in order.
    pub runs: &'m [RunRef],
    /// Content that each of the runs puts on its page. Empty for MariaDB, whose redo has all of a page's content.
    pub contents: &'m [RunContent],
    /// Its records about files, in order. Of MariaDB they come before every page record, of MySQL each is a
    /// mini-transaction of its own.
    pub files: &'m [FileNote<'a>],
    /// Indexes that were built without redo and are in their files by now (MySQL); a mini-transaction of its own each.
    pub index_loads: &'m [IndexLoad],
}

impl<'a> Mtr<'_, 'a> {
    /// Where it ends, in bytes from the start of the slice that is walked.
    pub const fn end_in_bytes(&self) -> usize {
        self.offset_in_bytes + self.bytes.len()
    }

    /// The bytes of one of its runs, as the family's record reader reads them.
    pub fn run_bytes(&self, run: &RunRef) -> &'a [u8] {
        let start = run.offset_in_bytes.saturating_sub(self.offset_in_bytes);
        self.records.get(start..start + run.len_bytes).unwrap_or_default()
    }
}

/// Change of the tablespace flags by a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SpaceFlagsChange {
    /// Nothing, or the run is not for page 0.
    #[default]
    Unchanged,
    /// They have this value after the run.
    Set(u32),
    /// Some of their bytes changed: the content is known only after the run is applied to the page.
    Unknown,
}

/// A record about a tablespace file. Paths carry no NUL, and end in `.ibd` unless MySQL has an undo tablespace there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRecord<'a> {
    /// The file is about to be created.
    Create {
        /// Its path, e.g. `./test/t1.ibd`.
        path: &'a [u8],
    },
    /// The file is about to be deleted.
    Delete {
        /// Its path.
        path: &'a [u8],
    },
    /// The file is about to be renamed.
    Rename {
        /// Path before.
        old_path: &'a [u8],
        /// Path after.
        new_path: &'a [u8],
    },
    /// First change of this tablespace since the checkpoint.
    Modify {
        /// Its path.
        path: &'a [u8],
    },
    /// The file was grown by zeros (MySQL).
    Extend {
        /// Where the zeros begin; the size of the file before.
        offset_bytes: u64,
        /// How many they are.
        len_bytes: u64,
    },
    /// Checkpoint at this LSN; `None` is padding.
    Checkpoint {
        /// The checkpoint LSN.
        lsn: Option<u64>,
    },
}

/// Receives the mini-transactions of a walk, in LSN order.
pub trait MtrVisitor {
    /// The next mini-transaction.
    fn visit_mtr(&mut self, mtr: &Mtr<'_, '_>);
}

impl<F: FnMut(&Mtr<'_, '_>)> MtrVisitor for F {
    fn visit_mtr(&mut self, mtr: &Mtr<'_, '_>) {
        self(mtr);
    }
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStop {
    /// The bytes end where a mini-transaction ends.
    AllConsumed,
    /// The bytes end inside a mini-transaction.
    Incomplete,
    /// A byte 0 or 1 where a mini-transaction would start.
    EndOfLog,
    /// An end byte with the other sequence bit.
    WrongSequenceBit,
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// End LSN of the last mini-transaction that was reported.
    pub end_lsn: Lsn,
    /// Bytes of the mini-transactions that were reported.
    pub len_bytes: usize,
    /// Why it ended.
    pub stop: WalkStop,
}
