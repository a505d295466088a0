//! Files that an administrator removed from the data directory by hand, and that the volume still has.
//!
//! `redoubt run` decides which these are, and lists them in the file `.redoubt-removed`: relative paths, each ended by a
//! zero byte. They leave the volume before the server changes anything. The list stays until the next `redoubt run`; to remove
//! a file twice is harmless.

use super::Content;
use crate::base::message::{self, show};
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use redoubt_wire::stream::StreamFrame;

const NAME: &[u8] = b".redoubt-removed";

/// Removes the listed files from the volume. A file that is there again stays.
///
/// # Errors
/// The number of the system's error: of the list, or `EIO` when the stream is dead.
pub fn send(content: &Content) -> Result<(), i32> {
    let sent = match read_list(content) {
        Ok(None) => return Ok(()),
        Ok(Some(list)) => send_listed(content, &list),
        Err(errno) => {
            message::error(&format!(
                "{} cannot be read: {errno}; start the server with `redoubt run` again, which writes the list again",
                show(NAME)
            ));
            Err(errno)
        }
    };
    sent.map_err(|errno| errno.0)
}

fn read_list(content: &Content) -> Result<Option<Vec<u8>>, Errno> {
    let local = absolute(&content.datadir, NAME)?;
    let fd = match real::open_file(&local, libc::O_RDONLY | libc::O_CLOEXEC, 0) {
        Ok(fd) => fd,
        Err(Errno(libc::ENOENT)) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let read = || {
        let mut list = vec![0; real::status(fd)?.len_bytes as usize];
        let len = real::read_at(fd, &mut list, 0)?;
        // A list that was cut would name another file.
        if len != list.len() || !list.ends_with(&[0]) {
            return Err(Errno::EIO);
        }
        Ok(Some(list))
    };
    let list = read();
    let _ = real::close_file(fd);
    list
}

fn send_listed(content: &Content, list: &[u8]) -> Result<(), Errno> {
    let _lock = content.names.lock_exclusive();
    for path in list.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
        match absolute(&content.datadir, path).and_then(|local| real::status_of(&local)) {
            Ok(_) => message::note(&format!("{} is there again, and stays in the volume", show(path))),
            Err(Errno(libc::ENOENT)) => drop(content.stream.append(&StreamFrame::Unlink { path })?),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
