//! Unsent data of the last server on this host: sent to the node before the volume is attached.
//!
//! Attaching starts a new generation, and the node rejects data of an older one. So this step comes first, and until
//! it succeeds nothing is attached and nothing discarded. Only when another host has attached the volume meanwhile is
//! it too late. Then a message informs the operator, and the file is kept under another name.
//!
//! The file is made here too, with all its room, so that a full disk is an error before anything is attached.

use crate::error::{ClientError, Result};
use crate::events::{self, Events};
use redoubt_resend_queue::layout::{
    Confirmed, HEAD_LEN_BYTES, HOLDS_WORD, check_head, confirmed, may_keep, new_head,
};
use redoubt_resend_queue::{BadFile, FILE_LEN_BYTES, FILE_NAME, Kept, SendError};
use redoubt_transport::Connector;
use redoubt_wire::ServerVersion;
use redoubt_wire::control::VolumeStatus;
use redoubt_wire::greeting::{ANNOUNCED, required_by_all};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit and interval of retries while a node answers "not now" (it is starting, say).
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(500);

/// The file of a data directory that this process has locked.
pub struct Unsent {
    directory: PathBuf,
    path: PathBuf,
    file: Option<File>,
    left: Option<Left>,
    /// Volume of the file, and the position that its node has confirmed.
    confirmed: Option<(String, Confirmed)>,
}

/// Unsent data in the file.
struct Left {
    bytes: Vec<u8>,
    volume_id: String,
    kept: Kept,
}

impl Unsent {
    /// Looks for unsent data, and reports it to the operator.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a file that cannot be understood: it may hold commits.
    pub fn open(directory: &Path, events: &dyn Events) -> Result<Self> {
        let path = directory.join(FILE_NAME);
        let mut unsent =
            Self { directory: directory.to_owned(), path, file: None, left: None, confirmed: None };
        // A link must not redirect this process to another file.
        let opened = File::options().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&unsent.path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(unsent),
            Err(error) => return Err(ClientError::io("open", &unsent.path, error)),
        };
        let mut bytes = vec![0; HEAD_LEN_BYTES];
        file.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => unsent.unusable(&BadFile::Damaged("it is too short".to_owned())),
            _ => ClientError::io("read", &unsent.path, error),
        })?;
        let (volume_id, _) = check_head(&bytes).map_err(|error| unsent.unusable(&error))?;
        let last = confirmed(&bytes).map_err(|error| unsent.unusable(&error))?;
        unsent.confirmed = last.map(|last| (volume_id, last));
        if may_keep(&bytes).map_err(|error| unsent.unusable(&error))? {
            file.read_to_end(&mut bytes).map_err(|error| ClientError::io("read", &unsent.path, error))?;
            let contents = redoubt_resend_queue::read(&bytes).map_err(|error| unsent.unusable(&error))?;
            unsent.left = contents.kept.map(|kept| Left { bytes, volume_id: contents.volume_id, kept });
        }
        if let Some(left) = &unsent.left {
            events.note(&format!(
                "the previous server here left {} that the storage node has not acknowledged, in {}; \
                 it is sent to the node before the volume is attached",
                events::bytes(left.kept.unconfirmed_bytes()),
                unsent.path.display()
            ));
        }
        unsent.file = Some(file);
        Ok(unsent)
    }

    fn unusable(&self, error: &BadFile) -> ClientError {
        ClientError::Usage(format!(
            "{}: {error}. It may hold commits that were answered and that the node does not have; to start without \
             them, move it out of the data directory",
            self.path.display()
        ))
    }

    /// Position that the node has confirmed to the last server here on this volume.
    pub fn confirmed(&self, volume_id: &str) -> Option<Confirmed> {
        self.confirmed.as_ref().filter(|(of, _)| of == volume_id).map(|(_, confirmed)| *confirmed)
    }

    /// The node has an older copy of the volume, which is accepted: what was sent and confirmed does not count for it.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn start_anew(&mut self, events: &dyn Events) -> Result<()> {
        if let Some(left) = self.left.take() {
            let why = "the storage node has an older copy of the volume, where they do not fit";
            return self.put_away(left.kept.generation, left.kept.unconfirmed_bytes(), why, events);
        }
        self.file = None;
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(ClientError::io("remove", &self.path, error))
            }
            _ => Ok(()),
        }
    }

    /// Sends it and waits until it is durable.
    ///
    /// # Errors
    /// [`ClientError::Usage`] when the node does not take it now. Nothing is lost by that.
    pub fn send(
        &mut self,
        connector: &Connector,
        volume: &VolumeStatus,
        server: ServerVersion,
        events: &dyn Events,
    ) -> Result<()> {
        let Some(left) = self.left.take() else { return Ok(()) };
        let kept = &left.kept;
        if left.volume_id != volume.volume_id {
            return Err(ClientError::Usage(format!(
                "{} is of volume {}, and volume {} is {}; move it out of the data directory",
                self.path.display(),
                left.volume_id,
                volume.name,
                volume.volume_id
            )));
        }
        if kept.generation < volume.generation {
            let by = format!("volume {} was attached by {}", volume.name, volume.attached_by);
            return self.give_up(kept.generation, kept.unconfirmed_bytes(), &by, events);
        }
        // The frames are of a server that ran here before: of this one, or of the newest that changed the volume.
        let required = required_by_all([Some(server), volume.newest_server].into_iter().flatten());
        let announced = ANNOUNCED.requiring(required);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match redoubt_resend_queue::send(connector, announced, &volume.name, kept, &left.bytes) {
                Ok(sent) => {
                    events.note(&format!("sent {} of it that the node did not have", events::bytes(sent)));
                    break;
                }
                Err(SendError::Fenced(by)) => {
                    return self.give_up(kept.generation, kept.unconfirmed_bytes(), &by, events);
                }
                Err(SendError::Later(_)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(error) => {
                    return Err(ClientError::Usage(format!(
                        "cannot send the data that the previous server left in {} to the storage node at {}: \
                         {error}. Nothing is lost and no volume was attached; try again when the node is \
                         available. To start without that data, move the file out of the data directory; it \
                         may hold answered commits, and without it an older copy of the node's directory is not \
                         noticed",
                        self.path.display(),
                        connector.address
                    )));
                }
            }
        }
        if kept.damaged_bytes() > 0 {
            let why = "they are not whole on the local disk, as after a loss of power";
            return self.put_away(kept.generation, kept.damaged_bytes(), why, events);
        }
        self.note_nothing_kept()
    }

    fn note_nothing_kept(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(&0u64.to_le_bytes(), HOLDS_WORD as u64 * 8)
            .map_err(|error| ClientError::io("write", &self.path, error))
    }

    /// Another server has the volume: the node will never take it.
    fn give_up(&mut self, generation: u64, lost_bytes: u64, by: &str, events: &dyn Events) -> Result<()> {
        let why = format!("{by} after the server here, so the node takes nothing of that server any more");
        self.put_away(generation, lost_bytes, &why, events)
    }

    fn put_away(&mut self, generation: u64, lost_bytes: u64, why: &str, events: &dyn Events) -> Result<()> {
        let name = format!("{FILE_NAME}-generation-{generation}-{:08x}", fastrand::u32(..));
        let target = self.directory.join(name);
        std::fs::rename(&self.path, &target).map_err(|error| ClientError::io("move", &self.path, error))?;
        self.file = None;
        events.note(&format!(
            "warning: up to {} that the previous server here wrote may be lost: {why}. Commits that \
             waited for the node (innodb_flush_log_at_trx_commit=1 without a binary log, or with \
             sync_binlog=1) are not among them; other answered commits may be. Kept as {}; remove that file \
             after you have read this",
            events::bytes(lost_bytes),
            target.display()
        ));
        Ok(())
    }

    /// The file is there, with all its room, and `owner`'s.
    ///
    /// # Errors
    /// [`ClientError::Io`]: above all, no room.
    pub fn prepare(&mut self, volume_id: &str, owner: Option<(u32, u32)>) -> Result<()> {
        let head = new_head(volume_id).map_err(|error| self.unusable(&error))?;
        let is_usable = match &self.file {
            Some(file) => self.is_of(file, volume_id)?,
            None => false,
        };
        if !is_usable {
            self.file = Some(self.make(&head)?);
        }
        if let (Some(file), Some((user, group))) = (&self.file, owner) {
            std::os::unix::fs::fchown(file, Some(user), Some(group))
                .map_err(|error| ClientError::io("change the owner of", &self.path, error))?;
        }
        Ok(())
    }

    /// True for a file of this size and volume. Any other empty file is made again.
    fn is_of(&self, file: &File, volume_id: &str) -> Result<bool> {
        let mut head = vec![0; HEAD_LEN_BYTES];
        file.read_exact_at(&mut head, 0).map_err(|error| ClientError::io("read", &self.path, error))?;
        let (of, _) = check_head(&head).map_err(|error| self.unusable(&error))?;
        let len_bytes = file.metadata().map_err(|error| ClientError::io("read", &self.path, error))?.len();
        Ok(of == volume_id && len_bytes == FILE_LEN_BYTES)
    }

    fn make(&self, head: &[u8]) -> Result<File> {
        let new = self.path.with_extension("new");
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ClientError::io("remove", &new, error));
            }
            _ => {}
        }
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&new)
            .map_err(|error| ClientError::io("create", &new, error))?;
        // SAFETY: no pointers; the descriptor is open.
        let errno = unsafe { libc::posix_fallocate64(file.as_raw_fd(), 0, FILE_LEN_BYTES as libc::off64_t) };
        let made = match errno {
            // A power cut must not leave a file without its head under this name.
            0 => file
                .write_all(head)
                .and_then(|()| file.sync_all())
                .and_then(|()| std::fs::rename(&new, &self.path)),
            errno => Err(std::io::Error::from_raw_os_error(errno)),
        };
        made.map_err(|error| {
            let _ = std::fs::remove_file(&new);
            ClientError::io("reserve room for what the node does not have yet, in", &self.path, error)
        })?;
        Ok(file)
    }
}
