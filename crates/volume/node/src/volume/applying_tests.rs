//! Choice of the tables that are applied as one.

use super::count_together;
use redoubt_wire::Seq;

const TABLES: [(Seq, u64); 4] = [(Seq(10), 10), (Seq(30), 20), (Seq(35), 5), (Seq(65), 30)];

fn always(_: Seq) -> bool {
    true
}

#[test]
fn the_state_of_an_export_is_applied_exactly() {
    for (last, count) in [(10, 1), (29, 1), (30, 2), (35, 3), (64, 3), (65, 4), (100, 4)] {
        assert_eq!(count_together(&TABLES, 1000, Some(Seq(last)), always), count, "up to {last}");
    }
    assert_eq!(count_together(&TABLES, 1000, None, always), 4);
}

#[test]
fn tables_are_applied_as_one_up_to_the_bytes_and_while_they_are_ready() {
    for (most_bytes, count) in [(0, 1), (10, 1), (29, 1), (30, 2), (35, 3), (64, 3), (65, 4)] {
        assert_eq!(count_together(&TABLES, most_bytes, None, always), count, "{most_bytes} bytes");
    }
    assert_eq!(count_together(&TABLES, 1000, None, |end| end != Seq(35)), 2);
    // The caller has waited for the first.
    assert_eq!(count_together(&TABLES, 1000, None, |_| false), 1);
    assert_eq!(count_together(&[], 1000, None, always), 0);
}
