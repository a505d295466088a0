//! Requests of the `redoubt` command to a node: JSON in frames of [`KIND_JSON`], file contents in [`KIND_DATA`].
//!
//! One request at a time; each is answered by one [`Reply`], after the data frames it announces, if any.
//! A file transfer is any number of data frames (u64 offset, bytes) ended by an empty data frame.
//!
//! A reply may be longer than a frame, since lists grow with the number of tables. Then it comes in pieces: frames of
//! [`KIND_JSON_PART`], and at last one of [`KIND_JSON`]. Requests are one frame.
//!
//! Unknown fields are ignored: they come from a later version, which sends a field that matters only to a peer whose
//! features have it ([`crate::greeting`]). 0.1.0 refuses them. An optional field of a reply needs no feature.

pub use crate::damage::{CheckProgress, QuarantinedPage, ScrubStatus};
use crate::error::WireError;
use crate::figures::{ApplyWorker, ChainClass, Times};
use crate::reader::Reader;
use crate::server_version::ServerVersion;
use crate::trace::Sample;
use crate::view::{ViewReply, ViewRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// JSON request or reply.
pub const KIND_JSON: u8 = 1;
/// A piece of a file: u64 offset, bytes. Empty payload: the file is complete.
pub const KIND_DATA: u8 = 2;
/// A piece of a JSON reply; the next frame continues it.
pub const KIND_JSON_PART: u8 = 3;
/// Longest piece of a JSON reply in one frame.
pub const MAX_PART_LEN_BYTES: usize = 1 << 20;
/// Longest JSON reply: names and lengths of some ten million files.
pub const MAX_REPLY_LEN_BYTES: usize = 2 << 30;
/// Longest name of an attaching client that a node keeps; it cuts a longer one.
pub const WHO_LIMIT_CHARACTERS: usize = 256;
/// Longest piece of a file in one data frame.
pub const MAX_DATA_LEN_BYTES: usize = 1 << 20;

/// A request of the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Create an empty volume.
    VolumeCreate {
        /// Its name.
        volume: String,
        /// Encrypt its files with a key of its own. Answered by [`Reply::Encrypted`].
        #[serde(default, skip_serializing_if = "is_false")]
        encrypted: bool,
    },
    /// Delete a volume and everything in it.
    VolumeDelete {
        /// Its name.
        volume: String,
        /// Delete even while a server is attached (the server is fenced), and a frozen volume.
        force: bool,
    },
    /// State of all volumes.
    Status,
    /// Take the volume over: new generation, older servers are fenced.
    Attach {
        /// Its name.
        volume: String,
        /// Name of the attaching process, for people (host, process id, datadir).
        who: String,
        /// Required server version, with the feature [`crate::greeting::SERVER_VERSION`]. `None`: a MariaDB 10.11.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<ServerVersion>,
        /// Generation of the volume as the client knows it, with the feature [`crate::greeting::SEEN_GENERATION`]. The
        /// node refuses the attach of any other. `None`: any generation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen_generation: Option<u64>,
    },
    /// Names, and checksums of all plain files, of everything received so far. No server is fenced.
    List {
        /// The volume.
        volume: String,
    },
    /// Contents of a plain file.
    Fetch {
        /// The volume.
        volume: String,
        /// Relative path.
        path: String,
    },
    /// Contents of a plain file from an offset on.
    FetchTail {
        /// The volume.
        volume: String,
        /// Relative path.
        path: String,
        /// Offset in bytes.
        from_bytes: u64,
    },
    /// Begin an export: the node applies everything and holds that state until [`Request::ExportEnd`].
    ExportBegin {
        /// The volume.
        volume: String,
    },
    /// Contents of any file of the state held by [`Request::ExportBegin`]; InnoDB files as a server would have them.
    ExportFile {
        /// The volume.
        volume: String,
        /// Relative path.
        path: String,
        /// Damaged pages are sent as they are stored, and reported at the end ([`Reply::Damaged`]), with the feature
        /// [`crate::greeting::DAMAGED_PAGES`]. Otherwise the first one ends the file with an error.
        #[serde(default, skip_serializing_if = "is_false")]
        with_damaged: bool,
    },
    /// End the export.
    ExportEnd {
        /// The volume.
        volume: String,
    },
    /// Begin an import into a new volume. The volume appears only when [`Request::ImportEnd`] succeeded.
    ImportBegin {
        /// Name of the new volume.
        volume: String,
        /// Name of the server family whose data it is ([`redoubt_types::Family::name`]); another one than MariaDB is of
        /// the feature [`crate::greeting::MYSQL`].
        #[serde(default = "mariadb", skip_serializing_if = "is_mariadb")]
        family: String,
        /// innodb_data_file_path of the source, in order: relative path, length in bytes.
        system_files: Vec<(String, u64)>,
        /// As for [`Request::VolumeCreate`].
        #[serde(default, skip_serializing_if = "is_false")]
        encrypted: bool,
    },
    /// A directory of the source.
    ImportDirectory {
        /// Relative path.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// A file of the source; its contents follow as data frames (offsets must rise; gaps are zero).
    ImportFile {
        /// Relative path.
        path: String,
        /// Permission bits.
        mode: u32,
        /// Length in bytes.
        len_bytes: u64,
        /// Tablespace (pages) or plain file.
        tablespace: bool,
    },
    /// The redo log: header and checkpoint blocks; the redo bytes from the checkpoint to the end follow as data
    /// frames (offset counts from the checkpoint LSN).
    ImportLog {
        /// Size of ib_logfile0.
        file_size_bytes: u64,
        /// First 512 bytes.
        header: Vec<u8>,
        /// Used bytes of the two checkpoint blocks.
        checkpoints: [Vec<u8>; 2],
        /// LSN of the first redo byte that follows.
        start_lsn: u64,
    },
    /// The redo log of MySQL, with the feature [`crate::greeting::MYSQL`]: the files from the one with the checkpoint
    /// on. The payload of their blocks follows as data frames (offset counts from `start_lsn`).
    ImportLogSet {
        /// In the order of the log.
        files: Vec<ImportedLogFile>,
        /// Position of the first redo byte that follows.
        start_lsn: u64,
    },
    /// Make the imported volume durable and visible.
    ImportEnd,
    /// Begin to measure the time of commits and page reads by stage ([`crate::trace`]). It ends with the connection.
    TraceBegin {
        /// The volume.
        volume: String,
        /// The number of commits or page reads for each measured one.
        one_in: u32,
    },
    /// The samples since the last such request.
    TraceTake {
        /// The volume.
        volume: String,
    },
    /// Read everything that is stored of the volume, with the feature [`crate::greeting::VOLUME_CHECK`]. The first such
    /// request of a connection begins it, and each continues it for about a second. Answered by [`Reply::Checked`].
    VolumeCheck {
        /// The volume.
        volume: String,
    },
    /// Read the volume as a data directory. No server is fenced.
    View {
        /// The volume.
        volume: String,
        /// The request about it.
        about: ViewRequest,
    },
}

/// A file of MySQL's redo log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportedLogFile {
    /// Relative path.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Its first blocks that are not zero, by their offset in bytes.
    pub blocks: Vec<(u32, Vec<u8>)>,
}

/// The node's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// Done.
    Done,
    /// The file was sent, but with damaged pages; unreadable ones are zeros.
    Damaged {
        /// Their number; of a plain file, that of the pieces.
        pages: u64,
        /// Number and defect of the first of them.
        first: Vec<String>,
    },
    /// Done, and the volume's files are encrypted.
    Encrypted {
        /// Location of the volume's key on the node's host.
        key_file: String,
        /// The key is new: there is no copy of it yet.
        key_is_new: bool,
    },
    /// The request failed.
    Failed {
        /// The same request may succeed later.
        retry: bool,
        /// For people: problem, location and remedy.
        message: String,
    },
    /// To Status.
    Status(NodeStatus),
    /// To Attach, List, ExportBegin, and to View for names.
    Attached(Attachment),
    /// To Fetch, FetchTail and ExportFile: the data frames follow.
    FileFollows {
        /// Length of the whole file.
        len_bytes: u64,
    },
    /// To TraceTake.
    Trace {
        /// Samples that are complete.
        samples: Vec<Sample>,
        /// Samples lost since the trace began: one half is missing, or there were too many.
        lost: u64,
    },
    /// To VolumeCheck.
    Checked(CheckProgress),
    /// To View, except for names ([`Reply::Attached`]) and contents ([`Reply::FileFollows`]).
    View(ViewReply),
}

/// A volume as handed to a server, or held for an export.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attachment {
    /// Random id of the volume, also written into the data directory.
    pub volume_id: String,
    /// Generation to present in each Hello.
    pub generation: u64,
    /// The volume has no redo log yet: the server must be bootstrapped.
    pub empty: bool,
    /// LSN of the end of the stream.
    pub end_lsn: u64,
    /// Directories and files, parents first.
    pub entries: Vec<VolumeEntry>,
    /// To ExportBegin, if the volume is frozen. Its files are sent only with `with_damaged` then, so that a client that
    /// does not know this field gets no export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<FrozenEnd>,
}

/// End of a frozen volume: the node cannot use its log after that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrozenEnd {
    /// LSN at the end.
    pub lsn: u64,
    /// Bytes of the log after it, at least. Their commits are acknowledged, and missing.
    pub bytes_after: u64,
    /// Position in the stream up to which plain files and pages may have later changes; the largest number: it is unknown.
    /// `None`: the volume is exactly that of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes_end: Option<u64>,
}

/// A directory or file of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeEntry {
    /// Relative path.
    pub path: String,
    /// Its kind.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes (0 for directories).
    pub len_bytes: u64,
    /// CRC-32C of the contents of a plain file, in the answer to [`Request::List`]. `None` there: a change was in
    /// progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<u32>,
}

/// Kinds of [`VolumeEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A plain file.
    Plain,
    /// InnoDB pages.
    Tablespace,
    /// ib_logfile0.
    RedoLog,
}

/// A server cannot start without this tablespace file: the system tablespace, undo tablespaces, MySQL's dictionary.
pub fn is_needed_to_start(tablespace_path: &str) -> bool {
    !tablespace_path.ends_with(".ibd") || tablespace_path == "mysql.ibd"
}

/// Space on a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// A directory on it that the node uses.
    pub directory: String,
    /// Its size.
    pub total_bytes: u64,
    /// Bytes available to a process without root's privileges.
    pub free_bytes: u64,
}

/// State of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Version of the node's package.
    pub version: String,
    /// Address it listens on.
    pub listen: String,
    /// Name of the abstract unix socket for servers on its host; `None`: there is none.
    #[serde(default)]
    pub local_socket: Option<String>,
    /// Its data directory.
    pub data_directory: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Memory in use by its volumes: received redo that is not applied, and its index.
    #[serde(default)]
    pub memory_used_bytes: u64,
    /// Limit of the memory of all volumes together.
    #[serde(default)]
    pub memory_limit_bytes: u64,
    /// The file systems that hold its directory and its volumes' parts, each once, as they were a few seconds ago.
    /// Raw devices are not among them.
    #[serde(default)]
    pub room: Vec<Room>,
    /// End of the validity of its certificate and the authority's, in seconds since 1970. `None`: it has none.
    #[serde(default)]
    pub certificate_expires_s: Option<i64>,
    /// Address of its status page, if it serves one.
    #[serde(default)]
    pub status_page: Option<String>,
    /// Its volumes, by name.
    pub volumes: Vec<VolumeStatus>,
}

/// State of a volume. Byte counters count since the node started unless named otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Name.
    pub name: String,
    /// Random id.
    pub volume_id: String,
    /// Identifier of the key that its files are encrypted with on the node's disks; `None`: they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted_with: Option<String>,
    /// `ready`, `attached`, `waiting`, `stopped`, `frozen` (readable only), `exporting`, or `unusable` (it could not be
    /// opened).
    pub state: String,
    /// Reason for its wait or stop.
    pub reason: String,
    /// Current generation.
    pub generation: u64,
    /// Name of the process that attached it last.
    pub attached_by: String,
    /// The newest server that ran on it; an older series is refused. `None`: none has run, or none since this is
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_server: Option<ServerVersion>,
    /// End of the validity of the connected server's certificate, in seconds since 1970. `None`: no server is
    /// connected, or it has no certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_certificate_expires_s: Option<i64>,
    /// Connections of servers.
    #[serde(default)]
    pub connections: u64,
    /// Those over the node's local socket.
    #[serde(default)]
    pub local_connections: u64,
    /// End of the received stream.
    pub w_lsn: u64,
    /// End of the durable stream.
    pub d_lsn: u64,
    /// The same as a position in bytes. `None`: the node is older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_seq: Option<u64>,
    /// End of the parsed stream.
    pub p_lsn: u64,
    /// Position up to which all changes are applied and in the page store.
    pub a_lsn: u64,
    /// The server's own checkpoint.
    pub server_checkpoint_lsn: u64,
    /// Bytes of the ring in use (W - A).
    pub ring_used_bytes: u64,
    /// Length of the ring in bytes.
    pub ring_len_bytes: u64,
    /// The stage that a full ring waits for: `device`, `parser`, `apply`, or empty.
    pub ring_waits_for: String,
    /// Microseconds for which the receiver waited for room in the ring, by stage.
    #[serde(default)]
    pub ring_wait_micros: BTreeMap<String, u64>,
    /// Pages with records in the log index.
    pub index_pages: u64,
    /// Record runs in the index.
    pub index_runs: u64,
    /// Tables in the index.
    pub index_tables: u64,
    /// Chain lengths of the pages in the index.
    #[serde(default)]
    pub chain_lengths: Vec<ChainClass>,
    /// Durations of page reads on the node.
    #[serde(default)]
    pub page_read_times: Times,
    /// Durations until batches of the log were durable.
    #[serde(default)]
    pub log_write_times: Times,
    /// Counters of the threads that apply redo.
    #[serde(default)]
    pub apply_workers: Vec<ApplyWorker>,
    /// Number of known files.
    pub files: u64,
    /// The first of the pages that are in quarantine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantine: Vec<QuarantinedPage>,
    /// Number of pages that are in quarantine. A file whose pages all are counts as one.
    #[serde(default)]
    pub quarantined: u64,
    /// The first plain files that the server writes and the volume does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_files: Vec<String>,
    /// The scrub of what is stored. `None`: the node is older than this field, or the volume is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<ScrubStatus>,
    /// State of the log device.
    pub log_device: LogDeviceStatus,
    /// State of the page store.
    #[serde(default)]
    pub page_store: PageStoreStatus,
    /// Counters of the node.
    pub counters: BTreeMap<String, u64>,
    /// Counters of the shim, as last reported.
    pub server_counters: BTreeMap<String, u64>,
}

/// The log device of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogDeviceStatus {
    /// `file`, `block` or `pmem`.
    pub kind: String,
    /// Write method in a few words.
    pub detail: String,
    /// Location of the log.
    pub directory: String,
    /// Alignment of records in bytes.
    pub write_unit_bytes: u64,
    /// Durable writes that can be under way at once.
    pub max_in_flight: u64,
    /// Bytes written, headers and padding included, for each byte of the stream.
    pub written_per_appended_byte: f64,
    /// Warnings for the operator, one sentence each.
    pub warnings: Vec<String>,
}

/// The page store of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageStoreStatus {
    /// Protection of pages against torn writes: `atomic`, `journal` or `doublewrite`.
    pub protection: String,
    /// Reason for this protection.
    pub reason: String,
    /// Location of the pages.
    pub pages: String,
    /// Location of the page journal.
    pub journal: String,
    /// Length of the journal.
    pub journal_len_bytes: u64,
    /// Bytes of the journal with images that are still needed.
    pub journal_live_bytes: u64,
    /// Pages whose newest image is in the journal only.
    pub pending_pages: u64,
    /// Shortest and longest write that cannot be torn; `None`: the location has none.
    pub untorn_len_bytes: Option<[u64; 2]>,
    /// Bytes of pages written to their place for each byte of redo applied.
    pub home_bytes_per_redo_byte: f64,
    /// Bytes of page images written to the journal for each byte of redo applied.
    pub journal_bytes_per_redo_byte: f64,
    /// Warnings for the operator, one sentence each.
    pub warnings: Vec<String>,
}

fn mariadb() -> String {
    redoubt_types::Family::MariaDb.name().to_owned()
}

fn is_mariadb(family: &str) -> bool {
    family == redoubt_types::Family::MariaDb.name()
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// A JSON message as payload.
///
/// # Errors
/// [`WireError::Invalid`] if it cannot be serialised, which is a bug of the caller.
pub fn encode_json<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    serde_json::to_vec(message).map_err(|error| json_error(&error))
}

/// A JSON message from a payload.
///
/// # Errors
/// [`WireError::Invalid`] for anything that is not the expected message.
pub fn decode_json<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, WireError> {
    serde_json::from_slice(payload).map_err(|error| json_error(&error))
}

fn json_error(error: &serde_json::Error) -> WireError {
    WireError::Invalid { what: "control message", field: "json", why: error.to_string() }
}

/// Payload of a data frame.
pub fn encode_data(offset_bytes: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + bytes.len());
    out.extend_from_slice(&offset_bytes.to_le_bytes());
    out.extend_from_slice(bytes);
    out
}

/// Decodes a data frame: offset and bytes, or `None` for the end of the file.
///
/// # Errors
/// [`WireError::Truncated`] if the offset is cut.
pub fn decode_data(payload: &[u8]) -> Result<Option<(u64, &[u8])>, WireError> {
    if payload.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new("data frame", payload);
    let offset_bytes = reader.u64("offset")?;
    Ok(Some((offset_bytes, reader.rest())))
}

/// Checks a relative path (see the node's rules).
///
/// # Errors
/// [`WireError::Invalid`] with the reason.
pub fn check_path(path: &[u8]) -> Result<(), WireError> {
    crate::reader::check_path(path).map_err(bad_path)
}

/// As [`check_path`], except for the length: for a path that is only a name, and perhaps of no file.
///
/// # Errors
/// As [`check_path`].
pub fn check_path_inside(path: &[u8]) -> Result<(), WireError> {
    crate::reader::check_path_inside(path).map_err(bad_path)
}

fn bad_path(why: &str) -> WireError {
    WireError::Invalid { what: "control message", field: "path", why: why.to_owned() }
}
