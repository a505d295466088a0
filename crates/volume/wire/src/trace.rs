//! Where the time of a commit or of a page read goes.
//!
//! The clocks of server and node are not compared: each side measures durations, and the wire is what the server's
//! side waited less the node's part. Both sides take the same events for a sample, without telling each other,
//! because the choice is made from what both know ([`is_sampled`]): the end of a frame's position, or the page and
//! the need of a read.
//!
//! The server's side sends its part as an unlogged frame of the stream ([`crate::stream::StreamFrame::Trace`]); the
//! node joins the two.

use crate::Seq;
use crate::error::WireError;
use crate::page::FileId;
use crate::reader::Reader;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Samples in one frame, at most.
pub const MAX_SAMPLES: usize = 512;

const KIND_COMMIT: u8 = 1;
const KIND_READ: u8 = 2;

/// The server's part of a sample. Durations are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSample {
    /// A logged frame that a thread waited for.
    Commit {
        /// Position after the frame.
        end: Seq,
        /// From the server's write to its bytes being handed to the network.
        queue_nanos: u64,
        /// From then to the node's word that it is durable.
        answer_nanos: u64,
        /// From then to the waiting thread's going on.
        wake_nanos: u64,
    },
    /// A page read.
    Read {
        /// The file.
        file: FileId,
        /// Where in it.
        offset_bytes: u64,
        /// Required parts of the answer.
        need: Seq,
        /// Waiting for a connection.
        queue_nanos: u64,
        /// From sending the request to having the answer.
        answer_nanos: u64,
    },
}

/// Is the event with this key a sample, if one in `one_in` is to be? 0: none is.
pub const fn is_sampled(key: u64, one_in: u32) -> bool {
    match one_in {
        0 => false,
        1 => true,
        _ => {
            let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 32)).is_multiple_of(one_in as u64)
        }
    }
}

/// Key of a commit.
pub const fn commit_key(end: Seq) -> u64 {
    end.0
}

/// Key of a page read.
pub const fn read_key(file: FileId, offset_bytes: u64, need: Seq) -> u64 {
    // Offsets are multiples of a page's length, needs are not.
    need.0.wrapping_mul(31).wrapping_add(offset_bytes >> 10).wrapping_add((file.0 as u64) << 40)
}

impl ServerSample {
    /// Appends it to a payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Commit { end, queue_nanos, answer_nanos, wake_nanos } => {
                out.push(KIND_COMMIT);
                for number in [end.0, queue_nanos, answer_nanos, wake_nanos] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
            Self::Read { file, offset_bytes, need, queue_nanos, answer_nanos } => {
                out.push(KIND_READ);
                out.extend_from_slice(&file.0.to_le_bytes());
                for number in [offset_bytes, need.0, queue_nanos, answer_nanos] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
        }
    }
}

/// Decodes a payload.
///
/// # Errors
/// Any [`WireError`]: nothing of it may be used.
pub fn decode(payload: &[u8]) -> Result<Vec<ServerSample>, WireError> {
    let mut samples = Vec::new();
    let mut rest = payload;
    while !rest.is_empty() {
        if samples.len() >= MAX_SAMPLES {
            let (len_bytes, limit_bytes) = (payload.len() as u64, (MAX_SAMPLES * 37) as u64);
            return Err(WireError::TooLong { what: "trace", len_bytes, limit_bytes });
        }
        let mut reader = Reader::new("trace", rest);
        samples.push(match reader.u8("kind")? {
            KIND_COMMIT => ServerSample::Commit {
                end: Seq(reader.u64("end")?),
                queue_nanos: reader.u64("queue")?,
                answer_nanos: reader.u64("answer")?,
                wake_nanos: reader.u64("wake-up")?,
            },
            KIND_READ => ServerSample::Read {
                file: FileId(reader.u32("file")?),
                offset_bytes: reader.u64("offset")?,
                need: Seq(reader.u64("need")?),
                queue_nanos: reader.u64("queue")?,
                answer_nanos: reader.u64("answer")?,
            },
            other => {
                let why = format!("{other} is not known");
                return Err(WireError::Invalid { what: "trace", field: "kind", why });
            }
        });
        rest = reader.rest();
    }
    Ok(samples)
}

/// The stages that take time, in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// In the server, before the bytes are handed to the network: waiting for those before, packing, a full socket.
    /// Reads: waiting for a connection.
    ServerQueue,
    /// Between server and node, both ways: what the server waited less the node's part. Of a read, packing and
    /// sending the answer is in here too.
    Wire,
    /// On the node, until the log device took the bytes: a full log buffer, or the write before.
    LogBuffer,
    /// Until the bytes were durable.
    Device,
    /// From the server's side having the node's word to the waiting thread's going on.
    WakeUp,
    /// Until the stream was parsed as far as the read needs.
    Parse,
    /// Looking up the log index.
    Index,
    /// Reading the page's stored image.
    BaseRead,
    /// Applying what the index holds of it.
    Apply,
}

impl Stage {
    /// Stages of a commit.
    pub const COMMIT: [Self; 5] =
        [Self::ServerQueue, Self::Wire, Self::LogBuffer, Self::Device, Self::WakeUp];
    /// Stages of a page read.
    pub const READ: [Self; 6] =
        [Self::ServerQueue, Self::Wire, Self::Parse, Self::Index, Self::BaseRead, Self::Apply];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServerQueue => "server queue",
            Self::Wire => "wire",
            Self::LogBuffer => "log buffer",
            Self::Device => "device",
            Self::WakeUp => "wake-up",
            Self::Parse => "parse",
            Self::Index => "index",
            Self::BaseRead => "base read",
            Self::Apply => "apply",
        }
    }
}

/// A sampled operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Traced {
    /// A commit: a logged frame that a thread of the server waited for.
    Commit {
        /// Position in the stream after it.
        position: u64,
    },
    /// A page read.
    Read {
        /// The file, by its path, if it still has one.
        path: String,
        /// Where in it.
        offset_bytes: u64,
    },
}

/// A commit or a page read, and how long each stage of it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The operation.
    #[serde(flatten)]
    pub what: Traced,
    /// All stages together.
    pub total_nanos: u64,
    /// Each.
    pub stages: BTreeMap<Stage, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_samples_round_trip_and_broken_ones_are_refused() {
        let samples = [
            ServerSample::Commit { end: Seq(9), queue_nanos: 1, answer_nanos: 2, wake_nanos: 3 },
            ServerSample::Read {
                file: FileId(4),
                offset_bytes: 16384,
                need: Seq(5),
                queue_nanos: 6,
                answer_nanos: u64::MAX,
            },
        ];
        let mut payload = Vec::new();
        samples.iter().for_each(|sample| sample.encode(&mut payload));
        assert_eq!(decode(&payload).unwrap(), samples);
        for len in (1..payload.len()).filter(|len| *len != 33) {
            assert!(decode(&payload[..len]).is_err(), "{len} bytes");
        }
        assert!(decode(&[7]).is_err());
        assert!(decode(&payload[..33].repeat(MAX_SAMPLES)).is_ok());
        assert!(decode(&payload[..33].repeat(MAX_SAMPLES + 1)).is_err());
    }

    #[test]
    fn about_one_in_so_many_is_a_sample() {
        let reads = |one_in| {
            let keys = (0..4096u64)
                .flat_map(|page| (0..4).map(move |turn| (page * 16384, Seq(1_000_003 * turn + 77))));
            keys.filter(|&(offset, need)| is_sampled(read_key(FileId(3), offset, need), one_in)).count()
        };
        assert_eq!(reads(0), 0);
        assert_eq!(reads(1), 4 * 4096);
        for one_in in [2u32, 10, 64] {
            let expected = 4 * 4096 / one_in as usize;
            let found = reads(one_in);
            assert!(found > expected / 2 && found < expected * 2, "{found} of about {expected}");
        }
    }
}
