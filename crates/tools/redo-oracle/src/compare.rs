//! Byte-for-byte comparison of our replay with what a stock server's recovery left.
//!
//! Permitted differences, with their reasons (the whole list; everything else is a difference):
//!
//! * *Checksum and trailer* are not excluded but computed: `finalize` gives our page both, and the page must be the
//!   server's to the last byte. Only where the server stored the page compressed by `PAGE_COMPRESSED` is its image
//!   taken apart first, and then the bytes that the server fills in at a write are left out (`differing_ranges`).
//! * *Freed pages*: pages whose last record is FREE_PAGE. Redo gives them no content, the server need not write them,
//!   and they are not read before INIT_PAGE begins them again.
//! * *Stale undo pages*: pages that TRIM_PAGES cut off an undo tablespace (or the system tablespace) and that redo has
//!   not begun again. The file of the server keeps bytes of before; for the server, too, they are free.
//! * *Doublewrite area* of the system tablespace: written outside of redo, at the place that the TRX_SYS page names.
//! * *Torn encrypted pages* of a killed server: its recovery reads them from the doublewrite area and leaves them torn in
//!   the file (`clear`). Their copies are compared, to the last byte. The page must have been torn before, too.
//! * Tablespaces that were *imported* after the base: none of their pages is in redo. A history has none.
//!
//! A page that redo did not touch must be the base's, or all zero where the base has none.

use std::collections::BTreeMap;

use redoubt_page::doublewrite::{self, DoublewriteArea};
use redoubt_page::{
    RecordKind, SpaceFlags, decompress, differing_ranges, finalize, layout, page_is_never_written, verify,
};
use redoubt_redo::mariadb::RecordReader;
use redoubt_redo::{Lsn, PageId, PageNo, SpaceId};
use redoubt_workload::error::{Error, Result};
use serde::Serialize;

use super::base::{Base, identify, page_of, system_files};
use super::clear::TornPages;
use super::redo::Redo;
use super::replay::{Page, Replayed};

/// One page that differs, or one file.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// The tablespace's file.
    pub path: String,
    /// `space:page`, or empty when it is about the file.
    pub page: String,
    /// Type of the server's page.
    pub page_type: u16,
    /// First byte that differs.
    pub offset: usize,
    /// Our bytes from there, and the server's, as hexadecimal digits.
    pub bytes: [String; 2],
    /// How many bytes differ.
    pub differing_bytes: usize,
    /// Where, the first few: offset and length.
    pub ranges: Vec<(usize, usize)>,
    /// LSNs of our page and the server's.
    pub lsns: [u64; 2],
    /// The last mini-transaction that touched the page, and its last record.
    pub last_change: String,
    /// The defect, when it is not about bytes.
    pub what: String,
    /// Our whole page, and the server's.
    #[serde(skip)]
    pub images: Images,
}

/// Two page images. In text they are left out.
#[derive(Clone, Default)]
pub struct Images(pub [Vec<u8>; 2]);

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} bytes", self.0.each_ref().map(Vec::len))
    }
}

/// Result of a comparison.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Pages that redo touched, and compared.
    pub touched: u64,
    /// Of these: identical to the last byte, checksum included.
    pub identical: u64,
    /// Of these: stored by the server as page_compressed images, compared after taking them apart.
    pub page_compressed: u64,
    /// Pages that redo did not touch, and compared.
    pub untouched: u64,
    /// Excluded: freed.
    pub freed: u64,
    /// Excluded: cut off from an undo tablespace.
    pub stale_undo: u64,
    /// Excluded: in the doublewrite area.
    pub doublewrite: u64,
    /// Compared from their copies: encrypted pages that a kill tore and that the recovery left torn.
    pub torn: u64,
    /// Files compared.
    pub files: u64,
    /// Differences, the first hundred.
    pub differences: Vec<Difference>,
    /// All differences.
    pub differing: u64,
    /// Messages of the server with the first difference.
    #[serde(skip)]
    pub log: String,
}

/// Differences that are kept in full.
const KEPT_DIFFERENCES: usize = 100;

impl Report {
    /// Adds another report.
    pub fn add(&mut self, other: &Self) {
        self.touched += other.touched;
        self.identical += other.identical;
        self.page_compressed += other.page_compressed;
        self.untouched += other.untouched;
        self.freed += other.freed;
        self.stale_undo += other.stale_undo;
        self.doublewrite += other.doublewrite;
        self.torn += other.torn;
        self.files += other.files;
        self.differing += other.differing;
        if self.log.is_empty() {
            self.log.clone_from(&other.log);
        }
        let room = KEPT_DIFFERENCES.saturating_sub(self.differences.len());
        self.differences.extend(other.differences.iter().take(room).cloned());
    }

    fn differs(&mut self, difference: Difference) {
        self.differing += 1;
        if self.differences.len() < KEPT_DIFFERENCES {
            self.differences.push(difference);
        }
    }

    fn file_differs(&mut self, path: &str, what: String) {
        self.differs(Difference {
            path: path.to_owned(),
            page: String::new(),
            page_type: 0,
            offset: 0,
            bytes: Default::default(),
            differing_bytes: 0,
            ranges: Vec::new(),
            lsns: [0, 0],
            last_change: String::new(),
            what,
            images: Images::default(),
        });
    }
}

/// Compares what our replay made with the server's files.
///
/// # Errors
/// [`Error::Parse`] when a file of the server is not understood.
pub fn compare(
    base: &Base,
    redo: &Redo,
    ours: &Replayed,
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<Report> {
    let mut report = Report::default();
    let system = system_files(files.keys());
    let mut seen = BTreeMap::new();
    for (path, bytes) in files {
        if system.iter().skip(1).any(|name| name == path) {
            continue;
        }
        match identify(path, bytes)? {
            Some((space, flags)) => {
                seen.insert(space, path.clone());
                let case = File { base, redo, ours, files, system: &system, path, space, flags };
                case.compare(&mut report)?;
            }
            // Created, but redo ends before its first page does: nothing may be in it.
            None if page_is_never_written(bytes) => {}
            None => report.file_differs(path, "page 0 is empty, other pages are not".into()),
        }
        report.files += 1;
    }
    for (space, known) in &ours.spaces {
        let path = known.path.clone().unwrap_or_default();
        match seen.get(space) {
            Some(found) if *found == path || space.0 == 0 || known.path.is_none() => {}
            Some(found) => report.file_differs(found, format!("space {space} is at {path} for us")),
            // A file that was created and whose page 0 is not in the redo yet.
            None if !ours.pages.keys().any(|id| id.space == *space)
                && known.base_path(PageNo(0)).is_none() => {}
            None => report.file_differs(&path, format!("space {space} is in no file of the server")),
        }
    }
    for (space, path) in &seen {
        if !ours.spaces.contains_key(space) {
            report.file_differs(path, format!("space {space} was dropped for us"));
        }
    }
    Ok(report)
}

struct File<'c> {
    base: &'c Base,
    redo: &'c Redo,
    ours: &'c Replayed,
    files: &'c BTreeMap<String, Vec<u8>>,
    system: &'c [String],
    path: &'c str,
    space: SpaceId,
    flags: SpaceFlags,
}

impl File<'_> {
    fn compare(&self, report: &mut Report) -> Result<()> {
        let size = self.flags.physical_page_size_bytes();
        let area = self.doublewrite_area()?;
        let known = self.ours.spaces.get(&self.space);
        let mut page_no = 0;
        while let Some(theirs) = page_of(self.files, self.system, self.path, page_no, size) {
            let id = PageId::new(self.space.0, page_no);
            match self.ours.pages.get(&id) {
                _ if area.is_some_and(|area| area.contains(page_no)) => report.doublewrite += 1,
                Some(page) if page.freed => report.freed += 1,
                Some(page) => self.compare_page(id, page, theirs, report)?,
                None if known.is_some_and(|space| space.is_cut(id.page_no)) => report.stale_undo += 1,
                None => {
                    let stored = known.and_then(|space| space.stored(self.base, id.page_no, size));
                    let same =
                        stored.map_or_else(|| page_is_never_written(theirs), |stored| stored == theirs);
                    if same {
                        report.untouched += 1;
                    } else {
                        let empty = vec![0; size];
                        report.differs(self.difference(id, None, stored.unwrap_or(&empty), theirs));
                    }
                }
            }
            page_no += 1;
        }
        for id in self.ours.pages.keys().filter(|id| id.space == self.space && id.page_no.0 >= page_no) {
            if self.ours.pages.get(id).is_some_and(|page| !page.freed) {
                report.file_differs(
                    self.path,
                    format!("page {id} of our replay lies past the end of the file"),
                );
            }
        }
        Ok(())
    }

    fn doublewrite_area(&self) -> Result<Option<DoublewriteArea>> {
        const TRX_SYS_PAGE: u32 = 5;
        if self.space != SpaceId(0) {
            return Ok(None);
        }
        let size = self.flags.physical_page_size_bytes();
        let page = page_of(self.files, self.system, self.path, TRX_SYS_PAGE, size).unwrap_or_default();
        doublewrite::locate(page, self.flags).map_err(|error| Error::Parse {
            what: "the server's TRX_SYS page".into(),
            detail: error.to_string(),
        })
    }

    fn compare_page(&self, id: PageId, page: &Page, theirs: &[u8], report: &mut Report) -> Result<()> {
        report.touched += 1;
        let mut finalized = page.image.clone();
        if let Err(error) = finalize(&mut finalized, self.flags) {
            let mut difference = self.difference(id, Some(page), &page.image, theirs);
            difference.what = format!("our page cannot get a checksum: {error}");
            report.differs(difference);
            return Ok(());
        }
        if finalized == theirs {
            report.identical += 1;
            return Ok(());
        }
        match decompress(theirs, self.flags) {
            Ok(Some(uncompressed)) => {
                if differing_ranges(&page.image, &uncompressed, self.flags).is_empty() {
                    report.page_compressed += 1;
                } else {
                    report.differs(self.difference(id, Some(page), &page.image, &uncompressed));
                }
            }
            Ok(None) => {
                let mut difference = self.difference(id, Some(page), &finalized, theirs);
                if let Err(error) = verify(theirs, self.flags) {
                    difference.what = format!("the server's page: {error}");
                }
                report.differs(difference);
            }
            Err(error) => {
                let mut difference = self.difference(id, Some(page), &finalized, theirs);
                difference.what = format!("the server's page cannot be taken apart: {error}");
                report.differs(difference);
            }
        }
        Ok(())
    }

    fn difference(&self, id: PageId, page: Option<&Page>, ours: &[u8], theirs: &[u8]) -> Difference {
        const SHOWN_BYTES: usize = 24;
        let offset = ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(0);
        let hex = |bytes: &[u8]| {
            let shown = bytes.iter().skip(offset).take(SHOWN_BYTES);
            shown.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let lsn = |bytes| layout::page_lsn(bytes).unwrap_or_default().0;
        Difference {
            path: self.path.to_owned(),
            page: id.to_string(),
            page_type: layout::page_type(theirs).unwrap_or_default(),
            offset,
            bytes: [hex(ours), hex(theirs)],
            differing_bytes: ours.iter().zip(theirs).filter(|(a, b)| a != b).count(),
            ranges: ranges(ours, theirs),
            lsns: [lsn(ours), lsn(theirs)],
            last_change: page.map_or_else(|| "none".to_owned(), |page| self.last_change(page)),
            what: String::new(),
            images: Images([ours.to_vec(), theirs.to_vec()]),
        }
    }

    fn last_change(&self, page: &Page) -> String {
        let Some((start, end, number)) = page.runs.last() else { return "none".to_owned() };
        let run = self.redo.runs.get(*number).map(|run| self.redo.run_bytes(run)).unwrap_or_default();
        let kinds: Vec<_> = RecordReader::new(run)
            .map(|record| record.map_or("?", |record| RecordKind::of(&record.body).name()))
            .collect();
        format!("mini-transaction {start}..{end}, records {}, of {} in all", kinds.join(" "), page.runs.len())
    }
}

/// Where two images differ: offsets and lengths, the first few.
fn ranges(ours: &[u8], theirs: &[u8]) -> Vec<(usize, usize)> {
    const SHOWN: usize = 8;
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (at, _) in ours.iter().zip(theirs).enumerate().filter(|(_, (a, b))| a != b) {
        let is_next = ranges.last().is_some_and(|(from, len)| from + len == at);
        match ranges.last_mut() {
            Some((_, len)) if is_next => *len += 1,
            _ => ranges.push((at, 1)),
        }
        if ranges.len() > SHOWN {
            ranges.pop();
            break;
        }
    }
    ranges
}

/// How far the server came must be how far we came.
pub fn compare_ends(ours: Lsn, theirs: Lsn, report: &mut Report) {
    if ours != theirs {
        report.file_differs(
            "ib_logfile0",
            format!("the redo ends at {ours} for us and at {theirs} for the server"),
        );
    }
}

/// Pages that are torn after a recovery must have been torn `before`.
pub fn compare_torn(before: &TornPages, theirs: &TornPages, report: &mut Report) {
    for (path, page_no) in theirs {
        report.torn += 1;
        if !before.contains(&(path.clone(), *page_no)) {
            report
                .file_differs(path, format!("page {page_no} is torn after the recovery and was not before"));
        }
    }
}
