//! Errors of the encryption of a volume's files, with their remedies.

use super::fscrypt::KeyIdentifier;
use std::io;
use std::path::PathBuf;

/// Error of the encryption of a volume's files.
#[derive(Debug, thiserror::Error)]
pub enum AtRestError {
    /// The node has no directory for keys.
    #[error("no directory for the keys of encrypted volumes; start the node with --volume-keys DIR")]
    NoKeyDirectory,
    /// Another node uses the directory of keys.
    #[error(
        "{} holds the volume keys of another node that runs: each node needs a directory of its own (--volume-keys)",
        directory.display()
    )]
    KeysInUse {
        /// The directory.
        directory: PathBuf,
    },
    /// There is no key.
    #[error(
        "its files are encrypted and the key {} is missing; restore that file from your copy, and restart the \
         node",
        path.display()
    )]
    KeyMissing {
        /// Expected path of the key file.
        path: PathBuf,
    },
    /// Others could read the key.
    #[error(
        "{} has mode {mode:04o}: other users of this host can read or replace the key; run chmod 0600 on it, and if \
         others may have read it, create a new volume and copy the data to it",
        path.display()
    )]
    KeyTooOpen {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The key file has the wrong owner.
    #[error(
        "{} belongs to user {owner}, not to the node's user ({expected}) or root: chown it",
        path.display()
    )]
    KeyOwner {
        /// The key file.
        path: PathBuf,
        /// Owner of the file, a user id.
        owner: u32,
        /// Required owner, a user id.
        expected: u32,
    },
    /// It is no key.
    #[error(
        "{} is not a volume key: it has {len_bytes} bytes, and a key is a file of {expected} random bytes",
        path.display()
    )]
    KeyLength {
        /// The key file.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The length of a key.
        expected: usize,
    },
    /// It is the key of another volume.
    #[error(
        "{} is the wrong key: {} is encrypted with key {wanted}, and this is {found}; put the volume's own key \
         there and restart the node",
        path.display(), directory.display()
    )]
    WrongKey {
        /// The key file.
        path: PathBuf,
        /// The volume's directory.
        directory: PathBuf,
        /// Key that the volume's files are encrypted with.
        wanted: KeyIdentifier,
        /// Key in the key file.
        found: KeyIdentifier,
    },
    /// The file system does not encrypt.
    #[error("{} cannot be encrypted: {remedy}", path.display())]
    Unsupported {
        /// Directory that should be encrypted.
        path: PathBuf,
        /// Reason and remedy.
        remedy: &'static str,
    },
    /// It is encrypted already, with another key or policy.
    #[error(
        "{} is encrypted already, with another key or another policy; use an unencrypted directory for a \
         volume with a key of its own",
        path.display()
    )]
    EncryptedOtherwise {
        /// The directory.
        path: PathBuf,
    },
    /// A raw device has no file system.
    #[error(
        "{} is a raw device, which no file system encrypts; put dm-crypt (cryptsetup) beneath it and create \
         the volume without --encrypted, or give the node a directory instead",
        path.display()
    )]
    RawDevice {
        /// The device.
        path: PathBuf,
    },
    /// Parts of a volume that is encrypted lie in clear, or have another key.
    #[error(
        "{} is not encrypted with key {wanted} as the volume it belongs to is: it was copied or restored without its \
         encryption, or is another one; nothing was opened. Put it into an empty directory that has the volume's \
         encryption (fscryptctl set_policy {wanted} DIR), and destroy the copy in clear",
        path.display()
    )]
    PartDiffers {
        /// The part's directory.
        path: PathBuf,
        /// Key that its files should be encrypted with.
        wanted: KeyIdentifier,
    },
    /// A volume that was created encrypted is in clear.
    #[error(
        "the volume was made encrypted, and {} lies in clear: it was copied or restored without its encryption; \
         nothing was opened. Put it into an empty directory that is encrypted with the volume's key \
         (fscryptctl add_key, fscryptctl set_policy), and destroy the copy in clear",
        path.display()
    )]
    InClear {
        /// The volume's directory.
        path: PathBuf,
    },
    /// An encrypted volume cannot be removed: its key is needed to find its parts.
    #[error(
        "{} is encrypted and has parts elsewhere (--log-path, --journal-path or --pages-path), which only its key \
         tells: {reason}. Without a key, remove {} and the directories log-*, journal-* and pages-* that are encrypted \
         with key {key} by hand",
        path.display(), path.display()
    )]
    Removing {
        /// The volume's directory.
        path: PathBuf,
        /// Its key.
        key: KeyIdentifier,
        /// Reason why its key is not available.
        reason: Box<AtRestError>,
    },
    /// A call failed.
    #[error("cannot {action} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// The attempted action.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl AtRestError {
    /// An I/O error with the attempted action.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { action, path: path.into(), source }
    }
}

/// Remedy, where the system's own error text gives none.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => {
            " (the kernel limits the keys of a user: /proc/sys/kernel/keys/maxkeys, maxbytes)"
        }
        _ => "",
    }
}
