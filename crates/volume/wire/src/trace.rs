//! Timing of commits and page reads by stage.
//!
//! The clocks of server and node are not compared: each side measures durations. The wire's time is the server's wait
//! less the node's part. Both sides sample the same events without a message, because the choice depends on data that
//! both have ([`is_sampled`]): the end of a frame's position, or the page and the need of a read.
//!
//! The server's side sends its part as an unlogged frame of the stream ([`crate::stream::StreamFrame::Trace`]); the
//! node joins the two.

use crate::Seq;
use crate::error::WireError;
use crate::page::FileId;
use crate::reader::Reader;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limit of samples in one frame.
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
        /// From the server's write until its bytes are passed to the network.
        queue_nanos: u64,
        /// From then until the node's confirmation that it is durable.
        answer_nanos: u64,
        /// From then until the waiting thread continues.
        wake_nanos: u64,
    },
    /// A page read.
    Read {
        /// The file.
        file: FileId,
        /// Offset in the file.
        offset_bytes: u64,
        /// Required parts of the answer.
        need: Seq,
        /// Waiting for a connection.
        queue_nanos: u64,
        /// From sending the request until the answer is there.
        answer_nanos: u64,
    },
}

/// Whether the event with this key is sampled, at one in `one_in`; 0: none.
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
    /// Appends the sample to a payload.
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
/// Any [`WireError`]: no part of the payload may be used.
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
    /// In the server, before the bytes are passed to the network: waiting for earlier bytes, packing, a full socket.
    /// Reads: waiting for a connection.
    ServerQueue,
    /// Between server and node, both ways: the server's wait less the node's part. For a read, this includes packing
    /// and sending the answer.
    Wire,
    /// On the node, until the log device accepted the bytes: a full log buffer, or the previous write.
    LogBuffer,
    /// Until the bytes were durable.
    Device,
    /// From the arrival of the node's confirmation at the server until the waiting thread continues.
    WakeUp,
    /// Until the stream was parsed as far as the read needs.
    Parse,
    /// Looking up the log index.
    Index,
    /// Reading the page's stored image.
    BaseRead,
    /// Applying the page's records in the index.
    Apply,
}

impl Stage {
    /// Stages of a commit.
    pub const COMMIT: [Self; 5] =
        [Self::ServerQueue, Self::Wire, Self::LogBuffer, Self::Device, Self::WakeUp];
    /// Stages of a page read.
    pub const READ: [Self; 6] =
        [Self::ServerQueue, Self::Wire, Self::Parse, Self::Index, Self::BaseRead, Self::Apply];

    /// Name of the stage, for people.
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
        /// Position in the stream after the frame.
        position: u64,
    },
    /// A page read.
    Read {
        /// The file, by its path, if it still has one.
        path: String,
        /// Offset in the file.
        offset_bytes: u64,
    },
}

/// A commit or a page read with the duration of each stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The operation.
    #[serde(flatten)]
    pub what: Traced,
    /// Sum of all stages.
    pub total_nanos: u64,
    /// Duration of each stage.
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
