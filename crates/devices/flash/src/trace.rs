//! The trace file: which sectors were written or trimmed, in which order, and by what.
//!
//! Layout, integers little-endian:
//!
//! | offset | length | header |
//! |---|---|---|
//! | 0 | 8 | `RDTRACE1` |
//! | 8 | 4 | length of a record: 24 |
//! | 12 | 4 | zero |
//!
//! | offset | length | record |
//! |---|---|---|
//! | 0 | 8 | time since the start of the trace, in microseconds |
//! | 8 | 8 | first sector, of 512 bytes |
//! | 16 | 4 | number of sectors; of a mark: transactions committed since the mark before |
//! | 20 | 1 | [`Op`] |
//! | 21 | 1 | [`Origin`] |
//! | 22 | 2 | zero |
//!
//! Records are in the order in which the device got them. Times are for people: the model uses the order alone, and a
//! reader does not require that they rise. A trace of several devices is one address space: the recorder gives each
//! device its own range of sectors.
//!
//! Beside `NAME.trace` lies `NAME.json`, a [`TraceInfo`]. Three of its fields place a trace in the table that
//! `redoubt-flash table` makes: `row`, the name of the row; `streams`, the stream policies to run it under
//! (`one`, `journal`, `journal+redo`, `doublewrite`, `all`); `journal_mb`, the size of the page journal.
//!
//! Decoding accepts exactly what encoding writes; everything else is a [`TraceError`] with its offset.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// First bytes of a trace file.
pub const MAGIC: [u8; 8] = *b"RDTRACE1";
/// Length of the header, in bytes.
pub const HEADER_LEN_BYTES: usize = 16;
/// Length of a record, in bytes.
pub const RECORD_LEN_BYTES: usize = 24;
/// Length of a sector, in bytes.
pub const SECTOR_LEN_BYTES: u64 = 512;

/// The action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Op {
    /// Sectors were written.
    Write = 0,
    /// Sectors were declared unused (TRIM, discard, deallocate).
    Trim = 1,
    /// The drive's write cache was flushed. Its sectors mean nothing.
    Flush = 2,
    /// Nothing was done to the device: `sectors` transactions have committed since the mark before.
    Mark = 3,
}

impl Op {
    fn from_code(code: u8) -> Option<Op> {
        [Op::Write, Op::Trim, Op::Flush, Op::Mark].get(usize::from(code)).copied()
    }
}

/// Content of the sectors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Origin {
    /// A file system's own blocks, superblocks, directories.
    Metadata = 0,
    /// The redo log.
    Redo = 1,
    /// The doublewrite area.
    Doublewrite = 2,
    /// A page journal, or the data journal of a file system.
    Journal = 3,
    /// Pages in their place.
    Data = 4,
    /// Other files: binary log, error log.
    Other = 5,
    /// Pages in their place that are known to be written often.
    DataHot = 6,
}

impl Origin {
    /// Every origin, by its code.
    pub const ALL: [Origin; 7] = [
        Origin::Metadata,
        Origin::Redo,
        Origin::Doublewrite,
        Origin::Journal,
        Origin::Data,
        Origin::Other,
        Origin::DataHot,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Metadata => "metadata",
            Origin::Redo => "redo",
            Origin::Doublewrite => "doublewrite",
            Origin::Journal => "journal",
            Origin::Data => "data",
            Origin::Other => "other",
            Origin::DataHot => "data-hot",
        }
    }

    fn from_code(code: u8) -> Option<Origin> {
        Origin::ALL.get(usize::from(code)).copied()
    }
}

/// One line of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Time since the start of the trace, in microseconds.
    pub time_us: u64,
    /// First sector, of 512 bytes.
    pub sector: u64,
    /// Number of sectors, of 512 bytes; of a mark: number of committed transactions.
    pub sectors: u32,
    /// The action.
    pub op: Op,
    /// Content of the sectors.
    pub origin: Origin,
}

impl Record {
    /// Is it one that a trace may hold? A write or trim has at least one sector and ends before 2^64 sectors.
    fn check(&self) -> std::result::Result<(), String> {
        if !matches!(self.op, Op::Write | Op::Trim) {
            return Ok(());
        }
        if self.sectors == 0 {
            return Err("a write or trim of no sectors".into());
        }
        if self.sector.checked_add(u64::from(self.sectors)).is_none() {
            return Err(format!("sectors {} + {} end after 2^64", self.sector, self.sectors));
        }
        Ok(())
    }

    /// Its bytes in a trace.
    pub fn encode(&self) -> [u8; RECORD_LEN_BYTES] {
        let mut bytes = [0; RECORD_LEN_BYTES];
        bytes[0..8].copy_from_slice(&self.time_us.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sector.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.sectors.to_le_bytes());
        bytes[20] = self.op as u8;
        bytes[21] = self.origin as u8;
        bytes
    }

    /// Reads the bytes of a record. The error says what is wrong with them.
    pub fn decode(bytes: &[u8; RECORD_LEN_BYTES]) -> std::result::Result<Record, String> {
        let [
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            t6,
            t7,
            s0,
            s1,
            s2,
            s3,
            s4,
            s5,
            s6,
            s7,
            n0,
            n1,
            n2,
            n3,
            op,
            origin,
            z0,
            z1,
        ] = *bytes;
        let record = Record {
            time_us: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            sector: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            sectors: u32::from_le_bytes([n0, n1, n2, n3]),
            op: Op::from_code(op).ok_or_else(|| format!("operation {op} is not known (0 to 3 are)"))?,
            origin: Origin::from_code(origin)
                .ok_or_else(|| format!("origin {origin} is not known (0 to 6 are)"))?,
        };
        if (z0, z1) != (0, 0) {
            return Err("its last two bytes are not zero".into());
        }
        record.check()?;
        Ok(record)
    }
}

/// Why bytes are not a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The first bytes are not those of a trace.
    #[error("not a trace: {what}; redoubt-flash reads files that begin with RDTRACE1")]
    Header {
        /// The defect.
        what: String,
    },
    /// A record is not valid.
    #[error("record {index} at offset {offset_bytes}: {what}; the file is damaged or of a newer version")]
    Record {
        /// Number of the record, from 0.
        index: u64,
        /// Its place in the file, in bytes.
        offset_bytes: u64,
        /// The defect.
        what: String,
    },
    /// The file ends inside a record: its writer did not finish.
    #[error(
        "the file ends inside record {index} at offset {offset_bytes}: its writer did not finish; record it again"
    )]
    Truncated {
        /// Number of the record, from 0.
        index: u64,
        /// Its place in the file, in bytes.
        offset_bytes: u64,
    },
    /// The system failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Writes a trace.
///
/// ```
/// use redoubt_flash::trace::{Op, Origin, Record, TraceReader, TraceWriter};
///
/// let mut writer = TraceWriter::new(Vec::new())?;
/// let record = Record { time_us: 7, sector: 8, sectors: 32, op: Op::Write, origin: Origin::Data };
/// writer.write(&record)?;
/// let bytes = writer.finish()?;
/// let mut reader = TraceReader::new(bytes.as_slice())?;
/// assert_eq!(reader.next().transpose()?, Some(record));
/// # Ok::<(), redoubt_flash::trace::TraceError>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    records: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace with its header. `out` should be buffered.
    pub fn new(mut out: W) -> std::result::Result<Self, TraceError> {
        out.write_all(&MAGIC)?;
        out.write_all(&(RECORD_LEN_BYTES as u32).to_le_bytes())?;
        out.write_all(&[0; 4])?;
        Ok(TraceWriter { out, records: 0 })
    }

    /// Adds a record. A record that a reader would reject is rejected here.
    pub fn write(&mut self, record: &Record) -> std::result::Result<(), TraceError> {
        record.check().map_err(|what| TraceError::Record {
            index: self.records,
            offset_bytes: offset_bytes(self.records),
            what,
        })?;
        self.out.write_all(&record.encode())?;
        self.records += 1;
        Ok(())
    }

    /// Number of records written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Hands everything to the system and gives back what it wrote to.
    pub fn finish(mut self) -> std::result::Result<W, TraceError> {
        self.out.flush()?;
        Ok(self.out)
    }
}

impl TraceWriter<BufWriter<File>> {
    /// Starts a trace in a file, which is emptied if it exists.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|source| Error::file(path, source))?;
        TraceWriter::new(BufWriter::with_capacity(1 << 20, file))
            .map_err(|source| Error::Trace { path: path.to_owned(), source })
    }
}

/// Place of a record in a file, in bytes.
fn offset_bytes(record: u64) -> u64 {
    HEADER_LEN_BYTES as u64 + record.saturating_mul(RECORD_LEN_BYTES as u64)
}

/// Reads a trace, record by record. After an error it ends.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    input: R,
    records: u64,
    failed: bool,
}

impl<R: Read> TraceReader<R> {
    /// Reads the header. `input` should be buffered.
    pub fn new(mut input: R) -> std::result::Result<Self, TraceError> {
        let mut header = [0; HEADER_LEN_BYTES];
        let len = read_up_to(&mut input, &mut header)?;
        let wrong = |what: String| Err(TraceError::Header { what });
        if len < HEADER_LEN_BYTES {
            return wrong(format!("it has {len} bytes, a header has {HEADER_LEN_BYTES}"));
        }
        let [m0, m1, m2, m3, m4, m5, m6, m7, l0, l1, l2, l3, z0, z1, z2, z3] = header;
        if header.starts_with(b"RDTRACE") && m7 != b'1' {
            return wrong(format!(
                "it is of version {}, and this program knows version 1: use the `redoubt-flash` that wrote it, or record it again",
                char::from(m7)
            ));
        }
        if [m0, m1, m2, m3, m4, m5, m6, m7] != MAGIC {
            return wrong("it begins with other bytes".into());
        }
        let record_len = u32::from_le_bytes([l0, l1, l2, l3]);
        if record_len as usize != RECORD_LEN_BYTES {
            return wrong(format!("its records have {record_len} bytes, not {RECORD_LEN_BYTES}"));
        }
        if [z0, z1, z2, z3] != [0; 4] {
            return wrong("the last four bytes of its header are not zero".into());
        }
        Ok(TraceReader { input, records: 0, failed: false })
    }

    fn read_record(&mut self) -> std::result::Result<Option<Record>, TraceError> {
        let mut bytes = [0; RECORD_LEN_BYTES];
        let (index, offset_bytes) = (self.records, offset_bytes(self.records));
        match read_up_to(&mut self.input, &mut bytes)? {
            0 => return Ok(None),
            RECORD_LEN_BYTES => {}
            _ => return Err(TraceError::Truncated { index, offset_bytes }),
        }
        let record =
            Record::decode(&bytes).map_err(|what| TraceError::Record { index, offset_bytes, what })?;
        self.records += 1;
        Ok(Some(record))
    }
}

impl TraceReader<BufReader<File>> {
    /// Opens a trace file and reads its header.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::file(path, source))?;
        TraceReader::new(BufReader::with_capacity(1 << 20, file))
            .map_err(|source| Error::Trace { path: path.to_owned(), source })
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = std::result::Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.read_record().transpose();
        self.failed = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Fills `bytes` as far as the input goes and says how far that was.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Description of a trace: the JSON file beside it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceInfo {
    /// Name of the trace in tables and plots.
    pub label: String,
    /// Size of the traced address space, in sectors of 512 bytes.
    pub device_sectors: u64,
    /// Transactions committed while it was recorded. Marks in the trace, where there are any, go before it.
    pub transactions: u64,
    /// How long it was recorded, in seconds.
    pub seconds: f64,
    /// Length of a database page, in bytes.
    pub page_len_bytes: u64,
    /// Page writes that the server or the node requested: each flush of a page counts once, however often its bytes
    /// then go to the device. Without it, bytes written in place divided by the length of a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages_written: Option<u64>,
    /// Row of the table that `redoubt-flash table` makes. Without it the trace takes no part in the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// Stream policies to run it under in the table: `one`, `journal`, `journal+redo`, `doublewrite`, `all`.
    /// Empty: `one`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<String>,
    /// Size of the page journal or of the file system's data journal, in MB (2^20 bytes). None: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_mb: Option<u64>,
    /// Notes for readers: server, file system, pool, versions, load.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub description: BTreeMap<String, String>,
}

impl TraceInfo {
    /// Where the description of a trace lies: `NAME.trace` has it in `NAME.json`.
    pub fn path_of(trace: &Path) -> PathBuf {
        trace.with_extension("json")
    }

    /// Reads the description of the trace `trace`.
    pub fn load(trace: &Path) -> Result<TraceInfo> {
        let path = TraceInfo::path_of(trace);
        let text = fs::read(&path).map_err(|source| Error::file(&path, source))?;
        serde_json::from_slice(&text).map_err(|source| Error::Description { path, source })
    }

    /// Writes the description of the trace `trace`.
    pub fn save(&self, trace: &Path) -> Result<()> {
        let path = TraceInfo::path_of(trace);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|source| Error::Description { path: path.clone(), source })?;
        text.push(b'\n');
        fs::write(&path, text).map_err(|source| Error::file(&path, source))
    }
}

#[cfg(test)]
mod tests;
