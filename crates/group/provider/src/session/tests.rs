use super::*;

#[test]
fn an_address_without_members_begins_a_group_only_where_there_is_none() {
    let plain = b"/usr/sbin/mariadbd\0--wsrep-on=1\0";
    let asked = b"/usr/sbin/mariadbd\0--wsrep_new_cluster\0";
    assert_eq!(New::of(false, "gcomm://", plain), New::No);
    assert_eq!(New::of(true, "gcomm://", plain), New::IfNone);
    assert_eq!(New::of(true, "gcomm://", asked), New::Yes);
    assert_eq!(New::of(true, "gcomm://", b"mariadbd\0--wsrep-new-cluster=1\0"), New::Yes);
    assert_eq!(New::of(true, "gcomm://10.0.0.1", plain), New::Yes);
}
