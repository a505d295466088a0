//! Seeded: the stored form returns what was stored, the list is bounded, and damaged bytes are refused.

use super::*;
use redoubt_redo::{PageNo, SpaceId};

const SEEDS: u64 = 200;

fn page(object: u32, page_no: u32, is_whole_object: bool) -> DamagedPage {
    DamagedPage {
        key: PageKey::new(ObjectId(object), page_no),
        page_id: PageId { space: SpaceId(object + 4), page_no: PageNo(page_no) },
        is_whole_object,
        found_at: None,
        differs: None,
        lsn: Lsn(u64::from(page_no) + 1000),
        reason: format!("reason of {object}:{page_no}"),
        evidence: None,
    }
}

fn file_of(object: ObjectId) -> String {
    format!("d/t{}.ibd", object.0)
}

fn set_aside(pages: impl IntoIterator<Item = DamagedPage>) -> Damage {
    Damage { set_aside: pages.into_iter().collect(), ..Damage::default() }
}

fn random(rng: &mut fastrand::Rng) -> Contents {
    let pages = (0..rng.usize(..40)).map(|_| page(rng.u32(..6), rng.u32(..20), rng.u32(..20) == 0));
    Contents::default().after(&set_aside(pages.collect::<Vec<_>>()), &[], &file_of)
}

#[test]
fn stored_quarantine_is_read_back() {
    for seed in 0..SEEDS {
        let contents = random(&mut fastrand::Rng::with_seed(seed));
        let bytes = contents.encode().unwrap();
        assert_eq!(Contents::decode(&bytes).unwrap(), contents, "seed {seed}");
    }
}

#[test]
fn damaged_quarantine_file_does_not_panic() {
    for seed in 0..SEEDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes = random(&mut rng).encode().unwrap();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(..=bytes.len()));
        if let Ok(contents) = Contents::decode(&bytes) {
            assert!(contents.len() <= 40, "seed {seed}");
        }
    }
}

#[test]
fn later_difference_of_a_page_that_is_set_aside_counts() {
    let at = |page_lsn, stream_lsn| Some(Difference { page_lsn, stream_lsn });
    let differing = |difference| DamagedPage { differs: difference, ..page(1, 2, false) };
    let after =
        |contents: &Contents, difference| contents.after(&set_aside([differing(difference)]), &[], &file_of);
    let differs = |contents: &Contents| contents.entries().next().and_then(|entry| entry.differs);
    // Also of a page that is there for another reason.
    for first in [None, at(10, 20)] {
        let contents = after(&after(&Contents::default(), first), at(5, 30));
        assert_eq!(differs(&contents), first.map_or(at(5, 30), |_| at(10, 30)));
        assert_eq!(differs(&after(&contents, None)), differs(&contents));
    }
    // A page that its file lacked is there, if it differs: a start must not end its quarantine for that.
    let missing = DamagedPage { found_at: Some(Seq(7)), ..page(1, 2, false) };
    let contents = after(&Contents::default().after(&set_aside([missing]), &[], &file_of), at(5, 30));
    assert_eq!(contents.entries().next().map(|entry| entry.found_at), Some(None));
}

#[test]
fn renewed_page_and_dropped_object_leave_the_quarantine() {
    let before = Contents::default().after(
        &set_aside([page(1, 3, false), page(1, 4, false), page(2, 5, false), page(3, 0, true)]),
        &[],
        &file_of,
    );
    assert_eq!(before.len(), 4);
    assert!(before.find(PageKey::new(ObjectId(3), 77)).is_some(), "any page of a whole object");
    let renewed = Damage { renewed: vec![PageKey::new(ObjectId(1), 3)], ..Damage::default() };
    let after = before.after(&renewed, &[ObjectId(3)], &file_of);
    let left: Vec<_> = after.entries().map(|entry| (entry.object, entry.page_no)).collect();
    assert_eq!(left, [(1, Some(4)), (2, Some(5))]);
    let none = after.after(&Damage::default(), &[ObjectId(1), ObjectId(2)], &file_of);
    assert!(none.is_empty());
}

#[test]
fn page_damaged_before_its_file_went_missing_stays() {
    let missing = DamagedPage { found_at: Some(Seq(70)), ..page(1, 0, true) };
    let lacked = DamagedPage { found_at: Some(Seq(70)), ..page(1, 8, false) };
    let contents = Contents::default();
    let contents = contents.after(&set_aside([page(1, 7, false), lacked]), &[], &file_of);
    let contents = contents.after(&set_aside([missing]), &[], &file_of);
    assert_eq!(contents.find(PageKey::new(ObjectId(1), 3)).unwrap().page_no, None);
    let contents = Contents::decode(&contents.encode().unwrap()).unwrap();
    let back = Damage { back: vec![(ObjectId(1), None), (ObjectId(1), Some(8))], ..Damage::default() };
    let left = contents.after(&back, &[], &file_of);
    assert_eq!(left.entries().map(|entry| entry.page_no).collect::<Vec<_>>(), [Some(7)]);
    // An object that cannot come back has no pages of its own.
    let whole = contents.after(&back, &[], &file_of).after(&set_aside([page(1, 0, true)]), &[], &file_of);
    assert_eq!(whole.len(), 1);
}

#[test]
fn object_with_too_many_pages_is_set_aside_as_a_whole() {
    let pages = |count: u32| (0..count).map(|page_no| page(1, page_no, false));
    let most = PAGES_OF_OBJECT_MAX as u32;
    let full = Contents::default().after(&set_aside(pages(most)), &[], &file_of);
    assert_eq!((full.len(), full.find_object(ObjectId(1))), (PAGES_OF_OBJECT_MAX, None));
    let whole = full.after(&set_aside(pages(most + 1)), &[], &file_of);
    assert_eq!(whole.len(), 1);
    assert!(whole.find_object(ObjectId(1)).unwrap().reason.contains("too many"));
    // Other objects do not grow without limit either.
    let many = (0..PAGES_MAX as u32 + 50).map(|n| page(n / 500 + 10, n % 500, false));
    let bounded = Contents::default().after(&set_aside(many), &[], &file_of);
    assert!(bounded.len() <= PAGES_MAX + 1, "{}", bounded.len());
}

#[test]
fn tablespace_needed_to_start_is_never_set_aside_as_a_whole() {
    let count = PAGES_OF_OBJECT_MAX as u32 + 10;
    for file in ["ibdata1", "undo001", "logs/undo_2.ibu", "mysql.ibd"] {
        let pages = (0..count).map(|page_no| page(1, page_no, false));
        let many = Contents::default().after(&set_aside(pages), &[], &|_| file.to_owned());
        assert_eq!((many.len(), many.find_object(ObjectId(1))), (count as usize, None), "{file}");
        assert_eq!(Contents::decode(&many.encode().unwrap()).unwrap(), many);
    }
    let system = (0..count).map(|page_no| {
        let page_id = PageId { space: SpaceId(0), page_no: PageNo(page_no) };
        DamagedPage { page_id, ..page(1, page_no, false) }
    });
    let many = Contents::default().after(&set_aside(system), &[], &|_| "?".to_owned());
    assert_eq!(many.find_object(ObjectId(1)), None);
}

#[test]
fn quarantine_without_entries_finds_nothing() {
    let quarantine = Quarantine::default();
    assert_eq!(quarantine.find(PageKey::new(ObjectId(1), 3)), None);
    quarantine.set(Contents::default().after(&set_aside([page(1, 3, false)]), &[], &file_of));
    let found = quarantine.find(PageKey::new(ObjectId(1), 3)).unwrap();
    assert!(found.error().contains("reason of 1:3"), "{}", found.error());
    assert_eq!(quarantine.find_object(ObjectId(1)), None);
    quarantine.set(Contents::default());
    assert_eq!(quarantine.find(PageKey::new(ObjectId(1), 3)), None);
}

#[test]
fn pages_of_the_system_tablespace_leave_room_for_others() {
    let of = |object: u32, space: u32, count: usize| {
        (0..count as u32).map(move |page_no| {
            let page_id = PageId { space: SpaceId(space), page_no: PageNo(page_no) };
            DamagedPage { page_id, ..page(object, page_no, false) }
        })
    };
    let before = Contents::default().after(&set_aside(of(1, 0, PAGES_MAX)), &[], &file_of);
    let after = before.after(&set_aside(of(2, 6, 3)), &[], &file_of);
    assert_eq!((after.len(), after.find_object(ObjectId(2))), (PAGES_MAX + 3, None));
    assert_eq!(Contents::decode(&after.encode().unwrap()).unwrap(), after);
}

#[test]
fn stored_quarantine_is_read_back_whatever_its_files_are_named() {
    // The limit of an object does not hold for a file that is needed to start, and a name may be lost later.
    let pages = (0..PAGES_OF_OBJECT_MAX as u32 + 10).map(|page_no| page(1, page_no, false));
    let many = Contents::default().after(&set_aside(pages), &[], &|_| "undo001".to_owned());
    let stored = String::from_utf8(many.encode().unwrap()).unwrap().replace("undo001", "?");
    let read = Contents::decode(stored.as_bytes()).unwrap();
    assert_eq!((read.len(), read.find_object(ObjectId(1))), (many.len(), None));
}

#[test]
fn found_pages_are_listed_once_and_until_they_are_whole() {
    let found = Found::default();
    let key = |page_no| PageKey::new(ObjectId(1), page_no);
    let entry = |page_no| SetAside {
        object: 1,
        page_no: Some(page_no),
        space: 5,
        file: "d/t.ibd".to_owned(),
        lsn: 7,
        reason: "rotten".to_owned(),
        found_at: None,
        differs: None,
    };
    found.remove(key(1));
    assert!(found.add(key(1), entry(1)) && !found.add(key(1), entry(1)) && found.add(key(2), entry(2)));
    found.remove(key(1));
    assert_eq!(found.entries(), [entry(2)]);
    found.retain(|key| key.object() != ObjectId(1));
    assert!(found.entries().is_empty());
    let added = (0..2 * FOUND_MAX as u32).filter(|page_no| found.add(key(*page_no), entry(*page_no)));
    assert_eq!(added.count(), FOUND_MAX);
}
