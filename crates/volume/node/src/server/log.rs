//! The log connection of a server. Nothing but the Welcome is ever written to it; see [`redoubt_wire::notice`] for why.

use super::accept::welcome;
use super::io::FrameReader;
use crate::error::NodeError;
use crate::volume::{Received, Volume};
use redoubt_transport::Connection;
use redoubt_wire::MAX_PAYLOAD_LEN_BYTES;
use redoubt_wire::hello::{Compression, Hello};

/// Serves it until it ends.
///
/// # Errors
/// The error that ended it; none if the peer closed it.
pub fn serve(volume: &Volume, hello: &Hello, stream: &dyn Connection) -> Result<(), NodeError> {
    let accepted = match volume.accept_log(hello) {
        Ok(accepted) => accepted,
        Err(refusal) => return welcome(stream, &refusal),
    };
    let _connected = Connected { volume, connection: accepted.connection };
    welcome(stream, &accepted.welcome)?;
    let reader = match accepted.welcome.compression {
        Compression::On => FrameReader::compressed(stream)?,
        Compression::Auto => FrameReader::in_parts(stream),
        Compression::Off => FrameReader::new(stream),
    };
    receive(volume, accepted.connection, reader)
}

/// Disconnects from the volume, however serving ends.
struct Connected<'v> {
    volume: &'v Volume,
    connection: u64,
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.volume.disconnected(self.connection);
    }
}

fn receive(volume: &Volume, connection: u64, mut reader: FrameReader<'_>) -> Result<(), NodeError> {
    while let Some(frame) = reader.next(MAX_PAYLOAD_LEN_BYTES)? {
        if volume.receive(connection, frame)? == Received::NotCurrent {
            return Ok(());
        }
        // Frames that arrived together are written together.
        if !reader.has_whole_frame() {
            volume.write_received()?;
        }
    }
    Ok(())
}
