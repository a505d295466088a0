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

/// After a failure or the last try: the server's error log names the file no more.
const ENDED: u32 = SENT_MAX + 1;

/// The files that are named already, and how often each was sent. There is no further try after a failure.
#[derive(Default)]
pub struct NamedFiles {
    sent: BTreeMap<Vec<u8>, u32>,
    /// The server's error log has the message that there are too many.
    is_full_named: bool,
}

/// Reaction to a file that the volume does not have.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    Send,
    /// It is not sent, for the first time, because of a limit.
    Name(&'static str),
    Nothing,
}

impl NamedFiles {
    /// Counts another try with this file.
    fn next(&mut self, path: &[u8]) -> Reaction {
        if !self.sent.contains_key(path) && self.sent.len() >= NAMED_MAX {
            let was_named = std::mem::replace(&mut self.is_full_named, true);
            return if was_named {
                Reaction::Nothing
            } else {
                Reaction::Name("there were too many such files")
            };
        }
        let sent = self.sent.entry(path.to_vec()).or_default();
        *sent = sent.saturating_add(1);
        match *sent {
            ..=SENT_MAX => Reaction::Send,
            ENDED => Reaction::Name("it was sent too often"),
            _ => Reaction::Nothing,
        }
    }

    /// There is no further try with this file.
    fn end(&mut self, path: &[u8]) {
        self.sent.insert(path.to_vec(), ENDED);
    }
}

/// The volume does not have this file, and a write of it was dropped.
pub fn found(content: &Content, files: &PlainFiles, named: &mut NamedFiles, path: &[u8]) {
    let path_text = show(path);
    let failure = match named.next(path) {
        Reaction::Nothing => return,
        Reaction::Name(limit) => {
            format!("{limit}, and neither this nor a later one like it is sent or named")
        }
        Reaction::Send => match send(content, files, path) {
            Ok(()) => {
                message::error(&format!(
                    "{path_text} was put into the data directory from outside, and the volume did not have it; it is sent whole. \
                     Other files of its table that the server only reads (.frm) are not: dump the table, drop it, and load the \
                     dump before the next start, which moves files that the volume does not have to .redoubt-orphans"
                ));
                return;
            }
            Err(reason) => {
                named.end(path);
                reason
            }
        },
    };
    message::error(&format!(
        "{path_text} was put into the data directory from outside, and the volume does not have it: changes of it stay only on \
         this host ({failure}). To keep it, stop the server, take the file from .redoubt-orphans after the next `redoubt run`, and \
         create it through the server"
    ));
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
            assert_eq!(named.next(b"d/t.MYD"), Reaction::Send);
        }
        assert!(matches!(named.next(b"d/t.MYD"), Reaction::Name(_)));
        assert_eq!(named.next(b"d/t.MYD"), Reaction::Nothing);
    }

    #[test]
    fn only_the_first_of_too_many_files_is_named() {
        let mut named = NamedFiles::default();
        for number in 0..NAMED_MAX {
            assert_eq!(named.next(number.to_string().as_bytes()), Reaction::Send);
        }
        assert!(matches!(named.next(b"one more"), Reaction::Name(_)));
        assert_eq!(named.next(b"another"), Reaction::Nothing);
        assert_eq!(named.next(b"0"), Reaction::Send, "a known one is sent again");
    }

    #[test]
    fn file_that_cannot_be_sent_is_named_once() {
        let mut named = NamedFiles::default();
        assert_eq!(named.next(b"d/t.MYD"), Reaction::Send);
        named.end(b"d/t.MYD");
        assert_eq!(named.next(b"d/t.MYD"), Reaction::Nothing);
    }
}
