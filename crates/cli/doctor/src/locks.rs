//! Holder of a file lock, from the kernel's list: locking the file for a test could make a concurrent start fail.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Process that holds a lock on the file; `None` if there is none, or the file does not exist.
pub fn holder(path: &Path) -> Option<u32> {
    let data = std::fs::metadata(path).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    find(&locks, rustix::fs::major(data.dev()), rustix::fs::minor(data.dev()), data.ino())
}

/// `1: FLOCK  ADVISORY  WRITE 2345 fe:00:393217 0 EOF`
fn find(locks: &str, major: u32, minor: u32, inode: u64) -> Option<u32> {
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1).filter(|word| *word != "->");
        (words.next() == Some("FLOCK")).then_some(())?;
        let process = words.nth(2)?.parse().ok()?;
        (words.next() == Some(&wanted)).then_some(process)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str =
        "1: POSIX  ADVISORY  WRITE 11 fe:00:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 2345 fe:0a:393217 0 EOF\n";

    #[test]
    fn a_lock_is_found_by_device_and_inode() {
        assert_eq!(find(LOCKS, 0xfe, 0x0a, 393_217), Some(2345));
        assert_eq!(find(LOCKS, 0xfe, 0x0b, 393_217), None);
        assert_eq!(find(LOCKS, 0xfe, 0x00, 7), None);
    }

    #[test]
    fn an_own_lock_is_in_the_list() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holder(file.path()), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(holder(file.path()), Some(std::process::id()));
    }
}
