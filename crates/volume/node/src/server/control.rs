//! A control connection: the requests of the `redoubt` command.
//!
//! Invariant: an export, an unfinished import, a trace, a check, and everything retained for a reader end with their connection.

use super::authority::{check_request, restrict};
use super::busy::BusyName;
use super::io::{FrameReader, FrameWriter};
use super::pace::Pace;
use super::view::Reading;
use super::{Node, PATIENCE_OF_REQUESTS, PATIENCE_WITH_NAMES};
use crate::at_rest::KeyFile;
use crate::error::{Kind, NodeError};
use crate::home::DirectoryHome;
use crate::place::{DELETED_PREFIX, IMPORT_PREFIX, NEW_PREFIX, check_removal, prepare_removal};
use crate::volume::{Check, DamagedPages, Export, Import, LogShape, SERVER_NOT_SAID, Volume};
use redoubt_redo::{Family, Lsn};
use redoubt_transport::{Connection, Identity};
use redoubt_wire::control::{
    KIND_DATA, KIND_JSON, MAX_DATA_LEN_BYTES, Reply, Request, WHO_LIMIT_CHARACTERS, check_path, decode_data,
    decode_json, encode_data,
};
use redoubt_wire::page::FileId;
use redoubt_wire::view::ViewRequest;
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Longest frame: a piece of a file with its offset. Requests are shorter.
const FRAME_LIMIT_BYTES: usize = MAX_DATA_LEN_BYTES + 8;

pub(super) struct Session<'s> {
    node: &'s Arc<Node>,
    identity: Identity,
    peer: String,
    reader: FrameReader<'s>,
    read_position: u64,
    pub(super) writer: FrameWriter<'s>,
    export: Option<(Arc<Volume>, Export)>,
    import: Option<(Import, BusyName<'s>)>,
    /// Does not hold the volume: it may have to be opened again.
    traced: Option<Weak<Volume>>,
    /// The same.
    check: Option<(Weak<Volume>, Check)>,
    pub(super) reading: Reading,
}

/// Destination of an upload.
enum Upload {
    File(FileId),
    Redo,
}

/// Serves it until it ends.
///
/// # Errors
/// The error that ended it; none if the peer closed it.
pub fn serve(node: &Arc<Node>, stream: &dyn Connection) -> Result<(), NodeError> {
    stream
        .set_read_timeout(Some(node.admission.limits().idle_control))
        .map_err(|error| NodeError::io("set up", "connection", error))?;
    let mut session = Session {
        node,
        identity: stream.identity().clone(),
        peer: stream.peer().to_owned(),
        reader: FrameReader::new(stream),
        read_position: 0,
        writer: FrameWriter::new(stream),
        export: None,
        import: None,
        traced: None,
        check: None,
        reading: Reading::default(),
    };
    let result = session.run();
    session.end_export();
    session.end_trace();
    if let Some((import, busy)) = session.import.take() {
        let _ = node.remove_directory(import.path());
        // Before the next user of the name comes.
        drop(import);
        drop(busy);
    }
    result
}

impl<'s> Session<'s> {
    fn run(&mut self) -> Result<(), NodeError> {
        while let Some((kind, payload)) = self.next_frame()? {
            if kind != KIND_JSON {
                return Err(NodeError::Refused("data frame where a request was expected".to_owned()));
            }
            let request: Request = match decode_json(&payload) {
                Ok(request) => request,
                Err(error) => {
                    self.reply(&failed(&error.into()))?;
                    continue;
                }
            };
            match self.handle(request) {
                Ok(reply) => self.reply(&reply)?,
                Err(error @ (NodeError::Io { .. } | NodeError::Wire(_))) if error_is_connection(&error) => {
                    return Err(error);
                }
                Err(error) => self.reply(&failed(&error))?,
            }
        }
        Ok(())
    }

    fn next_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, NodeError> {
        let Some(mut frame) = self.reader.next(FRAME_LIMIT_BYTES)? else { return Ok(None) };
        let header = FrameHeader::decode(frame.first_chunk().unwrap_or(&[0; HEADER_LEN_BYTES]));
        let payload = frame.split_off(HEADER_LEN_BYTES.min(frame.len()));
        header.check(self.read_position, &payload)?;
        self.read_position += 1;
        Ok(Some((header.kind, payload)))
    }

    pub(super) fn reply(&mut self, reply: &Reply) -> Result<(), NodeError> {
        self.writer.send_reply(reply)
    }

    fn handle(&mut self, request: Request) -> Result<Reply, NodeError> {
        check_request(&self.identity, &request).inspect_err(|error| self.node.complain(&self.peer, error))?;
        match request {
            Request::VolumeCreate { volume, encrypted } => self.create(&volume, encrypted),
            Request::VolumeDelete { volume, force } => self.delete(&volume, force),
            Request::Status => {
                let mut status = self.node.status();
                restrict(&self.identity, &mut status);
                Ok(Reply::Status(status))
            }
            Request::Attach { volume, who, server, seen_generation } => {
                let (who, server) = (usable_who(&who), server.unwrap_or(SERVER_NOT_SAID));
                Ok(Reply::Attached(self.volume(&volume)?.attach(&who, server, seen_generation)?))
            }
            Request::List { volume } => Ok(Reply::Attached(self.on_volume(&volume, Volume::list)?.1)),
            Request::Fetch { volume, path } => self.fetch(&volume, &path, 0),
            Request::FetchTail { volume, path, from_bytes } => self.fetch(&volume, &path, from_bytes),
            Request::ExportBegin { volume } => {
                self.end_export();
                let (volume, export) = self.on_volume(&volume, Volume::begin_export)?;
                let attachment = export.attachment.clone();
                self.export = Some((volume, export));
                Ok(Reply::Attached(attachment))
            }
            Request::ExportFile { path, with_damaged, .. } => self.export_file(&path, with_damaged),
            Request::ExportEnd { .. } => {
                self.end_export();
                Ok(Reply::Done)
            }
            Request::ImportBegin { volume, family, system_files, encrypted } => {
                self.import_begin(&volume, &family, &system_files, encrypted)
            }
            Request::ImportDirectory { path, mode } => {
                usable_path(&path)?;
                self.importing()?.directory(&path, mode);
                Ok(Reply::Done)
            }
            Request::ImportFile { path, mode, len_bytes, tablespace } => {
                let file = usable_path(&path)
                    .and_then(|()| self.importing()?.file(&path, mode, len_bytes, tablespace));
                self.upload(file.map(Upload::File))
            }
            Request::ImportLog { file_size_bytes, header, checkpoints, start_lsn } => {
                self.import_log(LogShape::File { file_size_bytes, header, checkpoints }, Lsn(start_lsn))
            }
            Request::ImportLogSet { files, start_lsn } => {
                self.import_log(LogShape::Set(files), Lsn(start_lsn))
            }
            Request::ImportEnd => self.import_end(),
            Request::TraceBegin { volume, one_in } => self.trace_begin(&volume, one_in),
            Request::View { volume, about } => self.view_of(&volume, about),
            Request::VolumeCheck { volume } => self.check(&volume),
            Request::TraceTake { volume } => match self.traced.as_ref().and_then(Weak::upgrade) {
                Some(traced) if traced.name() == volume => {
                    let (samples, lost) = traced.take_trace();
                    Ok(Reply::Trace { samples, lost })
                }
                _ => {
                    Err(NodeError::Refused("no trace of that volume was begun on this connection".to_owned()))
                }
            },
        }
    }

    fn volume(&self, name: &str) -> Result<Arc<Volume>, NodeError> {
        self.node.volume(name, PATIENCE_OF_REQUESTS)
    }

    /// Asks a volume; once more if it was frozen meanwhile, and so is opened again.
    fn on_volume<T>(
        &self,
        name: &str,
        ask: impl Fn(&Volume) -> Result<T, NodeError>,
    ) -> Result<(Arc<Volume>, T), NodeError> {
        let volume = self.volume(name)?;
        match ask(&volume) {
            Err(_) if volume.freezes() => drop(volume),
            asked => return asked.map(|answer| (volume, answer)),
        }
        let volume = self.volume(name)?;
        let answer = ask(&volume)?;
        Ok((volume, answer))
    }

    fn view_of(&mut self, name: &str, about: ViewRequest) -> Result<Reply, NodeError> {
        let volume = self.volume(name)?;
        let is_begin = matches!(about, ViewRequest::Begin { .. });
        match self.view(&volume, about.clone()) {
            Err(_) if is_begin && volume.freezes() => drop(volume),
            answered => return answered,
        }
        self.view(&self.volume(name)?, about)
    }

    fn no_volume(&self, name: &str) -> NodeError {
        NodeError::Refused(self.node.why_no_volume(name))
    }

    fn reserve(&self, name: &str) -> Result<BusyName<'s>, NodeError> {
        self.node.reserve(name, PATIENCE_WITH_NAMES)
    }

    fn check_absent(&self, name: &str) -> Result<(), NodeError> {
        if self.node.volumes.lock().contains_key(name) || self.node.volume_directory(name).exists() {
            return Err(NodeError::Refused(format!(
                "volume {name} exists already; choose another name or delete it with `redoubt volume delete`"
            )));
        }
        Ok(())
    }

    fn create(&mut self, name: &str, is_encrypted: bool) -> Result<Reply, NodeError> {
        let _busy = self.reserve(name)?;
        self.check_absent(name)?;
        let building = self.node.volume_directory(&format!("{NEW_PREFIX}{name}"));
        // Remains of an earlier attempt. The name is reserved, so no other command uses the directory.
        self.node.remove_directory(&building)?;
        let target = self.node.volume_directory(name);
        let (home, key_file) = DirectoryHome::create(name, &building, &self.node.options, is_encrypted)?;
        Volume::create_on(&home)?;
        std::fs::rename(&building, &target).map_err(|error| NodeError::io("rename to", &target, error))?;
        crate::plain::sync_directory(&self.node.options.data_directory.join("volumes"))?;
        let volume = Volume::open(name, &target, &self.node.options).inspect_err(|_| {
            // Nothing is in it yet: the name stays free for another try.
            let _ = self.node.remove_directory(&target);
        })?;
        self.node.volumes.lock().insert(name.to_owned(), volume);
        Ok(begun(key_file))
    }

    fn delete(&mut self, name: &str, force: bool) -> Result<Reply, NodeError> {
        let _busy = self.reserve(name)?;
        let known = self.node.volumes.lock().get(name).cloned();
        let source = self.node.volume_directory(name);
        // Before anything is changed.
        let unlocked = prepare_removal(&source, &self.node.options.at_rest)?;
        check_removal(&source, &self.node.options.devices)?;
        match known {
            // Not by its state: a volume that waits for room is in use as well.
            Some(volume) if !force && volume.in_use() => {
                return Err(NodeError::Refused(format!(
                    "volume {name} is in use by a server or an export; stop that first, or use --force"
                )));
            }
            Some(volume) if !force && (volume.frozen_end().is_some() || volume.freezes()) => {
                return Err(frozen(name));
            }
            Some(volume) => {
                self.node.volumes.lock().remove(name);
                volume.stop("the volume was deleted");
                volume.shut_down();
            }
            None if !source.exists() => return Err(self.no_volume(name)),
            None if !force && self.node.parking.is_frozen(name) => return Err(frozen(name)),
            None => {}
        }
        self.node.unusable.lock().remove(name);
        self.node.parking.forget(name);
        let target = self.node.volume_directory(&format!("{DELETED_PREFIX}{name}"));
        self.node.remove_directory(&target)?;
        std::fs::rename(&source, &target).map_err(|error| NodeError::io("rename", &source, error))?;
        self.node.remove_directory(&target)?;
        drop(unlocked);
        Ok(Reply::Done)
    }

    fn fetch(&mut self, volume: &str, path: &str, from_bytes: u64) -> Result<Reply, NodeError> {
        let volume = self.volume(volume)?;
        let (file, len_bytes) = volume.plain_file(path)?;
        self.reply(&Reply::FileFollows { len_bytes })?;
        self.send_file(from_bytes..len_bytes, |offset, out| volume.read_plain_file(file, offset, out))
    }

    fn export_file(&mut self, path: &str, with_damaged: bool) -> Result<Reply, NodeError> {
        let Some((volume, export)) = self.export.take() else {
            return Err(NodeError::Refused("no export is under way on this connection".to_owned()));
        };
        let mut damaged = DamagedPages::default();
        let checked = volume.check_export_file(&export, path, with_damaged);
        let result = checked.and_then(|defect| match export.len_bytes(path) {
            Some(len_bytes) => self.reply(&Reply::FileFollows { len_bytes }).and_then(|()| {
                if let Some(defect) = defect {
                    damaged.add(|| defect);
                }
                let log_writes = || volume.counters().log_syncs.load(Ordering::Relaxed);
                let mut pace = Pace::new(self.node.options.export_rate_bytes_per_second, log_writes());
                self.send_file(0..len_bytes, |offset, out| {
                    let damaged = with_damaged.then_some(&mut damaged);
                    volume.read_export(&export, path, offset, out, damaged)?;
                    pace.keep(out.len() as u64, log_writes());
                    Ok(())
                })
            }),
            None => Err(NodeError::Refused(format!("the volume has no file {path}"))),
        });
        self.export = Some((volume, export));
        result.map(|reply| match damaged {
            DamagedPages { count: 0, .. } => reply,
            DamagedPages { count, first } => Reply::Damaged { pages: count, first },
        })
    }

    /// Sends a part of a file as data frames without its zero pieces. The final reply follows from the caller.
    pub(super) fn send_file(
        &mut self,
        range_bytes: std::ops::Range<u64>,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), NodeError>,
    ) -> Result<Reply, NodeError> {
        let (mut offset, len_bytes) = (range_bytes.start, range_bytes.end);
        let longest = len_bytes.saturating_sub(offset).min(MAX_DATA_LEN_BYTES as u64) as usize;
        let mut buffer = vec![0; longest];
        let mut failure = None;
        while offset < len_bytes && failure.is_none() {
            let len = (len_bytes - offset).min(MAX_DATA_LEN_BYTES as u64) as usize;
            match read(offset, &mut buffer[..len]) {
                Ok(()) if buffer[..len].iter().all(|byte| *byte == 0) => {}
                Ok(()) => self.writer.send(KIND_DATA, &encode_data(offset, &buffer[..len]))?,
                Err(error) => failure = Some(error),
            }
            offset += len as u64;
        }
        self.writer.send(KIND_DATA, &[])?;
        failure.map_or(Ok(Reply::Done), Err)
    }

    /// Begins a check of the volume, or continues the one of this connection.
    fn check(&mut self, name: &str) -> Result<Reply, NodeError> {
        let under_way = self.check.take().and_then(|(volume, check)| Some((volume.upgrade()?, check)));
        let (volume, mut check) = match under_way.filter(|(volume, _)| volume.name() == name) {
            Some(under_way) => under_way,
            None => self.on_volume(name, Volume::begin_check)?,
        };
        let progress = volume.continue_check(&mut check)?;
        if !progress.is_complete {
            self.check = Some((Arc::downgrade(&volume), check));
        }
        Ok(Reply::Checked(progress))
    }

    fn trace_begin(&mut self, volume: &str, one_in: u32) -> Result<Reply, NodeError> {
        let volume = self.volume(volume)?;
        self.end_trace();
        volume.begin_trace(one_in)?;
        self.traced = Some(Arc::downgrade(&volume));
        Ok(Reply::Done)
    }

    fn end_trace(&mut self) {
        if let Some(volume) = self.traced.take().and_then(|traced| traced.upgrade()) {
            volume.end_trace();
        }
    }

    fn end_export(&mut self) {
        if let Some((volume, _)) = self.export.take() {
            volume.end_export();
        }
    }

    fn importing(&mut self) -> Result<&mut Import, NodeError> {
        match &mut self.import {
            Some((import, _)) => Ok(import),
            None => Err(NodeError::Refused("no import is under way on this connection".to_owned())),
        }
    }

    fn import_begin(
        &mut self,
        name: &str,
        family: &str,
        system_files: &[(String, u64)],
        is_encrypted: bool,
    ) -> Result<Reply, NodeError> {
        let family = Family::named(family)
            .ok_or_else(|| NodeError::Refused(format!("{family:?} is no server family that is known")))?;
        let busy = self.reserve(name)?;
        self.check_absent(name)?;
        let building = self.node.volume_directory(&format!("{IMPORT_PREFIX}{name}"));
        // Remains of an earlier attempt. The name is reserved, so no other command uses the directory.
        self.node.remove_directory(&building)?;
        let (home, key_file) = DirectoryHome::create(name, &building, &self.node.options, is_encrypted)?;
        let import = Import::begin(name, home, &self.node.options, family, system_files)?;
        self.import = Some((import, busy));
        Ok(begun(key_file))
    }

    fn import_log(&mut self, shape: LogShape, start_lsn: Lsn) -> Result<Reply, NodeError> {
        let paths: Vec<_> = match &shape {
            LogShape::File { .. } => Vec::new(),
            LogShape::Set(files) => files.iter().map(|file| file.path.clone()).collect(),
        };
        let log = paths
            .iter()
            .try_for_each(|path| usable_path(path))
            .and_then(|()| self.importing()?.log(shape, start_lsn));
        self.upload(log.map(|()| Upload::Redo))
    }

    /// Takes the data frames of a file up to the empty one, even if `target` is an error, so that the connection stays
    /// synchronised.
    fn upload(&mut self, mut target: Result<Upload, NodeError>) -> Result<Reply, NodeError> {
        loop {
            let Some((kind, payload)) = self.next_frame()? else {
                return Err(NodeError::Refused("the connection ended inside a file".to_owned()));
            };
            if kind != KIND_DATA {
                return Err(NodeError::Refused("request inside a file".to_owned()));
            }
            let Some((offset, bytes)) = decode_data(&payload)? else { break };
            let written = match &target {
                Ok(Upload::File(file)) => {
                    let file = *file;
                    self.importing().and_then(|import| import.write(file, offset, bytes))
                }
                Ok(Upload::Redo) => self.importing().and_then(|import| import.redo(offset, bytes)),
                Err(_) => Ok(()),
            };
            if let Err(error) = written {
                target = Err(error);
            }
        }
        target.map(|_| Reply::Done)
    }

    fn import_end(&mut self) -> Result<Reply, NodeError> {
        let Some((import, busy)) = self.import.take() else {
            return Err(NodeError::Refused("no import is under way on this connection".to_owned()));
        };
        let building = import.path().to_owned();
        let finished = import.finish(&self.node.volume_directory(&busy.name));
        match finished {
            Ok(volume) => {
                self.node.volumes.lock().insert(busy.name.clone(), volume);
                Ok(Reply::Done)
            }
            Err(error) => {
                let _ = self.node.remove_directory(&building);
                Err(error)
            }
        }
    }
}

/// A volume was created, or its import began.
fn begun(key_file: Option<KeyFile>) -> Reply {
    key_file.map_or(Reply::Done, |KeyFile { path, is_new }| Reply::Encrypted {
        key_file: path.display().to_string(),
        key_is_new: is_new,
    })
}

fn frozen(name: &str) -> NodeError {
    NodeError::Refused(format!(
        "volume {name} is frozen: its log has acknowledged commits that no export has; --force deletes them, too"
    ))
}

fn failed(error: &NodeError) -> Reply {
    Reply::Failed { retry: error.kind() == Kind::Retry, message: error.to_string() }
}

/// A path from the command; an invalid one is the command's mistake and no reason to end the connection.
fn usable_path(path: &str) -> Result<(), NodeError> {
    check_path(path.as_bytes()).map_err(|error| NodeError::Refused(format!("{path:?}: {error}")))
}

fn error_is_connection(error: &NodeError) -> bool {
    matches!(error, NodeError::Wire(_))
        || matches!(error, NodeError::Io { path, .. } if path.as_os_str() == "connection")
}

/// The attaching client's name for logs and terminals: without control characters, of limited length.
fn usable_who(who: &str) -> String {
    who.chars().filter(|character| !character.is_control()).take(WHO_LIMIT_CHARACTERS).collect()
}
