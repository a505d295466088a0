use super::*;

fn identifier(first: u8) -> KeyIdentifier {
    let mut bytes = [7; IDENTIFIER_LEN_BYTES];
    bytes[0] = first;
    KeyIdentifier(bytes)
}

fn bytes_of(policy: &fscrypt_policy_v2) -> [u8; POLICY_LEN_BYTES] {
    let mut bytes = [0; POLICY_LEN_BYTES];
    bytes[0] = policy.version;
    bytes[1] = policy.contents_encryption_mode;
    bytes[2] = policy.filenames_encryption_mode;
    bytes[3] = policy.flags;
    bytes[4] = policy.log2_data_unit_size;
    bytes[8..].copy_from_slice(&policy.master_key_identifier);
    bytes
}

#[test]
fn what_is_set_is_recognised_and_nothing_else() {
    let key = identifier(0x0a);
    let bytes = bytes_of(&policy_of(key));
    // Version 2, AES-256-XTS, AES-256-CTS, names padded to 32 bytes: the kernel's policy of such a directory.
    assert_eq!(bytes[..8], [2, 1, 4, 3, 0, 0, 0, 0]);
    let len_bytes = POLICY_LEN_BYTES as u64;
    assert_eq!(decode_policy(len_bytes, bytes), Policy::Ours(key));
    assert_ne!(decode_policy(len_bytes, bytes), Policy::Ours(identifier(0x0b)));
    for at in 0..8 {
        let mut other = bytes;
        other[at] ^= 1;
        assert_eq!(decode_policy(len_bytes, other), Policy::Other(other), "byte {at}");
    }
    // Version 1 is half as long.
    assert_eq!(decode_policy(12, bytes), Policy::Other(bytes));
}

#[test]
fn answers_and_errors_are_told_apart() {
    let policy = Policy::Ours(identifier(1));
    assert_eq!(state(Ok(policy)).unwrap(), Encryption::Encrypted(policy));
    assert_eq!(state(Err(Errno::NODATA)).unwrap(), Encryption::Clear);
    assert_eq!(state(Err(Errno::OPNOTSUPP)).unwrap(), Encryption::SwitchedOff);
    assert_eq!(state(Err(Errno::NOTTY)).unwrap(), Encryption::NoSuchCall);
    // A policy that the kernel cannot read does not count as none.
    assert!(state(Err(Errno::INVAL)).is_err() && state(Err(Errno::PERM)).is_err());
}

#[test]
fn what_is_left_of_a_key_is_said() {
    assert_eq!(left(0), Left::Nothing);
    assert_eq!(left(FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY), Left::OpenFiles);
    assert_eq!(left(FSCRYPT_KEY_REMOVAL_STATUS_FLAG_OTHER_USERS), Left::OtherUsers);
    let both = FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY | FSCRYPT_KEY_REMOVAL_STATUS_FLAG_OTHER_USERS;
    assert_eq!(left(both), Left::OtherUsers);
}

#[test]
fn an_identifier_is_shown_as_others_show_it() {
    let mut bytes = [0; IDENTIFIER_LEN_BYTES];
    bytes[0] = 0x5d;
    bytes[15] = 0x0f;
    assert_eq!(KeyIdentifier(bytes).to_string(), "5d00000000000000000000000000000f");
}

#[test]
fn a_file_system_without_encryption_says_so() {
    // The kernel's own file systems have none.
    let directory = File::open("/proc").unwrap();
    assert_eq!(read_state(&directory).unwrap(), Encryption::NoSuchCall);
    assert!(add_key(&directory, &[1; KEY_LEN_BYTES]).is_err());
    assert!(set_policy(&directory, identifier(1)).is_err());
    assert!(remove_key(&directory, identifier(1)).is_err());
}
