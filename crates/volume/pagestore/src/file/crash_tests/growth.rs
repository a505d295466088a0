//! Lengths of files are recorded before the images of their pages are given up.

use super::*;
use std::io::ErrorKind;

const HOME: &str = "00000001.pages";

/// Recorded lengths of object 1, and whether the recorder has room.
#[derive(Default)]
struct Recorder {
    lens: Mutex<Vec<u64>>,
    is_full: AtomicBool,
}

impl Recorder {
    fn of(store: &FilePageStore) -> Arc<Self> {
        let recorder = Arc::new(Self::default());
        let shared = recorder.clone();
        store.set_growth_recorder(Box::new(move |lens| {
            if shared.is_full.load(Ordering::Relaxed) {
                return Err(ErrorKind::StorageFull.into());
            }
            shared.lens.lock().extend(lens.iter().map(|(_, len_bytes)| *len_bytes));
            Ok(())
        }));
        recorder
    }

    fn longest(&self) -> u64 {
        self.lens.lock().iter().copied().max().unwrap_or_default()
    }
}

fn write(store: &FilePageStore, page_no: u32) -> Result<(), PageStoreError> {
    store.write_batch(&[PageWrite { object: ObjectId(1), page_no, page: &image(page_no + 1) }])
}

/// Pages that read as they were written, of the first `pages`.
fn whole_pages(store: &FilePageStore, pages: u32) -> u32 {
    let mut page = vec![0; PAGE];
    let is_whole = |page_no: &u32| {
        store.read_page(ObjectId(1), *page_no, &mut page).unwrap() && page == image(page_no + 1)
    };
    (0..pages).filter(is_whole).count() as u32
}

#[test]
fn images_stay_until_the_length_is_recorded() {
    let setup = Setup::new(PageProtection::Journal, 512);
    let disk = setup.disk(1);
    let store = setup.open(&disk).unwrap();
    let recorder = Recorder::of(&store);
    store.create(ObjectId(1)).unwrap();
    recorder.is_full.store(true, Ordering::Relaxed);
    let mut pages = 0;
    let error = loop {
        match write(&store, pages) {
            Ok(()) => pages += 1,
            Err(error) => break error,
        }
        assert!(pages < 10_000, "the journal has room without end");
    };
    assert!(matches!(error, PageStoreError::NoSpace { .. }), "{error}");
    assert_eq!((whole_pages(&store, pages), recorder.longest()), (pages, 0));
    // Nothing shows that the file was cut, but the journal has all pages.
    let cut = disk.copy();
    StorageDir::open(&cut, HOME).unwrap().set_len(0).unwrap();
    assert_eq!(whole_pages(&setup.open(&cut).unwrap(), pages), pages);

    recorder.is_full.store(false, Ordering::Relaxed);
    for page_no in pages..3 * pages {
        write(&store, page_no).unwrap();
        assert_eq!(recorder.longest(), disk.content(HOME).len() as u64, "page {page_no}");
    }
    assert_eq!(whole_pages(&store, 3 * pages), 3 * pages);
}

#[test]
fn every_mode_records_what_was_written_before_it_was_asked() {
    for setup in Setup::all() {
        let disk = setup.disk(1);
        let store = setup.open(&disk).unwrap();
        let recorder = Recorder::of(&store);
        store.create(ObjectId(1)).unwrap();
        store.record_growth().unwrap();
        assert_eq!(*recorder.lens.lock(), [0], "{}: a file without pages counts", setup.mode);
        write_versions(&store, 8, 1).unwrap();
        store.record_growth().unwrap();
        assert_eq!(recorder.longest(), disk.content(HOME).len() as u64, "{}", setup.mode);
        recorder.lens.lock().clear();
        store.record_growth().unwrap();
        assert!(recorder.lens.lock().is_empty(), "{}: nothing new", setup.mode);
    }
}

#[test]
fn cut_object_is_recorded_with_its_next_length_at_most() {
    let setup = Setup::new(PageProtection::Journal, 512);
    let disk = setup.disk(1);
    let store = setup.prepared(&disk);
    let recorder = Recorder::of(&store);
    let len_bytes = 3 * PAGE as u64;
    // Brings its pages home.
    store.set_len(ObjectId(1), len_bytes).unwrap();
    store.record_growth().unwrap();
    assert_eq!((recorder.longest(), disk.content(HOME).len() as u64), (len_bytes, len_bytes));
}
