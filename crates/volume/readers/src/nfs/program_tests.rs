//! The procedures on volumes that are made up, with any arguments.

use super::*;
use crate::nfs::exports::{Limits, Listed, MountError, Volumes};
use crate::nfs::handle::ExportKey;
use crate::{Contents, LogFollower, ViewError, ViewSource};
use redoubt_wire::control::{EntryKind, VolumeEntry};
use redoubt_wire::view::ViewFile;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const VOLUME_ID: u128 = 7;
/// Of the empty path and of `shop/t.ibd`.
const PATH_NUMBERS: [u64; 2] = [0x42b871287f261239, 0x2cb1b7fee0a2a523];

/// Path to number and contents; a directory has no number.
type Files = BTreeMap<String, Option<(u32, Vec<u8>)>>;

#[derive(Default)]
struct Made {
    files: Mutex<Files>,
    is_deleted: Mutex<bool>,
    is_unusable: Mutex<bool>,
    /// The next list is made while the volume is opened, which ends with the list.
    is_opening: Mutex<bool>,
    moments: AtomicU64,
}

struct Source {
    made: Arc<Made>,
    moment: Option<Files>,
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.moment.is_some() {
            self.made.moments.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Source {
    fn files(&self) -> Result<Files, ViewError> {
        if *self.made.is_deleted.lock().unwrap() {
            return Err(ViewError::Ended("deleted".to_owned()));
        }
        Ok(self.moment.clone().unwrap_or_else(|| self.made.files.lock().unwrap().clone()))
    }
}

fn entry(path: &str, file: Option<&(u32, Vec<u8>)>) -> VolumeEntry {
    let (kind, len_bytes) = match file {
        None => (EntryKind::Directory, 0),
        Some((_, bytes)) => (EntryKind::Plain, bytes.len() as u64),
    };
    VolumeEntry { path: path.to_owned(), kind, mode: 0o640, len_bytes, checksum: None }
}

impl ViewSource for Source {
    fn stat(&self, path: &str) -> Result<Option<ViewFile>, ViewError> {
        Ok(self.files()?.get(path).map(|file| ViewFile {
            file: file.as_ref().map_or(0, |(number, _)| *number),
            entry: entry(path, file.as_ref()),
        }))
    }

    fn names(&self) -> Result<Vec<VolumeEntry>, ViewError> {
        Ok(self.files()?.iter().map(|(path, file)| entry(path, file.as_ref())).collect())
    }

    fn read(&self, file: u32, offset_bytes: u64, len_bytes: u32) -> Result<Option<Contents>, ViewError> {
        let files = self.files()?;
        let Some((_, all)) = files.values().flatten().find(|(number, _)| *number == file) else {
            return Ok(None);
        };
        let from = usize::try_from(offset_bytes).unwrap().min(all.len());
        let to = from.saturating_add(len_bytes as usize).min(all.len());
        Ok(Some(Contents { bytes: all[from..to].to_vec(), len_bytes: all.len() as u64 }))
    }

    fn follow(&self) -> Result<Box<dyn LogFollower>, ViewError> {
        Err(ViewError::Failed("no log".to_owned()))
    }

    fn scratch_file(&self) -> std::io::Result<std::fs::File> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn is_moment(&self) -> bool {
        self.moment.is_some()
    }
}

struct Node(Arc<Made>);

impl Volumes for Node {
    fn list(&self) -> Vec<Listed> {
        let was_opening = std::mem::take(&mut *self.0.is_opening.lock().unwrap());
        if was_opening || *self.0.is_deleted.lock().unwrap() {
            return Vec::new();
        }
        vec![Listed { name: "shop".to_owned(), volume_id: VOLUME_ID }]
    }

    fn is_opening(&self) -> bool {
        *self.0.is_opening.lock().unwrap()
    }

    fn has_unusable(&self) -> bool {
        *self.0.is_unusable.lock().unwrap()
    }

    fn open(&self, name: &str, is_moment: bool) -> Result<(u128, Arc<dyn ViewSource>), ViewError> {
        if name != "shop" || *self.0.is_deleted.lock().unwrap() {
            return Err(ViewError::Ended("no such volume".to_owned()));
        }
        let moment = is_moment.then(|| self.0.files.lock().unwrap().clone());
        if is_moment && self.0.moments.fetch_add(1, Ordering::Relaxed) > 0 {
            self.0.moments.fetch_sub(1, Ordering::Relaxed);
            return Err(ViewError::NotNow("read as of a moment already".to_owned()));
        }
        Ok((VOLUME_ID, Arc::new(Source { made: Arc::clone(&self.0), moment })))
    }
}

fn program(moment_idle: Duration) -> (Arc<Made>, Program) {
    let made = Arc::new(Made::default());
    let mut files = made.files.lock().unwrap();
    files.insert("shop".to_owned(), None);
    files.insert("shop/t.ibd".to_owned(), Some((0, vec![1; 40_000])));
    files.insert("ibdata1".to_owned(), Some((5, vec![2; 300_000])));
    drop(files);
    let exports = Exports::new(Arc::new(Node(Arc::clone(&made))), Limits { moment_idle });
    (made, Program { exports: Arc::new(exports), owner: (1, 2) })
}

fn call(program: &Program, procedure: u32, arguments: &[u8]) -> Result<Vec<u8>, Garbage> {
    let mut out = Writer::default();
    program.call(procedure, Reader::new(arguments), &mut out)?;
    Ok(out.finish())
}

fn status(answer: &[u8]) -> u32 {
    Reader::new(answer).u32().unwrap()
}

/// All names of a directory, asked for with so many bytes at a time; `between` is called between the calls.
fn names(program: &Program, directory: &Handle, count: u32, between: impl Fn(usize)) -> Vec<String> {
    let (mut found, mut cookie) = (Vec::new(), 0);
    for round in 0.. {
        let mut arguments = Writer::default();
        arguments.opaque(&directory.encode()).u64(cookie).u64(0).u32(count).u32(count);
        let answer = call(program, 17, &arguments.finish()).unwrap();
        assert!(answer.len() <= count as usize + 4, "{} of {count}", answer.len());
        let mut answer = Reader::new(&answer);
        assert_eq!(answer.u32(), Ok(0));
        for _ in 0..22 {
            answer.u32().unwrap();
        }
        let _verifier = answer.u64().unwrap();
        while answer.u32().unwrap() == 1 {
            let _number = answer.u64().unwrap();
            found.push(String::from_utf8(answer.opaque(255).unwrap().to_vec()).unwrap());
            cookie = answer.u64().unwrap();
            if answer.u32().unwrap() == 1 {
                (0..21).for_each(|_| assert!(answer.u32().is_ok()));
            }
            assert_eq!(answer.u32(), Ok(0));
        }
        if answer.u32().unwrap() == 1 {
            break;
        }
        between(round);
    }
    found
}

#[test]
fn handles_are_what_they_were() {
    for (path, file) in [("", 0), ("shop", 0), ("shop/t.ibd", 1), ("ibdata1", u64::from(u32::MAX) + 1)] {
        let export = ExportKey { volume_id: u128::MAX - 3, moment: 9 };
        let handle = Handle { export, path: PathNumber::of(path), file };
        let bytes = handle.encode();
        assert_eq!(Handle::decode(&bytes), Ok(handle));
        assert!((3..1 << 63).contains(&handle.path.0));
        for len in 0..bytes.len() {
            assert_eq!(Handle::decode(&bytes[..len]), Err(Garbage));
        }
    }
    // Handles outlive versions of this program: these numbers may not change.
    assert_eq!(PathNumber::of("").0, PATH_NUMBERS[0]);
    assert_eq!(PathNumber::of("shop/t.ibd").0, PATH_NUMBERS[1]);
}

#[test]
fn what_would_change_something_is_refused_whatever_it_says() {
    let (_, program) = program(Duration::from_secs(60));
    // Status, and the words that say what is not there, as the protocol has them.
    for (procedure, words) in
        [(2, 3), (7, 3), (8, 3), (9, 3), (10, 3), (11, 3), (12, 3), (13, 3), (14, 5), (15, 4), (21, 3)]
    {
        for arguments in [&[][..], &[0; 100]] {
            let answer = call(&program, procedure, arguments).unwrap();
            assert_eq!((status(&answer), answer.len()), (status::ROFS, 4 * words), "{procedure}");
        }
    }
}

#[test]
fn a_list_in_pieces_has_every_name_that_stays_exactly_once() {
    let (made, program) = program(Duration::from_secs(60));
    let path = |number: usize| format!("shop/table_{number}.ibd");
    for number in 0..200 {
        made.files.lock().unwrap().insert(path(number), Some((10, vec![])));
    }
    let directory = program.exports.mount("/shop/shop").unwrap().handle();
    let wanted: BTreeSet<_> = (0..200).map(|number| path(number)[5..].to_owned()).collect();
    for count in [450, 600, 5000, 1 << 20] {
        let found = names(&program, &directory, count, |_| {});
        assert_eq!(found.len(), 203, "{count}");
        assert_eq!(found[..2], [".", ".."]);
        assert!(wanted.iter().all(|name| found.contains(name)), "{count}");
    }
    // The list of the call before is used: a new list has them too.
    let found = names(&program, &directory, 600, |round| {
        made.files.lock().unwrap().remove(&path(round));
        made.files.lock().unwrap().insert(path(1000 + round), Some((10, vec![])));
        let _other = program.exports.mount("/shop").unwrap().export.list("", false).unwrap();
    });
    let unique: BTreeSet<_> = found.iter().collect();
    assert_eq!(unique.len(), found.len());
    assert!((100..200).all(|number| unique.contains(&path(number)[5..].to_owned())));
}

#[test]
fn a_moment_is_held_once_and_given_up() {
    let (made, program) = program(Duration::ZERO);
    let exports = &program.exports;
    let held = || made.moments.load(Ordering::Relaxed);
    drop(exports.mount("/shop@one").unwrap());
    assert_eq!(held(), 1);
    // With this limit it has ended by now, and another may begin.
    drop(exports.mount("/shop@two").unwrap());
    assert_eq!((held(), exports.names()), (1, vec!["/shop".to_owned(), "/shop@two".to_owned()]));
    exports.sweep();
    assert_eq!(held(), 0);
    let (made, program) = self::program(Duration::from_secs(60));
    let exports = &program.exports;
    let held = || made.moments.load(Ordering::Relaxed);
    let root = exports.mount("/shop@one").unwrap().handle();
    assert_eq!(exports.mount("/shop@one/shop").unwrap().handle().export, root.export);
    assert_eq!(exports.mount("/shop@two").err(), Some(MountError::Failed));
    assert_eq!(exports.names(), ["/shop", "/shop@one"]);
    let file = Handle { path: PathNumber::of("ibdata1"), file: 6, ..root };
    made.files.lock().unwrap().insert("ibdata1".to_owned(), Some((5, vec![3; 10])));
    assert_eq!(exports.open(&file).unwrap().read(0, 20).unwrap(), [2; 20]);
    exports.sweep();
    exports.unmount("/shop@one");
    assert_eq!(held(), 1);
    exports.unmount("/shop@one");
    assert_eq!(held(), 0);
    assert_eq!(exports.open(&file).err(), Some(Errno(libc::ESTALE)));
    assert_eq!(exports.find(&root).err(), Some(Errno(libc::ESTALE)));
    for wrong in ["", "/", "/shop@", "/shop@a/b@c/..", "/shop@a b", "/shop/../etc"] {
        assert_eq!(exports.mount(wrong).err(), Some(MountError::Invalid), "{wrong}");
    }
    assert_eq!(exports.mount("/none").err(), Some(MountError::NoSuch));
    assert_eq!(exports.mount("/shop/ibdata1").err(), Some(MountError::NotADirectory));
    let live = Handle { export: ExportKey { moment: 0, ..root.export }, ..root };
    *made.is_deleted.lock().unwrap() = true;
    assert_eq!(exports.find(&live).err(), Some(Errno(libc::ESTALE)));
    // It may be the one that could not be opened, and will be there again.
    *made.is_unusable.lock().unwrap() = true;
    assert_eq!(exports.find(&live).err(), Some(Errno(libc::EIO)));
    // The list lacks a volume whose opening ends before the next question.
    *made.is_deleted.lock().unwrap() = false;
    *made.is_unusable.lock().unwrap() = false;
    *made.is_opening.lock().unwrap() = true;
    assert_eq!(exports.find(&live).err(), Some(Errno(libc::EAGAIN)));
    assert!(exports.find(&live).is_ok());
}

/// A file that is another one by now is not the one that was meant.
#[test]
fn a_path_with_another_file_is_stale() {
    let (made, program) = program(Duration::from_secs(60));
    let directory = program.exports.mount("/shop/shop").unwrap();
    let file = lookup(&directory, b"t.ibd").unwrap().handle();
    assert_eq!(program.exports.open(&file).unwrap().read(0, 3).unwrap(), [1; 3]);
    made.files.lock().unwrap().insert("shop/t.ibd".to_owned(), Some((8, vec![9; 10])));
    assert_eq!(program.exports.find(&file).err(), Some(Errno(libc::ESTALE)));
    // Also while it is open, read to where nothing was read ahead.
    let read = |handle: &Handle| program.exports.open(handle).and_then(|file| file.read(1 << 20, 300_000));
    assert_eq!(read(&file).err(), Some(Errno(libc::ESTALE)));
    assert_ne!(lookup(&directory, b"t.ibd").unwrap().handle(), file);
}

/// Requests that were real before something in them was changed: an answer or a refusal, and no panic.
#[test]
fn any_arguments_are_answered_or_refused() {
    let (_, program) = program(Duration::from_secs(60));
    let root = program.exports.mount("/shop").unwrap();
    let file = lookup(&root, b"ibdata1").unwrap();
    let mut seed = fastrand::Rng::with_seed(3);
    for _ in 0..20_000 {
        let mut arguments = Writer::default();
        arguments.opaque(&if seed.bool() { root.handle() } else { file.handle() }.encode());
        match seed.u8(..4) {
            0 => arguments.opaque(b"shop"),
            1 => arguments.u64(seed.u64(..400_000)).u32(seed.u32(..)),
            2 => arguments.u64(seed.u64(..)).u64(0).u32(seed.u32(..9000)).u32(seed.u32(..9000)),
            _ => arguments.u64(u64::MAX - seed.u64(..3)).u32(u32::MAX).u32(u32::MAX).u32(u32::MAX),
        };
        let mut bytes = arguments.finish();
        for _ in 0..seed.usize(..3) {
            let at = seed.usize(..bytes.len());
            bytes[at] = seed.u8(..);
        }
        if seed.u8(..4) == 0 {
            bytes.truncate(seed.usize(..bytes.len()));
        }
        let procedure = seed.u32(..24);
        if let Ok(answer) = call(&program, procedure, &bytes) {
            assert!(answer.len() <= READ_LIMIT_BYTES as usize + 200);
            assert_eq!(answer.len() % 4, 0);
        }
        let mut record = Writer::default();
        record
            .u32(1)
            .u32(0)
            .u32(seed.u32(1..3))
            .u32(PROGRAM)
            .u32(3)
            .u32(procedure)
            .u64(0)
            .u64(0)
            .fixed(&bytes);
        let mut record = record.finish();
        let at = seed.usize(..record.len().min(60));
        record[at] = seed.u8(..);
        let _ = crate::nfs::rpc::decode(&record);
        let mut out = Writer::default();
        let _ = crate::nfs::mount::call(&program.exports, seed.u32(..7), Reader::new(&record[4..]), &mut out);
    }
}
