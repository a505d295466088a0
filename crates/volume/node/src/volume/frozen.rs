//! A frozen volume: the parser refuses a frame of its log, and everything before that frame stays readable.
//!
//! The node notes the last good position P in the file `frozen`, stops the volume, and opens it again with the log up to
//! P only. From then on the volume has no writer: it refuses servers, and P is its end for exports, views and NFS. The
//! log after P has acknowledged commits; it is kept, but not read.
//!
//! The same happens to a frame that is found damaged when the volume is opened, and to a damaged end of the log. If the
//! damage is before A, P is A: pages and plain files have everything up to there. An
//! earlier process may have read that frame. Then plain files and pages may have changes from after P, and records of a
//! table that was dropped after P may be missing. Such a volume is *not exact*: an export of it needs `--with-damaged`.
//!
//! The identity of the volume has a bound X: no change from after X is in plain files or pages. It is set before the note
//! is written. When a volume is opened to be read beyond P, the note is removed first, then the bound. Without a bound, X
//! is the end of the log: only durable frames are executed, and the log device loses none without noticing. So no process
//! writes a mark while the volume is in use. A process does not pass its own P, and so changes X to the larger of P and the
//! X that it has found.
//!
//! Another build may understand the frame. So the note names the build, and any other build reads the whole log again. A
//! note that is damaged, or that the drive cannot read, is removed: the parser meets the frame again. A note of a log that
//! was damaged counts for every build, and says how far the log was durable: the log may look whole when its damaged end is
//! taken away. A person removes the note when the files are back.
//!
//! Stored form: JSON, with the fields of [`Frozen`], behind a checksum line ([`crate::checkpoint::write_checked`]).
//!
//! Invariant: the note is written when everything before P is durable, and the refused frame, too.

use super::Volume;
use super::identity::Identity;
use super::session::Session;
use crate::checkpoint::{check_format, parse, read_checked, write_checked};
use crate::error::NodeError;
use crate::home::Folder;
use crate::mark::{Point, WaitEnd};
use redoubt_logdev::LogDeviceError;
use redoubt_redo::Lsn;
use redoubt_wire::Seq;
use redoubt_wire::control::FrozenEnd;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

const FILE_NAME: &str = "frozen";
const FORMAT: u32 = 1;

/// Version and checksum of this executable: another build of the same version may understand more.
fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        match std::fs::read("/proc/self/exe") {
            Ok(executable) => format!("{version}-{:08x}", crc32c::crc32c(&executable)),
            Err(_) => version.to_owned(),
        }
    })
}

/// Where and why a volume is frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    format: u32,
    /// The build of the node that refused the frame.
    build: String,
    /// Start of the refused frame in the stream.
    seq: u64,
    lsn: u64,
    /// The defect of the frame.
    reason: String,
    /// The log was damaged, or files of it were missing, and it had been durable up to there at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_durable_seq: Option<u64>,
}

impl Frozen {
    /// The note of this build, or of damage to the log, if there is one. Another one, a damaged one, or one without a bound
    /// in the identity is removed durably.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub fn read(own: &Folder, identity: &Identity) -> Result<Option<Self>, NodeError> {
        match Self::parse(own) {
            Ok(None) => return Ok(None),
            Ok(Some(frozen))
                if identity.frozen_changes_end.is_some()
                    && (frozen.build == build() || frozen.log_durable_seq.is_some()) =>
            {
                return Ok(Some(frozen));
            }
            Ok(Some(_)) => {}
            Err(error) if error.is_unusable_file() => {
                tracing::warn!(event = "frozen_note_unusable", %error, "note of a frozen volume is not usable; its log is read again");
            }
            Err(error) => return Err(error),
        }
        own.remove(FILE_NAME)?;
        own.sync()?;
        Ok(None)
    }

    /// How far the log was durable at least, according to the note. A log without that is opened for reading only.
    pub fn log_durable_end(&self) -> Seq {
        Seq(self.log_durable_seq.unwrap_or(0))
    }

    fn parse(own: &Folder) -> Result<Option<Self>, NodeError> {
        if own.find(FILE_NAME)?.is_none() {
            return Ok(None);
        }
        let body = read_checked(own, FILE_NAME)?;
        check_format(own, FILE_NAME, &body, FORMAT..=FORMAT)?;
        parse(own, FILE_NAME, &body).map(Some)
    }

    fn new(end: Point, refusal: &NodeError, log_durable_seq: Option<u64>) -> Self {
        let (build, reason) = (build().to_owned(), refusal.to_string());
        Self { format: FORMAT, build, seq: end.seq.0, lsn: end.lsn.0, reason, log_durable_seq }
    }

    fn write(&self, own: &Folder) -> Result<(), NodeError> {
        let encode =
            |error: serde_json::Error| NodeError::io("encode", own.path().join(FILE_NAME), error.into());
        let body = serde_json::to_vec(self).map_err(encode)?;
        write_checked(own, FILE_NAME, &body)
    }

    /// The end of the volume.
    pub fn point(&self) -> Point {
        Point { seq: Seq(self.seq), lsn: Lsn(self.lsn) }
    }

    fn way_out(&self, note: &std::path::Path) -> String {
        if self.log_durable_seq.is_some() {
            format!(
                "Stop the node, put back the damaged or missing files of the log from a copy, remove {0}, and start it. \
                 Without these files, removing {0} gives up for good what is after that point",
                note.display()
            )
        } else {
            format!(
                "If a file of the log is damaged, put back a copy of it; otherwise upgrade the node, or export the volume \
                 and report this. To read the log once more with this build, stop the node and remove {}",
                note.display()
            )
        }
    }

    /// For status and for a server that is refused.
    fn message(&self, own: &Folder, end: &FrozenEnd) -> String {
        let exactness = match end.changes_end {
            None => String::new(),
            Some(changes_end) => format!(
                "It is not exact: its pages and plain files may have later changes, up to {}. So an export needs \
                 --with-damaged. ",
                if changes_end == UNKNOWN_END {
                    "an unknown position".to_owned()
                } else {
                    Seq(changes_end).to_string()
                }
            ),
        };
        let missing = match end.bytes_after {
            0 if end.changes_end == Some(UNKNOWN_END) => {
                "It is not known whether the log had acknowledged commits after that point. ".to_owned()
            }
            0 => "The log has nothing acknowledged after that point. ".to_owned(),
            bytes_after => format!(
                "The log has at least {bytes_after} bytes after that point. Commits in them are acknowledged, and missing from \
                 exports and views. "
            ),
        };
        format!(
            "it is frozen at LSN {} ({}), because the log after it cannot be used: {}. {missing}{exactness}The volume can be \
             exported and viewed, but no server can write it. {}",
            self.lsn,
            Seq(self.seq),
            self.reason,
            self.way_out(&own.path().join(FILE_NAME))
        )
    }
}

/// Bound of the changes in a volume's files.
const UNKNOWN_END: u64 = u64::MAX;

/// End of a volume's log before any of it is read, and the bound of changes.
#[derive(Clone, Copy, Debug)]
pub struct LogExtent {
    /// Its end, or that up to which it was durable at least.
    pub end: Seq,
    /// An earlier process may have made changes up to there in plain files and pages.
    pub changes_end: u64,
    /// It is damaged, or files are missing.
    pub is_damaged: bool,
}

impl LogExtent {
    /// Of a log that has been opened, with the bound of [`Identity::frozen_changes_end`].
    pub fn of(log: &crate::log_device::Opened, bound: Option<u64>) -> Self {
        let device_end = log.device.end();
        let end = log.damage.as_ref().map_or(device_end, |damage| damage.durable_end.max(device_end));
        let unbounded = if log.damage.is_some() { UNKNOWN_END } else { end.0 };
        Self { end, changes_end: bound.unwrap_or(unbounded), is_damaged: log.damage.is_some() }
    }

    /// The end of a volume that is frozen at `at`.
    fn frozen_at(self, at: Point) -> FrozenEnd {
        FrozenEnd {
            lsn: at.lsn.0,
            bytes_after: self.end.0.saturating_sub(at.seq.0),
            changes_end: (self.changes_end > at.seq.0).then_some(self.changes_end),
        }
    }
}

/// The error is about a frame, and not one that may be gone at the next attempt.
pub fn is_refusal(error: &NodeError) -> bool {
    match error {
        NodeError::Redo { .. }
        | NodeError::Wire(_)
        | NodeError::Page { .. }
        | NodeError::Refused(_)
        | NodeError::Damaged { .. } => true,
        NodeError::LogDevice(error) => {
            matches!(
                error,
                LogDeviceError::Damaged { .. }
                    | LogDeviceError::BadSegment { .. }
                    | LogDeviceError::Incomplete { .. }
            )
        }
        _ => false,
    }
}

impl Volume {
    /// The parser has ended with `error`. If it refused a frame, the volume is frozen when it is opened again. Returns the
    /// error with which it stops for now.
    pub(super) fn freeze(&self, error: NodeError) -> NodeError {
        let end = self.indexing.parsed().get();
        // With the refused frame: another build, or a person, may want to read it.
        let received = self.receiving.buffer.received();
        // A node that ends, or a volume that has stopped for another reason.
        if !is_refusal(&error)
            || self.context.stopped().is_some()
            || self.receiving.durable().wait_for(received.seq, None) != WaitEnd::Reached
        {
            return error;
        }
        match self.note_frozen(end, &error) {
            Ok(message) => {
                self.freezes.store(true, Ordering::Release);
                NodeError::Refused(message)
            }
            Err(failed) => {
                tracing::error!(event = "volume_not_frozen", volume = self.context.name, error = %failed, "volume cannot be frozen");
                error
            }
        }
    }

    /// A volume that begins to be read beyond a former P has no bound any more. Before anything is read.
    pub(super) fn begin_unfrozen(session: &Session) -> Result<(), NodeError> {
        if session.identity().frozen_changes_end.is_some() { session.set_frozen(None) } else { Ok(()) }
    }

    /// The log is read up to P. A frame that was found to be unusable meanwhile freezes the volume at `end` at once.
    pub(super) fn freeze_at_start(
        &self,
        end: Point,
        noted: Option<&Frozen>,
        refusal: Option<&NodeError>,
    ) -> Result<(), NodeError> {
        let frozen_end = self.log_extent.frozen_at(end);
        let message = match (noted, refusal) {
            (_, Some(refusal)) => self.note_frozen(end, refusal)?,
            (Some(frozen), None) => frozen.message(&self.context.own, &frozen_end),
            (None, None) => return Ok(()),
        };
        self.context.freeze(message, frozen_end);
        Ok(())
    }

    fn note_frozen(&self, end: Point, refusal: &NodeError) -> Result<String, NodeError> {
        let log_end = self.log_extent.end.max(self.receiving.buffer.received().seq);
        let extent = LogExtent { end: log_end, ..self.log_extent };
        let log_durable_seq = extent.is_damaged.then_some(log_end.0);
        let (frozen, frozen_end) = (Frozen::new(end, refusal, log_durable_seq), extent.frozen_at(end));
        // This process has made no changes after `end`.
        self.session.set_frozen(Some(self.log_extent.changes_end.max(end.seq.0)))?;
        frozen.write(&self.context.own)?;
        tracing::error!(
            event = "volume_frozen",
            volume = self.context.name,
            lsn = frozen.lsn,
            bytes_after = frozen_end.bytes_after,
            is_exact = frozen_end.changes_end.is_none(),
            reason = frozen.reason,
            "volume frozen at its last good position"
        );
        Ok(frozen.message(&self.context.own, &frozen_end))
    }

    /// It has stopped to be opened again as a frozen volume.
    pub fn freezes(&self) -> bool {
        self.freezes.load(Ordering::Acquire) && self.stopped().is_some()
    }

    /// Its end, if it is frozen.
    pub fn frozen_end(&self) -> Option<&FrozenEnd> {
        self.context.frozen_end()
    }

    /// Refuses a state that is not exactly that of its point.
    ///
    /// # Errors
    /// [`NodeError::Refused`].
    pub(super) fn check_exact(&self) -> Result<(), NodeError> {
        match self.frozen_end() {
            Some(FrozenEnd { lsn, changes_end: Some(_), .. }) => Err(NodeError::Refused(format!(
                "volume {} is frozen at LSN {lsn} and is not exact: its pages and plain files may have later changes. It \
                 is no moment; export it with `redoubt volume export --with-damaged`",
                self.context.name
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoubt_storage::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn note_that_the_drive_cannot_read_is_removed() {
        let disk = SimDisk::new(1);
        let own = Folder::new(Arc::new(disk.subdirectory("own")), Path::new("own"));
        let identity = Identity { frozen_changes_end: Some(7), ..Identity::new() };
        let frozen = Frozen::new(Point::default(), &NodeError::Refused("rotten".to_owned()), None);
        frozen.write(&own).unwrap();
        assert_eq!(Frozen::read(&own, &identity).unwrap(), Some(frozen));
        disk.lose("own/frozen", 0..8);
        assert_eq!(Frozen::read(&own, &identity).unwrap(), None);
        assert!(own.find(FILE_NAME).unwrap().is_none());
    }
}
