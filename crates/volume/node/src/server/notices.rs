//! The connection on which a server gets its notices.
//!
//! Other threads write to it; the one here only waits for its end. The server sends nothing on it.

use super::accept::{accepted, welcome};
use crate::error::NodeError;
use crate::volume::Volume;
use redoubt_transport::Connection;
use redoubt_wire::greeting::Features;
use redoubt_wire::hello::Hello;
use std::io::ErrorKind;
use std::sync::Arc;

/// Serves it until it ends.
///
/// # Errors
/// The error that ended it; none if the peer closed it.
pub fn serve(
    volume: &Volume,
    hello: &Hello,
    features: Features,
    connection: &Arc<dyn Connection>,
) -> Result<(), NodeError> {
    let stream = &**connection;
    // The Welcome is sent first, followed by the notices, from whichever thread.
    let greeted = volume.attach_notices(hello, features, connection, || welcome(stream, &accepted()));
    match greeted {
        Ok(welcomed) => welcomed?,
        Err(refusal) => return welcome(stream, &refusal),
    }
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(NodeError::Refused("a server sent something on its notices connection".to_owned())),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(NodeError::io("read from", "connection", error)),
    }
}
