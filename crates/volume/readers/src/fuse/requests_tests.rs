use super::*;

#[test]
fn panicking_request_fails_with_eio() {
    let outcome = guarded(|| -> Called<()> { panic!("a tree that fails") });
    assert_eq!(outcome.unwrap_err().code(), libc::EIO);
    assert_eq!(guarded(|| -> Called<()> { Err(Errno(libc::EROFS)) }).unwrap_err().code(), libc::EROFS);
}

#[test]
fn mode_becomes_the_file_type_of_fuse() {
    let types = [
        (libc::S_IFDIR | 0o700, FileType::Directory),
        (libc::S_IFREG | 0o640, FileType::RegularFile),
        (libc::S_IFLNK | 0o777, FileType::Symlink),
        (libc::S_IFSOCK | 0o600, FileType::Socket),
        (libc::S_IFIFO | 0o600, FileType::NamedPipe),
    ];
    for (mode, expected) in types {
        assert_eq!(kind(mode), expected, "{mode:o}");
    }
}
