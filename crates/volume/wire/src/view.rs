//! Requests of a reader to a node: a volume as the files of a data directory, without taking it over.
//!
//! A view is either the volume as it is at each request ([`LIVE`]), or a snapshot that the node retains for as long as
//! the connection that began it. Any number of connections may read a view.

use crate::control::VolumeEntry;
use serde::{Deserialize, Serialize};

/// The view of the current state.
pub const LIVE: u64 = 0;

/// Limit of bytes in one [`ViewRequest::Read`].
pub const MAX_READ_LEN_BYTES: u32 = 8 << 20;

/// A request about a view of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum ViewRequest {
    /// Begin a view.
    Begin {
        /// Whether to take a snapshot, with the state that a killed server leaves. Otherwise the view is [`LIVE`].
        moment: bool,
    },
    /// All names.
    Names {
        /// The view.
        view: u64,
    },
    /// Looks up a path.
    Stat {
        /// The view.
        view: u64,
        /// Relative path.
        path: String,
    },
    /// Bytes of a file, up to its end; the answer has its length.
    Read {
        /// The view.
        view: u64,
        /// The file's number, from [`ViewReply::Stat`].
        file: u32,
        /// Offset in the file.
        offset_bytes: u64,
        /// Number of bytes; at most [`MAX_READ_LEN_BYTES`].
        len_bytes: u32,
    },
    /// The current redo log. From the first such request on, the node retains the log for this connection from the
    /// returned position on.
    Log {
        /// The reader has the redo before this LSN. `None`: from the server's checkpoint on.
        from_lsn: Option<u64>,
    },
}

/// The node's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "view", rename_all = "snake_case")]
pub enum ViewReply {
    /// To [`ViewRequest::Begin`].
    Begun {
        /// Number of the view.
        number: u64,
        /// Random id of the volume.
        volume_id: String,
        /// LSN up to which a snapshot goes.
        end_lsn: u64,
    },
    /// To [`ViewRequest::Stat`]; `None`: the path does not exist.
    Stat {
        /// The file or directory.
        found: Option<ViewFile>,
    },
    /// To [`ViewRequest::Read`]: the file is no longer there.
    Gone,
    /// To [`ViewRequest::Log`]. Data frames follow, with offsets that count from `start_lsn`, then another reply.
    Log(ViewLog),
}

/// A file or directory of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewFile {
    /// Its number; 0 for directories.
    pub file: u32,
    /// Its kind.
    pub entry: VolumeEntry,
}

/// The frame of the redo log file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewLog {
    /// Size of ib_logfile0.
    pub file_size_bytes: u64,
    /// First 512 bytes.
    pub header: Vec<u8>,
    /// Used bytes of the two checkpoint blocks.
    pub checkpoints: [Vec<u8>; 2],
    /// Start of the redo in the answer. If it is not the requested one, the log file is another one, and all earlier
    /// redo is void.
    pub start_lsn: u64,
    /// End of the redo in the answer.
    pub end_lsn: u64,
}
