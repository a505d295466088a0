//! The comparison must find what it is there to find.

use super::super::fdp::{Configuration, PlacementHandle, Statistics};
use super::*;

const BLOCK_LEN_BYTES: u64 = 4096;

/// Two namespaces: the first with handle 0, the second with handles 6 and 7. `written`: blocks per handle.
fn state(written: [u64; 3]) -> GroupState {
    let available = |handle, placement_id, blocks| PlacementHandle {
        placement_id,
        handle,
        available_blocks: 1000 - blocks,
    };
    let namespace = |nsid, placement_handles, blocks| NamespaceState {
        device: format!("nvme0n{nsid}"),
        nsid,
        block_len_bytes: BLOCK_LEN_BYTES,
        kernel_bytes_written: blocks * BLOCK_LEN_BYTES,
        placement_handles,
    };
    let [data, other, journal] = written;
    let host_bytes_written = (data + other + journal) * BLOCK_LEN_BYTES;
    let mut handle_usage = vec![HandleUsage::Unused; 8];
    for handle in [0, 6, 7] {
        handle_usage[handle] = HandleUsage::HostSpecified;
    }
    GroupState {
        endurance_group: 1,
        configuration: Configuration { reclaim_groups: 1, handles: 8, reclaim_unit_len_bytes: 1 << 22 },
        statistics: Statistics {
            host_bytes_written,
            media_bytes_written: host_bytes_written,
            media_bytes_erased: 0,
        },
        handle_usage,
        namespaces: vec![
            namespace(1, vec![available(0, 0, data)], data),
            namespace(2, vec![available(6, 0, other), available(7, 1, journal)], other + journal),
        ],
    }
}

fn bytes(written: [u64; 3]) -> Result<Vec<(u16, u64)>, String> {
    let moved = moved(&state([1, 2, 3]), &state(written))?;
    Ok(moved.iter().map(|one| (one.handle, one.bytes)).collect())
}

#[test]
fn bytes_are_told_per_handle() {
    assert_eq!(bytes([11, 2, 8]), Ok(vec![(0, 40960), (6, 0), (7, 20480)]));
}

#[test]
fn a_state_that_was_written_and_read_back_is_the_same() {
    let state = state([1, 2, 3]);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<GroupState>(&text).unwrap(), state);
}

#[test]
fn a_unit_that_was_filled_is_found() {
    assert!(bytes([0, 2, 3]).unwrap_err().contains("another reclaim unit"));
    // Filled and as far in the next one as in the first: only the other counts tell.
    let mut after = state([1, 2, 3]);
    after.namespaces[0].kernel_bytes_written += 1000 * BLOCK_LEN_BYTES;
    assert!(moved(&state([1, 2, 3]), &after).unwrap_err().contains("the kernel counts"));
}

#[test]
fn bytes_that_went_elsewhere_are_found() {
    // The journal's bytes, on the handle of the data.
    let mut after = state([11, 2, 3]);
    after.namespaces[0].kernel_bytes_written -= 10 * BLOCK_LEN_BYTES;
    after.namespaces[1].kernel_bytes_written += 10 * BLOCK_LEN_BYTES;
    assert!(moved(&state([1, 2, 3]), &after).is_err());
    // To a namespace that is not looked at.
    let mut after = state([11, 2, 3]);
    after.statistics.host_bytes_written += 4096;
    assert!(moved(&state([1, 2, 3]), &after).unwrap_err().contains("the drive counts"));
}

#[test]
fn a_shared_or_unused_handle_is_found() {
    let shared = |mut state: GroupState| {
        state.namespaces[1].placement_handles[1].handle = 0;
        state
    };
    assert!(moved(&shared(state([1, 2, 3])), &shared(state([1, 2, 3]))).unwrap_err().contains("share"));
    let mut after = state([1, 2, 3]);
    after.handle_usage[7] = HandleUsage::Unused;
    assert!(moved(&state([1, 2, 3]), &after).unwrap_err().contains("usage"));
    after.namespaces.pop();
    assert!(moved(&state([1, 2, 3]), &after).is_err(), "other namespaces");
}

#[test]
fn expectations_can_fail_in_both_directions() {
    let moved = moved(&state([1, 2, 3]), &state([11, 2, 8])).unwrap();
    let at_least = |text: &[&str]| -> Vec<AtLeast> { text.iter().map(|one| one.parse().unwrap()).collect() };
    assert_eq!(check(&moved, &at_least(&["0=40960", "7=1"])), Ok(()));
    assert!(check(&moved, &at_least(&["0=40961", "7=1"])).unwrap_err().contains("handle 0"));
    assert!(check(&moved, &at_least(&["0=1"])).unwrap_err().contains("handle 7"));
    assert!(check(&moved, &at_least(&["0=1", "6=1", "7=1"])).unwrap_err().contains("handle 6"));
    assert!(check(&moved, &at_least(&["0=1", "5=1", "7=1"])).unwrap_err().contains("handle 5"));
    for wrong in ["", "1", "1=", "1=0", "=1", "x=1", "70000=1"] {
        assert!(wrong.parse::<AtLeast>().is_err(), "{wrong}");
    }
}
