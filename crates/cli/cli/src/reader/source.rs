//! Names, lengths and contents of a view, requested from the node.
//!
//! Owns a pool of control connections. A connection that breaks (the node is started again) is opened again, for as
//! long as [`PATIENCE`]: a tool that reads a live volume sees a pause. A view of a snapshot ends with the connection
//! that began it, which is a connection of its own ([`Source::begin`]), kept alive by a request now and then.

use redoubt_client::control::Client;
use redoubt_client::{ClientError, Result};
use redoubt_locks::IgnorePoison;
use redoubt_readers::{Contents, LogFollower, LogPiece, ViewError, ViewSource};
use redoubt_transport::Connector;
use redoubt_wire::control::{Reply, Request, VolumeEntry};
use redoubt_wire::view::{LIVE, ViewFile, ViewLog, ViewReply, ViewRequest};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time limit of the node's absence.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(250);
/// The node closes a control connection that asks for nothing for ten minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The node's side of a view.
pub struct Source {
    connector: Connector,
    volume: String,
    /// Random id of the volume.
    pub volume_id: String,
    view: u64,
    idle: Mutex<Vec<Client>>,
}

impl Source {
    /// Begins a view of what is there now, or of this moment.
    ///
    /// # Errors
    /// [`ClientError::Usage`] if the node does not support readers; errors of the node.
    pub fn begin(connector: Connector, volume: &str, moment: bool) -> Result<Arc<Self>> {
        let mut client = Client::connect(&connector)?;
        let about = ViewRequest::Begin { moment };
        let begun = client.call(&Request::View { volume: volume.to_owned(), about });
        let (view, volume_id) = match begun {
            Ok(Reply::View(ViewReply::Begun { number, volume_id, .. })) => (number, volume_id),
            Ok(other) => return Err(client.unexpected(&other)),
            // Error message of an older node for an unknown request.
            Err(ClientError::Node(message)) if message.contains("unknown variant") => {
                return Err(ClientError::Usage(format!(
                    "the storage node at {} is of a version that serves no readers; install this version of redoubt \
                     there and start it again",
                    connector.address
                )));
            }
            Err(error) => return Err(error),
        };
        let (volume, idle) = (volume.to_owned(), Mutex::default());
        let source = Arc::new(Self { connector, volume, volume_id, view, idle });
        if view == LIVE {
            source.put_back(client);
        } else {
            let keeper = Arc::clone(&source);
            let keep = move || keeper.keep(client);
            std::thread::Builder::new()
                .name("keeper".to_owned())
                .spawn(keep)
                .map_err(|error| ClientError::io("start", "a thread", error))?;
        }
        Ok(source)
    }

    fn keep(&self, mut client: Client) {
        let about = ViewRequest::Stat { view: self.view, path: String::new() };
        let request = Request::View { volume: self.volume.clone(), about };
        loop {
            std::thread::sleep(KEEP_ALIVE);
            if let Err(error) = client.call(&request) {
                complain!("redoubt: the node released the snapshot that this view reads: {error}");
                return;
            }
        }
    }

    fn put_back(&self, client: Client) {
        self.idle.lock().ignore_poison().push(client);
    }

    /// A request about the volume.
    pub fn request(&self, about: ViewRequest) -> Request {
        Request::View { volume: self.volume.clone(), about }
    }

    /// A new connection.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(&self) -> Result<Client> {
        Client::connect(&self.connector)
    }

    /// Does something with a connection; again with another if that breaks.
    fn with_client<T>(&self, mut ask: impl FnMut(&mut Client) -> Result<T>) -> Result<T> {
        let since = Instant::now();
        let mut is_said = false;
        loop {
            let idle = self.idle.lock().ignore_poison().pop();
            let is_new = idle.is_none();
            let error = match idle.map_or_else(|| self.connect(), Ok) {
                Ok(mut client) => match ask(&mut client) {
                    Ok(answer) => {
                        self.put_back(client);
                        return Ok(answer);
                    }
                    // An answer for people leaves the connection in step.
                    Err(error @ ClientError::Node(_)) => {
                        self.put_back(client);
                        return Err(error);
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let is_away = matches!(
                error,
                ClientError::Connection { .. } | ClientError::Connect { .. } | ClientError::Silent { .. }
            );
            if !is_away || since.elapsed() > PATIENCE {
                return Err(error);
            }
            // The first may have been closed long ago.
            if is_new {
                if !is_said {
                    complain!("redoubt: {error}; trying again for {} s", PATIENCE.as_secs());
                    is_said = true;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// The file or directory at a path.
    ///
    /// # Errors
    /// Errors of the node.
    pub fn stat(&self, path: &str) -> Result<Option<ViewFile>> {
        let request = self.request(ViewRequest::Stat { view: self.view, path: path.to_owned() });
        self.with_client(|client| match client.call(&request)? {
            Reply::View(ViewReply::Stat { found }) => Ok(found),
            other => Err(client.unexpected(&other)),
        })
    }

    /// Everything there is.
    ///
    /// # Errors
    /// Errors of the node.
    pub fn names(&self) -> Result<Vec<VolumeEntry>> {
        let request = self.request(ViewRequest::Names { view: self.view });
        self.with_client(|client| match client.call(&request)? {
            Reply::Attached(attachment) => Ok(attachment.entries),
            other => Err(client.unexpected(&other)),
        })
    }

    /// Bytes of a file; `None`: it is gone.
    ///
    /// # Errors
    /// Errors of the node.
    pub fn read(&self, file: u32, offset_bytes: u64, len_bytes: u32) -> Result<Option<Contents>> {
        let about = ViewRequest::Read { view: self.view, file, offset_bytes, len_bytes };
        let request = self.request(about);
        self.with_client(|client| {
            let total = match client.call(&request)? {
                Reply::FileFollows { len_bytes } => len_bytes,
                Reply::View(ViewReply::Gone) => return Ok(None),
                other => return Err(client.unexpected(&other)),
            };
            let end = offset_bytes.saturating_add(u64::from(len_bytes)).min(total);
            let mut bytes = vec![0; usize::try_from(end.saturating_sub(offset_bytes)).unwrap_or(0)];
            client.pieces(end, |offset, piece| {
                let at = offset.checked_sub(offset_bytes).and_then(|at| usize::try_from(at).ok());
                let place = at.and_then(|at| bytes.get_mut(at..at.checked_add(piece.len())?));
                if let Some(place) = place {
                    place.copy_from_slice(piece);
                }
                Ok(())
            })?;
            Ok(Some(Contents { bytes, len_bytes: total }))
        })
    }
}

type Viewed<T> = std::result::Result<T, ViewError>;

fn failed(error: ClientError) -> ViewError {
    ViewError::Failed(error.to_string())
}

impl ViewSource for Source {
    fn stat(&self, path: &str) -> Viewed<Option<ViewFile>> {
        self.stat(path).map_err(failed)
    }

    fn names(&self) -> Viewed<Vec<VolumeEntry>> {
        self.names().map_err(failed)
    }

    fn read(&self, file: u32, offset_bytes: u64, len_bytes: u32) -> Viewed<Option<Contents>> {
        self.read(file, offset_bytes, len_bytes).map_err(failed)
    }

    fn follow(&self) -> Viewed<Box<dyn LogFollower>> {
        let client = self.connect().map_err(failed)?;
        Ok(Box::new(Follower { client, volume: self.volume.clone() }))
    }

    fn scratch_file(&self) -> std::io::Result<File> {
        scratch_file()
    }
}

/// Follows the log. The node retains the log for its connection.
struct Follower {
    client: Client,
    volume: String,
}

impl LogFollower for Follower {
    fn next(&mut self, from_lsn: Option<u64>, piece: &mut LogPiece<'_>) -> Viewed<ViewLog> {
        let request = Request::View { volume: self.volume.clone(), about: ViewRequest::Log { from_lsn } };
        let log = match self.client.call(&request).map_err(failed)? {
            Reply::View(ViewReply::Log(log)) => log,
            other => return Err(failed(self.client.unexpected(&other))),
        };
        let len_bytes = log.end_lsn.saturating_sub(log.start_lsn);
        let pieces = self.client.pieces(len_bytes, |offset, bytes| {
            piece(&log, offset, bytes).map_err(|error| ClientError::Usage(error.to_string()))
        });
        pieces.map_err(failed)?;
        Ok(log)
    }
}

/// A file without a name, for as long as it is open.
fn scratch_file() -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
    options.open(std::env::temp_dir())
}
