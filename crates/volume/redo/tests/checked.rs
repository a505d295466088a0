//! Whether arithmetic that overflows and debug assertions are failures: `scripts/checked` relies on it.

use std::panic::catch_unwind;

/// The script sets the variable: without these settings the same tests would only run once more.
#[test]
fn overflows_and_debug_assertions_are_failures_where_they_should_be() {
    let largest = std::hint::black_box(u8::MAX);
    let wraps = catch_unwind(|| std::hint::black_box(largest + 1)).is_ok();
    let checked = cfg!(debug_assertions) && !wraps;
    println!("{}", if checked { "checked" } else { "as shipped" });
    assert!(
        checked || redoubt_test_support::setting_os("REDOUBT_CHECKED").is_none(),
        "the settings are not in force"
    );
}
