//! Room on the file systems that a node writes to.
//!
//! A separate thread reads the figures: a file system that does not answer (a network's, mostly) must not delay the
//! node's status. The status then shows the last figures.

use crate::place::Part;
use redoubt_sync::{Mutex, thread};
use redoubt_wire::control::Room;
use std::collections::BTreeSet;
use std::io::Result;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Looks for as long as it lives.
pub struct RoomWatch {
    newest: Arc<Mutex<Vec<Room>>>,
    /// Dropped with this, which ends the thread.
    _lives: Sender<()>,
}

impl RoomWatch {
    /// Looks at a node's data directory, and where the links in it lead.
    pub fn begin(data_directory: &Path) -> Self {
        let newest = Arc::new(Mutex::new(Vec::new()));
        let (lives, lived) = channel();
        let (found, directory) = (Arc::clone(&newest), data_directory.to_owned());
        let watch = move || {
            loop {
                match rooms(&directory) {
                    Ok(rooms) => *found.lock() = rooms,
                    Err(error) => {
                        tracing::warn!(event = "free_space_unknown", %error, "cannot measure free space")
                    }
                }
                if lived.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("room".to_owned()).spawn(watch) {
            tracing::warn!(event = "free_space_thread_failed", %error, "cannot start the thread that measures free space");
        }
        Self { newest, _lives: lives }
    }

    /// As of the last look; empty before the first.
    pub fn newest(&self) -> Vec<Room> {
        self.newest.lock().clone()
    }
}

/// Each file system once, under the first directory found on it: the data directory first.
fn rooms(data_directory: &Path) -> Result<Vec<Room>> {
    let mut seen = BTreeSet::new();
    let mut rooms = Vec::new();
    let mut add = |directory: PathBuf| -> Result<()> {
        if seen.insert(std::fs::metadata(&directory)?.dev()) {
            let space = rustix::fs::statvfs(&directory)?;
            rooms.push(Room {
                total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
                free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
                directory: directory.display().to_string(),
            });
        }
        Ok(())
    };
    add(data_directory.to_owned())?;
    for volume in std::fs::read_dir(data_directory.join("volumes"))? {
        for part in Part::directories(&volume?.path()) {
            // A volume may be deleted meanwhile.
            if let Ok(target) = std::fs::canonicalize(part) {
                let _ = add(target);
            }
        }
    }
    Ok(rooms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_is_there_once_also_where_a_link_leads() {
        let (here, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        for volume in ["a", "b"] {
            let volume = here.path().join("volumes").join(volume);
            std::fs::create_dir_all(volume.join("log")).unwrap();
            std::os::unix::fs::symlink(memory.path(), volume.join("pages")).unwrap();
            // A link to a raw device, and one to nowhere.
            std::os::unix::fs::symlink("/dev/null", volume.join("journal")).unwrap();
        }
        std::os::unix::fs::symlink("/no/such/place", here.path().join("volumes/a/x")).unwrap();
        let is_other =
            std::fs::metadata(here.path()).unwrap().dev() != std::fs::metadata(memory.path()).unwrap().dev();
        let rooms = rooms(here.path()).unwrap();
        let expected: Vec<_> = [here.path()].into_iter().chain(is_other.then_some(memory.path())).collect();
        assert_eq!(rooms.iter().map(|room| Path::new(&room.directory)).collect::<Vec<_>>(), expected);
        assert!(
            rooms.iter().all(|room| room.total_bytes >= room.free_bytes && room.total_bytes > 0),
            "{rooms:?}"
        );
    }

    #[test]
    fn who_watches_sees_it_and_the_thread_ends_with_the_node() {
        let here = tempfile::tempdir().unwrap();
        std::fs::create_dir(here.path().join("volumes")).unwrap();
        let watch = RoomWatch::begin(here.path());
        redoubt_test_support::wait::until("the room of the directory", || !watch.newest().is_empty());
        let newest = Arc::downgrade(&watch.newest);
        drop(watch);
        redoubt_test_support::wait::until("the end of the watching thread", || newest.strong_count() == 0);
    }
}
