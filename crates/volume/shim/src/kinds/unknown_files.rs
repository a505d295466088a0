//! Plain files that the server writes and the volume does not have: they were put into the data directory from outside.
//!
//! The node drops such a write, because it does not know the content before it. So the whole file is sent, and the server's
//! error log names it: again if a file was put there again, but not for ever.

use super::plain::{self, PlainFiles};
use crate::base::message::{self, show};
use crate::base::paths::absolute;
use crate::base::real::{self, Errno};
use crate::content::Content;
use std::collections::BTreeMap;

/// Longest file that is sent. Calls that change names wait meanwhile.
const SENT_BYTES_MAX: u64 = 256 << 20;
/// Files that are named.
const NAMED_MAX: usize = 1000;
/// How often a file of one name is sent.
const SENT_MAX: u32 = 8;

/// The files that are named already, and how often each was sent. There is no further try after a failure.
#[derive(Default)]
pub struct NamedFiles(BTreeMap<Vec<u8>, u32>);

impl NamedFiles {
    /// Counts another try with this file. `None`: there is none left.
    fn next(&mut self, path: &[u8]) -> Option<&mut u32> {
        if !self.0.contains_key(path) && self.0.len() >= NAMED_MAX {
            return None;
        }
        let sent = self.0.entry(path.to_vec()).or_default();
        *sent += 1;
        (*sent <= SENT_MAX).then_some(sent)
    }
}

/// The volume does not have this file, and a write of it was dropped.
pub fn found(content: &Content, files: &PlainFiles, named: &mut NamedFiles, path: &[u8]) {
    let Some(sent) = named.next(path) else { return };
    let path_text = show(path);
    match send(content, files, path) {
        Ok(()) => message::error(&format!(
            "{path_text} was put into the data directory from outside, and the volume did not have it; it is sent whole. Other \
             such files stay only on this host until the server writes them"
        )),
        Err(reason) => {
            *sent = SENT_MAX;
            message::error(&format!(
                "{path_text} was put into the data directory from outside, and the volume does not have it: changes of it stay \
                 only on this host ({reason}). To keep it, stop the server, take the file from .redoubt-orphans after the next \
                 `redoubt run`, and create it through the server"
            ));
        }
    }
}

fn send(content: &Content, files: &PlainFiles, path: &[u8]) -> Result<(), String> {
    if path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err("it is outside of the data directory".to_owned());
    }
    // Its name stays as it is meanwhile.
    let lock = content.names.lock_shared();
    let len_bytes = || real::status_of(&absolute(&content.datadir, path)?).map(|status| status.len_bytes);
    let cannot = |error: Errno| format!("it cannot be sent: {}", std::io::Error::from_raw_os_error(error.0));
    let len_bytes = len_bytes().map_err(cannot)?;
    if len_bytes > SENT_BYTES_MAX {
        return Err(format!("it has {len_bytes} bytes, and at most {SENT_BYTES_MAX} are sent"));
    }
    plain::send_whole(content, files, &lock, path).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_one_name_is_sent_again_but_not_for_ever() {
        let mut named = NamedFiles::default();
        for _ in 0..SENT_MAX {
            assert!(named.next(b"d/t.MYD").is_some());
        }
        assert!(named.next(b"d/t.MYD").is_none());
        for number in 1..NAMED_MAX {
            assert!(named.next(number.to_string().as_bytes()).is_some());
        }
        assert!(named.next(b"one more").is_none());
    }

    #[test]
    fn file_that_cannot_be_sent_is_named_once() {
        let mut named = NamedFiles::default();
        *named.next(b"d/t.MYD").unwrap() = SENT_MAX;
        assert!(named.next(b"d/t.MYD").is_none());
    }
}
