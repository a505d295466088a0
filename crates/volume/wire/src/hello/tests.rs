use super::*;

fn hello(compression: Compression) -> Hello {
    Hello { role: Role::Page, compression, generation: 1, session: 2, resume: Seq(3), volume: "v".to_owned() }
}

fn welcome(compression: Compression) -> Welcome {
    let (next_seq, next_lsn) = (Seq(4), Lsn(5));
    Welcome { status: Status::Accepted, compression, next_seq, next_lsn, message: String::new() }
}

/// After length, magic, version, and role or status.
const FLAGS: usize = 4 + 4 + 2 + 1;

#[test]
fn what_is_asked_for_and_granted_arrives() {
    for (compression, flags) in [(Compression::Off, 0), (Compression::On, 1), (Compression::Auto, 2)] {
        let bytes = hello(compression).encode();
        assert_eq!(bytes[FLAGS], flags);
        assert_eq!(Hello::decode(&bytes[4..]), Ok(hello(compression)));
        let bytes = welcome(compression).encode();
        assert_eq!(bytes[FLAGS], flags);
        assert_eq!(Welcome::decode(&bytes[4..]), Ok(welcome(compression)));
    }
}

#[test]
fn a_side_that_knows_only_of_on_and_off_takes_auto_for_off() {
    // All it looks at.
    let knows_only_bit_0 = |flags: u8| flags & 1 != 0;
    assert!(!knows_only_bit_0(hello(Compression::Auto).encode()[FLAGS]));
    assert!(knows_only_bit_0(hello(Compression::On).encode()[FLAGS]));
    // And what it never set means nothing here either.
    let mut bytes = hello(Compression::On).encode();
    bytes[FLAGS] = 0xff;
    assert_eq!(Hello::decode(&bytes[4..]).unwrap().compression, Compression::On);
    bytes[FLAGS] = 0xfc;
    assert_eq!(Hello::decode(&bytes[4..]).unwrap().compression, Compression::Off);
}
