//! The reference page lists the node's counters.

use super::protocol::Fixture;
use redoubt_test_support::listed;
use std::collections::BTreeSet;

#[test]
fn reference_page_lists_every_node_counter() {
    let page = include_str!("../../../../../docs/volume/reference/status.md");
    let known: BTreeSet<_> = Fixture::new().control().status().counters.into_keys().collect();
    assert_eq!(listed::names(page, "Counters of the node"), known);
}
