//! The state of an active library, and its threads.
//!
//! The configuration is read before the server does anything; the node is contacted at the first operation that needs
//! it, so that `mariadbd --version` needs no node.

use super::target::OpenFile;
use crate::base::classify::{self, Class, Rules};
use crate::base::config::Config;
use crate::base::counters::Counters;
use crate::base::fds::FdTable;
use crate::base::real::{self, Errno};
use crate::connections::new_session;
use crate::connections::stream::{ImageWanted, SessionStart, Stream, Wanted};
use crate::content::{Content, removed_files};
use crate::kinds::mapping::Mappings;
use crate::kinds::plain::PlainFiles;
use crate::kinds::redo_files::RedoFiles;
use crate::kinds::redo_log::RedoLog;
use crate::kinds::tablespace::Tablespaces;
use crate::kinds::unknown_files::{self, NamedFiles};
use crate::kinds::written_stream::WrittenStream;
use redoubt_locks::IgnorePoison;
use redoubt_transport::ClientTls;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Interval between two reports of the counters. It is well below a second because monitors sample a node once a
/// second: with an equal interval, some samples would find no change, and the next one twice as much.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// Requests for files that wait.
const FILES_MAX: usize = 1000;

/// The active library.
pub struct Library {
    /// Rules for the classification of paths.
    pub rules: Rules,
    /// The stream and the page requests.
    pub content: Content,
    /// The redo log file of MariaDB.
    pub log: RedoLog,
    /// The files of MySQL's redo log.
    pub redo_files: RedoFiles,
    /// Files of InnoDB pages.
    pub tablespaces: Tablespaces,
    /// Plain files.
    pub plain: PlainFiles,
    /// Shared writable mappings of plain files.
    pub mappings: Mappings,
    /// Tracked descriptors.
    pub fds: FdTable<OpenFile>,
    /// stdio streams that are open for writing, by their addresses.
    pub stdio: Mutex<Vec<(usize, Arc<WrittenStream>)>>,
    started: OnceLock<()>,
    removed_sent: OnceLock<Result<(), i32>>,
    wanted: Mutex<Option<Receiver<Wanted>>>,
}

impl Library {
    /// A library that has not connected yet.
    ///
    /// # Errors
    /// A description of the failure, for people.
    pub fn new(config: Config) -> Result<Self, String> {
        // Before the hooks do anything, and before the server changes its user.
        let tls = config.tls.clone().map(ClientTls::load).transpose().map_err(|error| error.to_string())?;
        let counters = Arc::new(Counters::default());
        let (wanted_sender, wanted) = mpsc::channel();
        let session = new_session(&config, tls.map(Arc::new));
        let stream = Stream::new(session, Arc::clone(&counters), wanted_sender);
        let system_files: Vec<_> = config.system_files.iter().map(|file| file.path.clone()).collect();
        Ok(Self {
            content: Content::new(&config, stream, counters)?,
            log: RedoLog::default(),
            redo_files: RedoFiles::default(),
            tablespaces: Tablespaces::new(config.family, system_files.clone()),
            plain: PlainFiles::default(),
            mappings: Mappings::default(),
            fds: FdTable::default(),
            stdio: Mutex::default(),
            started: OnceLock::new(),
            removed_sent: OnceLock::new(),
            wanted: Mutex::new(Some(wanted)),
            rules: Rules { family: config.family, system_files, local_files: config.local_files },
        })
    }

    /// Connects to the node, once, and waits for it.
    ///
    /// # Errors
    /// `EIO` when there is no usable node; a message gives the reason.
    pub fn start(&'static self) -> Result<SessionStart, Errno> {
        let content = &self.content;
        self.started.get_or_init(|| {
            let stream = Arc::clone(&content.stream);
            let receiver = self.wanted.lock().ignore_poison().take();
            let connection = real::spawn_quiet("redoubt-log", move || stream.run());
            let stream = Arc::clone(&content.stream);
            let watch = real::spawn_quiet("redoubt-watch", move || stream.watch());
            let (file_sender, files) = mpsc::sync_channel(FILES_MAX);
            let helper = real::spawn_quiet("redoubt-help", move || {
                if let Some(receiver) = receiver {
                    help(self, &receiver, &file_sender);
                }
            });
            let sender = real::spawn_quiet("redoubt-file", move || send_files(self, &files));
            let threads = connection.and(watch).and(helper).and(sender);
            if let Err(error) = threads.and(content.start_read_ahead()) {
                content.stream.die(&format!("a thread cannot be started: {error}"));
            }
        });
        let start = content.stream.wait_connected()?;
        content.need.set_floor(start.seq);
        self.removed_sent.get_or_init(|| removed_files::send(content)).map_err(Errno)?;
        Ok(start)
    }

    /// At a regular exit of the server: everything it wrote becomes durable, the counters are complete.
    pub fn finish(&self) {
        let Self { content, .. } = self;
        if self.started.get().is_some() && content.stream.session_start().is_some() {
            for tablespace in self.tablespaces.files.all() {
                let _ = tablespace.finish_adoption(content);
            }
            // First, because counters are sent only while there is a connection.
            let _ = content.stream.wait_durable(content.stream.end());
            content.report();
        }
    }

    /// Class of a path relative to the data directory.
    pub fn classify(&self, path: &[u8]) -> Class {
        classify::classify(&self.rules, path)
    }

    /// Nothing is at `path` any more.
    pub fn forget(&self, path: &[u8]) {
        self.content.deleted.forget(path);
        self.content.stream.wanted_pages().forget(path);
        if let Some(tablespace) = self.tablespaces.files.known(path) {
            tablespace.forget_content(&self.content);
        }
        self.tablespaces.files.forget(path);
        self.redo_files.by_path.forget(path);
        self.plain.forget(path);
    }

    /// A file or directory got a new name. An earlier file at `to` is gone.
    pub fn renamed(&self, from: &[u8], to: &[u8]) {
        self.forget(to);
        self.content.deleted.forget(from);
        self.content.stream.wanted_pages().renamed(from, to);
        self.tablespaces.files.renamed(from, to);
        self.redo_files.by_path.renamed(from, to);
        self.plain.renamed(from, to);
    }
}

/// Body of the helper thread: sends counters, answers requests for images, and forwards requests for files.
fn help(library: &Library, wanted: &Receiver<Wanted>, files: &SyncSender<Vec<u8>>) {
    let content = &library.content;
    let mut report_at = Instant::now() + REPORT_INTERVAL;
    while content.stream.death().is_none() {
        match wanted.recv_timeout(report_at.saturating_duration_since(Instant::now())) {
            // Without room it is dropped. The node repeats it when this server connects again.
            Ok(Wanted::File(path)) => drop(files.try_send(path)),
            Ok(Wanted::Image(ImageWanted::ForStream { path, page_no })) => {
                library.tablespaces.send_kept(content, &path, page_no);
            }
            Ok(Wanted::Image(ImageWanted::ForReport(wanted))) => {
                content.dropped_images.answer(&content.pool, &wanted);
                content.stream.image_answered();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if Instant::now() >= report_at {
            content.report();
            report_at = Instant::now() + REPORT_INTERVAL;
        }
    }
}

/// Body of the thread that sends files that the volume does not have. A file may take long, and a server must not wait that
/// long for the images that heal its pages.
fn send_files(library: &Library, paths: &Receiver<Vec<u8>>) {
    let (content, mut named) = (&library.content, NamedFiles::default());
    for path in paths {
        if content.stream.death().is_some() {
            return;
        }
        // Only of writes to plain files.
        unknown_files::found(content, &library.plain, &mut named, &path);
    }
}
