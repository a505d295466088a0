//! The table of a tablespace file that was copied in: `t.frm`, and `t.par` of a partitioned one.
//!
//! MariaDB 11.2 and later import a table that they do not have yet: `t.frm` is copied in with `t.ibd`, and the server
//! reads it and never writes it. So no intercepted write would send it to the node, and the table would be gone with
//! this host.
//!
//! The node may have such a file, and then it must never have half of one: the content goes to another name, which
//! then replaces it.

use crate::base::message::{self, show};
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::content::Content;
use crate::content::names::NamesLock;
use redoubt_wire::Seq;
use redoubt_wire::stream::{FileKind, StreamFrame};
use std::os::fd::RawFd;

/// Longest definition that is sent. The server's own limit (`FRM_MAX_SIZE`) is 1 MiB.
const MOST_BYTES: usize = 4 << 20;
const EXTENSIONS: [&[u8]; 2] = [b".frm", b".par"];
const SENT_UNDER: &[u8] = b".importing";
/// Separator between the names of a table and of a partition.
const PARTITION: &[u8] = b"#P#";

/// Path of the table whose tablespace, or partition, is at `path`, without extension.
fn table(path: &[u8]) -> Option<&[u8]> {
    let stem = path.strip_suffix(b".ibd")?;
    let partition = stem.windows(PARTITION.len()).position(|part| part.eq_ignore_ascii_case(PARTITION));
    stem.get(..partition.unwrap_or(stem.len()))
}

/// Sends what is there beside the tablespace file at `path`. Returns the end of it in the stream, if anything was sent.
///
/// # Errors
/// That of reading the local file, or `EIO`.
pub fn send(content: &Content, _lock: &NamesLock<'_>, path: &[u8]) -> Result<Option<Seq>, Errno> {
    let Some(table) = table(path) else { return Ok(None) };
    let mut end = None;
    for extension in EXTENSIONS {
        let definition = [table, extension].concat();
        let local = absolute(&content.datadir, &definition)?;
        let fd = match real::open_file(&local, libc::O_RDONLY | libc::O_CLOEXEC, 0) {
            Ok(fd) => fd,
            Err(Errno(libc::ENOENT)) => continue,
            Err(errno) => return Err(errno),
        };
        let sent = send_file(content, fd, &definition);
        let _ = real::close_file(fd);
        end = sent?.or(end);
    }
    Ok(end)
}

fn send_file(content: &Content, fd: RawFd, path: &[u8]) -> Result<Option<Seq>, Errno> {
    let status = real::status(fd)?;
    let len = usize::try_from(status.len_bytes).unwrap_or(usize::MAX);
    if !status.is_regular || len > MOST_BYTES {
        message::note(&format!("{} is no table definition, and is not sent", show(path)));
        return Ok(None);
    }
    let mut data = vec![0; len];
    let read = super::adopt::read_full(fd, &mut data, 0)?;
    data.truncate(read);
    let under = [path, SENT_UNDER].concat();
    let stream = &content.stream;
    stream.append(&StreamFrame::Create { path: &under, kind: FileKind::Plain, mode: status.mode })?;
    if !data.is_empty() {
        stream.append(&StreamFrame::Write { path: &under, offset_bytes: 0, data: &data })?;
    }
    stream.append(&StreamFrame::Rename { from: &under, to: path }).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_files() {
        for (path, expected) in [
            (&b"d/t.ibd"[..], Some(&b"d/t"[..])),
            (b"d/t#P#p0.ibd", Some(b"d/t")),
            (b"d/t#p#p0#sp#s1.ibd", Some(b"d/t")),
            (b"d/t#P.ibd", Some(b"d/t#P")),
            (b"undo001", None),
            (b"ibdata1", None),
        ] {
            assert_eq!(table(path), expected, "{}", show(path));
        }
    }
}
