//! Servers that listen on a TCP port of 127.0.0.1.
//!
//! Their port is an option, and it has to be free when the server binds it. A server that finds its port taken is
//! started again with another one.

use redoubt_test_support::port::with_port;
use redoubt_workload::error::{Error, Result};
use redoubt_workload::server::{Server, ServerConfig};

/// The words of every server's log for a port that another program has.
const TAKEN: &str = "Address already in use";

/// A server of this configuration with a data directory of its own, and the port on which it listens.
///
/// # Errors
/// Those of the server's start, but for ports that are taken.
pub fn create_with_tcp(config: ServerConfig) -> Result<(Server, u16)> {
    let mut server = Server::new(config)?;
    server.install_db()?;
    let port = start_with_tcp(&mut server)?;
    Ok((server, port))
}

/// Starts a server that is not running so that it listens on the returned port.
///
/// # Errors
/// Those of the server's start, but for ports that are taken.
pub fn start_with_tcp(server: &mut Server) -> Result<u16> {
    let own = server.config().server_args.len();
    with_port(|port| {
        let arguments = &mut server.config_mut().server_args;
        arguments.truncate(own);
        arguments.extend(["--skip-networking=0".into(), "--bind-address=127.0.0.1".into()]);
        arguments.push(format!("--port={port}"));
        match server.start() {
            Ok(()) => Some(Ok(port)),
            Err(Error::Exited { log_tail, .. }) if log_tail.contains(TAKEN) => None,
            Err(error) => Some(Err(error)),
        }
    })
}
