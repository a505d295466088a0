//! Replay of a whole log in memory, and the comparison with the server's files.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use redoubt_page::{
    Change, RecordKind, SpaceFlags, apply_changes, decompress, differing_ranges, digest, doublewrite,
    finalize, flags_of_page0, is_page_compressed_image, layout, page_is_never_written, verify,
};
use redoubt_redo::mariadb::record::Body;
use redoubt_redo::mariadb::{CheckpointBlock, LogGeometry, LogHeader, RecordReader, SequenceRule, walk_mtrs};
use redoubt_redo::{FileRecord, Lsn, Mtr, PageId, SpaceFlagsChange, SpaceId};

const FIRST_RECORD_OFFSET: usize = 12288;

/// One page while replaying.
#[derive(Default)]
struct Page {
    image: Vec<u8>,
    freed: bool,
    /// Runs since the page was last known to be void: LSNs, and range in the log bytes.
    changes: Vec<(Lsn, Lsn, std::ops::Range<usize>)>,
    /// The image as it once was, and how many changes it then held.
    earlier: Option<(Vec<u8>, usize)>,
}

/// Result of the replay.
pub struct Replayed {
    log: Vec<u8>,
    pages: HashMap<PageId, Page>,
    flags: HashMap<SpaceId, SpaceFlags>,
    default_flags: SpaceFlags,
    trimmed: Vec<SpaceId>,
    records: usize,
    record_kinds: BTreeMap<&'static str, usize>,
}

/// Result of the comparison.
#[derive(Debug, Default)]
#[allow(dead_code)]
pub struct Report {
    pub records: usize,
    pub compared: usize,
    pub differing: usize,
    pub identical_to_the_last_byte: usize,
    pub freed: usize,
    pub stale_undo: usize,
    pub doublewrite: usize,
    pub row_format_compressed: usize,
    pub page_compressed_images: usize,
    pub record_kinds: BTreeMap<&'static str, usize>,
}

/// Kinds that a load must have produced.
const EXPECTED_KINDS: [RecordKind; 15] = [
    RecordKind::FreePage,
    RecordKind::InitPage,
    RecordKind::Write,
    RecordKind::Memset,
    RecordKind::Memmove,
    RecordKind::InitRowFormatRedundant,
    RecordKind::InitRowFormatDynamic,
    RecordKind::UndoInit,
    RecordKind::UndoAppend,
    RecordKind::InsertHeapRedundant,
    RecordKind::InsertReuseRedundant,
    RecordKind::InsertHeapDynamic,
    RecordKind::InsertReuseDynamic,
    RecordKind::DeleteRowFormatRedundant,
    RecordKind::DeleteRowFormatDynamic,
];

impl Replayed {
    /// Replay the log of a data directory from its first byte onto nothing.
    pub fn from_log(data_dir: PathBuf, page_size_bytes: usize) -> Self {
        let path = data_dir.join("ib_logfile0");
        let file_size = fs::metadata(&path).unwrap().len();
        let mut log = vec![0; FIRST_RECORD_OFFSET];
        let mut file = File::open(&path).unwrap();
        file.read_exact(&mut log).unwrap();
        let header = LogHeader::parse(&log).unwrap();
        let geometry = LogGeometry::new(header.first_lsn, file_size).unwrap();
        let checkpoint = CheckpointBlock::newest(
            CheckpointBlock::parse(&log[4096..]),
            CheckpointBlock::parse(&log[8192..]),
        )
        .unwrap();
        let used = checkpoint.end_lsn.0 - header.first_lsn.0;
        assert!(used < geometry.capacity_bytes(), "the log wrapped; make it larger");
        log.clear();
        file.take(used).read_to_end(&mut log).unwrap();

        let shift = page_size_bytes.ilog2() - 9;
        let mut this = Self {
            log: Vec::new(),
            pages: HashMap::new(),
            flags: HashMap::new(),
            default_flags: SpaceFlags(0x10 | shift),
            trimmed: Vec::new(),
            records: 0,
            record_kinds: EXPECTED_KINDS.iter().map(|kind| (kind.name(), 0)).collect(),
        };
        let rule = SequenceRule::Geometry(&geometry);
        let walked =
            walk_mtrs(&log, header.first_lsn, rule, &mut |mtr: &Mtr<'_, '_>| this.mtr(&log, mtr)).unwrap();
        assert_eq!(walked.end_lsn, checkpoint.end_lsn);
        this.log = log;
        this
    }

    fn mtr(&mut self, log: &[u8], mtr: &Mtr<'_, '_>) {
        for record in RecordReader::new(mtr.records) {
            self.records += 1;
            let kind = RecordKind::of(&record.unwrap().body);
            if let Some(count) = self.record_kinds.get_mut(kind.name()) {
                *count += 1;
            }
        }
        for note in mtr.files {
            if let FileRecord::Delete { .. } = note.record {
                self.pages.retain(|id, _| id.space != note.space);
                self.flags.remove(&note.space);
            }
        }
        for run in mtr.runs {
            if let SpaceFlagsChange::Set(flags) = run.space_flags {
                self.flags.insert(run.page.space, SpaceFlags(flags));
            }
        }
        // All runs of a mini-transaction for one page belong into one call.
        let mut touched: Vec<PageId> = Vec::new();
        for run in mtr.runs {
            if let Some(first) = run.trims_from() {
                self.pages.retain(|id, _| id.space != run.page.space || id.page_no < first);
                self.trimmed.push(run.page.space);
                touched.clear();
                continue;
            }
            let bytes = run.offset_in_bytes..run.offset_in_bytes + run.len_bytes;
            let page = self.pages.entry(run.page).or_default();
            page.changes.push((mtr.start_lsn, mtr.end_lsn, bytes));
            if !touched.contains(&run.page) {
                touched.push(run.page);
            }
        }
        for id in touched {
            let flags = self.flags_of(id.space);
            self.apply_mtr_to_page(log, mtr, id, flags);
        }
    }

    fn apply_mtr_to_page(&mut self, log: &[u8], mtr: &Mtr<'_, '_>, id: PageId, flags: SpaceFlags) {
        let page = self.pages.get_mut(&id).unwrap();
        let size = flags.physical_page_size_bytes();
        if page.image.len() != size {
            assert!(page.freed || page.image.is_empty(), "{id} changed its size");
            page.image = vec![0; size];
        }
        let first = page.changes.partition_point(|(start_lsn, ..)| *start_lsn < mtr.start_lsn);
        let changes = page.changes[first..].iter().map(|(start_lsn, end_lsn, bytes)| Change {
            start_lsn: *start_lsn,
            end_lsn: *end_lsn,
            run: &log[bytes.clone()],
        });
        let base_is_valid = first > 0 && !page.freed;
        let outcome = apply_changes(&mut page.image, id, flags, base_is_valid, changes)
            .unwrap_or_else(|error| panic!("mtr {}..{}: {error}", mtr.start_lsn, mtr.end_lsn));
        page.freed = outcome.freed;
        if first % 20 == 10 && !page.freed {
            page.earlier = Some((page.image.clone(), page.changes.len()));
        }
    }

    fn flags_of(&self, space: SpaceId) -> SpaceFlags {
        self.flags.get(&space).copied().unwrap_or(self.default_flags)
    }

    /// The chain of all changes applied at once onto nothing gives the same page; and so does the end of the
    /// chain applied onto an earlier image, although its first changes are in that image already.
    pub fn check_chains(&self) {
        let mut overlapping = 0;
        for (id, page) in self.pages.iter().filter(|(_, page)| !page.freed) {
            let flags = self.flags_of(id.space);
            let mut image = vec![0xa5; page.image.len()];
            apply_changes(&mut image, *id, flags, false, self.chain(page, 0)).unwrap();
            assert!(image == page.image, "{id} from nothing");
            let Some((earlier, held)) = &page.earlier else { continue };
            let from = held - 5;
            if self.chain(page, from).any(|change| contains_init(change.run)) {
                continue;
            }
            image.copy_from_slice(earlier);
            let outcome = apply_changes(&mut image, *id, flags, true, self.chain(page, from)).unwrap();
            assert!(image == page.image, "{id} from an earlier image");
            assert_eq!(outcome.skipped, 5, "{id}");
            overlapping += 1;
        }
        assert!(overlapping >= 100, "{overlapping}");
    }

    /// The changes of a page from number `from` on.
    fn chain<'a>(&'a self, page: &'a Page, from: usize) -> impl Iterator<Item = Change<'a>> + Clone {
        page.changes[from..].iter().map(|(start_lsn, end_lsn, bytes)| Change {
            start_lsn: *start_lsn,
            end_lsn: *end_lsn,
            run: &self.log[bytes.clone()],
        })
    }

    /// Compare with every tablespace file below `data_dir`.
    pub fn compare_with_files(&self, data_dir: PathBuf) -> Report {
        let mut report =
            Report { records: self.records, record_kinds: self.record_kinds.clone(), ..Report::default() };
        let mut in_files = 0;
        for path in tablespace_files(&data_dir) {
            in_files += self.compare_file(&path, &mut report);
        }
        let live = self.pages.values().filter(|page| !page.freed).count();
        assert_eq!(in_files, live, "replayed pages that are in no file");
        report
    }

    /// Compare one file; answers how many live replayed pages it holds.
    fn compare_file(&self, path: &Path, report: &mut Report) -> usize {
        let file = fs::read(path).unwrap();
        let space = layout::page_id(&file).unwrap().space;
        let flags = flags_of_page0(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let size = flags.physical_page_size_bytes();
        let area = (space == SpaceId(0)).then(|| {
            let trx_sys = &file[5 * size..6 * size];
            doublewrite::locate(trx_sys, flags).unwrap().expect("the doublewrite area exists")
        });
        let mut live = 0;
        for (page_no, on_disk) in (0u32..).zip(file.chunks_exact(size)) {
            let id = PageId::new(space.0, page_no);
            let replayed = self.pages.get(&id);
            live += usize::from(replayed.is_some_and(|page| !page.freed));
            if area.is_some_and(|area| area.contains(page_no)) {
                report.doublewrite += 1;
                continue;
            }
            match replayed {
                Some(page) if page.freed => report.freed += 1,
                Some(page) => self.compare_page(id, flags, &page.image, on_disk, report),
                None if self.trimmed.contains(&space) => report.stale_undo += 1,
                None => assert!(page_is_never_written(on_disk), "{id} of {} has no redo", path.display()),
            }
        }
        live
    }

    fn compare_page(&self, id: PageId, flags: SpaceFlags, image: &[u8], on_disk: &[u8], report: &mut Report) {
        verify(on_disk, flags).unwrap_or_else(|error| panic!("server's page {id}: {error}"));
        let mut finalized = image.to_vec();
        finalize(&mut finalized, flags).unwrap();
        verify(&finalized, flags).unwrap_or_else(|error| panic!("replayed page {id}: {error}"));
        assert!(!is_page_compressed_image(image, flags), "{id}");

        let uncompressed = decompress(on_disk, flags).unwrap();
        report.page_compressed_images += usize::from(uncompressed.is_some());
        report.identical_to_the_last_byte += usize::from(finalized == on_disk);
        let on_disk = uncompressed.as_deref().unwrap_or(on_disk);
        let differing = differing_ranges(image, on_disk, flags);
        assert_eq!(differing.is_empty(), digest(image, flags) == digest(on_disk, flags), "{id}");
        report.compared += 1;
        report.row_format_compressed += usize::from(flags.is_row_format_compressed());
        if !differing.is_empty() {
            report.differing += 1;
            eprintln!(
                "{id} type {:?} LSN {:?} (server {:?}) differs at {differing:?}",
                layout::page_type(image),
                layout::page_lsn(image),
                layout::page_lsn(on_disk)
            );
        }
    }
}

fn tablespace_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(tablespace_files(&path));
        } else if name.ends_with(".ibd") || name == "ibdata1" || name.starts_with("undo") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn contains_init(run: &[u8]) -> bool {
    RecordReader::new(run).any(|record| matches!(record.unwrap().body, Body::InitPage))
}
