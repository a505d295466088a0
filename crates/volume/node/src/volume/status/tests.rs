use super::name_counters;
use redoubt_test_support::listed;
use std::collections::BTreeSet;

#[test]
fn reference_page_lists_every_server_counter() {
    let page = include_str!("../../../../../../docs/volume/reference/status.md");
    let all: Vec<_> = (0..=u8::MAX).map(|id| (id, 0)).collect();
    let known: BTreeSet<_> = name_counters(&all).into_keys().collect();
    assert_eq!(listed::names(page, "Counters of the server"), known);
}
