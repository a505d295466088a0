//! Requests of readers on a control connection (see [`crate::volume`]'s views).
//!
//! Invariant: a moment and a log that are kept for a reader are given up with the connection that requested them.

use super::control::Session;
use crate::error::NodeError;
use crate::volume::{Export, Follower, Volume};
use redoubt_redo::Lsn;
use redoubt_wire::control::{KIND_DATA, MAX_DATA_LEN_BYTES, Reply, encode_data};
use redoubt_wire::page::FileId;
use redoubt_wire::view::{LIVE, MAX_READ_LEN_BYTES, ViewReply, ViewRequest};
use std::sync::{Arc, Weak};

/// Moment and log that a connection reads.
#[derive(Default)]
pub struct Reading {
    moment: Option<KeptMoment>,
    /// The volume whose log it follows, with its progress.
    log: Option<(String, Follower)>,
}

/// Ends a moment when it is dropped. Does not hold the volume: if that is opened again, the moment has ended.
pub(super) struct KeptMoment {
    volume: Weak<Volume>,
    number: u64,
    end_lsn: Lsn,
}

impl KeptMoment {
    /// Keeps this moment.
    ///
    /// # Errors
    /// As [`Volume::keep_moment`].
    pub(super) fn begin(volume: &Arc<Volume>) -> Result<Self, NodeError> {
        let (number, end_lsn) = volume.keep_moment()?;
        Ok(Self { volume: Arc::downgrade(volume), number, end_lsn })
    }

    /// The export of the moment.
    ///
    /// # Errors
    /// As [`Volume::moment`].
    pub(super) fn export(&self) -> Result<Arc<Export>, NodeError> {
        match self.volume.upgrade() {
            Some(volume) => volume.moment(self.number),
            None => Err(NodeError::Refused(format!("view {} has ended: the volume was frozen", self.number))),
        }
    }
}

impl Drop for KeptMoment {
    fn drop(&mut self) {
        if let Some(volume) = self.volume.upgrade() {
            volume.end_moment(self.number);
        }
    }
}

impl Session<'_> {
    /// Answers a reader.
    ///
    /// # Errors
    /// Why it cannot be answered.
    pub(super) fn view(&mut self, volume: &Arc<Volume>, about: ViewRequest) -> Result<Reply, NodeError> {
        match about {
            ViewRequest::Begin { moment } => self.view_begin(volume, moment),
            ViewRequest::Names { view: LIVE } => Ok(Reply::Attached(volume.live_names()?)),
            ViewRequest::Names { view } => Ok(Reply::Attached(volume.moment(view)?.attachment.clone())),
            ViewRequest::Stat { view, path } => {
                let found = match view {
                    LIVE => volume.live_file(&path)?,
                    _ => volume.moment_file(&*volume.moment(view)?, &path)?,
                };
                Ok(Reply::View(ViewReply::Stat { found }))
            }
            ViewRequest::Read { view, file, offset_bytes, len_bytes } => {
                let (range, file) = (range_of(offset_bytes, len_bytes)?, FileId(file));
                let export = if view == LIVE { None } else { Some(volume.moment(view)?) };
                let len_bytes = match &export {
                    None => volume.live_len(file)?,
                    Some(export) => volume.moment_len(export, file)?,
                };
                let Some(len_bytes) = len_bytes else { return Ok(Reply::View(ViewReply::Gone)) };
                self.reply(&Reply::FileFollows { len_bytes })?;
                self.send_file(range.start..range.end.min(len_bytes), |offset, out| match &export {
                    None => volume.read_live(file, offset, out),
                    Some(export) => volume.read_moment(export, file, offset, out),
                })
            }
            ViewRequest::Log { from_lsn } => self.view_log(volume, from_lsn),
        }
    }

    fn view_begin(&mut self, volume: &Arc<Volume>, is_moment: bool) -> Result<Reply, NodeError> {
        self.reading = Reading::default();
        let names = volume.live_names()?;
        if names.empty {
            let message = format!("volume {} is empty: no server has written to it yet", volume.name());
            return Err(NodeError::Refused(message));
        }
        let (number, end_lsn) = if is_moment {
            let moment = KeptMoment::begin(volume)?;
            let (number, end_lsn) = (moment.number, moment.end_lsn.0);
            self.reading.moment = Some(moment);
            (number, end_lsn)
        } else {
            (LIVE, names.end_lsn)
        };
        Ok(Reply::View(ViewReply::Begun { number, volume_id: names.volume_id, end_lsn }))
    }

    fn view_log(&mut self, volume: &Arc<Volume>, from_lsn: Option<u64>) -> Result<Reply, NodeError> {
        let follower = match (self.reading.log.take(), from_lsn) {
            (Some((name, follower)), Some(from_lsn))
                if name == volume.name() && follower.stands_at(from_lsn) =>
            {
                Some(follower)
            }
            (_, None) => None,
            _ => {
                let message =
                    "the previous part of the log was not requested on this connection; begin again";
                return Err(NodeError::Refused(message.to_owned()));
            }
        };
        let next = volume.next_redo(follower.as_ref())?;
        self.reply(&Reply::View(ViewReply::Log(next.log.clone())))?;
        let (mut offset, mut broken) = (0, None);
        let sent = volume.read_redo(&next, |bytes| {
            for piece in bytes.chunks(MAX_DATA_LEN_BYTES) {
                let sent = self.writer.send(KIND_DATA, &encode_data(offset, piece));
                offset += piece.len() as u64;
                if let Err(error) = sent {
                    broken = Some(error);
                    return Err(NodeError::Refused("the reader is gone".to_owned()));
                }
            }
            Ok(())
        });
        if let Some(error) = broken {
            return Err(error);
        }
        self.writer.send(KIND_DATA, &[])?;
        sent?;
        self.reading.log = Some((volume.name().to_owned(), next.follower));
        Ok(Reply::Done)
    }
}

fn range_of(offset_bytes: u64, len_bytes: u32) -> Result<std::ops::Range<u64>, NodeError> {
    let end = offset_bytes.checked_add(u64::from(len_bytes));
    match end {
        Some(end) if len_bytes <= MAX_READ_LEN_BYTES => Ok(offset_bytes..end),
        _ => Err(NodeError::Refused(format!("{len_bytes} bytes at {offset_bytes} cannot be read at once"))),
    }
}
