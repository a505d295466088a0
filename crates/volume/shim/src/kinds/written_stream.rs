//! stdio streams that are open for writing on a plain file.
//!
//! The C library writes them by calls that are not intercepted. So the file is sent when the stream is flushed or closed:
//! whole the first time, and from then on only what was added, as long as nothing before it can have changed. A log that is
//! flushed line by line costs what is written to it.
//!
//! A stream that may write anywhere is sent whole each time. When a stream is closed, the beginning of the file is compared
//! with the checksum of what was sent, and the file is sent whole if they differ.
//!
//! The descriptor of a stream is followed like any other, so that a sync of it waits for the node.
//!
//! Lock order: names, this stream, the file.

use crate::base::real::{self, Errno};
use crate::content::Content;
use crate::content::names::NamesLock;
use crate::kinds::plain::{PlainFile, Prefix, prefix_of};
use redoubt_locks::IgnorePoison;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Where a stream writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// At the end of the file.
    Appends,
    /// At its position, which is at the end unless the program moves it.
    AtPosition,
    /// Anywhere: it can read, too.
    Anywhere,
}

impl Growth {
    /// For the mode of fopen; `None`: it only reads.
    pub fn of_mode(mode: &[u8]) -> Option<Self> {
        let has = |byte| mode.contains(&byte);
        match mode.first()? {
            _ if has(b'+') => Some(Self::Anywhere),
            b'a' => Some(Self::Appends),
            b'w' => Some(Self::AtPosition),
            _ => None,
        }
    }

    /// The flags of a descriptor with this mode.
    pub const fn flags(self) -> i32 {
        match self {
            Self::Appends => libc::O_WRONLY | libc::O_APPEND,
            Self::AtPosition => libc::O_WRONLY,
            Self::Anywhere => libc::O_RDWR,
        }
    }
}

/// Beginning of a file that the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    prefix: Prefix,
    /// Device and inode of the file, and its changes by others.
    of: ((u64, u64), u64),
}

/// A stream.
#[derive(Debug)]
pub struct WrittenStream {
    file: Arc<PlainFile>,
    growth: Growth,
    /// The program has moved its position.
    is_moved: AtomicBool,
    /// `None` before the first time.
    sent: Mutex<Option<Sent>>,
}

impl WrittenStream {
    /// A stream on this file.
    pub fn new(file: Arc<PlainFile>, growth: Growth) -> Self {
        Self { file, growth, is_moved: AtomicBool::new(false), sent: Mutex::default() }
    }

    /// A stream on a descriptor that was followed: the node has the file as it is.
    ///
    /// # Errors
    /// That of the local calls.
    pub fn on_descriptor(file: Arc<PlainFile>, growth: Growth, fd: RawFd) -> Result<Self, Errno> {
        // The descriptor may be for writing only.
        let readable = real::reopen(fd)?;
        let fd = readable.as_raw_fd();
        let of = (real::identity(fd)?, file.changes());
        let sent = Sent { prefix: prefix_of(fd, real::status(fd)?.len_bytes)?, of };
        Ok(Self { sent: Mutex::new(Some(sent)), ..Self::new(file, growth) })
    }

    /// Its file.
    pub fn file(&self) -> &Arc<PlainFile> {
        &self.file
    }

    /// The program moves the position, but not just to the end.
    pub fn moved(&self) {
        self.is_moved.store(true, Ordering::Release);
    }

    /// After a flush.
    ///
    /// # Errors
    /// That of the local calls, or `EIO`.
    pub fn flushed(&self, content: &Content, lock: &NamesLock<'_>) -> Result<(), Errno> {
        let only_grows = match self.growth {
            Growth::Appends => true,
            Growth::AtPosition => !self.is_moved.load(Ordering::Acquire),
            Growth::Anywhere => false,
        };
        self.send(content, lock, |_, len_bytes, prefix| Ok(only_grows && prefix.len_bytes <= len_bytes))
    }

    /// After it was closed.
    ///
    /// # Errors
    /// That of the local calls, or `EIO`.
    pub fn closed(&self, content: &Content, lock: &NamesLock<'_>) -> Result<(), Errno> {
        self.send(content, lock, |fd, _, prefix| Ok(prefix_of(fd, prefix.len_bytes)? == *prefix))
    }

    /// `is_kept`: the beginning of the file is as it was sent.
    fn send(
        &self,
        content: &Content,
        lock: &NamesLock<'_>,
        is_kept: impl FnOnce(RawFd, u64, &Prefix) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let mut sent = self.sent.lock().ignore_poison();
        // After an error the whole file is sent.
        let before = sent.take();
        let mut of = None;
        let now = self.file.send_content(content, lock, |fd, len_bytes| {
            let found = (real::identity(fd)?, self.file.changes());
            of = Some(found);
            match before {
                Some(Sent { prefix, of }) if of == found && is_kept(fd, len_bytes, &prefix)? => {
                    Ok(Some(prefix))
                }
                _ => Ok(None),
            }
        })?;
        *sent = now.zip(of).map(|(prefix, of)| Sent { prefix, of });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_of_fopen_tells_where_a_stream_writes() {
        for (mode, growth) in [
            ("a", Some(Growth::Appends)),
            ("ae", Some(Growth::Appends)),
            ("w", Some(Growth::AtPosition)),
            ("wbe", Some(Growth::AtPosition)),
            ("wb+", Some(Growth::Anywhere)),
            ("r+", Some(Growth::Anywhere)),
            ("a+", Some(Growth::Anywhere)),
            ("r", None),
            ("re", None),
            ("", None),
        ] {
            assert_eq!(Growth::of_mode(mode.as_bytes()), growth, "{mode}");
        }
    }
}
