use super::*;

#[test]
fn who_comes_later_has_the_greater_id() {
    let now_ms = 1_795_812_000_000;
    assert!(member_of(now_ms, u32::MAX) < member_of(now_ms + 1, 0));
    assert_ne!(member_of(now_ms, 1), member_of(now_ms, 2));
    assert!(member_of((1 << 44) - 1, u32::MAX).0 == u64::MAX);
    assert!(new_member().unwrap() >= member_of(now_ms, 0));
}

#[test]
fn addresses_of_a_list() {
    let addresses = |text| addresses_in(text, 4567).unwrap();
    assert_eq!(addresses("gcomm://"), Vec::<String>::new());
    assert_eq!(addresses("gcomm://10.0.0.1,10.0.0.2:15000"), ["10.0.0.1:4567", "10.0.0.2:15000"]);
    assert_eq!(addresses("gcomm://db1, db2?pc.wait_prim=no"), ["db1:4567", "db2:4567"]);
    assert_eq!(addresses("gcomm://[::1]:5000,[::1]"), ["[::1]:5000", "[::1]:4567"]);
    assert_eq!(
        addresses("gcomm://::1,fe80::1:2"),
        ["[::1]:4567", "[fe80::1:2]:4567"],
        "no part of them is a port"
    );
}

#[test]
fn what_is_no_list_is_an_error() {
    for text in ["AUTO", "10.0.0.1", "foo://10.0.0.1", ""] {
        assert_eq!(addresses_in(text, 4567), None, "{text}");
    }
}
