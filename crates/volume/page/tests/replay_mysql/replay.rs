//! Replay of a log onto the files of a data directory, and the comparison with the files as the server left them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use redoubt_page::mysql::chain::{page_lsn, set_page_lsn};
use redoubt_page::mysql::{
    Applied, Flags, RecordKind, Scratch, apply_changes, decompress, digest, finalize, first_difference,
    flags_of_page0, is_page_compressed_image, verify,
};
use redoubt_page::{Change, layout, page_is_never_written};
use redoubt_redo::mysql::{Body, RecordReader};
use redoubt_redo::{Lsn, Mtr, PageId, SpaceId};

use crate::log::{Log, checkpoint};

/// Index page header: index id.
const PAGE_INDEX_ID: usize = 66;
/// Page types of data stored outside of records.
const TYPE_LOB_INDEX: u16 = 22;
const TYPE_LOB_FIRST: u16 = 24;

/// Tablespace files of a data directory, by tablespace.
pub struct Files(pub HashMap<SpaceId, (PathBuf, Vec<u8>)>);

impl Files {
    pub fn read(data_dir: &Path) -> Self {
        let mut files = HashMap::new();
        collect(data_dir, &mut files);
        Self(files)
    }

    fn page(&self, id: PageId, size: usize) -> Option<&[u8]> {
        let (_, bytes) = self.0.get(&id.space)?;
        bytes.get(id.page_no.0 as usize * size..)?.get(..size)
    }
}

fn collect(dir: &Path, files: &mut HashMap<SpaceId, (PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_tablespace = name == "ibdata1" || name.ends_with(".ibd") || name.ends_with(".ibu");
        if path.is_dir() && !name.starts_with('#') {
            collect(&path, files);
        } else if is_tablespace || name.starts_with("undo_") && !name.ends_with(".log") {
            let bytes = fs::read(&path).unwrap();
            let space = layout::page_id(&bytes).unwrap().space;
            assert!(files.insert(space, (path, bytes)).is_none(), "two files of tablespace {space}");
        }
    }
}

/// Result of the comparison.
#[derive(Debug, Default)]
#[allow(dead_code)]
pub struct Report {
    pub mtrs: usize,
    pub kinds: BTreeMap<&'static str, usize>,
    pub compared: usize,
    pub changed: usize,
    pub identical_to_the_last_byte: usize,
    pub page_compressed_images: usize,
    pub row_format_compressed: usize,
    pub later_lsn: usize,
    pub without_redo: usize,
    pub only_created: usize,
    pub differing: usize,
}

/// A log, ready to be applied to any page.
pub struct Replay {
    log: Log,
    base: Files,
    changes: HashMap<PageId, Vec<(Lsn, Lsn, std::ops::Range<usize>)>>,
    /// Indexes that were built without redo.
    built: HashSet<(SpaceId, u64)>,
    /// Their roots, which lose the index id when the index is dropped.
    built_roots: HashSet<PageId>,
    mtrs: usize,
    kinds: BTreeMap<&'static str, usize>,
}

impl Replay {
    /// The log of `data_dir` from the end of that of `base` on.
    pub fn new(base: &Path, data_dir: &Path) -> Self {
        let log = Log::read(data_dir, checkpoint(base));
        let mut this = Self {
            base: Files::read(base),
            changes: HashMap::new(),
            built: HashSet::new(),
            built_roots: HashSet::new(),
            mtrs: 0,
            kinds: BTreeMap::new(),
            log,
        };
        let Self { log, changes, built, built_roots, mtrs, kinds, .. } = &mut this;
        log.walk(&mut |mtr: &Mtr<'_, '_>| {
            *mtrs += 1;
            for run in mtr.runs {
                let bytes = run.offset_in_bytes..run.offset_in_bytes + run.len_bytes;
                changes.entry(run.page).or_default().push((mtr.start_lsn, mtr.end_lsn, bytes));
            }
            for record in RecordReader::new(mtr.records) {
                *kinds.entry(RecordKind::of(&record.unwrap().body).name()).or_default() += 1;
            }
            built_roots.extend(mtr.index_loads.iter().map(|load| load.root));
            built.extend(mtr.index_loads.iter().map(|load| (load.root.space, load.index_id)));
        });
        this
    }

    /// A page with all changes that end by `limit`. `Err`: it is not applied to, or cannot be.
    pub fn page(&self, id: PageId, flags: Flags, limit: Lsn) -> Result<Vec<u8>, String> {
        let size = flags.physical_page_size_bytes();
        let mut page = self.base.page(id, size).map_or_else(|| vec![0; size], <[u8]>::to_vec);
        if let Some(whole) = decompress(&page, flags).map_err(|error| error.to_string())? {
            page = whole;
        }
        let changes = self.changes.get(&id).map(Vec::as_slice).unwrap_or_default();
        let changes = changes.iter().filter(|(_, end, _)| *end <= limit).map(|(start, end, bytes)| Change {
            start_lsn: *start,
            end_lsn: *end,
            run: &self.log.bytes[bytes.clone()],
        });
        match apply_changes(&mut page, id, flags, true, changes, &mut Scratch::default()) {
            Ok(Applied::UpToDate(_)) => Ok(page),
            Ok(Applied::NeedsImage { kind }) => Err(format!("needs an image: {kind}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Compare with every tablespace file of `data_dir`. `as_written`: each page up to the LSN that it has in the file.
    pub fn compare(&self, data_dir: &Path, as_written: bool) -> Report {
        let mut report = Report { mtrs: self.mtrs, kinds: self.kinds.clone(), ..Report::default() };
        let files = Files::read(data_dir);
        let mut spaces: Vec<_> = files.0.iter().collect();
        spaces.sort_by_key(|(space, _)| space.0);
        for (space, (path, bytes)) in spaces {
            if page_is_never_written(bytes) {
                continue;
            }
            let flags = flags_of_page0(bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let size = flags.physical_page_size_bytes();
            for (page_no, on_disk) in (0..).zip(bytes.chunks_exact(size)) {
                self.compare_page(PageId::new(space.0, page_no), flags, on_disk, as_written, &mut report);
            }
        }
        report
    }

    /// Whether a page may hold what no record says: it belongs to an index that was built without redo, or has data
    /// that was stored outside of the records of such an index.
    fn is_built_without_redo(&self, id: PageId, page: &[u8]) -> bool {
        let is_lob = matches!(layout::page_type(page), Some(TYPE_LOB_INDEX..=TYPE_LOB_FIRST));
        let index_id = layout::get_u64(page, PAGE_INDEX_ID).unwrap();
        self.built.contains(&(id.space, index_id))
            || self.built_roots.contains(&id)
            || is_lob && self.built.iter().any(|(space, _)| *space == id.space)
    }

    fn compare_page(&self, id: PageId, flags: Flags, on_disk: &[u8], as_written: bool, report: &mut Report) {
        verify(on_disk, flags).unwrap_or_else(|error| panic!("server's page {id}: {error}"));
        let has_changes = self.changes.contains_key(&id);
        if flags.is_row_format_compressed() {
            report.row_format_compressed += usize::from(has_changes);
            return;
        }
        report.page_compressed_images += usize::from(is_page_compressed_image(on_disk));
        let uncompressed = decompress(on_disk, flags).unwrap();
        let expected = uncompressed.as_deref().unwrap_or(on_disk);
        if as_written && id.page_no.0 == 0 && page_lsn(expected) == Some(Lsn(0)) {
            // The server's first writes to a new file, before there is any redo of it.
            report.only_created += 1;
            return;
        }
        let limit = if as_written { page_lsn(expected).unwrap() } else { Lsn(u64::MAX) };
        let replayed = self.page(id, flags, limit);
        let difference = match &replayed {
            Ok(page) => first_difference(page, expected)
                .map(|d| format!("offset {}: {:?}, server {:?}", d.offset, d.first, d.second)),
            Err(error) => Some(error.clone()),
        };
        report.compared += 1;
        report.changed += usize::from(has_changes);
        let Some(difference) = difference else {
            let mut page = replayed.unwrap();
            let (ours, theirs) = (page_lsn(&page), page_lsn(expected));
            assert!(ours <= theirs, "{id}: {ours:?}, server {theirs:?}");
            report.later_lsn += usize::from(ours < theirs);
            if ours < theirs {
                set_page_lsn(&mut page, theirs.unwrap());
            }
            assert_eq!(digest(&page), digest(expected), "{id}");
            finalize(&mut page, flags).unwrap();
            verify(&page, flags).unwrap();
            report.identical_to_the_last_byte += usize::from(page == on_disk);
            return;
        };
        if self.is_built_without_redo(id, expected) {
            report.without_redo += 1;
            return;
        }
        report.differing += 1;
        if report.differing <= 60 {
            let lsn = |page: &[u8]| page_lsn(page).unwrap();
            eprintln!(
                "{id} type {:?} level {} changes {} LSN {:?} (server {}): {difference}",
                layout::page_type(expected),
                expected[65],
                self.changes.get(&id).map_or(0, Vec::len),
                replayed.as_ref().ok().map(|page| lsn(page)),
                lsn(expected),
            );
        }
    }
}

/// Write every replayed page into the files of `data_dir`, but for those that are not applied to.
pub fn write_back(replay: &Replay, data_dir: &Path) -> usize {
    let mut written = 0;
    for (space, (path, bytes)) in Files::read(data_dir).0 {
        let flags = flags_of_page0(&bytes).unwrap();
        let size = flags.physical_page_size_bytes();
        for (page_no, on_disk) in (0..).zip(bytes.chunks_exact(size)) {
            let id = PageId::new(space.0, page_no);
            if !replay.changes.contains_key(&id) {
                continue;
            }
            let whole = decompress(on_disk, flags).unwrap();
            if replay.is_built_without_redo(id, whole.as_deref().unwrap_or(on_disk)) {
                continue;
            }
            let Ok(mut page) = replay.page(id, flags, Lsn(u64::MAX)) else { continue };
            finalize(&mut page, flags).unwrap();
            crate::server::Server::write_at(&path, u64::from(page_no) * size as u64, &page);
            written += 1;
        }
    }
    written
}

/// Of which kind the index of a record is: compact, and with row versions.
fn index_of(body: &Body<'_>) -> Option<(bool, bool)> {
    match body {
        Body::Insert { index, .. }
        | Body::Delete { index, .. }
        | Body::ClusteredDeleteMark { index, .. }
        | Body::UpdateInPlace { index, .. }
        | Body::ListEndDelete { index, .. }
        | Body::ListStartDelete { index, .. }
        | Body::ListEndCopyCreated { index, .. }
        | Body::PageReorganize { index } => Some((index.is_compact(), index.has_row_versions())),
        _ => None,
    }
}

/// Seeds for the fuzz target `mysql_applier`: a run of each shape that a server wrote, with the page that it is for.
/// `format` is the number of the page's format there.
pub fn write_seeds(replay: &Replay, directory: &Path, format: u8, flags: Flags) {
    fs::create_dir_all(directory).unwrap();
    let (mut shapes, mut scratch) = (HashSet::new(), Scratch::default());
    let mut pages: Vec<_> = replay.changes.iter().collect();
    pages.sort_by_key(|(id, _)| (id.space.0, id.page_no.0));
    let size = flags.physical_page_size_bytes();
    for (id, changes) in pages {
        let mut page = replay.base.page(*id, size).map_or_else(|| vec![0; size], <[u8]>::to_vec);
        for (start_lsn, end_lsn, bytes) in changes {
            let run = &replay.log.bytes[bytes.clone()];
            let first = RecordReader::new(run).next().unwrap().unwrap().body;
            let n_records = RecordReader::new(run).count().min(2);
            let shape = (layout::page_type(&page), RecordKind::of(&first), index_of(&first), n_records);
            if run.len() < 300 && shapes.insert(shape) {
                let input = [&[format, 0x80, 0], &page[..], run].concat();
                fs::write(directory.join(format!("real-{:08x}", digest(&input))), input).unwrap();
            }
            let change = Change { start_lsn: *start_lsn, end_lsn: *end_lsn, run };
            if apply_changes(&mut page, *id, flags, true, [change], &mut scratch).is_err() {
                break;
            }
        }
    }
}
