//! Volumes for readers in this process, which have no connection: NFS.
//!
//! Invariants: a reader has the volume of one identity. A volume that is deleted and created again under the same name
//! is another one, and the reader's own is gone. A moment is given up with its last reader.

use super::Node;
use super::view::KeptMoment;
use crate::error::NodeError;
use crate::volume::{Follower, Volume};
use redoubt_readers::{Contents, LogFollower, LogPiece, ViewError, ViewSource};
use redoubt_wire::control::VolumeEntry;
use redoubt_wire::page::FileId;
use redoubt_wire::view::{MAX_READ_LEN_BYTES, ViewFile, ViewLog};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time that a reader's question waits for a volume that is being opened.
const PATIENCE: Duration = Duration::from_secs(1);

/// A volume as it is now, or a moment of it.
pub struct VolumeReader {
    node: Arc<Node>,
    name: String,
    volume_id: String,
    moment: Option<KeptMoment>,
}

impl Node {
    /// Volumes that can be read: names and random ids.
    pub fn readable_volumes(&self) -> Vec<(String, String)> {
        // Together, because volumes move between these lists.
        let (volumes, mut readable) = {
            let volumes = self.volumes.lock();
            // In the order in which a volume moves that does not open.
            let opening = self.opening.readable();
            (volumes.clone(), [self.parking.readable(), opening].concat())
        };
        let open = volumes.into_iter().filter(|(_, volume)| !volume.is_empty());
        readable.extend(open.map(|(name, volume)| (name, volume.volume_id())));
        readable.sort();
        readable.dedup();
        readable
    }

    /// Some volumes are still being opened.
    pub fn is_opening(&self) -> bool {
        !self.opening.statuses().is_empty()
    }

    /// Some volumes could not be opened. Only their names are available to readers.
    pub fn has_unusable_volumes(&self) -> bool {
        !self.unusable.lock().is_empty() || self.parking.has_unusable()
    }

    /// A volume for a reader, as it is now or as of this moment.
    ///
    /// # Errors
    /// [`ViewError::Ended`] if there is no such volume; otherwise the reason why it cannot be read.
    pub fn reader(self: &Arc<Self>, name: &str, is_moment: bool) -> Result<VolumeReader, ViewError> {
        let volume = self.volume_to_read(name)?;
        if volume.is_empty() {
            return Err(ViewError::NotNow(format!(
                "volume {name} is empty: no server has written to it yet"
            )));
        }
        let moment = if is_moment { Some(KeptMoment::begin(&volume).map_err(view_error)?) } else { None };
        let (node, volume_id) = (Arc::clone(self), volume.volume_id());
        Ok(VolumeReader { node, name: name.to_owned(), volume_id, moment })
    }

    fn volume_to_read(&self, name: &str) -> Result<Arc<Volume>, ViewError> {
        self.volume(name, PATIENCE).map_err(|error| match error {
            NodeError::Refused(message) if !self.unusable.lock().contains_key(name) => {
                ViewError::Ended(message)
            }
            error => view_error(error),
        })
    }
}

fn view_error(error: NodeError) -> ViewError {
    match error {
        NodeError::NotNow(message) => ViewError::NotNow(message),
        error => ViewError::Failed(error.to_string()),
    }
}

impl VolumeReader {
    /// Random id of the volume.
    pub fn volume_id(&self) -> &str {
        &self.volume_id
    }

    /// Asks the volume. If it has stopped because it was deleted, the error is that it is gone.
    fn ask<T>(&self, ask: impl FnOnce(&Volume) -> Result<T, NodeError>) -> Result<T, ViewError> {
        let volume = self.volume()?;
        ask(&volume).map_err(|error| {
            let error = match error {
                error @ NodeError::NotNow(_) => view_error(error),
                error => ViewError::Failed(format!("volume {}: {error}", self.name)),
            };
            self.volume().err().filter(|error| matches!(error, ViewError::Ended(_))).unwrap_or(error)
        })
    }

    fn volume(&self) -> Result<Arc<Volume>, ViewError> {
        let volume = self.node.volume_to_read(&self.name)?;
        if volume.volume_id() == self.volume_id {
            return Ok(volume);
        }
        Err(ViewError::Ended(format!("volume {} is another one than the one that was mounted", self.name)))
    }
}

impl ViewSource for VolumeReader {
    fn stat(&self, path: &str) -> Result<Option<ViewFile>, ViewError> {
        self.ask(|volume| match &self.moment {
            None => volume.live_file(path),
            Some(moment) => volume.moment_file(&*moment.export()?, path),
        })
    }

    fn names(&self) -> Result<Vec<VolumeEntry>, ViewError> {
        self.ask(|volume| match &self.moment {
            None => Ok(volume.live_names()?.entries),
            Some(moment) => Ok(moment.export()?.attachment.entries.clone()),
        })
    }

    fn read(&self, file: u32, offset_bytes: u64, len_bytes: u32) -> Result<Option<Contents>, ViewError> {
        let file = FileId(file);
        self.ask(|volume| {
            let export = self.moment.as_ref().map(KeptMoment::export).transpose()?;
            let file_len_bytes = match &export {
                None => volume.live_len(file)?,
                Some(export) => volume.moment_len(export, file)?,
            };
            let Some(file_len_bytes) = file_len_bytes else { return Ok(None) };
            let left = file_len_bytes.saturating_sub(offset_bytes);
            let wanted = left.min(u64::from(len_bytes.min(MAX_READ_LEN_BYTES)));
            let mut bytes = vec![0; usize::try_from(wanted).unwrap_or(0)];
            match &export {
                _ if bytes.is_empty() => {}
                None => volume.read_live(file, offset_bytes, &mut bytes)?,
                Some(export) => volume.read_moment(export, file, offset_bytes, &mut bytes)?,
            }
            Ok(Some(Contents { bytes, len_bytes: file_len_bytes }))
        })
    }

    fn follow(&self) -> Result<Box<dyn LogFollower>, ViewError> {
        Ok(Box::new(Following { volume: Arc::downgrade(&self.volume()?), follower: None }))
    }

    fn scratch_file(&self) -> std::io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        // The file is encrypted if the volume is.
        options.open(self.volume().map_err(std::io::Error::other)?.directory())
    }

    fn is_moment(&self) -> bool {
        self.moment.is_some()
    }

    fn position(&self) -> Option<u64> {
        self.volume().ok()?.settled_position()
    }
}

/// Follows the redo log of a volume, without holding it.
struct Following {
    volume: Weak<Volume>,
    follower: Option<Follower>,
}

impl LogFollower for Following {
    fn next(&mut self, from_lsn: Option<u64>, piece: &mut LogPiece<'_>) -> Result<ViewLog, ViewError> {
        let follower =
            self.follower.take().filter(|follower| from_lsn.is_some_and(|lsn| follower.stands_at(lsn)));
        let Some(volume) = self.volume.upgrade() else {
            let reason = "the volume was frozen; mount the view again";
            return Err(ViewError::Failed(reason.to_owned()));
        };
        let next = volume.next_redo(follower.as_ref()).map_err(view_error)?;
        let (mut offset, mut broken) = (0, None);
        let read = volume.read_redo(&next, |bytes| {
            let taken = piece(&next.log, offset, bytes);
            offset += bytes.len() as u64;
            taken.map_err(|error| {
                let message = error.to_string();
                broken = Some(error);
                NodeError::Refused(message)
            })
        });
        if let Some(error) = broken {
            return Err(error);
        }
        read.map_err(view_error)?;
        self.follower = Some(next.follower);
        Ok(next.log)
    }
}
