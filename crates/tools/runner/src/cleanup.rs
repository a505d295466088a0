//! Removes the remains of a test: mounts and loop devices of its temporary directory, network namespaces with its
//! process id in their names, and the directory itself.
//!
//! Invariant: no file is removed through a mount. A directory with a mount that cannot be detached stays.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::print;

/// First words of the names that tests give to network namespaces; the process id follows. The longest come first.
const NAMESPACES: [&str; 4] = ["redoubt-stopping-", "redoubt-", "rdp-", "rdg-"];

/// Removes the remains of the test with this process id and temporary directory, as far as possible.
pub fn clean(id: u32, directory: &Path) {
    detach_mounts(directory);
    detach_loop_devices(directory);
    remove_namespaces(id);
    remove(directory);
}

/// Detaches the loop devices whose files are in a directory.
pub fn detach_loop_devices(directory: &Path) {
    for device in loop_devices(directory) {
        run("losetup", &["--detach".as_ref(), device.as_ref()]);
    }
}

/// Removes the network namespaces of the test with this process id.
pub fn remove_namespaces(id: u32) {
    for name in namespaces(id) {
        run("ip", &["netns".as_ref(), "del".as_ref(), name.as_ref()]);
    }
}

/// Removes a directory, unless that would remove files through a mount.
pub fn remove(directory: &Path) {
    let left = detach_mounts(directory);
    if let Some(point) = left.first() {
        print::note(&format!("{} stays: {} is still mounted", directory.display(), point.display()));
        return;
    }
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            print::note(&format!("{} stays: {error}", directory.display()));
        }
        _ => {}
    }
}

/// Detaches all mounts in a directory. Returns those that are left.
fn detach_mounts(directory: &Path) -> Vec<PathBuf> {
    let mut before = usize::MAX;
    loop {
        let points = mounts(directory);
        // One point may carry several mounts, of which one pass detaches one.
        if points.len() >= before || points.is_empty() {
            return points;
        }
        before = points.len();
        // Those inside of others come later in the list.
        for point in points.iter().rev() {
            run("umount", &["--lazy".as_ref(), point.as_os_str()]);
        }
    }
}

/// Mount points in a directory, the directory included.
fn mounts(directory: &Path) -> Vec<PathBuf> {
    let text = match std::fs::read("/proc/self/mounts") {
        Ok(text) => text,
        // Nothing is known: nothing may be removed.
        Err(_) => return vec![directory.to_owned()],
    };
    // The kernel lists paths without links.
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    points(&text).into_iter().filter(|point| point.starts_with(&directory)).collect()
}

/// The second words of the lines, in which the kernel writes blanks and backslashes as three octal digits.
fn points(mounts: &[u8]) -> Vec<PathBuf> {
    let words =
        mounts.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(1));
    words.map(|word| PathBuf::from(OsString::from_vec(unescaped(word)))).collect()
}

fn unescaped(mut word: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((first, rest)) = word.split_first() {
        let code = rest.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                word = &rest[3..];
            }
            None => {
                out.push(*first);
                word = rest;
            }
        }
    }
    out
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) {
    let _ = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).status();
}

fn loop_devices(directory: &Path) -> Vec<String> {
    let Ok(output) =
        Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).output()
    else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let pairs = text.lines().filter_map(|line| line.trim().split_once(' '));
    let ours = pairs.filter(|(_, file)| Path::new(file.trim()).starts_with(directory));
    ours.map(|(device, _)| device.to_owned()).collect()
}

fn namespaces(id: u32) -> Vec<String> {
    let Ok(directory) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = directory.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_of_process(name, id)).collect()
}

/// Whether this process made a network namespace of this name: its id is the whole word after the first ones. Numbers
/// after that word may be equal to the id of another process.
fn is_of_process(name: &str, id: u32) -> bool {
    let rest = NAMESPACES.iter().find_map(|first| name.strip_prefix(first));
    rest.and_then(|rest| rest.split('-').next()).is_some_and(|word| word == id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn namespace_belongs_to_the_process_in_its_name_only() {
        for name in ["rdp-12-0s", "rdg-12-3", "rdg-12-3-1", "redoubt-12-0-compute", "redoubt-stopping-12"] {
            assert!(is_of_process(name, 12), "{name}");
            for other in [0, 1, 2, 3, 123, 112] {
                assert!(!is_of_process(name, other), "{name} is not of {other}");
            }
        }
        for other in ["rdp-123-12s", "rdg-112-12", "redoubt-1-12", "my-12", "12", "redoubt-stopping-123"] {
            assert!(!is_of_process(other, 12), "{other}");
        }
    }

    #[test]
    fn mount_points_are_read_with_their_blanks() {
        let text =
            b"proc /proc proc rw 0 0\n/dev/loop0 /tmp/a\\040b\\134c ext4 rw 0 0\nx /tmp/d\\e ext4 rw 0 0\n";
        let expected = ["/proc", "/tmp/a b\\c", "/tmp/d\\e"].map(PathBuf::from);
        assert_eq!(points(text), expected);
        assert_eq!(unescaped(b"\\04"), OsString::from("\\04").as_bytes());
    }
}
