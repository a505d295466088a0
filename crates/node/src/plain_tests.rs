use super::*;
use crate::mark::Point;

fn write(file: u32, offset_bytes: u64, bytes: &[u8]) -> Change {
    let chunk = Chunk {
        kind: 6,
        logged: true,
        start: Point::default(),
        end: Point::default(),
        wire: Vec::new(),
        raw: Some([b"head".as_slice(), bytes].concat()),
    };
    Change::Write { file: FileId(file), offset_bytes, chunk: Arc::new(chunk), from: 4 }
}

#[test]
fn executing_the_same_changes_twice_gives_the_same_contents() {
    let directory = tempfile::tempdir().unwrap();
    let store = PlainStore::new(Folder::open(directory.path()).unwrap());
    let changes = [
        Change::Create(FileId(1)),
        write(1, 0, b"hello world"),
        Change::SetLen(FileId(1), 5),
        write(1, 5, b"!"),
        Change::Create(FileId(2)),
        write(2, 3, b"x"),
        Change::Remove(FileId(2)),
    ];
    for _ in 0..2 {
        for change in &changes {
            store.execute(change).unwrap();
        }
        store.sync().unwrap();
        assert_eq!(std::fs::read(store.path(FileId(1))).unwrap(), b"hello!");
        assert!(store.open_for_reading(FileId(2)).unwrap().is_none());
    }
    store.remove_others(|_| false).unwrap();
    assert_eq!(store.len_bytes(FileId(1)).unwrap(), 0);
}

#[test]
fn waiting_ends_when_earlier_changes_are_executed_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(PlainStore::new(Folder::open(directory.path()).unwrap()));
    store.queue(Seq(10), Change::Create(FileId(1)));
    store.queue(Seq(20), Change::Create(FileId(2)));
    assert_eq!(store.wait_executed(Seq(10), None), WaitEnd::Reached);
    let (seq, change) = store.next().unwrap();
    assert_eq!(seq, Seq(10));
    let waiter = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            assert_eq!(store.wait_executed(Seq(20), None), WaitEnd::Reached);
            store.open_for_reading(FileId(1)).unwrap().is_some()
        })
    };
    store.execute(&change).unwrap();
    store.done();
    assert!(waiter.join().unwrap());
    store.close();
    assert_eq!(store.wait_executed(Seq(21), None), WaitEnd::Closed);
}
