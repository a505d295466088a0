use super::*;
use redoubt_shm_control::net::{COUNTERS_WORD, MAGIC, USER_TCP_LINKS_WORD, UserTcpLink};

fn snapshot(counters: &[(Counter, u64)], user_tcp: u64) -> Snapshot {
    let mut words = vec![0u64; LEN_BYTES / 8];
    words[0] = MAGIC;
    for (counter, value) in counters {
        words[COUNTERS_WORD + *counter as usize] = *value;
    }
    if user_tcp > 0 {
        let link = UserTcpLink { interface: "v0".to_owned(), opened: user_tcp, ..UserTcpLink::default() };
        let link = link.to_words();
        words[USER_TCP_LINKS_WORD..USER_TCP_LINKS_WORD + link.len()].copy_from_slice(&link);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Snapshot::parse(&bytes).unwrap()
}

fn sums(all: &[Snapshot]) -> Sums {
    let mut sums = Sums::default();
    all.iter().for_each(|snapshot| sums.add(snapshot));
    sums
}

const ALL: [Layer; 4] = [Layer::Collapser, Layer::Admission, Layer::Bypass, Layer::UserTcp];

#[test]
fn a_layer_that_nobody_went_through_was_not_used() {
    for layer in ALL {
        assert!(sums(&[]).verdict(layer).unwrap_err().contains("no server"), "{layer:?}");
        let idle = snapshot(&[(Counter::Connections, 9), (Counter::Calls, 5), (Counter::SystemCalls, 5)], 0);
        assert!(sums(&[idle]).verdict(layer).is_err(), "{layer:?}");
    }
}

#[test]
fn each_layer_has_its_own_sign() {
    let collapsed = [(Counter::Collapsed, 1), (Counter::Calls, 5), (Counter::SystemCalls, 2)];
    let signs = [
        snapshot(&collapsed, 0),
        snapshot(&[(Counter::Waited, 1)], 0),
        snapshot(&[(Counter::Connections, 3), (Counter::Bypassed, 2)], 0),
        snapshot(&[(Counter::Connections, 3)], 4),
    ];
    for (layer, sign) in ALL.into_iter().zip(&signs) {
        for other in ALL {
            assert_eq!(sums(std::slice::from_ref(sign)).verdict(other).is_ok(), other == layer, "{other:?}");
        }
    }
}

#[test]
fn half_of_the_connections_are_not_enough_for_layers_of_whole_connections() {
    let one = snapshot(&[(Counter::Connections, 2), (Counter::Bypassed, 1)], 0);
    assert!(sums(&[one]).verdict(Layer::Bypass).unwrap_err().contains("1 of 2"));
    let one = snapshot(&[(Counter::Connections, 2)], 2);
    assert!(sums(&[one]).verdict(Layer::UserTcp).is_err());
}

#[test]
fn servers_are_added_up() {
    let one = snapshot(&[(Counter::Connections, 2), (Counter::Bypassed, 1)], 3);
    let sums = sums(&[one.clone(), one]);
    assert_eq!((sums.servers, sums.user_tcp_connections), (2, 6));
    assert_eq!((sums.get(Counter::Connections), sums.get(Counter::Bypassed)), (4, 2));
}
