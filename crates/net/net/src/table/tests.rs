use super::*;

// Numbers that no descriptor of the test has.
const NUMBER: c_int = 900_000;

#[test]
fn entries_come_and_go() {
    assert!(get(NUMBER).is_none() && !remove(NUMBER));
    let connection = insert(NUMBER).unwrap();
    assert!(std::ptr::eq(get(NUMBER).unwrap(), connection));
    assert!(get(NUMBER + 1).is_none() && get(-1).is_none() && get(c_int::MAX).is_none());
    assert!(share(NUMBER + 1, connection));
    assert!(!remove(NUMBER));
    assert!(remove(NUMBER + 1) && !remove(NUMBER + 1));
    assert!(!share(NUMBER + 1, connection), "it is closed");
    assert!(insert(c_int::MAX).is_none() && insert(-1).is_none());
}

#[test]
fn who_holds_a_closed_connection_does_not_touch_its_successor() {
    let number = NUMBER + 5000;
    let connection = insert(number).unwrap();
    let mut locked = connection.lock(number).unwrap();
    locked.reader().space().fill(7);
    locked.filled(10);
    assert!(connection.lock(number).is_none(), "one at a time");
    assert!(remove(number));
    let successor = insert(number).unwrap();
    assert!(!std::ptr::eq(successor, connection), "in use until the lock is free");
    drop(locked);
    assert!(connection.lock(number).is_none());
    assert!(successor.lock(number).unwrap().reader().unread().is_empty());
    assert!(remove(number));
}

#[test]
fn ranges_find_what_is_there() {
    let numbers = [950_000, 950_001, 951_030];
    for number in numbers {
        insert(number).unwrap();
    }
    assert_eq!(in_range(950_000..=960_000).collect::<Vec<_>>(), numbers);
    assert_eq!(in_range(950_001..=951_029).collect::<Vec<_>>(), [950_001]);
    for number in numbers {
        assert!(remove(number));
    }
    assert_eq!(in_range(950_000..=usize::MAX).count(), 0);
}
