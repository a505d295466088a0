//! The mapped file of frames that the node does not have yet: opening it, and sending the frames of an earlier
//! process.
//!
//! `redoubt run` makes the file, sends the frames in it and reserves its space before it attaches the volume. So an
//! earlier process belongs to the same attachment: the command started it, it ended, and a script started the next
//! one.
//!
//! Invariants: at most one process has the file. Its lock is that of the process: a forked child does not hold it,
//! and the kernel releases it however the process ends. Nothing of a session is sent before everything of the
//! previous session is durable.

use crate::base::message;
use crate::base::real::{self, Errno};
use crate::connections::link::{LinkError, Peer};
use redoubt_resend_queue::layout::{HEAD_LEN_BYTES, check_head, confirmed, may_keep};
use redoubt_resend_queue::{Contents, FILE_LEN_BYTES, FILE_NAME, SendError, UnsentFile, read, send};
use redoubt_wire::Seq;
use std::os::fd::RawFd;

impl From<SendError> for LinkError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Io(error) => Self::Io(error),
            SendError::Wire(error) => Self::Wire(error),
            SendError::Trust(why) => Self::Trust(why),
            SendError::Later(_) => Self::Later(error.to_string()),
            SendError::Fenced(_) | SendError::Refused(_) => Self::Final(format!(
                "cannot send the data that an earlier process of this server left in {FILE_NAME}: {error}"
            )),
        }
    }
}

fn unusable(why: impl std::fmt::Display) -> LinkError {
    LinkError::Final(format!("{FILE_NAME} in the data directory cannot be used: {why}"))
}

/// An open file, which is never closed.
pub struct OpenedFile {
    /// Its words.
    pub file: UnsentFile,
    fd: RawFd,
}

/// Opens and maps the file in the data directory.
///
/// # Errors
/// [`LinkError::Final`]: without it there is no session.
pub fn open(datadir: &[u8]) -> Result<OpenedFile, LinkError> {
    let path = real::c_path(&[datadir, b"/", FILE_NAME.as_bytes()].concat()).map_err(unusable)?;
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let fd = real::open_file(&path, flags, 0)
        .map_err(|errno| unusable(format!("{errno}; start the server with `redoubt run`, which makes it")))?;
    let opened = map(fd);
    if opened.is_err() {
        let _ = real::close_file(fd);
    }
    opened
}

fn map(fd: RawFd) -> Result<OpenedFile, LinkError> {
    real::lock_for_process(fd).map_err(|errno| match errno {
        // It may be ending.
        Errno(libc::EAGAIN | libc::EACCES) => {
            LinkError::Later(format!("another server process of this data directory has {FILE_NAME}"))
        }
        errno => unusable(errno),
    })?;
    let mut head = [0; HEAD_LEN_BYTES];
    read_exactly(fd, &mut head).map_err(unusable)?;
    check_head(&head).map_err(unusable)?;
    let len_bytes = real::status(fd).map_err(unusable)?.len_bytes;
    if len_bytes != FILE_LEN_BYTES {
        return Err(unusable(format!("it has {len_bytes} bytes, expected {FILE_LEN_BYTES}")));
    }
    let words = real::map_words(fd, FILE_LEN_BYTES as usize / 8).map_err(unusable)?;
    Ok(OpenedFile { file: UnsentFile::new(words), fd })
}

fn read_exactly(fd: RawFd, out: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match real::read_at(fd, rest, done as u64) {
            Ok(0) => return Err(Errno::EIO),
            Ok(len) => done += len,
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl OpenedFile {
    /// The node must have what it confirmed to an earlier process of the same attachment.
    ///
    /// # Errors
    /// [`LinkError::Final`].
    pub fn check_not_older(&self, generation: u64, next_seq: Seq) -> Result<(), LinkError> {
        let mut head = [0; HEAD_LEN_BYTES];
        read_exactly(self.fd, &mut head).map_err(unusable)?;
        match confirmed(&head).map_err(unusable)? {
            Some(last) if last.generation == generation && last.durable > next_seq => {
                Err(LinkError::Final(format!(
                    "the storage node has lost acknowledged data: it confirmed byte {} to an earlier process of this server, and \
                     has {next_seq}; see --accept-older of `redoubt run`",
                    last.durable
                )))
            }
            _ => Ok(()),
        }
    }

    /// Sends what an earlier process of this attachment has left.
    ///
    /// # Errors
    /// [`LinkError`]; nothing is lost by it.
    pub fn send_left(&self, peer: &Peer) -> Result<(), LinkError> {
        let mut head = [0; HEAD_LEN_BYTES];
        read_exactly(self.fd, &mut head).map_err(unusable)?;
        if !may_keep(&head).map_err(unusable)? {
            return Ok(());
        }
        let mut bytes = vec![0; FILE_LEN_BYTES as usize];
        read_exactly(self.fd, &mut bytes).map_err(unusable)?;
        let Contents { kept, .. } = read(&bytes).map_err(unusable)?;
        let Some(kept) = kept else { return Ok(()) };
        if kept.generation != peer.generation {
            return Err(unusable(format!(
                "it holds {} bytes of generation {}, and this is generation {}; start the server with `redoubt \
                 run`, which sends them",
                kept.unconfirmed_bytes(),
                kept.generation,
                peer.generation
            )));
        }
        if kept.damaged_bytes() > 0 {
            return Err(unusable(format!("its last {} bytes are damaged", kept.damaged_bytes())));
        }
        let sent_bytes = send(&peer.connector, peer.announced, &peer.volume, &kept, &bytes)?;
        self.file.note_nothing_kept();
        if sent_bytes > 0 {
            message::note(&format!(
                "sent {sent_bytes} bytes that an earlier process of this server had left"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(missing_docs, reason = "used by the tests of other modules")]
pub mod tests {
    use super::*;
    use redoubt_resend_queue::layout::new_head;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// A data directory with the file in it, as `redoubt run` makes it.
    pub fn make(datadir: &Path) {
        let path = datadir.join(FILE_NAME);
        std::fs::write(&path, new_head("0123456789abcdef0123456789abcdef").unwrap()).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(FILE_LEN_BYTES).unwrap();
    }

    /// A mapped file; its directory is gone.
    pub fn mapped() -> UnsentFile {
        let datadir = tempfile::tempdir().unwrap();
        make(datadir.path());
        open(datadir.path().as_os_str().as_bytes()).unwrap().file
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        let datadir = tempfile::tempdir().unwrap();
        let path = datadir.path().join(FILE_NAME);
        let refusal = || match open(datadir.path().as_os_str().as_bytes()) {
            Ok(_) => panic!("it was opened"),
            Err(error) => {
                assert!(error.is_final(false));
                error.to_string()
            }
        };
        assert!(refusal().contains("redoubt run"));
        std::fs::write(&path, "x").unwrap();
        assert!(refusal().contains(FILE_NAME));
        make(datadir.path());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(FILE_LEN_BYTES - 8).unwrap();
        assert!(refusal().contains("expected"));
        std::fs::remove_file(&path).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        make(elsewhere.path());
        std::os::unix::fs::symlink(elsewhere.path().join(FILE_NAME), &path).unwrap();
        assert!(refusal().contains(FILE_NAME));
    }
}
