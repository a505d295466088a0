//! Calls of the C library on files of the data directory: each is followed, or refused by name. The caller is this very
//! program, under a server's name and with the library preloaded; the node is the model.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]
#![allow(unsafe_code, reason = "the calls of a C program")]

mod support;

use redoubt_test_support::child;
use std::ffi::CString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::Command;
use support::ModelNode;

redoubt_test_support::children!(
    duplicate_by_fcntl,
    make_temporary_files,
    make_directories,
    make_refused_calls,
    change_through_a_long_mapping,
    write_a_log_by_lines,
    write_streams,
    write_beside_a_stream_and_die,
    import_tablespaces,
    die_during_an_import,
    open_half_a_table,
    import_again
);

fn library() -> PathBuf {
    // In target/PROFILE/deps beside the test program, or in the folder above: whichever was built last.
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    [deps.parent().unwrap().join("libredoubt.so"), deps.join("libredoubt.so")]
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .expect("libredoubt.so is built with the tests")
}

/// A data directory with a directory `d`.
struct Host {
    directory: tempfile::TempDir,
    datadir: PathBuf,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let datadir = directory.path().canonicalize().unwrap().join("data");
        std::fs::create_dir_all(datadir.join("d")).unwrap();
        child::copy_program(&directory.path().join("mariadbd"));
        Self { directory, datadir }
    }

    /// Does the work of `redoubt run` before each start: makes an empty file for unsent frames.
    fn prepare(&self) {
        let head = redoubt_resend_queue::layout::new_head("0123456789abcdef0123456789abcdef").unwrap();
        let path = self.datadir.join(redoubt_resend_queue::FILE_NAME);
        std::fs::write(&path, head).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(redoubt_resend_queue::FILE_LEN_BYTES).unwrap();
    }

    /// Runs a child process that the library takes for a server. Returns what it printed.
    fn run(&self, name: &str, node: &ModelNode) -> String {
        self.prepare();
        let output = Command::new(self.directory.path().join("mariadbd"))
            .args([child::MARK, name])
            .env("LD_PRELOAD", library())
            .env("REDOUBT_NODE", &node.address)
            .env("REDOUBT_VOLUME", "v")
            .env("REDOUBT_SERVER_VERSION", "MariaDB 10.11.19")
            .env("REDOUBT_GENERATION", "1")
            .env("REDOUBT_DATADIR", &self.datadir)
            .env("REDOUBT_SYSTEM_FILES", "ibdata1:0")
            .env("REDOUBT_TIMEOUT_S", "20")
            .current_dir(&self.datadir)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
        let model = node.model.lock().unwrap();
        assert!(model.problems.is_empty(), "{:#?}", model.problems);
        text
    }
}

/// The same in a data directory of its own.
fn as_server(name: &str, node: &ModelNode) -> String {
    Host::new().run(name, node)
}

fn path(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn succeeded(result: i32) -> i32 {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

fn refused(result: i64, errno: i32) {
    assert_eq!(result, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(errno));
}

fn open(name: &str) -> RawFd {
    let name = path(name);
    // SAFETY: a NUL-terminated path.
    succeeded(unsafe { libc::open(name.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600) })
}

fn write(fd: RawFd, text: &str) {
    // SAFETY: the bytes are valid for their length.
    let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
    assert_eq!(written, text.len() as isize, "{}", std::io::Error::last_os_error());
}

fn close(fd: RawFd) {
    // SAFETY: the caller's own descriptor.
    succeeded(unsafe { libc::close(fd) });
}

unsafe extern "C" {
    fn fcntl64(fd: i32, command: i32, ...) -> i32;
    fn mkostemp64(template: *mut libc::c_char, flags: i32) -> i32;
    fn mkstemps64(template: *mut libc::c_char, suffix_len: i32) -> i32;
    fn mkostemps64(template: *mut libc::c_char, suffix_len: i32, flags: i32) -> i32;
}

#[test]
fn a_descriptor_duplicated_by_fcntl_is_followed() {
    let node = ModelNode::start();
    as_server("duplicate_by_fcntl", &node);
    let model = node.model.lock().unwrap();
    assert_eq!(model.plain[&b"d/a"[..]], b"first second third fourth ");
}

/// A child process.
fn duplicate_by_fcntl() {
    let first = open("d/a");
    write(first, "first ");
    // SAFETY: no pointers.
    let second = succeeded(unsafe { libc::fcntl(first, libc::F_DUPFD, 200) });
    assert!(second >= 200);
    close(first);
    write(second, "second ");
    // SAFETY: no pointers.
    let third = succeeded(unsafe { libc::fcntl(second, libc::F_DUPFD_CLOEXEC, 0) });
    close(second);
    write(third, "third ");
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(third, libc::F_GETFD) }, libc::FD_CLOEXEC);
    // SAFETY: no pointers.
    let fourth = succeeded(unsafe { fcntl64(third, libc::F_DUPFD, 300) });
    close(third);
    write(fourth, "fourth ");
    close(fourth);
}

#[test]
fn temporary_files_are_followed_however_they_are_made() {
    let node = ModelNode::start();
    as_server("make_temporary_files", &node);
    let model = node.model.lock().unwrap();
    let named = |start: &str, end: &str| {
        let mut found = model
            .plain
            .iter()
            .filter(|(path, _)| path.starts_with(start.as_bytes()) && path.ends_with(end.as_bytes()));
        let content = found.next().map(|(_, content)| String::from_utf8_lossy(content).into_owned());
        assert!(found.next().is_none());
        content
    };
    for (start, end) in [("d/a", ""), ("d/b", ""), ("d/c", ".x"), ("d/d", ".x")] {
        assert_eq!(named(start, end).as_deref(), Some("one two "), "{start}");
    }
}

/// A child process.
fn make_temporary_files() {
    let make = |template: &str, call: &dyn Fn(*mut libc::c_char) -> i32| {
        let template = path(template).into_raw();
        let fd = succeeded(call(template));
        // SAFETY: made by into_raw; its length is the same.
        drop(unsafe { CString::from_raw(template) });
        write(fd, "one ");
        // A descriptor opened to append does so from any position.
        // SAFETY: no pointers.
        if unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_APPEND != 0 {
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::lseek(fd, 0, libc::SEEK_SET) }, 0);
            // SAFETY: the bytes are valid for their length.
            assert_eq!(unsafe { libc::pwrite(fd, b"two ".as_ptr().cast(), 4, 0) }, 4);
        } else {
            write(fd, "two ");
        }
        close(fd);
    };
    // SAFETY: each template is NUL-terminated and writable.
    unsafe {
        make("d/aXXXXXX", &|template| libc::mkostemp(template, libc::O_CLOEXEC));
        make("d/bXXXXXX", &|template| mkostemp64(template, libc::O_APPEND));
        make("d/cXXXXXX.x", &|template| mkstemps64(template, 2));
        make("d/dXXXXXX.x", &|template| mkostemps64(template, 2, libc::O_APPEND));
    }
}

#[test]
fn directories_made_beside_a_descriptor_are_followed() {
    let node = ModelNode::start();
    as_server("make_directories", &node);
    let model = node.model.lock().unwrap();
    let made: Vec<&[u8]> = model.directories.iter().map(Vec::as_slice).collect();
    assert_eq!(made, [&b"d/e"[..], &b"d/f"[..]]);
}

/// A child process.
fn make_directories() {
    let (d, e, f) = (path("d"), path("d/e"), path("f"));
    // SAFETY: NUL-terminated paths.
    unsafe {
        succeeded(libc::mkdirat(libc::AT_FDCWD, e.as_ptr(), 0o700));
        let directory = succeeded(libc::open(d.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY));
        succeeded(libc::mkdirat(directory, f.as_ptr(), 0o700));
        close(directory);
    }
}

#[test]
fn what_cannot_be_followed_is_refused_by_name() {
    let node = ModelNode::start();
    let text = as_server("make_refused_calls", &node);
    for name in ["links inside the data directory", "O_APPEND", "splice", "through a mapping", "mremap"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    let model = node.model.lock().unwrap();
    assert_eq!(model.plain[&b"d/a"[..]], b"as it was");
    assert_eq!(model.plain.keys().collect::<Vec<_>>(), [&b"d/a"[..], b"tc.log"]);
}

/// A child process.
fn make_refused_calls() {
    let fd = open("d/a");
    write(fd, "as it was");
    let (a, b, c) = (path("d/a"), path("d/b"), path("d/c"));
    // SAFETY: NUL-terminated paths, own descriptors, and a mapping that this function makes itself.
    unsafe {
        refused(
            i64::from(libc::linkat(libc::AT_FDCWD, a.as_ptr(), libc::AT_FDCWD, b.as_ptr(), 0)),
            libc::EPERM,
        );
        refused(i64::from(libc::symlinkat(a.as_ptr(), libc::AT_FDCWD, c.as_ptr())), libc::EPERM);
        assert!(!std::path::Path::new("d/b").exists() && !std::path::Path::new("d/c").exists());
        refused(i64::from(libc::fcntl(fd, libc::F_SETFL, libc::O_APPEND)), libc::EOPNOTSUPP);
        // Flags without an effect here pass.
        succeeded(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK));
        let mut pipe = [0; 2];
        succeeded(libc::pipe(pipe.as_mut_ptr()));
        write(pipe[1], "by pipe");
        let (null, at) = (std::ptr::null_mut(), std::ptr::null_mut());
        refused(libc::splice(pipe[0], null, fd, at, 7, 0) as i64, libc::EOPNOTSUPP);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // The library would see changes at the end of the mapping only, which a killed server does not reach.
        let mapped = libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd, 0);
        refused(mapped as i64, libc::ENODEV);
        let log = open("tc.log");
        let mapped = libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, log, 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        let moved = libc::mremap(mapped, 4096, 8192, libc::MREMAP_MAYMOVE);
        refused(moved as i64, libc::EOPNOTSUPP);
        succeeded(libc::munmap(mapped, 4096));
        close(log);
    }
    close(fd);
}

#[test]
fn a_mapping_that_is_longer_than_its_file_does_not_make_the_nodes_file_longer() {
    let node = ModelNode::start();
    as_server("change_through_a_long_mapping", &node);
    let model = node.model.lock().unwrap();
    assert_eq!(model.plain[&b"tc.log"[..]], b"as it is ");
}

/// A child process.
fn change_through_a_long_mapping() {
    let fd = open("tc.log");
    write(fd, "as it was");
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; only what the file has is touched, after its first page there is nothing.
    unsafe {
        let mapped = libc::mmap(std::ptr::null_mut(), 3 * 4096, protection, libc::MAP_SHARED, fd, 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(b"is ".as_ptr(), mapped.cast::<u8>().add(6), 3);
        succeeded(libc::msync(mapped, 3 * 4096, libc::MS_SYNC));
        succeeded(libc::munmap(mapped, 3 * 4096));
    }
    close(fd);
}

/// A stream of the C library.
struct Stream(*mut libc::FILE);

impl Stream {
    fn open(name: &str, mode: &str) -> Self {
        let (name, mode) = (path(name), path(mode));
        // SAFETY: NUL-terminated texts.
        Self::checked(unsafe { libc::fopen(name.as_ptr(), mode.as_ptr()) })
    }

    fn on(fd: RawFd, mode: &str) -> Self {
        let mode = path(mode);
        // SAFETY: a NUL-terminated text.
        Self::checked(unsafe { libc::fdopen(fd, mode.as_ptr()) })
    }

    fn checked(file: *mut libc::FILE) -> Self {
        assert!(!file.is_null(), "{}", std::io::Error::last_os_error());
        Self(file)
    }

    fn write(&self, text: &str) {
        // SAFETY: an open stream, and bytes that are valid for their length.
        let written = unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0) };
        assert_eq!(written, text.len());
    }

    fn seek(&self, offset_bytes: i64) {
        // SAFETY: an open stream.
        succeeded(unsafe { libc::fseek(self.0, offset_bytes, libc::SEEK_SET) });
    }

    fn flush(&self) {
        // SAFETY: an open stream.
        succeeded(unsafe { libc::fflush(self.0) });
    }

    fn close(self) {
        // SAFETY: an open stream, which nothing uses afterwards.
        succeeded(unsafe { libc::fclose(self.0) });
    }
}

const LINES: usize = 2000;
const LINE: &str = "a line of a log that is flushed line by line\n";

#[test]
fn log_flushed_by_lines_costs_what_is_written() {
    let node = ModelNode::start();
    as_server("write_a_log_by_lines", &node);
    let model = node.model.lock().unwrap();
    let log = &model.plain[&b"d/host.err"[..]];
    assert_eq!(log.len(), (LINES + 1) * LINE.len());
    assert!(log.chunks(LINE.len()).all(|line| line == LINE.as_bytes()));
    // The content before the stream is sent once, too.
    let sent = model.written_bytes;
    assert!(sent < 2 * log.len() as u64, "{sent} for {}", log.len());
}

/// A child process.
fn write_a_log_by_lines() {
    let fd = open("d/host.err");
    write(fd, LINE);
    close(fd);
    let log = Stream::open("d/host.err", "a");
    for _ in 0..LINES {
        log.write(LINE);
        log.flush();
    }
    log.close();
}

#[test]
fn descriptor_of_a_stream_is_followed() {
    let node = ModelNode::start();
    as_server("write_beside_a_stream_and_die", &node);
    let model = node.model.lock().unwrap();
    for name in ["d/opened", "d/from-descriptor"] {
        let found = model.plain.get(name.as_bytes()).map(|content| String::from_utf8_lossy(content));
        assert_eq!(found.as_deref(), Some("by the stream, by its descriptor"), "{name}");
    }
}

/// A child process.
fn write_beside_a_stream_and_die() {
    for stream in [Stream::open("d/opened", "w"), Stream::on(open("d/from-descriptor"), "w")] {
        stream.write("by the stream, ");
        stream.flush();
        // SAFETY: an open stream.
        let fd = succeeded(unsafe { libc::fileno(stream.0) });
        write(fd, "by its descriptor");
        // SAFETY: no pointers.
        succeeded(unsafe { libc::fsync(fd) });
    }
    // SAFETY: no pointers. Nothing is sent at this end.
    unsafe { libc::_exit(0) };
}

#[test]
fn streams_are_followed_wherever_they_write() {
    let node = ModelNode::start();
    as_server("write_streams", &node);
    let model = node.model.lock().unwrap();
    for (name, content) in [
        ("back-flushed", "0123xx67"),
        ("back-closed", "0123xx67"),
        ("updated", "uvxyef"),
        ("rewound", "89abcdef"),
        ("descriptor", "one two three"),
        ("renamed", "before after"),
        ("replaced", "second"),
    ] {
        let found = model.plain.get(format!("d/{name}").as_bytes());
        assert_eq!(found.map(|content| String::from_utf8_lossy(content)).as_deref(), Some(content), "{name}");
    }
    assert!(!model.plain.contains_key(&b"d/name"[..]));
}

/// A child process.
fn write_streams() {
    for (name, is_flushed) in [("d/back-flushed", true), ("d/back-closed", false)] {
        let stream = Stream::open(name, "w");
        stream.write("01234567");
        stream.flush();
        stream.seek(4);
        stream.write("xx");
        if is_flushed {
            // The end of the process sends nothing.
            stream.flush();
        } else {
            stream.seek(8);
            stream.close();
        }
    }
    // As long as before, and at the end again.
    let stream = Stream::open("d/rewound", "w");
    stream.write("01234567");
    stream.flush();
    stream.seek(0);
    stream.write("89abcdef");
    stream.flush();

    let fd = open("d/updated");
    write(fd, "abcdef");
    close(fd);
    let stream = Stream::open("d/updated", "r+");
    stream.write("uv");
    stream.flush();
    stream.seek(2);
    stream.write("xy");
    stream.flush();
    stream.close();

    let fd = open("d/descriptor");
    write(fd, "one ");
    let stream = Stream::on(fd, "w");
    stream.write("two ");
    stream.flush();
    stream.write("three");
    stream.close();
    // The number belongs to another file now.
    let other = open("d/other");
    assert_eq!(other, fd);
    write(other, "of the next file");
    close(other);

    let stream = Stream::open("d/name", "a");
    stream.write("before ");
    stream.flush();
    std::fs::rename("d/name", "d/renamed").unwrap();
    stream.write("after");
    stream.close();

    let first = Stream::open("d/replaced", "w");
    first.write("the first content");
    first.close();
    let second = Stream::open("d/replaced", "w");
    second.write("second");
    second.flush();
    second.close();
}

const PAGE_BYTES: usize = 16384;
/// More than one request of an import.
const PAGES: usize = 80;
const REQUEST_PAGES: usize = 64;
/// 16 KiB, full_crc32.
const FLAGS: u32 = 0x15;

/// A page of a tablespace that was copied in; `mark` is in its body.
fn page(page_no: usize, mark: u8) -> Vec<u8> {
    let mut page = vec![mark; PAGE_BYTES];
    page[..54].fill(0);
    page[4..8].copy_from_slice(&u32::try_from(page_no).unwrap().to_be_bytes());
    // On page 0.
    page[54..58].copy_from_slice(&FLAGS.to_be_bytes());
    redoubt_page::finalize(&mut page, redoubt_page::SpaceFlags(FLAGS)).unwrap();
    page
}

fn pages(mark: u8) -> Vec<u8> {
    (0..PAGES).flat_map(|page_no| page(page_no, mark)).collect()
}

#[test]
fn a_tablespace_copied_in_is_sent_as_it_is_written_and_whole_before_a_page_is_read_alone() {
    let node = ModelNode::start();
    let host = Host::new();
    std::fs::write(host.datadir.join("d/t.ibd"), pages(1)).unwrap();
    std::fs::write(host.datadir.join("d/u.ibd"), pages(2)).unwrap();
    host.run("import_tablespaces", &node);
    let model = node.model.lock().unwrap();
    // Of the first file pages 0 and 3 twice and each other page once; of the second each page once.
    assert_eq!(model.images as usize, 2 + PAGES + PAGES);
}

/// A child process.
fn import_tablespaces() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let open = |name| std::fs::File::options().read(true).write(true).open(name).unwrap();
    let read = |file: &std::fs::File, len: usize, at: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at as u64).unwrap();
        bytes
    };
    let blocks = |name| std::fs::metadata(name).unwrap().blocks();
    let request_bytes = REQUEST_PAGES * PAGE_BYTES;

    // As an import: read the whole file, then change and write pages, but not all of them.
    let file = open("d/t.ibd");
    assert!(read(&file, PAGE_BYTES, 0) == page(0, 1));
    assert!(read(&file, PAGE_BYTES, 3 * PAGE_BYTES) == page(3, 1));
    assert!(read(&file, request_bytes, 0) == pages(1)[..request_bytes]);
    drop(file);
    assert_ne!(blocks("d/t.ibd"), 0);
    let file = open("d/t.ibd");
    file.write_all_at(&pages(3)[..request_bytes], 0).unwrap();
    assert!(read(&file, request_bytes, 0) == pages(3)[..request_bytes]);
    drop(file);
    assert_eq!(blocks("d/t.ibd"), 0);
    let file = open("d/t.ibd");
    let expected = [&pages(3)[..request_bytes], &pages(1)[request_bytes..]].concat();
    assert!(read(&file, PAGES * PAGE_BYTES, 0) == expected, "the node has something else");

    // As a buffer pool.
    let file = open("d/u.ibd");
    assert!(read(&file, PAGE_BYTES, 0) == page(0, 2));
    assert!(read(&file, PAGE_BYTES, (PAGES - 1) * PAGE_BYTES) == page(PAGES - 1, 2));
    assert_ne!(blocks("d/u.ibd"), 0);
    assert!(read(&file, PAGE_BYTES, 5 * PAGE_BYTES) == page(5, 2));
    assert_eq!(blocks("d/u.ibd"), 0);
    assert!(read(&file, PAGES * PAGE_BYTES, 0) == pages(2), "the node has something else");
}

#[test]
fn an_import_that_was_interrupted_is_not_taken_for_a_whole_table() {
    let node = ModelNode::start();
    let host = Host::new();
    let (file, marker) = (host.datadir.join("d/t.ibd"), host.datadir.join("d/t.ibd.importing"));
    std::fs::write(&file, pages(1)).unwrap();
    host.run("die_during_an_import", &node);
    assert!(marker.exists());
    assert!(node.model.lock().unwrap().plain.contains_key(&b"d/t.ibd.importing"[..]));

    // The next start makes a stub of whatever the node knows.
    let stub = std::fs::File::options().write(true).open(&file).unwrap();
    stub.set_len(0).unwrap();
    stub.set_len((PAGES * PAGE_BYTES) as u64).unwrap();
    let text = host.run("open_half_a_table", &node);
    assert!(text.contains("only a part of it is left"), "{text}");

    std::fs::write(&file, pages(4)).unwrap();
    host.run("import_again", &node);
    assert!(!marker.exists());
    assert!(node.model.lock().unwrap().plain.is_empty());
}

fn for_writing() -> std::io::Result<std::fs::File> {
    std::fs::File::options().read(true).write(true).open("d/t.ibd")
}

/// A child process.
fn die_during_an_import() {
    use std::os::unix::fs::FileExt;
    let file = for_writing().unwrap();
    // Returns when most of it is durable.
    file.write_all_at(&pages(3)[..REQUEST_PAGES * PAGE_BYTES], 0).unwrap();
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) };
}

/// A child process.
fn open_half_a_table() {
    assert_eq!(for_writing().unwrap_err().raw_os_error(), Some(libc::EIO));
}

/// A child process.
fn import_again() {
    use std::os::unix::fs::FileExt;
    let file = for_writing().unwrap();
    let mut bytes = vec![0; PAGE_BYTES];
    file.read_exact_at(&mut bytes, 5 * PAGE_BYTES as u64).unwrap();
    assert!(bytes == page(5, 4));
    let mut bytes = vec![0; PAGES * PAGE_BYTES];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == pages(4), "the node has something else");
}
