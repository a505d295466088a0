//! Addresses as people write them.

use super::*;

#[test]
fn addresses_of_a_list() {
    let addresses = |text| addresses_in(text, 4567);
    assert_eq!(addresses("gcomm://"), Vec::<String>::new());
    assert_eq!(addresses("gcomm://10.0.0.1,10.0.0.2:15000"), ["10.0.0.1:4567", "10.0.0.2:15000"]);
    assert_eq!(addresses("gcomm://db1, db2?pc.wait_prim=no"), ["db1:4567", "db2:4567"]);
    assert_eq!(addresses("gcomm://[::1]:5000,[::1]"), ["[::1]:5000", "[::1]:4567"]);
}
