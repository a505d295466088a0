//! Volumes that are encrypted on the node's disks: none of their data are there in clear, no acknowledged commit is
//! lost, and without the right key a volume, and only it, stays shut. Needs root for loop devices, and skips the tests
//! without.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test, helpers included")]

mod keys;
mod places;
mod servers;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redoubt_harness::command::{Outcome, PATIENCE};
use redoubt_harness::node::Node;
use redoubt_node::at_rest::fscrypt::{Encryption, read_state};
use redoubt_node::at_rest::{AtRest, Unlocked, VolumeKeys};
use redoubt_test_support::Mount;
use redoubt_test_support::skip;
use redoubt_workload::launcher::find_redoubt;

/// The encrypted volume.
const VOLUME: &str = "secret";
const NODE_ARGS: [&str; 8] =
    ["--ring", "32MiB", "--batch", "1MiB", "--apply-interval", "1", "--journal", "8MiB"];

/// `None`, with a message, where there can be none.
fn encrypting_disk(len_bytes: u64) -> Option<Mount> {
    let disk = match Mount::encrypting_disk(len_bytes) {
        Ok(disk) => disk,
        Err(reason) => {
            skip("a file system that encrypts", reason);
            return None;
        }
    };
    let state = state(disk.path());
    if state == Encryption::Clear {
        return Some(disk);
    }
    skip("a file system that encrypts", format!("this kernel does not encrypt files ({state:?})"));
    None
}

fn state(directory: &Path) -> Encryption {
    read_state(&File::open(directory).unwrap()).unwrap()
}

/// A node whose data is on an encrypting disk, and whose keys are not. Dropped in this order.
struct Setup {
    node: Node,
    keys: tempfile::TempDir,
    disk: Mount,
}

impl Setup {
    fn new(len_bytes: u64, args: &[&str]) -> Option<Self> {
        let disk = encrypting_disk(len_bytes)?;
        let keys = tempfile::tempdir().unwrap();
        let keys_argument = ["--volume-keys", keys.path().to_str().unwrap()];
        let args = [&NODE_ARGS[..], &keys_argument, args].concat();
        let node = Node::in_directory(&find_redoubt().unwrap(), disk.path(), &args).unwrap();
        Some(Self { node, keys, disk })
    }

    fn key_file(&self) -> PathBuf {
        self.keys.path().join(format!("{VOLUME}.key"))
    }

    fn volume_directory(&self, volume: &str) -> PathBuf {
        self.node.data().join("volumes").join(volume)
    }

    /// With the volume's key, while no node runs.
    fn with_key<T>(&self, work: impl FnOnce(&Unlocked) -> T) -> T {
        let at_rest = Arc::new(AtRest::new(VolumeKeys::open(self.keys.path()).unwrap()));
        work(&at_rest.unlock(VOLUME, &self.volume_directory(VOLUME)).unwrap().unwrap())
    }

    /// A `redoubt volume` command.
    fn volume_command(&self, args: &[&str]) -> Outcome {
        let address = self.node.address().to_string();
        let args = [&["volume"][..], args, &["--node", &address]].concat();
        Outcome::of(self.node.redoubt_bin(), args, PATIENCE).unwrap()
    }

    fn create_encrypted(&self) -> String {
        self.volume_command(&["create", VOLUME, "--encrypted"]).require_success().unwrap()
    }

    fn state_and_reason(&self, volume: &str) -> (String, String) {
        let status = self.node.status(volume).unwrap();
        let text = |name: &str| status["volumes"][0][name].as_str().unwrap().to_owned();
        (text("state"), text("reason"))
    }

    /// Requires that the volume is refused to every client, for a reason that has all parts, and that no other volume
    /// is.
    fn require_refused(&self, parts: &[&str]) {
        let (state, reason) = self.state_and_reason(VOLUME);
        assert_eq!(state, "unusable", "{reason}");
        assert!(parts.iter().all(|part| reason.contains(part)), "{parts:?}: {reason}");
        let datadir = tempfile::tempdir().unwrap();
        let (address, datadir) = (self.node.address().to_string(), datadir.path().to_str().unwrap());
        let run = ["run", "--node", &address, "--volume", VOLUME, "--datadir", datadir, "--", "mariadbd"];
        let outcome = Outcome::of(self.node.redoubt_bin(), run, PATIENCE).unwrap();
        outcome.require_failure(1, parts).unwrap();
        let (state, reason) = self.state_and_reason("open");
        assert_eq!(state, "ready", "{reason}");
    }
}
