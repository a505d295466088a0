use super::Counter;
use redoubt_test_support::listed;
use std::collections::BTreeSet;

#[test]
fn reference_page_lists_every_counter_of_the_network_library() {
    let page = include_str!("../../../../../docs/net/README.md");
    let known: BTreeSet<_> = Counter::ALL.iter().map(|counter| counter.name().to_owned()).collect();
    assert_eq!(listed::names(page, "Status and counters"), known);
}
