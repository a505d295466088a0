//! Our replay of a base and its redo up to an LSN, with crates `redo` and `page` alone.
//!
//! The bookkeeping of tablespaces is the smallest that the FILE_ records and TRIM_PAGES allow; everything about a
//! page's bytes is `redoubt_page::apply_changes`, the function that the node uses.
//!
//! From the base of a killed server, what later redo makes void is left out first, as recovery and an import do it.
//!
//! [`Defect`] plants mistakes, so that a test can show that the comparison finds them.

use std::collections::{BTreeMap, HashMap};

use redoubt_page::{
    Change, Cursor, RecordKind, SpaceFlags, apply_changes, apply_record, decompress, flags_of_page0, layout,
};
use redoubt_redo::mariadb::{RecordReader, SequenceRule, walk_mtrs};
use redoubt_redo::{LastResets, Lsn, PageId, PageNo, SpaceFlagsChange, SpaceId};
use redoubt_workload::error::{Error, Result};

use super::base::{Base, parse};
use super::redo::{MtrIndex, Note, Redo};

/// A tablespace after the replay.
#[derive(Debug, Clone, Default)]
pub struct Space {
    /// Its file; `None` when no record named one.
    pub path: Option<String>,
    /// Its flags, once known.
    pub flags: Option<SpaceFlags>,
    /// Path of its pages in the base.
    base: Option<String>,
    /// First page cut off by a trim: pages from this one on start again. Pages that redo does not begin hold the
    /// server's old bytes.
    pub trims_from: Option<PageNo>,
}

impl Space {
    /// The page was cut off.
    pub fn is_cut(&self, page_no: PageNo) -> bool {
        self.trims_from.is_some_and(|first| first <= page_no)
    }

    /// The file of the base whose content of this page counts.
    pub fn base_path(&self, page_no: PageNo) -> Option<&str> {
        self.base.as_deref().filter(|_| !self.is_cut(page_no))
    }

    /// A page as the base has it, if that counts.
    pub fn stored<'b>(&self, base: &'b Base, page_no: PageNo, len_bytes: usize) -> Option<&'b [u8]> {
        base.page(self.base_path(page_no)?, page_no.0, len_bytes)
    }
}

/// A page after the replay.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Its bytes, without checksum and trailer.
    pub image: Vec<u8>,
    /// Its last record freed it: its bytes mean nothing.
    pub freed: bool,
    /// Numbers of its runs in the redo.
    pub runs: Vec<(Lsn, Lsn, usize)>,
    /// The same of those that are void.
    void: Vec<(Lsn, Lsn, usize)>,
}

/// Result of a replay.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Live tablespaces.
    pub spaces: BTreeMap<SpaceId, Space>,
    /// Pages that redo touched.
    pub pages: HashMap<PageId, Page>,
    /// End of the last mini-transaction applied.
    pub end_lsn: Lsn,
    /// Pages whose void records do not fit what the base has of them.
    pub misfits: u64,
}

/// A mistake made on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// Records of this kind have no effect.
    SkipKind(RecordKind),
    /// The first byte that a record of this kind changes lands one place too far.
    OffByOne(RecordKind),
    /// The last mini-transaction is not applied.
    LoseLast,
    /// Pages of a trimmed tablespace keep what they had.
    IgnoreTrim,
    /// Pages keep the LSN they had in the base.
    KeepPageLsn,
    /// Redo of a file that was renamed stays with the old name.
    IgnoreRename,
    /// Records that FREE_PAGE and INIT_PAGE make void are applied.
    KeepVoid,
}

/// Replays the whole mini-transactions up to `until`.
///
/// # Errors
/// [`Error::Violation`] when the page crate refuses a record: then recovery and replay do differ.
pub fn replay(base: &Base, redo: &Redo, until: Lsn, defect: Option<Defect>) -> Result<Replayed> {
    let mut this = noted(base, redo, until, defect)?;
    let mut ids: Vec<_> = this.pages.keys().copied().collect();
    // Page 0 first: flags that could not be followed record by record are read from it.
    ids.sort_by_key(|id| (id.page_no, id.space));
    for id in ids {
        this.build(base, redo, id, defect)?;
    }
    Ok(this)
}

/// Tablespaces and chains of a replay whose pages are not built.
///
/// # Errors
/// Those of reading the base.
pub(super) fn noted(base: &Base, redo: &Redo, until: Lsn, defect: Option<Defect>) -> Result<Replayed> {
    let mut this = Replayed { end_lsn: redo.start_lsn, ..Replayed::default() };
    for (space, found) in base.spaces()? {
        let (path, flags) = (found.path, Some(found.flags));
        this.spaces
            .insert(space, Space { path: Some(path.clone()), flags, base: Some(path), trims_from: None });
    }
    let mut mtrs = redo.mtrs_until(until);
    if let (Some(Defect::LoseLast), Some((_, rest))) = (defect, mtrs.split_last()) {
        mtrs = rest;
    }
    let resets = match defect {
        Some(Defect::KeepVoid) => LastResets::default(),
        _ if base.is_killed => resets(redo, until)?,
        _ => LastResets::default(),
    };
    for mtr in mtrs {
        this.note(redo, mtr, &resets, defect);
        this.end_lsn = mtr.end_lsn;
    }
    if let Some(last) = redo.mtrs_until(until).last() {
        this.end_lsn = last.end_lsn;
    }
    Ok(this)
}

fn resets(redo: &Redo, until: Lsn) -> Result<LastResets> {
    let mut resets = LastResets::default();
    let bytes = redo.bytes_until(redo.boundary_before(until));
    walk_mtrs(bytes, redo.start_lsn, SequenceRule::Any, &mut resets).map_err(parse("the redo"))?;
    Ok(resets)
}

impl Replayed {
    /// Notes names, flags and chains of a mini-transaction.
    fn note(&mut self, redo: &Redo, mtr: &MtrIndex, resets: &LastResets, defect: Option<Defect>) {
        for (space, note) in redo.notes.get(mtr.notes.clone()).unwrap_or_default() {
            match note {
                Note::Create(path) | Note::Modify(path) => {
                    self.spaces.entry(*space).or_default().path = Some(path.clone());
                }
                Note::Rename(_, to) => {
                    if defect != Some(Defect::IgnoreRename) {
                        self.spaces.entry(*space).or_default().path = Some(to.clone());
                    }
                }
                Note::Delete(_) => {
                    self.spaces.remove(space);
                    self.pages.retain(|id, _| id.space != *space);
                }
            }
        }
        for number in mtr.runs.clone() {
            let Some(run) = redo.runs.get(number) else { continue };
            let space = self.spaces.entry(run.page.space).or_default();
            if let Some(first) = run.trims_from {
                if defect != Some(Defect::IgnoreTrim) {
                    space.trims_from = Some(space.trims_from.map_or(first, |before| before.min(first)));
                    self.pages.retain(|id, _| id.space != run.page.space || id.page_no < first);
                }
                continue;
            }
            match run.flags {
                SpaceFlagsChange::Unchanged => {}
                SpaceFlagsChange::Set(flags) => space.flags = Some(SpaceFlags(flags)),
                // Read from page 0 when it is built.
                SpaceFlagsChange::Unknown => space.flags = None,
            }
            let page = self.pages.entry(run.page).or_default();
            let is_void = resets.void_page(run.page, mtr.start_lsn);
            let runs = if is_void { &mut page.void } else { &mut page.runs };
            runs.push((mtr.start_lsn, mtr.end_lsn, number));
        }
    }

    /// The pages with their runs.
    pub(super) fn chains(&self) -> impl Iterator<Item = (PageId, &[(Lsn, Lsn, usize)])> {
        self.pages.iter().map(|(id, page)| (*id, page.runs.as_slice()))
    }

    /// A page as the base has it, in clear and uncompressed, and its flags.
    ///
    /// # Errors
    /// [`Error::Violation`] if nothing says what they are.
    pub(super) fn stored(&self, base: &Base, id: PageId) -> Result<(Vec<u8>, SpaceFlags)> {
        let space = self.spaces.get(&id.space).cloned().unwrap_or_default();
        let flags = space.flags.map_or_else(|| base_flags(base, &space), Ok)?;
        let size = flags.physical_page_size_bytes();
        let stored = space.stored(base, id.page_no, size);
        Ok((stored.map_or_else(|| Ok(vec![0; size]), |page| uncompressed(page, flags, id))?, flags))
    }

    fn build(&mut self, base: &Base, redo: &Redo, id: PageId, defect: Option<Defect>) -> Result<()> {
        let Some(mut page) = self.pages.remove(&id) else { return Ok(()) };
        let space = self.spaces.entry(id.space).or_default();
        let size_flags = match space.flags {
            Some(flags) => flags,
            None => base_flags(base, space)?,
        };
        let size = size_flags.physical_page_size_bytes();
        let stored = space.stored(base, id.page_no, size);
        page.image = stored.map_or_else(|| Ok(vec![0; size]), |page| uncompressed(page, size_flags, id))?;
        let change = |(start_lsn, end_lsn, number): &(Lsn, Lsn, usize)| {
            let run = redo.run_bytes(redo.runs.get(*number)?);
            Some(Change { start_lsn: *start_lsn, end_lsn: *end_lsn, run })
        };
        let changes = page.runs.iter().filter_map(change);
        if !page.void.is_empty() {
            let void = page.void.iter().filter_map(change);
            let fits = apply_changes(&mut page.image.clone(), id, size_flags, stored.is_some(), void);
            self.misfits += u64::from(fits.is_err());
        }
        let before = stored.is_some().then(|| page.image.clone());
        let base_lsn = layout::page_lsn(&page.image);
        let applied = match defect {
            Some(Defect::SkipKind(_) | Defect::OffByOne(_)) => {
                apply_with(&mut page.image, id, size_flags, changes, defect)
            }
            _ => apply_changes(&mut page.image, id, size_flags, stored.is_some(), changes)
                .map(|outcome| outcome.freed)
                .map_err(|error| error.to_string()),
        };
        // All of it is void only if the page is free in the end.
        let is_free = page.runs.is_empty();
        page.freed = is_free
            | applied.map_err(|error| {
                let story = refusal_story(redo, &page, id, size_flags, before.as_deref());
                Error::Violation(format!(
                    "our replay refuses a record of page {id} of {:?}: {error}\n{story}",
                    space.path
                ))
            })?;
        if let (Some(Defect::KeepPageLsn), Some(lsn)) = (defect, base_lsn) {
            layout::set_page_lsn(&mut page.image, lsn);
        }
        if id.page_no.0 == 0 && space.flags.is_none() {
            space.flags = Some(flags_of_page0(&page.image).map_err(|error| {
                Error::Violation(format!("page 0 of space {} after the replay: {error}", id.space))
            })?);
        }
        self.pages.insert(id, page);
        Ok(())
    }
}

/// Redo describes the uncompressed page.
fn uncompressed(stored: &[u8], flags: SpaceFlags, id: PageId) -> Result<Vec<u8>> {
    match decompress(stored, flags) {
        Ok(Some(plain)) => Ok(plain),
        Ok(None) => Ok(stored.to_vec()),
        Err(error) => Err(Error::Violation(format!("page {id} of the base cannot be taken apart: {error}"))),
    }
}

fn base_flags(base: &Base, space: &Space) -> Result<SpaceFlags> {
    let page0 = space.stored(base, PageNo(0), 1024);
    page0.and_then(|page0| flags_of_page0(page0).ok()).ok_or_else(|| {
        Error::Violation(format!("redo for tablespace {:?}, whose page size nothing says", space.path))
    })
}

/// Record by record, with a defect. Only for tests of the comparison: it does not skip what a page has already.
fn apply_with<'a>(
    image: &mut [u8],
    id: PageId,
    flags: SpaceFlags,
    changes: impl Iterator<Item = Change<'a>>,
    defect: Option<Defect>,
) -> std::result::Result<bool, String> {
    let mut freed = false;
    for change in changes {
        let mut cursor = Cursor::new(id, flags);
        for record in RecordReader::new(change.run) {
            let record = record.map_err(|error| error.to_string())?;
            let kind = RecordKind::of(&record.body);
            freed = kind == RecordKind::FreePage;
            let before = image.to_vec();
            // A page that lost records may refuse later ones; the server would, too.
            let _ = apply_record(image, &mut cursor, &record);
            match defect {
                Some(Defect::SkipKind(skipped)) if skipped == kind => image.copy_from_slice(&before),
                Some(Defect::OffByOne(moved)) if moved == kind => move_first_change(image, &before),
                _ => {}
            }
        }
        layout::set_page_lsn(image, change.end_lsn);
    }
    Ok(freed)
}

fn move_first_change(image: &mut [u8], before: &[u8]) {
    let first = image.iter().zip(before).position(|(new, old)| new != old);
    if let Some(at) = first
        && at + 1 < image.len()
    {
        image.swap(at, at + 1);
    }
}

/// The records of a run, the same ones in a row once with their number.
fn kinds(run: &[u8]) -> String {
    let names: Vec<_> = RecordReader::new(run)
        .map(|record| record.map_or("?", |record| RecordKind::of(&record.body).name()))
        .collect();
    let groups = names.chunk_by(|one, next| one == next).filter_map(|group| {
        let name = group.first()?;
        Some(if group.len() == 1 { (*name).to_owned() } else { format!("{}x{name}", group.len()) })
    });
    groups.collect::<Vec<_>>().join(" ")
}

/// The mini-transactions of a page up to the one that is refused, the last of them, for a message.
fn refusal_story(redo: &Redo, page: &Page, id: PageId, flags: SpaceFlags, stored: Option<&[u8]>) -> String {
    const SHOWN: usize = 12;
    let mut image = stored.map_or_else(|| vec![0; flags.physical_page_size_bytes()], <[u8]>::to_vec);
    let base = stored.map_or_else(
        || "no page in the base".to_owned(),
        |page| format!("type {:?}, LSN {:?} in the base", layout::page_type(page), layout::page_lsn(page)),
    );
    let mut lines = Vec::new();
    // All runs of one mini-transaction at once: it has one end, which becomes the page's LSN.
    for runs in page.runs.chunk_by(|one, next| one.0 == next.0) {
        let changes: Vec<_> = runs
            .iter()
            .map(|(start_lsn, end_lsn, number)| Change {
                start_lsn: *start_lsn,
                end_lsn: *end_lsn,
                run: redo.runs.get(*number).map(|run| redo.run_bytes(run)).unwrap_or_default(),
            })
            .collect();
        let kinds: Vec<_> = changes.iter().map(|change| kinds(change.run)).collect();
        let outcome = apply_changes(&mut image, id, flags, true, changes.iter().copied());
        let (start_lsn, end_lsn, _) = runs.first().copied().unwrap_or_default();
        let after = layout::page_type(&image);
        lines.push(format!(
            "{start_lsn}..{end_lsn} {} -> type {after:?} {}",
            kinds.join(" | "),
            outcome.is_ok()
        ));
        if outcome.is_err() {
            break;
        }
    }
    let skipped = lines.len().saturating_sub(SHOWN);
    format!("{base}, flags {flags:?}, {skipped} earlier ones\n{}", lines.split_off(skipped).join("\n"))
}
