//! Damage of a volume on a node's disks, and the scrub that finds it, in replies on control connections.

use serde::{Deserialize, Serialize};

/// A page that is in quarantine: it cannot be built, and reads of it fail. Or a plain file whose contents are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuarantinedPage {
    /// Path of its file.
    pub file: String,
    /// Number of the incarnation of its tablespace.
    pub object: u32,
    /// Id of its tablespace.
    pub space: u32,
    /// Its number; `None`: all pages of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_no: Option<u32>,
    /// Start of the first record that was left out.
    pub lsn: u64,
    /// Why it cannot be built.
    pub reason: String,
    /// Of a plain file that is lost: path at the node for a copy, which the next server start takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<String>,
}

/// The scrub of a volume: passes over everything that is stored of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubStatus {
    /// Seconds between the beginnings of two passes; `None`: there are none by schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_s: Option<u64>,
    /// Seconds for which the volume was open since the end of the last complete pass, or since it is scrubbed.
    pub age_s: u64,
    /// There was a complete pass.
    pub has_completed: bool,
    /// The part that the pass under way reads; empty: there is no pass.
    pub stage: String,
    /// Bytes that the pass has read.
    pub checked_bytes: u64,
    /// Bytes that it reads about.
    pub total_bytes: u64,
    /// Damage of the log that the server or the node may still need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_damage: Option<String>,
    /// Places that the pass under way, or the last one, did not check.
    pub unchecked: u64,
    /// The first of them, with the reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub first_unchecked: String,
}

/// How far a check of a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckProgress {
    /// It has read everything.
    pub is_complete: bool,
    /// The part that it reads.
    pub stage: String,
    /// Bytes read.
    pub checked_bytes: u64,
    /// Bytes to read, about.
    pub total_bytes: u64,
    /// Pages read.
    pub pages: u64,
    /// Plain files read.
    pub files: u64,
    /// Plain files among them that had no checksum to compare with.
    pub new_files: u64,
    /// Bytes of the log read.
    pub log_bytes: u64,
    /// Damaged pages that were rebuilt and written again.
    pub repaired: u64,
    /// Number of damaged pages and files of the volume, also those known before.
    pub damaged: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<QuarantinedPage>,
    /// As in [`ScrubStatus`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_damage: Option<String>,
    /// Places that could not be read.
    pub unchecked: u64,
    /// The first of them, with the reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub first_unchecked: String,
}
