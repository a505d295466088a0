//! Mounted views: calls of programs reach the tree and return, and the end of a mount ends them with an error.
//!
//! Needs a mount namespace of its own and `/dev/fuse`; without them the tests are left out, with a message.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

#[path = "fuse/made.rs"]
mod made;

use made::{Entry, Made, byte, entries};
use redoubt_readers::fuse::{Files, Mount, MountError, mount, namespace};
use redoubt_readers::{Complaints, Fixed, Live, Removed, Tree};
use redoubt_test_support::{child, skip, wait};
use redoubt_wire::control::EntryKind;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};

redoubt_test_support::children!(view_to_kill);

const LEN_BYTES: u64 = (24 << 20) + 777;

fn shop() -> Vec<Entry> {
    entries(&[
        ("ibdata1", EntryKind::Tablespace, 0o660, LEN_BYTES),
        ("shop", EntryKind::Directory, 0o700, 0),
        ("shop/t.ibd", EntryKind::Tablespace, 0o640, 65_536),
        ("shop/t.frm", EntryKind::Plain, 0o640, 900),
    ])
}

/// A tree on a directory, mounted for this thread and the threads and processes that it starts.
struct Mounted {
    directory: tempfile::TempDir,
    mount: Mount,
}

impl Mounted {
    fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Runs `umount`; returns whether it succeeded.
    fn umount(&self, option: &[&str]) -> bool {
        umount(self.root(), option)
    }
}

fn umount(directory: &Path, option: &[&str]) -> bool {
    Command::new("umount").args(option).arg(directory).stderr(Stdio::null()).status().unwrap().success()
}

/// Mounts a tree; `None` if this host does not allow it, which is reported.
fn mounted(tree: Box<dyn Tree>) -> Option<Mounted> {
    const WHAT: &str = "a mounted view";
    if !namespace::enter() {
        skip(WHAT, "no mount namespace is allowed here");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let mount = match Mount::new(directory.path(), "test", true) {
        Ok(mount) => mount,
        Err(error @ MountError::NoDevice(_)) => {
            skip(WHAT, error);
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut mounted = Mounted { directory, mount };
    let links = HashMap::from([("server.sock".to_owned(), "/run/server.sock".to_owned())]);
    mounted.mount.serve(Files::new(tree, links, (1, 2))).unwrap();
    Some(mounted)
}

fn fixed(source: &Arc<Made>) -> Box<dyn Tree> {
    let source = Arc::<Made>::clone(source);
    Box::new(Fixed::new(source, Arc::new(Complaints::new(|_| {}))).unwrap())
}

fn live(source: &Arc<Made>) -> Box<dyn Tree> {
    let source = Arc::<Made>::clone(source);
    Box::new(Live::new(source, Arc::new(Complaints::new(|_| {})), Removed::Zeros))
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn require_contents(path: &Path, file: u32, len_bytes: u64) {
    let mut read = Vec::new();
    File::open(path).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read.len() as u64, len_bytes, "{}", path.display());
    assert!((0..).zip(&read).all(|(at, found)| *found == byte(file, at)), "{} differs", path.display());
}

/// Several programs read one file at different places at once.
fn require_parallel_reads(path: &Path) {
    std::thread::scope(|scope| {
        for reader in 0..8_u64 {
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                let mut read = vec![0; 100_000];
                for step in 0..40_u64 {
                    let at = (reader * 7_919_111 + step * 611_953) % (LEN_BYTES - read.len() as u64);
                    file.read_exact_at(&mut read, at).unwrap();
                    assert!((at..).zip(&read).all(|(at, found)| *found == byte(1, at)), "at {at}");
                }
            });
        }
    });
}

fn require_changes(root: &Path) {
    // Within the node's bytes, across their end, and cut.
    let path = root.join("shop/t.frm");
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"changed", 890).unwrap();
    let mut read = vec![0; 897];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read[890..] == *b"changed" && (0..890).zip(&read).all(|(at, found)| *found == byte(4, at)));
    assert_eq!(file.metadata().unwrap().len(), 900);
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b" and longer").unwrap();
    file.sync_all().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 911);
    file.set_len(3).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [byte(4, 0), byte(4, 1), byte(4, 2)]);
    // Opened with O_TRUNC.
    std::fs::write(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");

    std::fs::create_dir(root.join("made")).unwrap();
    std::fs::write(root.join("made/a"), b"a").unwrap();
    std::fs::set_permissions(root.join("made/a"), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(std::fs::metadata(root.join("made/a")).unwrap().mode(), libc::S_IFREG | 0o600);
    assert_eq!(std::fs::remove_dir(root.join("made")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    // An open file outlives its name.
    let kept = File::open(root.join("made/a")).unwrap();
    std::fs::rename(root.join("made"), root.join("moved")).unwrap();
    assert_eq!(std::fs::read(root.join("moved/a")).unwrap(), b"a");
    std::fs::remove_file(root.join("moved/a")).unwrap();
    std::fs::remove_dir(root.join("moved")).unwrap();
    let mut last = [0];
    kept.read_exact_at(&mut last, 0).unwrap();
    assert_eq!((&last, kept.metadata().unwrap().len()), (b"a", 1));
    assert_eq!(File::open(root.join("moved/a")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(symlink("a", root.join("link")).unwrap_err().raw_os_error(), Some(libc::EPERM));
}

#[test]
fn mounted_snapshot_serves_programs() {
    let Some(mounted) = mounted(fixed(&Made::new(shop()))) else { return };
    let root = mounted.root();
    assert_eq!(names(root), set(&["ibdata1", "shop", "server.sock"]));
    assert_eq!(names(&root.join("shop")), set(&["t.ibd", "t.frm"]));
    let link = std::fs::read_link(root.join("server.sock")).unwrap();
    assert_eq!(link, Path::new("/run/server.sock"));
    let meta = std::fs::metadata(root.join("shop/t.ibd")).unwrap();
    let found = (meta.len(), meta.mode(), meta.uid(), meta.gid());
    assert_eq!(found, (65_536, libc::S_IFREG | 0o640, 1, 2));
    assert_eq!(std::fs::metadata(root.join("shop")).unwrap().mode(), libc::S_IFDIR | 0o700);
    require_contents(&root.join("ibdata1"), 1, LEN_BYTES);
    require_contents(&root.join("shop/t.ibd"), 3, 65_536);
    require_parallel_reads(&root.join("ibdata1"));
    require_changes(root);
    assert_eq!(names(root), set(&["ibdata1", "shop", "server.sock"]));
    assert!(mounted.umount(&[]));
}

#[test]
fn snapshot_is_read_once_and_live_view_at_each_call() {
    for is_fixed in [true, false] {
        let source = Made::new(shop());
        let tree = if is_fixed { fixed(&source) } else { live(&source) };
        let Some(mounted) = mounted(tree) else { return };
        let path = mounted.root().join("shop/t.ibd");
        let first = std::fs::read(&path).unwrap();
        let reads = source.reads();
        source.change();
        let second = std::fs::read(&path).unwrap();
        // The kernel keeps the pages of a snapshot after the file is closed.
        assert_eq!((first == second, source.reads() == reads), (is_fixed, is_fixed));
        assert!(mounted.umount(&[]));
    }
}

#[test]
fn live_view_rejects_every_change() {
    let Some(mounted) = mounted(live(&Made::new(shop()))) else { return };
    let root = mounted.root();
    let (file, new) = (root.join("shop/t.frm"), root.join("new"));
    let results = [
        File::options().append(true).open(&file).map(|_| ()),
        File::create(&new).map(|_| ()),
        std::fs::remove_file(&file),
        std::fs::rename(&file, &new),
        std::fs::create_dir(&new),
        std::fs::remove_dir(root.join("shop")),
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)),
    ];
    for (number, result) in results.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem, "change {number}");
    }
    require_contents(&file, 4, 900);
    assert!(mounted.umount(&[]));
}

#[test]
fn files_of_every_length_are_read_whole() {
    const MIB: u64 = 1 << 20;
    let lengths = [0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB + 5];
    let paths: Vec<_> = lengths.iter().map(|len| format!("f{len}")).collect();
    let described: Vec<_> =
        paths.iter().zip(lengths).map(|(path, len)| (path.as_str(), EntryKind::Plain, 0o640, len)).collect();
    for is_fixed in [true, false] {
        let source = Made::new(entries(&described));
        let Some(mounted) = mounted(if is_fixed { fixed(&source) } else { live(&source) }) else { return };
        for (file, (path, len_bytes)) in (1..).zip(paths.iter().zip(lengths)) {
            let path = mounted.root().join(path);
            require_contents(&path, file, len_bytes);
            // Beyond the end.
            let read = File::open(&path).unwrap().read_at(&mut [0; 16], len_bytes).unwrap();
            assert_eq!(read, 0, "{}", path.display());
        }
        assert!(mounted.umount(&[]));
    }
}

#[test]
fn directory_of_ten_thousand_names_lists_each_once() {
    let expected: Vec<_> = (0..10_000).map(|number| format!("table_with_a_long_name_{number}.ibd")).collect();
    let paths: Vec<_> = expected.iter().map(|name| format!("many/{name}")).collect();
    let mut described = vec![("many", EntryKind::Directory, 0o700, 0)];
    described.extend(paths.iter().map(|path| (path.as_str(), EntryKind::Plain, 0o640, 7)));
    for is_fixed in [true, false] {
        let source = Made::new(entries(&described));
        let Some(mounted) = mounted(if is_fixed { fixed(&source) } else { live(&source) }) else { return };
        let many = mounted.root().join("many");
        let listed: Vec<_> =
            std::fs::read_dir(&many).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(listed.len(), expected.len());
        assert_eq!(names(&many), expected.iter().cloned().collect());
        for name in expected.iter().step_by(97) {
            assert_eq!(std::fs::metadata(many.join(name)).unwrap().len(), 7, "{name}");
        }
        assert!(mounted.umount(&[]));
    }
}

#[test]
fn second_mount_on_a_directory_covers_the_first() {
    let Some(mounted) = mounted(fixed(&Made::new(shop()))) else { return };
    let root = mounted.root();
    let other = Made::new(entries(&[("other.ibd", EntryKind::Tablespace, 0o640, 5)]));
    let mut second = Mount::new(root, "second", true).unwrap();
    second.serve(Files::new(fixed(&other), HashMap::new(), (1, 2))).unwrap();
    assert_eq!(names(root), set(&["other.ibd"]));
    require_contents(&root.join("other.ibd"), 1, 5);
    assert!(mounted.umount(&[]));
    require_contents(&root.join("shop/t.ibd"), 3, 65_536);
    assert!(mounted.umount(&[]));
}

#[test]
fn missing_mount_point_is_refused_with_its_name() {
    let Some(mounted) = mounted(fixed(&Made::new(shop()))) else { return };
    assert!(mounted.umount(&[]));
    let missing = mounted.root().join("missing");
    match Mount::new(&missing, "test", true) {
        Err(MountError::Refused { directory, source }) => {
            assert_eq!((directory, source.kind()), (missing, ErrorKind::NotFound));
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a missing directory was mounted on"),
    }
}

/// A read is in progress while the view is unmounted: `umount` refuses, and a lazy unmount lets it finish.
#[test]
fn unmounted_view_finishes_reads_and_then_ends() {
    let source = Made::new(shop());
    let Some(mounted) = mounted(fixed(&source)) else { return };
    source.block();
    let path = mounted.root().join("shop/t.ibd");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| require_contents(&path, 3, 65_536));
        wait::until("a read of the source", || source.is_blocking());
        assert!(!mounted.umount(&[]), "a view in use was unmounted");
        assert!(mounted.umount(&["-l"]));
        assert_eq!(names(mounted.root()), BTreeSet::new());
        assert!(!reader.is_finished());
        source.unblock();
        reader.join().unwrap();
    });
    // The threads that answered have ended.
    wait::until("the end of the view", || Arc::strong_count(&source) == 1);
}

/// The connection to the kernel is aborted while a read is in progress, which then fails.
#[test]
fn aborted_view_fails_reads_in_progress() {
    let source = Made::new(shop());
    let Some(mounted) = mounted(live(&source)) else { return };
    source.block();
    let path = mounted.root().join("shop/t.ibd");
    let (say, said) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut file = File::open(&path).unwrap();
            let read = file.read(&mut [0; 4096]);
            drop(file);
            say.send(read.map_err(|error| error.raw_os_error())).unwrap();
        });
        wait::until("a read of the source", || source.is_blocking());
        // It aborts the connection before it finds the file system in use.
        let _ = mounted.umount(&["-f"]);
        let read = said.recv_timeout(wait::GUARD).unwrap();
        assert!(matches!(read, Err(Some(libc::ECONNABORTED | libc::ENOTCONN))), "{read:?}");
        source.unblock();
    });
    let _ = mounted.umount(&["-l"]);
    wait::until("the end of the view", || Arc::strong_count(&source) == 1);
}

#[test]
fn panicking_source_fails_its_read_only() {
    let source = Made::new(shop());
    let Some(mounted) = mounted(live(&source)) else { return };
    let path = mounted.root().join("shop/t.ibd");
    // More reads than there are threads.
    for _ in 0..20 {
        source.panic_at_next_read();
        assert_eq!(std::fs::read(&path).unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    require_contents(&path, 3, 65_536);
    assert!(mounted.umount(&[]));
}

/// Serves a view on the directory that it is given, until it is killed or its standard input ends.
fn view_to_kill() {
    let directory: String = child::argument(0);
    let mut mount = Mount::new(Path::new(&directory), "killed", true).unwrap();
    mount.serve(Files::new(fixed(&Made::new(shop())), HashMap::new(), (1, 2))).unwrap();
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn killed_view_fails_open_files_and_is_mounted_again() {
    let Some(mounted) = mounted(fixed(&Made::new(shop()))) else { return };
    assert!(mounted.umount(&[]));
    let root = mounted.root();
    let mut command = child::command("view_to_kill");
    let mut view = command.arg(root).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(view.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let open = File::open(root.join("ibdata1")).unwrap();
    let mut read = [0; 4096];
    open.read_exact_at(&mut read, 0).unwrap();
    assert!(!mount::is_dead_mount(root));
    view.kill().unwrap();
    view.wait().unwrap();
    // Beyond what the kernel has read ahead: an error, not zeros.
    let failed = open.read_exact_at(&mut read, LEN_BYTES - 8192).unwrap_err();
    let expected = [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO];
    assert!(expected.map(Some).contains(&failed.raw_os_error()), "{failed}");
    assert!(mount::is_dead_mount(root));
    drop(open);
    assert!(umount(root, &["-l"]));
    assert!(!mount::is_dead_mount(root));
    let mut again = Mount::new(root, "again", true).unwrap();
    again.serve(Files::new(fixed(&Made::new(shop())), HashMap::new(), (1, 2))).unwrap();
    require_contents(&root.join("ibdata1"), 1, LEN_BYTES);
    assert!(umount(root, &[]));
}
