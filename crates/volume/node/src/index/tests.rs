use super::*;
use redoubt_redo::Lsn;
use redoubt_wire::Seq;

fn entry(lsn: u64) -> Entry {
    Entry {
        start_lsn: Lsn(lsn),
        end_lsn: Lsn(lsn + 1),
        body: Body::Run { chunk: 0, offset: 0, len: 0, reset: None },
    }
}

fn end(seq: u64) -> TableEnd {
    TableEnd {
        point: Point { seq: Seq(seq), lsn: Lsn(seq) },
        names: Arc::default(),
        dead: Vec::new(),
        cut: Vec::new(),
    }
}

#[test]
fn a_page_is_found_in_every_table_that_has_it_until_each_is_applied() {
    let index = LogIndex::new(Point::default());
    let key = PageKey::new(ObjectId(3), 7);
    let first = index.open_table();
    assert_eq!(index.insert(&first, key, entry(1)), 1);
    assert_eq!(index.insert(&first, key, entry(2)), 2);
    index.close_table(end(10));
    let second = index.open_table();
    index.insert(&second, key, entry(11));
    assert_eq!(second.start().seq, Seq(10));
    assert_eq!(first.state(), TableState::Closed);

    let ids = |index: &LogIndex| index.tables_of(key).iter().map(|table| table.id()).collect::<Vec<_>>();
    assert_eq!(ids(&index), [1, 2]);
    assert_eq!(index.sizes(), (2, 3, 2));
    assert_eq!(index.chain_classes()[..3], [1, 1, 0], "a chain of 1 and one of 2");
    index.remove_applied(&first);
    assert_eq!(index.chain_classes()[..3], [1, 0, 0]);
    assert_eq!(ids(&index), [2]);
    assert!(index.tables_of(PageKey::new(ObjectId(3), 8)).is_empty());
    assert_eq!(index.head().unwrap().id(), 2);
}

#[test]
fn compaction_replaces_the_front_of_a_chain_only() {
    let index = LogIndex::new(Point::default());
    let key = PageKey::new(ObjectId(0), 1);
    let table = index.open_table();
    for lsn in 0..5 {
        index.insert(&table, key, entry(lsn));
    }
    let built =
        Entry { start_lsn: Lsn(4), end_lsn: Lsn(4), body: Body::Built(Arc::from(vec![1u8; 4].as_slice())) };
    assert_eq!(index.chain_classes()[..4], [0, 0, 1, 0], "one chain of 5");
    table.compact(key, 4, built);
    assert_eq!(index.chain_classes()[..4], [0, 1, 0, 0], "of 2 now");
    let chain = table.chain(key);
    assert_eq!(chain.len(), 2);
    assert!(matches!(chain[0].body, Body::Built(_)));
    assert_eq!(chain[1].start_lsn, Lsn(4));
}

#[test]
fn keys_keep_object_and_page_apart() {
    let key = PageKey::new(ObjectId(u32::MAX), 5);
    assert_eq!((key.object(), key.page_no()), (ObjectId(u32::MAX), 5));
    assert_ne!(PageKey::new(ObjectId(1), 0), PageKey::new(ObjectId(0), 1));
}
