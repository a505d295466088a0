//! The session alone: no log, no index, no disk but the identity's file.

use super::*;
use crate::home::Folder;
use crate::mark::Point;
use crate::options::NodeOptions;
use crate::volume::SERVER_NOT_SAID;
use redoubt_storage::{RealDir, StorageDir, StorageFile};
use redoubt_wire::hello::{Compression, Role};
use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};

struct Fixture {
    directory: tempfile::TempDir,
    session: Session,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|dir| Arc::new(dir))
    }

    /// `disk` gets the directory of the operating system.
    fn with(disk: impl FnOnce(RealDir) -> Arc<dyn StorageDir>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let own = Folder::new(disk(RealDir::open_shared(directory.path()).unwrap()), directory.path());
        let options = NodeOptions::new(directory.path().to_owned(), "127.0.0.1:0".to_owned());
        let context = Arc::new(Context::new("v", own, &options));
        let session = Session::new(&context, Identity::new());
        Self { directory, session }
    }

    fn connect(&self, generation: u64, session: u64, resume: u64) -> Result<bool, Welcome> {
        let connection = self.session.next_connection();
        let received = Point { seq: Seq(100), lsn: Lsn(50) };
        self.session.connect(&hello(generation, session, resume), connection, || received).map(
            |(at, resumes)| {
                assert_eq!(at, received);
                resumes
            },
        )
    }
}

/// A directory whose sync says that it has begun, and waits for a word to end.
struct HangingSync {
    dir: RealDir,
    begun: SyncSender<()>,
    end: Mutex<Receiver<()>>,
}

impl StorageDir for HangingSync {
    fn list(&self) -> io::Result<Vec<String>> {
        self.dir.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.dir.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.dir.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.dir.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.dir.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.begun.send(()).unwrap();
        self.end.lock().recv().unwrap();
        self.dir.sync()
    }
}

fn hello(generation: u64, session: u64, resume: u64) -> Hello {
    Hello {
        role: Role::Log,
        volume: "v".to_owned(),
        generation,
        session,
        resume: Seq(resume),
        compression: Compression::Off,
    }
}

fn status(refused: Result<bool, Welcome>) -> Status {
    refused.expect_err("it was let in").status
}

#[test]
fn only_the_newest_generation_is_let_in_and_it_is_on_disk_before_it_is_given_out() {
    let fixture = Fixture::new();
    assert_eq!(fixture.session.next_generation("first", SERVER_NOT_SAID).unwrap(), 1);
    assert!(!fixture.connect(1, 7, 0).unwrap());
    assert_eq!(fixture.session.next_generation("second", SERVER_NOT_SAID).unwrap(), 2);
    let own = Folder::open(fixture.directory.path()).unwrap();
    let written = Identity::read(&own).unwrap();
    assert_eq!((written.generation, written.attached_by.as_str()), (2, "second"));
    assert_eq!(status(fixture.connect(1, 7, 0)), Status::Fenced);
    assert_eq!(status(fixture.connect(3, 7, 0)), Status::Refused, "never given out");
    assert!(!fixture.connect(2, 8, 0).unwrap());
}

#[test]
fn a_session_comes_back_and_another_one_waits_until_it_has_ended() {
    let fixture = Fixture::new();
    fixture.session.next_generation("first", SERVER_NOT_SAID).unwrap();
    assert!(!fixture.connect(1, 7, 0).unwrap());
    assert!(fixture.connect(1, 7, 100).unwrap(), "the same session resumes");
    assert_eq!(status(fixture.connect(1, 8, 0)), Status::TryLater, "another process while it is connected");
    assert!(fixture.session.is_connected());
    // A replaced connection does not end the one that replaced it.
    fixture.session.disconnected(1);
    assert!(fixture.session.is_connected());
    fixture.session.disconnected(2);
    assert!(!fixture.session.is_connected());
    assert!(!fixture.connect(1, 8, 0).unwrap());
}

#[test]
fn who_was_acknowledged_more_than_there_is_is_refused() {
    let fixture = Fixture::new();
    fixture.session.next_generation("first", SERVER_NOT_SAID).unwrap();
    assert_eq!(status(fixture.connect(1, 7, 101)), Status::Refused);
    assert!(!fixture.session.is_connected());
}

#[test]
fn a_stopped_volume_lets_nobody_in_and_one_that_shuts_down_says_later() {
    let stopped = Fixture::new();
    stopped.session.next_generation("first", SERVER_NOT_SAID).unwrap();
    assert!(stopped.session.context.stop("a difference"));
    assert!(!stopped.session.context.stop("another reason"), "only the first counts");
    assert_eq!(status(stopped.connect(1, 7, 0)), Status::Refused);
    assert!(
        stopped.session.check_fence(&hello(1, 7, 0)).is_ok(),
        "the image of the difference may still come"
    );
    let ending = Fixture::new();
    ending.session.next_generation("first", SERVER_NOT_SAID).unwrap();
    ending.session.context.begin_shutdown();
    assert_eq!(status(ending.connect(1, 7, 0)), Status::TryLater);
}

#[test]
fn a_server_is_noted_when_it_changes_pages_and_not_when_another_was_attached_meanwhile() {
    let version = |text: &str| text.parse::<ServerVersion>().unwrap();
    let (old, new) = (version("MariaDB 10.11.19"), version("MariaDB 11.8.9"));
    let fixture = Fixture::new();
    let noted = || Identity::read(&Folder::open(fixture.directory.path()).unwrap()).unwrap().newest_server;
    fixture.session.next_generation("first", new).unwrap();
    fixture.connect(1, 7, 0).unwrap();
    assert_eq!(noted(), None, "it has only connected");
    fixture.session.next_generation("second", old).unwrap();
    let refused = fixture.session.note_server(1).unwrap_err();
    assert!(refused.to_string().contains("MariaDB 11.8.9 was fenced by MariaDB 10.11.19"), "{refused}");
    assert_eq!(noted(), None, "it is fenced");
    assert!(fixture.session.note_server(1).is_err(), "the refusal is not forgotten");
    fixture.session.end();
    fixture.connect(2, 8, 0).unwrap();
    fixture.session.note_server(2).unwrap();
    assert_eq!(noted(), Some(old));
    assert_eq!(fixture.session.identity().refused_server(old), None);
    fixture.session.next_generation("third", new).unwrap();
    fixture.session.end();
    fixture.connect(3, 9, 0).unwrap();
    fixture.session.note_server(3).unwrap();
    assert_eq!(noted(), Some(new));
    assert!(fixture.session.identity().refused_server(old).unwrap().contains("MariaDB 11.8.9"));
}

#[test]
fn older_server_gets_no_generation_after_a_newer_was_noted() {
    let version = |text: &str| text.parse::<ServerVersion>().unwrap();
    let fixture = Fixture::new();
    fixture.session.next_generation("first", version("MariaDB 11.8.9")).unwrap();
    fixture.connect(1, 7, 0).unwrap();
    // After an attach has checked its server, and before it takes the generation.
    fixture.session.note_server(1).unwrap();
    let refused = fixture.session.next_generation("second", version("MariaDB 10.11.19")).unwrap_err();
    assert!(refused.to_string().contains("No server was fenced"), "{refused}");
    assert_eq!(fixture.session.identity().generation, 1);
}

#[test]
fn server_fenced_by_a_later_series_is_still_noted() {
    let version = |text: &str| text.parse::<ServerVersion>().unwrap();
    let fixture = Fixture::new();
    fixture.session.next_generation("first", version("MariaDB 11.4.7")).unwrap();
    fixture.connect(1, 7, 0).unwrap();
    fixture.session.next_generation("second", version("MariaDB 11.8.9")).unwrap();
    fixture.session.note_server(1).unwrap();
    assert_eq!(fixture.session.identity().newest_server, Some(version("MariaDB 11.4.7")));
    let refused = fixture.session.next_generation("third", version("MariaDB 10.11.19")).unwrap_err();
    assert!(refused.to_string().contains("MariaDB 11.4.7 has run on it"), "{refused}");
}

/// A status reads the identity of every volume.
#[test]
fn identity_is_readable_while_the_disk_hangs_in_an_attach() {
    /// Guards against a hang.
    const PATIENCE: Duration = Duration::from_secs(60);
    let ((begun, has_begun), (end, ends)) = (mpsc::sync_channel(0), mpsc::sync_channel(0));
    let fixture = Fixture::with(|dir| Arc::new(HangingSync { dir, begun, end: Mutex::new(ends) }));
    let session = Arc::new(fixture.session);
    let attaching = Arc::clone(&session);
    let attached = std::thread::spawn(move || attaching.next_generation("first", SERVER_NOT_SAID));
    has_begun.recv_timeout(PATIENCE).unwrap();

    let (read, was_read) = mpsc::channel();
    let reading = Arc::clone(&session);
    std::thread::spawn(move || read.send(reading.identity().generation));
    assert_eq!(was_read.recv_timeout(PATIENCE).expect("it waits for the disk"), 0, "not given out yet");

    end.send(()).unwrap();
    assert_eq!(attached.join().unwrap().unwrap(), 1);
    assert_eq!(session.identity().generation, 1);
}
