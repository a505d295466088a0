//! One direction of a connection as a single Zstandard frame that never ends.
//!
//! Redo repeats itself over megabytes (rows that are updated again, formats of records), and a frame of a log
//! connection is short: compressed by itself it finds little to refer to. So everything after the greeting is one
//! stream with a history of [`WINDOW_LEN_BYTES`]. [`crate::frame`] is the layer inside: its checksums, with their
//! positions, are of the decompressed bytes.
//!
//! Invariants:
//! * The output of one call of [`Compressor::pack`] can be unpacked without later bytes: the node must be able to read
//!   the last bytes that a killed server wrote.
//! * Both sides begin again with each connection. Compressed bytes are never kept for a retransmission.
//! * [`Decompressor`] has a window of at most [`WINDOW_LEN_BYTES`], whatever a peer sends, and never returns more at a
//!   time than requested.

use crate::error::WireError;
use zstd::stream::raw::{CParameter, DParameter, Decoder, Encoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::Strategy;

const WINDOW_LOG: u32 = 23;
/// How far back the stream refers, and the history that a receiver retains.
pub const WINDOW_LEN_BYTES: usize = 1 << WINDOW_LOG;

// Chosen with the redo of TPC-C, in frames of 16 KiB on average (lab/2026-11-24-log.md). The size of the table
// determines which repetitions are found; a larger one leaves the processor's cache and takes twice the time.
const PARAMETERS: [CParameter; 7] = [
    CParameter::WindowLog(WINDOW_LOG),
    CParameter::HashLog(18),
    CParameter::ChainLog(12),
    CParameter::SearchLog(1),
    CParameter::MinMatch(6),
    // Any other value leaves literals as they are.
    CParameter::TargetLength(0),
    CParameter::Strategy(Strategy::ZSTD_fast),
];
const LEVEL: i32 = 1;
/// Output space that is added at a time.
const STEP_LEN_BYTES: usize = 32 << 10;

/// The sending side.
pub struct Compressor {
    encoder: Encoder<'static>,
}

impl Compressor {
    /// A compressor for a new connection.
    ///
    /// # Errors
    /// [`WireError::Invalid`] if there is no memory for it.
    pub fn new() -> Result<Self, WireError> {
        let mut encoder = Encoder::new(LEVEL).map_err(failed)?;
        for parameter in PARAMETERS {
            encoder.set_parameter(parameter).map_err(failed)?;
        }
        Ok(Self { encoder })
    }

    /// Appends the compressed form of `bytes` to `out`, complete.
    ///
    /// # Errors
    /// [`WireError::Invalid`]: the state of the stream is unknown, and the connection must be closed.
    pub fn pack(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut input = InBuffer::around(bytes);
        while input.pos() < bytes.len() {
            with_room(out, |room| self.encoder.run(&mut input, room))?;
        }
        while with_room(out, |room| self.encoder.flush(room))? > 0 {}
        Ok(())
    }
}

fn with_room(
    out: &mut Vec<u8>,
    run: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> std::io::Result<usize>,
) -> Result<usize, WireError> {
    out.reserve(STEP_LEN_BYTES);
    let len_bytes = out.len();
    run(&mut OutBuffer::around_pos(out, len_bytes)).map_err(failed)
}

/// The receiving side.
pub struct Decompressor {
    decoder: Decoder<'static>,
}

/// Result of one step of a [`Decompressor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Consumed bytes of the input.
    pub taken_bytes: usize,
    /// Filled bytes of the output.
    pub given_bytes: usize,
}

impl Decompressor {
    /// A decompressor for a new connection. The window is allocated when its first bytes arrive.
    ///
    /// # Errors
    /// [`WireError::Invalid`] if there is no memory for it.
    pub fn new() -> Result<Self, WireError> {
        let mut decoder = Decoder::new().map_err(failed)?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).map_err(failed)?;
        Ok(Self { decoder })
    }

    /// Takes the next bytes of the connection from `input` and fills `out` from its beginning. If it fills all of
    /// `out`, there may be more without further input.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for bytes that no [`Compressor`] sends: damaged bytes, a larger window, an end.
    pub fn unpack(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, WireError> {
        let (mut taken, mut given) = (InBuffer::around(input), OutBuffer::around(out));
        loop {
            let before = (taken.pos(), given.pos());
            let wants = self.decoder.run(&mut taken, &mut given).map_err(failed)?;
            if wants == 0 {
                return Err(invalid("it ends, which only the connection does".to_owned()));
            }
            let now = (taken.pos(), given.pos());
            // A call may do less than possible.
            if now == before || given.pos() == given.capacity() {
                return Ok(Step { taken_bytes: now.0, given_bytes: now.1 });
            }
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: std::io::Error) -> WireError {
    invalid(error.to_string())
}

fn invalid(why: String) -> WireError {
    WireError::Invalid { what: "compressed connection", field: "Zstandard stream", why }
}

#[cfg(test)]
mod tests;
