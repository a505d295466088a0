//! Tells the service manager that a node is ready, or stops: systemd's `Type=notify`.
//!
//! A datagram to the socket that `NOTIFY_SOCKET` names; without that variable nothing happens. An unreachable service
//! manager is no reason not to serve, so failures are logged only.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// Connections are accepted from now on. `status` is shown by `systemctl status`.
pub fn ready(status: &str) {
    send(&format!("READY=1\nSTATUS={status}"));
}

/// The node is on its way out.
pub fn stopping() {
    send("STOPPING=1");
}

fn send(message: &str) {
    let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return };
    let sent = address(name.as_bytes()).and_then(|address| {
        UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(message.as_bytes(), &address))
    });
    if let Err(error) = sent {
        tracing::warn!(
            event = "notify_failed",
            "cannot notify the service manager at {}: {error}",
            name.to_string_lossy()
        );
    }
}

/// `@` stands for the zero byte of a name outside of the file system.
fn address(name: &[u8]) -> std::io::Result<SocketAddr> {
    match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
    }
}
