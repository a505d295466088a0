//! Seeded: a reader and a changer take turns in any order, and the reader must see the state as it was.

use super::*;
use crate::index::PageKey;
use crate::log_buffer::Chunk;
use crate::plain::{Change, PlainStore};
use redoubt_wire::page::FileId;
use redoubt_wire::stream::StreamFrame;
use redoubt_wire::{HEADER_LEN_BYTES, Seq};
use std::collections::BTreeMap;
use std::sync::Arc;

const SEEDS: u64 = 300;

fn snapshot(directory: &tempfile::TempDir) -> Snapshot {
    let folder = Folder::open(directory.path()).unwrap();
    Snapshot::new(Point::default(), &folder, "export").unwrap()
}

fn names_left(directory: &tempfile::TempDir) -> usize {
    std::fs::read_dir(directory.path()).unwrap().count()
}

#[test]
fn pages_are_read_as_they_were_whatever_is_written_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..SEEDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let snapshot = snapshot(&directory);
        let page_count = rng.u32(1..40);
        let keys: Vec<_> =
            (0..2).flat_map(|o| (0..page_count).map(move |p| PageKey::new(ObjectId(o), p))).collect();
        let was: BTreeMap<_, _> = keys.iter().map(|key| (*key, vec![rng.u8(..); 64])).collect();
        let mut stored = was.clone();
        for key in &keys {
            // The reader's first read.
            let mut read = stored[key].clone();
            for step in 0..rng.usize(..6) {
                let changed = keys[rng.usize(..keys.len())];
                if snapshot.pages.is_needed(changed) {
                    snapshot.pages.put(changed, &stored[&changed]).unwrap();
                }
                stored.insert(changed, vec![rng.u8(..); 64]);
                if step % 2 == 0 && rng.bool() {
                    // The read may as well come after some of the changes.
                    read = stored[key].clone();
                }
            }
            let page = snapshot.pages.get(*key).unwrap().unwrap_or(read);
            assert_eq!(page, was[key], "seed {seed}, {key:?}");
            snapshot.pages.passed(key.object(), key.page_no() + 1);
            assert!(!snapshot.pages.is_needed(*key), "seed {seed}: what was read is not kept");
            assert!(snapshot.pages.get(*key).is_err(), "seed {seed}: nobody is handed a newer page for it");
        }
        assert_eq!(snapshot.pages.count(), 0, "seed {seed}: ranges are given back");
    }
    assert_eq!(names_left(&directory), 0, "what is put aside has no name");
}

fn write(file: FileId, offset_bytes: u64, data: &[u8]) -> Change {
    let mut payload = Vec::new();
    StreamFrame::Write { path: b"f", offset_bytes, data }.encode_payload(&mut payload);
    let from = payload.len() - data.len();
    let wire = [&[0; HEADER_LEN_BYTES][..], &payload].concat();
    let chunk =
        Chunk { kind: 1, logged: true, start: Point::default(), end: Point::default(), wire, raw: None };
    Change::Write { file, offset_bytes, chunk: Arc::new(chunk), from }
}

fn any_change(rng: &mut fastrand::Rng, file: FileId, len_bytes: u64) -> Change {
    match rng.u32(..20) {
        0 => Change::SetLen(file, 0),
        1 => Change::Remove(file),
        2 => Change::Create(file),
        3..6 => Change::SetLen(file, rng.u64(..len_bytes * 2)),
        6..9 => write(file, len_bytes, &vec![rng.u8(1..); rng.usize(1..30_000)]),
        _ => write(file, rng.u64(..len_bytes + 1), &vec![rng.u8(1..); rng.usize(1..40_000)]),
    }
}

#[test]
fn plain_files_are_read_as_they_were_whatever_is_written_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..SEEDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let plain = tempfile::tempdir().unwrap();
        let store = PlainStore::new(Folder::open(plain.path()).unwrap());
        let mut was: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for id in 0..4 {
            let len = rng.usize(1..60_000);
            let contents: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
            store.execute(&Change::Create(FileId(id))).unwrap();
            store.execute(&write(FileId(id), 0, &contents)).unwrap();
            was.insert(id, contents);
        }
        let snapshot = snapshot(&directory);
        // File 4 comes later and is not in the snapshot.
        let change = |rng: &mut fastrand::Rng| {
            let file = FileId(rng.u32(..5));
            let change = any_change(rng, file, 30_000);
            snapshot.plain.before(&change, &store).unwrap();
            store.execute(&change).unwrap();
        };
        for (id, contents) in &was {
            let mut read = Vec::new();
            let len_bytes = snapshot.plain.len_bytes(FileId(*id), &store).unwrap();
            assert_eq!(len_bytes, contents.len() as u64, "seed {seed}, file {id}");
            while read.len() < contents.len() {
                for _ in 0..rng.usize(..3) {
                    change(&mut rng);
                }
                let len = rng.usize(1..20_000).min(contents.len() - read.len());
                let mut piece = vec![0xff; len];
                snapshot.plain.read(FileId(*id), read.len() as u64, &mut piece, &store).unwrap();
                read.extend(piece);
            }
            let other = read.iter().zip(contents).position(|(read, was)| read != was);
            assert_eq!(other, None, "seed {seed}, file {id}");
        }
    }
}

#[test]
fn what_lies_after_the_end_reads_as_zero_although_the_file_has_grown() {
    let (directory, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = PlainStore::new(Folder::open(plain.path()).unwrap());
    store.execute(&Change::Create(FileId(1))).unwrap();
    store.execute(&write(FileId(1), 0, b"binary log")).unwrap();
    let snapshot = snapshot(&directory);
    let appended = write(FileId(1), 10, b", more");
    snapshot.plain.before(&appended, &store).unwrap();
    store.execute(&appended).unwrap();
    let mut read = [0xff; 16];
    snapshot.plain.read(FileId(1), 0, &mut read, &store).unwrap();
    assert_eq!(&read, b"binary log\0\0\0\0\0\0");
    assert_eq!(snapshot.plain.len_bytes(FileId(1), &store).unwrap(), 10);
}

#[test]
fn a_dead_object_is_kept_if_the_state_has_it_and_given_back_once() {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = snapshot(&directory);
    let mut names = Namespace::default();
    let object = names.object_of_space(redoubt_redo::SpaceId(7));
    assert!(!snapshot.keep(object), "before its point nothing of the state can have died");
    snapshot.applied(Point { seq: Seq(1), ..Point::default() }, &Arc::new(names.clone()));
    assert!(snapshot.names().is_none(), "another point is not its");
    snapshot.applied(Point::default(), &Arc::new(names));
    assert!(snapshot.keep(object) && !snapshot.keep(ObjectId(99)));
    assert_eq!(snapshot.take_dead(), [object]);
    assert!(snapshot.take_dead().is_empty());
}

#[test]
fn a_state_that_could_not_be_kept_says_so_to_its_reader() {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = snapshot(&directory);
    snapshot.check().unwrap();
    snapshot.fail(&NodeError::Refused("no space".to_owned()));
    snapshot.fail(&NodeError::Refused("another reason".to_owned()));
    assert!(snapshot.check().unwrap_err().to_string().contains("no space"));
}
