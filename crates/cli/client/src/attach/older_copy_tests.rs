use super::*;
use redoubt_wire::Seq;

fn volume(generation: u64, d_seq: Option<u64>) -> VolumeStatus {
    VolumeStatus { name: "v".to_owned(), generation, d_seq, ..VolumeStatus::default() }
}

fn known(generation: Option<u64>, confirmed: Option<(u64, u64)>) -> Known {
    let confirmed = confirmed.map(|(generation, durable)| Confirmed { generation, durable: Seq(durable) });
    Known { generation, confirmed, ..Known::default() }
}

#[test]
fn node_with_all_that_it_confirmed_is_accepted() {
    for (volume, known) in [
        (volume(3, Some(500)), known(None, None)),
        (volume(3, Some(500)), known(Some(3), None)),
        (volume(3, Some(500)), known(Some(3), Some((3, 500)))),
        // Another host has attached it since.
        (volume(9, Some(900)), known(Some(3), Some((3, 500)))),
        // An attach whose answer did not arrive.
        (volume(4, Some(500)), known(Some(3), Some((3, 500)))),
        // A node that does not say where its log ends.
        (volume(3, None), known(Some(3), Some((3, 500)))),
    ] {
        check(&volume, known, "node:1").unwrap();
    }
}

#[test]
fn older_generation_or_shorter_log_is_refused_with_both() {
    for (volume, known, parts) in [
        (volume(2, Some(900)), known(Some(3), None), ["its generation is 2", "generation 3"]),
        (volume(2, None), known(None, Some((3, 1))), ["its generation is 2", "generation 3"]),
        (volume(3, Some(499)), known(Some(3), Some((3, 500))), ["byte 499", "byte 500"]),
        (volume(9, Some(499)), known(Some(3), Some((3, 500))), ["byte 499", "byte 500"]),
    ] {
        let error = check(&volume, known, "node:1").unwrap_err();
        assert!(matches!(error, ClientError::OlderCopy(_)));
        let text = error.to_string();
        for part in parts.into_iter().chain(["node:1", "--accept-older", "volume v"]) {
            assert!(text.contains(part), "{part:?} is missing: {text}");
        }
    }
}

#[test]
fn generation_that_two_attaches_were_given_is_refused() {
    let known = Known { is_of_other_history: true, ..known(Some(6), Some((6, 500))) };
    let volume = VolumeStatus { attached_by: "host a".to_owned(), ..volume(6, Some(900)) };
    let text = check(&volume, known, "node:1").unwrap_err().to_string();
    assert!(text.contains("its generation 6 was given to host a"), "{text}");
}
