//! The connections to the storage node: the ordered log connection with its notices ([`stream`]), and those of page
//! requests ([`pool`]), over [`link`]. Frames and requests are bytes here; the layers above interpret them.

pub mod link;
pub mod pool;
pub mod stream;
pub mod trace;
pub mod unsent_file;
pub mod wanted_pages;

use crate::base::config::Config;
use crate::base::real;
use link::{GREETING_TIMEOUT, Peer, SILENT_PEER_TIMEOUT};
use redoubt_transport::{ClientTls, Connector};
use redoubt_wire::greeting::ANNOUNCED;
use std::sync::Arc;
use stream::StreamConfig;

/// Exit status of a server whose stream has died, equal to that of a server that could not start. So a service
/// manager that restarts on failure restarts it, too.
const STATUS_OF_END: i32 = 1;

/// Configuration of a new session's stream.
pub fn new_session(config: &Config, tls: Option<Arc<ClientTls>>) -> StreamConfig {
    let connector = Connector {
        address: config.node.clone(),
        tls,
        silence_limit: Some(SILENT_PEER_TIMEOUT),
        local_socket: config.local_socket,
    };
    let peer = Peer {
        connector,
        greeting_timeout: GREETING_TIMEOUT.min(config.timeout),
        volume: config.volume.clone(),
        generation: config.generation,
        session: fastrand::u64(1..),
        compression: config.compress,
        announced: ANNOUNCED.requiring(config.required_features),
    };
    StreamConfig {
        peer,
        timeout: config.timeout,
        system_files: config.system_files.clone(),
        datadir: config.datadir.clone(),
        // Not a signal: the server would treat it as a crash of its own, and answer while it writes a backtrace.
        end_server: || real::exit_now(STATUS_OF_END),
    }
}
