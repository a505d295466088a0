use super::*;
use crate::events::Ignored;

fn volume(state: &str, d_seq: Option<u64>) -> VolumeStatus {
    VolumeStatus { name: "v".to_owned(), state: state.to_owned(), d_seq, ..VolumeStatus::default() }
}

#[test]
fn volume_whose_log_is_being_read_is_looked_at_again() {
    let mut looks =
        [volume(RECOVERING, None), volume(RECOVERING, None), volume("ready", Some(7))].into_iter();
    let found = opened(|| Ok(looks.next().unwrap()), || (), &Ignored).unwrap();
    assert_eq!((found.state.as_str(), found.d_seq), ("ready", Some(7)));
}

#[test]
fn volume_that_is_never_opened_is_given_up() {
    let mut looks = 0;
    let look = || {
        looks += 1;
        Ok(volume(RECOVERING, None))
    };
    let refused = opened(look, || (), &Ignored).unwrap_err().to_string();
    assert!(refused.contains("Nothing was attached"), "{refused}");
    assert_eq!(looks, OPENING_LOOKS_MAX);
}
