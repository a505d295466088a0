//! Requests of a reader to a node: a volume as the files of a data directory, without taking it over.
//!
//! A view is either the volume as it is at each request ([`LIVE`]), or a snapshot that the node retains for as long as
//! the connection that began it. Any number of connections may read a view.

use crate::control::VolumeEntry;
use serde::{Deserialize, Serialize};

/// The view of what is there now.
pub const LIVE: u64 = 0;

/// Most bytes of a file in one [`ViewRequest::Read`].
pub const MAX_READ_LEN_BYTES: u32 = 8 << 20;

/// A request about a view of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum ViewRequest {
    /// Begin to read.
    Begin {
        /// Keep this moment, as a killed server leaves it. Otherwise nothing is kept, and the view is [`LIVE`].
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
    /// Bytes of a file, as far as it goes; the answer says how long it is.
    Read {
        /// The view.
        view: u64,
        /// The file's number, from [`ViewReply::Stat`].
        file: u32,
        /// From where.
        offset_bytes: u64,
        /// How many; at most [`MAX_READ_LEN_BYTES`].
        len_bytes: u32,
    },
    /// The redo log as it is now. From the first such request on, the log is kept for this connection from where it has
    /// come to.
    Log {
        /// Redo before this is known. `None`: from the server's checkpoint on.
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
        /// LSN up to which the view of a moment goes.
        end_lsn: u64,
    },
    /// To [`ViewRequest::Stat`]; `None`: nothing is there.
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
    /// The redo in the answer begins here. Not what was asked for: the log file is another one, all before is void.
    pub start_lsn: u64,
    /// It ends here.
    pub end_lsn: u64,
}
